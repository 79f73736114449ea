//! Cap sets as the script's slow path reads them, and the cap plans of one call, which its fast path reads.

use weir_core::{
    basis::window::Window,
    history::{
        ENTRY_BYTES, EPOCH_MS,
        admit::{AdmitRequest, CapQuery},
        decide::{RecordWhen, Scope},
    },
    intent::class::{Filter, Kind, KindTable},
};

use super::{Terms, msgpack::put_integer, put_count, put_u16, put_u48, script_time};

/// The most caps of a set for the fast path: beyond, the slow path is no dearer.
const MAX_FAST_CAPS: usize = 8;
/// Where the first plan is in the terms, from 1.
const FIRST_PLAN: usize = 7;
/// Numbers of a plan before those of its caps, of each cap, and of each cap behind all caps where it has more.
const PLAN_NUMBERS: usize = 4;
const CAP_NUMBERS: usize = 3;
const MORE_NUMBERS: usize = 3;

/// Bit k of byte k/8 for each kind that a filter counts; nothing behind the last one.
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

/// A limit of so many sends in bytes of a history.
fn in_bytes(limit: u32) -> i64 {
    i64::from(limit) * ENTRY_BYTES as i64
}

fn put_number(out: &mut Vec<u8>, number: usize) {
    put_integer(out, i64::try_from(number).unwrap_or(i64::MAX));
}

/// The cap sets of a batch, ready to be put into calls.
pub(crate) struct CapSets {
    known: usize,
    bitmaps: Vec<Vec<u8>>,
    sets: Vec<Vec<PackedCap>>,
}

struct PackedCap {
    /// Which bitmap, if not all kinds count.
    bitmap: Option<usize>,
    window: Window,
    limit: u32,
    scope: Scope,
}

impl PackedCap {
    /// The window at `now`: its length up to then, and its end where that is fixed, else 0. `None` where the known periods of a
    /// calendar are over.
    fn window_at(&self, now: i64) -> Option<(i64, i64)> {
        match self.window {
            Window::Sliding { length_ms } => Some((length_ms, 0)),
            Window::Calendar { start, next, after } => {
                let [start, next, after] = [start, next, after].map(|at| at.millis() - EPOCH_MS);
                let (opens, ends) = if now < next { (start, next) } else { (next, after) };
                (now < ends).then_some((now + 1 - opens, ends))
            }
        }
    }

    /// The place of the cap's filter among those of a call, from 1; 0 where all kinds count.
    fn filter(&self, bitmaps: &[usize]) -> usize {
        self.bitmap.and_then(|bitmap| bitmaps.binary_search(&bitmap).ok()).map_or(0, |place| place + 1)
    }

    /// Appends the cap for the slow path.
    fn put(&self, out: &mut Vec<u8>, bitmaps: &[usize]) {
        let (calendar, times) = match self.window {
            Window::Sliding { length_ms } => (0, [length_ms, 0, 0]),
            Window::Calendar { start, next, after } => (1, [start, next, after].map(|at| at.millis() - EPOCH_MS)),
        };
        let same = match self.scope {
            Scope::Every => 0,
            Scope::SameCampaign => 2,
        };
        out.push(calendar + same);
        put_u16(out, self.filter(bitmaps));
        out.extend_from_slice(&self.limit.to_be_bytes());
        times.into_iter().for_each(|time| put_u48(out, time));
    }

    /// Whether one look at the history does: a sliding window of all sends.
    fn is_plain(&self) -> bool {
        let is_sliding = matches!(self.window, Window::Sliding { .. });
        is_sliding && self.scope == Scope::Every && self.bitmap.is_none()
    }

    /// The further numbers of the cap for the fast path, where it has them.
    fn more(&self, bitmaps: &[usize], now: i64) -> Option<[i64; MORE_NUMBERS]> {
        let (_, ends) = self.window_at(now).unwrap_or_default();
        let filter = i64::try_from(self.filter(bitmaps)).unwrap_or(0);
        (!self.is_plain()).then_some([ends, filter, (self.scope == Scope::SameCampaign).into()])
    }
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
                caps.push(PackedCap { bitmap, window: cap.window, limit: cap.limit, scope: cap.scope });
            }
            packed.push(caps);
        }
        Self { known: kinds.len(), bitmaps, sets: packed }
    }

    /// These sets, ascending, as the slow path reads them, with these bitmaps as filters.
    fn pack(&self, wanted: &[usize], bitmaps: &[usize]) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + 26 * wanted.iter().map(|set| self.sets[*set].len()).sum::<usize>());
        put_u16(&mut out, self.known);
        put_u16(&mut out, bitmaps.len());
        for bitmap in bitmaps {
            put_u16(&mut out, self.bitmaps[*bitmap].len());
            out.extend_from_slice(&self.bitmaps[*bitmap]);
        }
        put_u16(&mut out, wanted.len());
        for set in wanted {
            put_count(&mut out, self.sets[*set].len());
            self.sets[*set].iter().for_each(|cap| cap.put(&mut out, bitmaps));
        }
        out
    }
}

