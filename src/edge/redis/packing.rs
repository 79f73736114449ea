//! The bytes that go to `lua/admit.lua`; its header says what they are.

use super::plan::Planned;
use crate::domain::{
    admit::{Ask, CapQuery},
    class::{Campaign, Filter, Kind, KindTable},
    decide::{MAX_AHEAD_MS, Record, Scope},
    history::{EPOCH_MS, MAX_ENTRY_MS},
    time::Time,
    window::Window,
};

/// A send's class, in numbers.
pub(super) type ClassNumbers = (Kind, Campaign);

/// A time as the script counts it: ms since 2020, kept to what an entry can hold with room for the entries
/// that may be ahead.
pub(super) fn script_time(time: Time) -> u64 {
    let millis = (time.millis() - EPOCH_MS).clamp(0, MAX_ENTRY_MS - MAX_AHEAD_MS);
    millis.cast_unsigned()
}

fn put_u16(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes());
}

fn put_u48(out: &mut Vec<u8>, number: i64) {
    let number = number.clamp(0, (1 << 48) - 1).cast_unsigned();
    out.extend_from_slice(&number.to_be_bytes()[2..]);
}

/// Bit k of byte k/8 for each kind that a filter speaks of; nothing behind the last one.
fn bits_of(kinds: impl Iterator<Item = Kind>) -> Vec<u8> {
    let mut bits = Vec::new();
    for Kind(number) in kinds.filter(|kind| *kind != Kind::OVERFLOW) {
        let (at, bit) = (usize::from(number / 8), number % 8);
        if bits.len() <= at {
            bits.resize(at + 1, 0);
        }
        bits[at] |= 1 << bit;
    }
    bits
}

/// The cap sets of a batch, ready to be put into calls.
pub(super) struct CapSets {
    known: usize,
    bitmaps: Vec<Vec<u8>>,
    sets: Vec<Vec<PackedCap>>,
}

struct PackedCap {
    /// Which bitmap, if not all kinds count.
    bitmap: Option<usize>,
    shape: u8,
    numbers: Vec<u8>,
}

impl PackedCap {
    fn new(cap: &CapQuery, bitmap: Option<usize>) -> Self {
        let (calendar, times) = match cap.window {
            Window::Sliding { length_ms } => (0, [length_ms, 0, 0]),
            Window::Calendar { start, next, after } => (1, [start, next, after].map(|at| at.millis() - EPOCH_MS)),
        };
        let same = match cap.scope {
            Scope::Every => 0,
            Scope::SameCampaign => 2,
        };
        let mut numbers = cap.limit.to_be_bytes().to_vec();
        times.into_iter().for_each(|time| put_u48(&mut numbers, time));
        Self { bitmap, shape: calendar + same, numbers }
    }
}

impl CapSets {
    /// Packs the sets for the kinds known now.
    pub(super) fn new(sets: &[Vec<CapQuery>], kinds: &KindTable) -> Self {
        let mut filters: Vec<&Filter> = Vec::new();
        let mut bitmaps = Vec::new();
        let mut packed = Vec::with_capacity(sets.len());
        for set in sets {
            let mut caps = Vec::with_capacity(set.len());
            for cap in set {
                let bitmap = kinds.matching(&cap.filter).map(|matching| {
                    filters.iter().position(|known| **known == *cap.filter).unwrap_or_else(|| {
                        filters.push(&cap.filter);
                        bitmaps.push(bits_of(matching.into_iter()));
                        bitmaps.len() - 1
                    })
                });
                caps.push(PackedCap::new(cap, bitmap));
            }
            packed.push(caps);
        }
        Self { known: kinds.len(), bitmaps, sets: packed }
    }

    /// The cap sets that these sends ask for, as one argument, and the number of each within it.
    fn pack(&self, sends: &[Planned], asks: &[Ask<'_>]) -> (Vec<u8>, Vec<usize>) {
        let mut wanted: Vec<usize> = sends.iter().map(|send| asks[send.ask].cap_set).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let caps = || wanted.iter().flat_map(|set| &self.sets[*set]);
        let mut bitmaps: Vec<usize> = caps().filter_map(|cap| cap.bitmap).collect();
        bitmaps.sort_unstable();
        bitmaps.dedup();
        let mut out = Vec::with_capacity(8 + 26 * caps().count());
        put_u16(&mut out, self.known);
        put_u16(&mut out, bitmaps.len());
        for bitmap in &bitmaps {
            put_u16(&mut out, self.bitmaps[*bitmap].len());
            out.extend_from_slice(&self.bitmaps[*bitmap]);
        }
        put_u16(&mut out, wanted.len());
        for set in &wanted {
            let caps = &self.sets[*set];
            out.push(u8::try_from(caps.len()).unwrap_or(u8::MAX));
            for cap in caps {
                let filter = cap.bitmap.and_then(|bitmap| bitmaps.binary_search(&bitmap).ok());
                out.push(cap.shape);
                put_u16(&mut out, filter.map_or(0, |filter| filter + 1));
                out.extend_from_slice(&cap.numbers);
            }
        }
        (out, wanted)
    }
}

/// The last two arguments of one call: cap sets and items. `sends` are in the order of bucket, user, batch.
pub(super) fn pack_call(
    sets: &CapSets,
    sends: &[Planned],
    asks: &[Ask<'_>],
    numbers: &[Option<ClassNumbers>],
) -> (Vec<u8>, Vec<u8>) {
    let (packed_sets, wanted) = sets.pack(sends, asks);
    let mut items = Vec::with_capacity(sends.len() * 30);
    for bucket in sends.chunk_by(|a, b| a.place.bucket == b.place.bucket) {
        let users = || bucket.chunk_by(|a, b| a.place.field == b.place.field);
        put_u16(&mut items, users().count());
        users().for_each(|user| items.extend_from_slice(&user[0].place.field));
        for user in users() {
            put_u16(&mut items, user.len());
            for send in user {
                let ask = &asks[send.ask];
                put_u16(&mut items, wanted.binary_search(&ask.cap_set).unwrap_or_default());
                pack_send(&mut items, ask, numbers[send.ask].unwrap_or_default());
            }
        }
    }
    (packed_sets, items)
}

fn pack_send(out: &mut Vec<u8>, ask: &Ask<'_>, (kind, campaign): ClassNumbers) {
    out.push(match ask.record {
        Record::IfAllowed => 0,
        Record::Always => 1,
    });
    out.extend_from_slice(&ask.id.0.to_be_bytes()[2..]);
    out.extend_from_slice(&ask.origin.0.to_be_bytes()[1..]);
    out.extend_from_slice(&kind.0.to_be_bytes());
    out.extend_from_slice(&campaign.0.to_be_bytes()[1..]);
    out.push(ask.cost);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_has_the_kinds_and_leaves_out_the_overflow() {
        let kinds = [Kind(0), Kind(3), Kind(8), Kind(17), Kind::OVERFLOW];
        assert_eq!(bits_of(kinds.into_iter()), [0b1001, 1, 0b10]);
    }

    #[test]
    fn clocks_beyond_what_an_entry_holds_are_moved_to_what_it_does() {
        let millis = |year: i64| Time::default().plus((year - 1970) * 31_557_600_000);
        assert_eq!(script_time(millis(1990)), 0);
        assert_eq!(i64::try_from(script_time(millis(3000))), Ok(MAX_ENTRY_MS - MAX_AHEAD_MS));
    }
}
