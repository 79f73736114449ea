//! Cap sets as the script reads them, and the ways to ask that one call has of them.

use super::{put_count, put_u16, put_u48};
use crate::domain::{
    admit::{Ask, CapQuery},
    class::{Filter, Kind, KindTable},
    decide::{Record, Scope},
    history::EPOCH_MS,
    window::Window,
};

/// The most caps of a set that the script looks at without a walk: beyond, counting is no dearer.
const MAX_SIMPLE_CAPS: usize = 8;
/// Where the number of caps of a simple way would be: it is none.
const NOT_SIMPLE: u8 = u8::MAX;

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
pub(in crate::edge::redis) struct CapSets {
    known: usize,
    bitmaps: Vec<Vec<u8>>,
    sets: Vec<PackedSet>,
}

struct PackedSet {
    caps: Vec<PackedCap>,
    /// The set as a simple way has it, where it can be one.
    simple: Option<Vec<u8>>,
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

/// Caps that the script can look at without a walk: few, sliding, on all kinds and campaigns.
fn simple(caps: &[CapQuery]) -> Option<Vec<u8>> {
    if caps.len() > MAX_SIMPLE_CAPS {
        return None;
    }
    let least = caps.iter().map(|cap| cap.limit).min().unwrap_or(u32::MAX);
    let mut packed = Vec::with_capacity(5 + 10 * caps.len());
    put_count(&mut packed, caps.len());
    packed.extend_from_slice(&least.to_be_bytes());
    for cap in caps {
        let (Window::Sliding { length_ms }, Scope::Every, true) = (cap.window, cap.scope, cap.filter.is_everything())
        else {
            return None;
        };
        packed.extend_from_slice(&cap.limit.to_be_bytes());
        put_u48(&mut packed, length_ms);
    }
    Some(packed)
}

impl CapSets {
    /// Packs the sets for the kinds known now.
    pub(in crate::edge::redis) fn new(sets: &[Vec<CapQuery>], kinds: &KindTable) -> Self {
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

/// The ways to ask of one call: in their order the sends name them by number.
pub(super) struct Ways<'s> {
    all: &'s CapSets,
    ways: Vec<(usize, Record, Walk)>,
}

impl<'s> Ways<'s> {
    pub(super) fn new(all: &'s CapSets) -> Self {
        Self { all, ways: Vec::new() }
    }

    /// The number of a send's way. There are no more ways than sends in a call, and those are at most 256.
    pub(super) fn number(&mut self, ask: &Ask<'_>) -> u8 {
        let simple = ask.cost == 1 && self.all.sets[ask.cap_set].simple.is_some();
        let way = (ask.cap_set, ask.record, if simple { Walk::Unneeded } else { Walk::Needed });
        let number = self.ways.iter().position(|known| *known == way).unwrap_or_else(|| {
            self.ways.push(way);
            self.ways.len() - 1
        });
        u8::try_from(number).unwrap_or(u8::MAX)
    }

    /// The arguments of the script: the cap sets that are asked for, and the ways.
    pub(super) fn pack(&self) -> (Vec<u8>, Vec<u8>) {
        let mut wanted: Vec<usize> = self.ways.iter().map(|(set, ..)| *set).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut ways = Vec::with_capacity(32 * self.ways.len());
        for (set, record, walk) in &self.ways {
            put_u16(&mut ways, wanted.binary_search(set).unwrap_or_default());
            ways.push(match record {
                Record::IfAllowed => 0,
                Record::Always => 1,
            });
            match (&self.all.sets[*set].simple, walk) {
                (Some(simple), Walk::Unneeded) => ways.extend_from_slice(simple),
                (_, Walk::Needed) | (None, Walk::Unneeded) => ways.push(NOT_SIMPLE),
            }
        }
        (self.all.pack(&wanted), ways)
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