/// Which part of the script decides a send first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    Fast,
    Slow,
}

/// The cap plans of one call: what the script is told of its sends' caps. Sends name them by their places in the terms.
pub(super) struct CapPlans<'s> {
    all: &'s CapSets,
    terms: &'s Terms,
    now: i64,
    plans: Vec<CapPlan<'s>>,
    /// Where the next plan begins in the terms.
    next_place: usize,
}

struct CapPlan<'s> {
    set: usize,
    record: RecordWhen,
    path: Path,
    place: usize,
    /// The caps that the fast path is told of.
    caps: &'s [PackedCap],
}

impl CapPlan<'_> {
    /// Appends the plan, of this set of the call.
    fn put(&self, out: &mut Vec<u8>, set: usize, bitmaps: &[usize], now: i64) {
        let least = match self.path {
            Path::Fast => self.caps.iter().map(|cap| cap.limit).min().unwrap_or(u32::MAX),
            Path::Slow => 0,
        };
        put_integer(out, in_bytes(least));
        put_number(out, set);
        put_integer(out, (self.record == RecordWhen::Always).into());
        let last = self.place + PLAN_NUMBERS + CAP_NUMBERS * self.caps.len() - 1;
        put_number(out, last);
        let mut more = Vec::new();
        for cap in self.caps {
            let (length, _) = cap.window_at(now).unwrap_or_default();
            put_integer(out, in_bytes(cap.limit));
            put_integer(out, length);
            let further = cap.more(bitmaps, now);
            put_number(out, further.map_or(0, |_| last + 1 + more.len()));
            more.extend(further.into_iter().flatten());
        }
        more.into_iter().for_each(|number| put_integer(out, number));
    }
}

impl<'s> CapPlans<'s> {
    pub(super) fn new(all: &'s CapSets, terms: &'s Terms) -> Self {
        Self { all, terms, now: script_time(terms.now).cast_signed(), plans: Vec::new(), next_place: FIRST_PLAN }
    }

    /// The path of a send, as far as it and its caps decide that.
    pub(super) fn path(&self, request: &AdmitRequest<'_>) -> Path {
        let set = &self.all.sets[request.cap_set];
        let known = || set.iter().all(|cap| cap.window_at(self.now).is_some());
        if request.cost == 1 && set.len() <= MAX_FAST_CAPS && known() { Path::Fast } else { Path::Slow }
    }

    /// The place of a send's plan.
    pub(super) fn place(&mut self, request: &AdmitRequest<'_>, path: Path) -> i64 {
        let is =
            |plan: &&CapPlan<'_>| plan.set == request.cap_set && plan.record == request.record && plan.path == path;
        let place = self.plans.iter().find(is).map(|plan| plan.place).unwrap_or_else(|| {
            let place = self.next_place;
            let caps = match path {
                Path::Fast => &self.all.sets[request.cap_set][..],
                Path::Slow => &[],
            };
            let with_more = caps.iter().filter(|cap| !cap.is_plain());
            self.next_place += PLAN_NUMBERS + CAP_NUMBERS * caps.len() + MORE_NUMBERS * with_more.count();
            self.plans.push(CapPlan { set: request.cap_set, record: request.record, path, place, caps });
            place
        });
        i64::try_from(place).unwrap_or(0)
    }

    /// The arguments of the script: terms and plans, and the cap sets that they name.
    pub(super) fn pack(&self) -> (Vec<u8>, Vec<u8>) {
        let sorted = |mut all: Vec<usize>| {
            all.sort_unstable();
            all.dedup();
            all
        };
        let wanted = sorted(self.plans.iter().map(|plan| plan.set).collect());
        let caps = wanted.iter().flat_map(|set| &self.all.sets[*set]);
        let bitmaps = sorted(caps.filter_map(|cap| cap.bitmap).collect());
        let mut out = self.terms.pack();
        for plan in &self.plans {
            let set = wanted.binary_search(&plan.set).unwrap_or_default() + 1;
            plan.put(&mut out, set, &bitmaps, self.now);
        }
        (out, self.all.pack(&wanted, &bitmaps))
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
