//! The members of one segment, as numbers.

use roaring::RoaringTreemap;

use super::{Blocks, UserIdKind};

#[derive(Debug, Clone, PartialEq)]
pub enum Members {
    /// Ids below 2^32.
    U32(Blocks),
    /// Ids below 2^64.
    U64(RoaringTreemap),
    /// Hashes, ascending, none twice. They fall so thin over 64 bits that a bitmap of them has a container for
    /// each: over 100 bytes a user, against 8 here.
    Hash64(Box<[u64]>),
}

/// Some members of a segment, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub members: Vec<u64>,
    /// The member to go on after; `None` if these were the last.
    pub next: Option<u64>,
}

/// What is made of two segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOperation {
    Union,
    Intersect,
    Minus,
}

impl Members {
    pub fn none(kind: UserIdKind) -> Self {
        match kind {
            UserIdKind::U32 => Self::U32(Blocks::default()),
            UserIdKind::U64 => Self::U64(RoaringTreemap::new()),
            UserIdKind::Hash64 => Self::Hash64(Box::default()),
        }
    }

    /// These and others; `None` for members of different kinds, which have no meaning together.
    #[must_use]
    pub fn combined(&self, operation: SetOperation, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::U32(a), Self::U32(b)) => Some(Self::U32(a.combined(operation, b))),
            (Self::U64(a), Self::U64(b)) => Some(Self::U64(match operation {
                SetOperation::Union => a | b,
                SetOperation::Intersect => a & b,
                SetOperation::Minus => a - b,
            })),
            (Self::Hash64(a), Self::Hash64(b)) => Some(Self::Hash64(merged(operation, a, b).into())),
            (Self::U32(_) | Self::U64(_) | Self::Hash64(_), _) => None,
        }
    }

    pub fn len(&self) -> u64 {
        match self {
            Self::U32(ids) => ids.len(),
            Self::U64(ids) => ids.len(),
            Self::Hash64(hashes) => hashes.len() as u64,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn contains(&self, number: u64) -> bool {
        match self {
            Self::U32(ids) => u32::try_from(number).is_ok_and(|id| ids.contains(id)),
            Self::U64(ids) => ids.contains(number),
            Self::Hash64(hashes) => hashes.binary_search(&number).is_ok(),
        }
    }

    /// The blocks of 32-bit ids; `None` for members of other kinds.
    pub const fn blocks(&self) -> Option<&Blocks> {
        match self {
            Self::U32(ids) => Some(ids),
            Self::U64(_) | Self::Hash64(_) => None,
        }
    }

    /// How many users are in both; members of different kinds have none in common.
    pub fn intersection_len(&self, other: &Self) -> u64 {
        match (self, other) {
            (Self::U32(a), Self::U32(b)) => a.intersection_len(b),
            (Self::U64(a), Self::U64(b)) => a.intersection_len(b),
            (Self::Hash64(a), Self::Hash64(b)) => in_both(a, b).count() as u64,
            (Self::U32(_) | Self::U64(_) | Self::Hash64(_), _) => 0,
        }
    }

    /// The first members that are in `other` too, ascending, at most `limit`.
    pub fn intersection(&self, other: &Self, limit: usize) -> Vec<u64> {
        match (self, other) {
            (Self::U32(a), Self::U32(b)) => a.intersection(b).take(limit).map(u64::from).collect(),
            (Self::U64(a), Self::U64(b)) => (a & b).iter().take(limit).collect(),
            (Self::Hash64(a), Self::Hash64(b)) => in_both(a, b).take(limit).collect(),
            (Self::U32(_) | Self::U64(_) | Self::Hash64(_), _) => Vec::new(),
        }
    }

    /// Up to `limit` members above `after`, ascending; from the first one without `after`.
    pub fn page(&self, after: Option<u64>, limit: usize) -> Page {
        let start = match after {
            None => 0,
            Some(u64::MAX) => return Page { members: Vec::new(), next: None },
            Some(after) => after + 1,
        };
        // One more than asked for tells whether there is a next page.
        let wanted = limit.saturating_add(1);
        let mut members: Vec<u64> = match self {
            Self::U32(ids) => match u32::try_from(start) {
                Ok(start) => ids.range_from(start).take(wanted).map(u64::from).collect(),
                Err(_) => Vec::new(),
            },
            Self::U64(ids) => {
                let mut rest = ids.iter();
                rest.advance_to(start);
                rest.take(wanted).collect()
            }
            Self::Hash64(hashes) => {
                let from = hashes.partition_point(|&hash| hash < start);
                hashes[from..].iter().copied().take(wanted).collect()
            }
        };
        let more = members.len() > limit;
        members.truncate(limit);
        let next = if more { members.last().copied() } else { None };
        Page { members, next }
    }
}

/// Walks two ascending slices side by side.
fn merged(operation: SetOperation, mut a: &[u64], mut b: &[u64]) -> Vec<u64> {
    let (only_a, only_b, both) = match operation {
        SetOperation::Union => (true, true, true),
        SetOperation::Intersect => (false, false, true),
        SetOperation::Minus => (true, false, false),
    };
    let mut taken = Vec::new();
    while let (Some(&first), Some(&second)) = (a.first(), b.first()) {
        let (wanted, number) = match first.cmp(&second) {
            std::cmp::Ordering::Less => (only_a, first),
            std::cmp::Ordering::Greater => (only_b, second),
            std::cmp::Ordering::Equal => (both, first),
        };
        if wanted {
            taken.push(number);
        }
        a = &a[usize::from(first <= second)..];
        b = &b[usize::from(second <= first)..];
    }
    if only_a {
        taken.extend_from_slice(a);
    }
    if only_b {
        taken.extend_from_slice(b);
    }
    taken
}

/// What two ascending slices have in common.
fn in_both<'a>(a: &'a [u64], b: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
    let mut rest = b;
    a.iter().copied().filter(move |&number| {
        rest = &rest[below(rest, number)..];
        rest.first() == Some(&number)
    })
}

