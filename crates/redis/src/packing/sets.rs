//! Cap sets as the script reads them, and the ways to ask that one call has of them.

use weir_core::{
    admit::{Ask, CapQuery},
    class::{Filter, Kind, KindTable},
    decide::{Record, Scope},
    history::{ENTRY_BYTES, EPOCH_MS},
    window::Window,
};

use super::{Terms, msgpack::put_integer, put_count, put_u16, put_u48};

/// The most caps of a set that the script looks at without a walk: beyond, counting is no dearer.
const MAX_SIMPLE_CAPS: usize = 8;

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
pub(crate) struct CapSets {
    known: usize,
    bitmaps: Vec<Vec<u8>>,
    sets: Vec<PackedSet>,
}

struct PackedSet {
    caps: Vec<PackedCap>,
    /// Limits and lengths, in milliseconds, where the set can be that of a simple way.
    simple: Option<Vec<(u32, i64)>>,
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

/// Limits and lengths of caps that the script can look at without a walk: few, sliding, on all kinds and campaigns.
fn simple(caps: &[CapQuery]) -> Option<Vec<(u32, i64)>> {
    if caps.len() > MAX_SIMPLE_CAPS {
        return None;
    }
    let of = |cap: &CapQuery| match (cap.window, cap.scope) {
        (Window::Sliding { length_ms }, Scope::Every) if cap.filter.is_everything() => Some((cap.limit, length_ms)),
        (Window::Sliding { .. } | Window::Calendar { .. }, Scope::Every | Scope::SameCampaign) => None,
    };
    caps.iter().map(of).collect()
}

impl CapSets {
    /// Packs the sets for the kinds known now.
    pub(crate) fn new(sets: &[Vec<CapQuery>], kinds: &KindTable) -> Self {
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
            packed.push(PackedSet { caps, simple: simple(set) });
        }
        Self { known: kinds.len(), bitmaps, sets: packed }
    }
}

/// Whether a send may be decided without a walk, as far as it and its caps go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    Unneeded,
    Needed,
}

/// The ways to ask of one call: the sends name them by their places among the numbers of its terms.
pub(super) struct Ways<'s> {
    all: &'s CapSets,
    terms: &'s Terms,
    ways: Vec<Way>,
}

struct Way {
    set: usize,
    record: Record,
    walk: Walk,
    place: i64,
}

/// Where the first way is, from 1.
const FIRST_PLACE: i64 = 7;
/// Numbers of a way before those of its caps.
const WAY_NUMBERS: i64 = 4;
/// What a limit of so many sends is in bytes of a history.
fn in_bytes(limit: u32) -> i64 {
    i64::from(limit) * ENTRY_BYTES as i64
}

impl<'s> Ways<'s> {
    pub(super) fn new(all: &'s CapSets, terms: &'s Terms) -> Self {
        Self { all, terms, ways: Vec::new() }
    }

    /// Whether a send may be decided without a walk, as far as it and its caps go.
    pub(super) fn is_simple(&self, ask: &Ask<'_>) -> bool {
        ask.cost == 1 && self.all.sets[ask.cap_set].simple.is_some()
    }

    /// The place of a send's way; `simple`: whether all sends of its user are.
    pub(super) fn place(&mut self, ask: &Ask<'_>, simple: bool) -> i64 {
        let walk = if simple { Walk::Unneeded } else { Walk::Needed };
        let is = |way: &&Way| way.set == ask.cap_set && way.record == ask.record && way.walk == walk;
        if let Some(known) = self.ways.iter().find(is) {
            return known.place;
        }
        let place = self.ways.last().map_or(FIRST_PLACE, |last| self.last_place(last) + 1);
        self.ways.push(Way { set: ask.cap_set, record: ask.record, walk, place });
        place
    }

    /// The caps of a simple way.
    fn caps(&self, way: &Way) -> &'s [(u32, i64)] {
        match (&self.all.sets[way.set].simple, way.walk) {
            (Some(caps), Walk::Unneeded) => caps,
            (_, Walk::Needed) | (None, Walk::Unneeded) => &[],
        }
    }

    /// The place of a way's last number.
    fn last_place(&self, way: &Way) -> i64 {
        way.place + WAY_NUMBERS - 1 + 2 * i64::try_from(self.caps(way).len()).unwrap_or(0)
    }

    /// The arguments of the script: terms and ways, and the cap sets that are asked for.
    pub(super) fn pack(&self) -> (Vec<u8>, Vec<u8>) {
        let mut wanted: Vec<usize> = self.ways.iter().map(|way| way.set).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut out = self.terms.pack();
        for way in &self.ways {
            let least = match way.walk {
                Walk::Unneeded => self.caps(way).iter().map(|(limit, _)| *limit).min().unwrap_or(u32::MAX),
                Walk::Needed => 0,
            };
            put_integer(&mut out, in_bytes(least));
            let set = wanted.binary_search(&way.set).unwrap_or_default() + 1;
            put_integer(&mut out, i64::try_from(set).unwrap_or(0));
            put_integer(
                &mut out,
                match way.record {
                    Record::IfAllowed => 0,
                    Record::Always => 1,
                },
            );
            put_integer(&mut out, self.last_place(way));
            for &(limit, length_ms) in self.caps(way) {
                put_integer(&mut out, in_bytes(limit));
                put_integer(&mut out, length_ms);
            }
        }
        (out, self.all.pack(&wanted))
    }
}

impl CapSets {
    /// These sets, ascending, as the script's general part reads them.
    fn pack(&self, wanted: &[usize]) -> Vec<u8> {
        let caps = || wanted.iter().flat_map(|set| &self.sets[*set].caps);
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
        for set in wanted {
            let caps = &self.sets[*set].caps;
            put_count(&mut out, caps.len());
            for cap in caps {
                let filter = cap.bitmap.and_then(|bitmap| bitmaps.binary_search(&bitmap).ok());
                out.push(cap.shape);
                put_u16(&mut out, filter.map_or(0, |filter| filter + 1));
                out.extend_from_slice(&cap.numbers);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_has_the_kinds_and_leaves_out_the_overflow() {
        let kinds = [Kind(0), Kind(3), Kind(8), Kind(17), Kind::OVERFLOW];
        assert_eq!(bits_of(kinds.into_iter()), [0b1001, 1, 0b10]);
    }
}
