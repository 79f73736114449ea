//! The members of one segment, as numbers.

use roaring::RoaringTreemap;

use super::Blocks;

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

impl Members {
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
    use super::*;
    use crate::segment::UserIdKind;

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

    fn kinds(numbers: &[u32]) -> [Members; 3] {
        UserIdKind::ALL.map(|kind| Members::of(kind, numbers.iter().copied().map(u64::from)))
    }

    #[test]
    fn pages_walk_through_all_members_in_order() {
        let numbers: Vec<u32> = (0..1000).map(|n| n * 7).chain([u32::MAX]).collect();
        for members in kinds(&numbers) {
            let (mut after, mut seen) = (None, Vec::new());
            loop {
                let page = members.page(after, 64);
                seen.extend(page.members);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(seen, numbers.iter().copied().map(u64::from).collect::<Vec<_>>());
            assert_eq!(members.page(Some(u64::MAX), 1), Page { members: Vec::new(), next: None });
            assert_eq!(members.page(Some(7), 1), Page { members: vec![14], next: Some(14) });
            assert_eq!(members.page(Some(u64::from(u32::MAX) - 1), 1).next, None);
        }
    }

    #[test]
    fn what_two_segments_share_is_counted_alike_in_every_kind() {
        let some: Vec<u32> = (0..3000).filter(|n| n % 3 == 0).collect();
        let cases: [(&[u32], u64); 5] =
            [(&[], 0), (&[0], 1), (&[1, 2, 4], 0), (&[3, 4, 2997, 2998], 2), (&some, some.len() as u64)];
        for (others, expected) in cases {
            for (a, b) in kinds(&some).iter().zip(&kinds(others)) {
                assert_eq!(a.intersection_len(b), expected);
                assert_eq!(b.intersection_len(a), expected);
                assert_eq!(a.intersection(b, usize::MAX).len() as u64, expected);
            }
        }
    }
}