/// How many come before a number. The slice is walked from its start, in small steps: two sets of like size are merged, not searched.
fn below(numbers: &[u64], number: u64) -> usize {
    let mut end = 1;
    while end < numbers.len() && numbers[end - 1] < number {
        end *= 2;
    }
    let start = end / 2;
    start + numbers[start..end.min(numbers.len())].partition_point(|&other| other < number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    impl Members {
        /// These, ascending.
        pub(in crate::segment) fn of(kind: UserIdKind, numbers: impl IntoIterator<Item = u64>) -> Self {
            let numbers = numbers.into_iter();
            match kind {
                UserIdKind::U32 => Self::U32(numbers.map(|number| u32::try_from(number).unwrap()).collect()),
                UserIdKind::U64 => Self::U64(numbers.collect()),
                UserIdKind::Hash64 => Self::Hash64(numbers.collect()),
            }
        }
    }

    #[test]
    fn pages_walk_through_all_members_in_order_whatever_their_kind() {
        let numbers: Vec<u64> = (0..1000).map(|n| n * 7).chain([u32::MAX.into()]).collect();
        for kind in UserIdKind::ALL {
            let members = Members::of(kind, numbers.iter().copied());
            let (mut after, mut seen) = (None, Vec::new());
            while seen.is_empty() || after.is_some() {
                let page = members.page(after, 64);
                seen.extend(page.members);
                after = page.next;
            }
            assert_eq!(seen, numbers, "{kind}");
            assert_eq!(members.page(Some(7), 1), Page { members: vec![14], next: Some(14) }, "{kind}");
            assert_eq!(members.page(Some(u64::MAX), 1), Page { members: Vec::new(), next: None }, "{kind}");
        }
    }

    #[test]
    fn members_combine_and_are_counted_as_sets_are_whatever_their_kind() {
        let sets: Vec<BTreeSet<u64>> = vec![
            BTreeSet::new(),
            BTreeSet::from([0]),
            BTreeSet::from([1, 5, 70_000, u64::from(u32::MAX)]),
            (0..300_000).step_by(7).collect(),
            (0..50).map(|n| n * n * 1_700_000).collect(),
            (65_530..65_540).chain(1_000_000..1_010_000).chain([u64::from(u32::MAX)]).collect(),
        ];
        for kind in UserIdKind::ALL {
            for (a, b) in sets.iter().flat_map(|a| sets.iter().map(move |b| (a, b))) {
                let of = |numbers: &BTreeSet<u64>| Members::of(kind, numbers.iter().copied());
                let (ours, theirs, shared) = (of(a), of(b), a.intersection(b).copied().collect::<Vec<u64>>());
                assert_eq!(ours.intersection_len(&theirs), shared.len() as u64, "{kind}");
                assert_eq!(ours.intersection(&theirs, usize::MAX), shared, "{kind}");
                let expected =
                    [(SetOperation::Union, a | b), (SetOperation::Intersect, a & b), (SetOperation::Minus, a - b)];
                for (operation, expected) in expected {
                    assert_eq!(ours.combined(operation, &theirs), Some(of(&expected)), "{operation:?} of {kind}");
                }
            }
        }
        assert_eq!(Members::none(UserIdKind::U32).combined(SetOperation::Union, &Members::none(UserIdKind::U64)), None);
    }
}
