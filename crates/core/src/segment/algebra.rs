//! Members combined with other members.

use roaring::RoaringTreemap;

use super::{Blocks, Members, UserIdKind};

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
            UserIdKind::U32 => Self::U32(Blocks::new()),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn members_combine_as_sets_do_whatever_their_kind() {
        let sets: Vec<BTreeSet<u64>> = vec![
            BTreeSet::new(),
            BTreeSet::from([0]),
            BTreeSet::from([1, 5, 70_000, u64::from(u32::MAX)]),
            (0..5000).step_by(2).collect(),
            (0..5000).step_by(3).collect(),
        ];
        for kind in UserIdKind::ALL {
            for (a, b) in sets.iter().flat_map(|a| sets.iter().map(move |b| (a, b))) {
                let of = |numbers: &BTreeSet<u64>| Members::of(kind, numbers.iter().copied());
                let expected =
                    [(SetOperation::Union, a | b), (SetOperation::Intersect, a & b), (SetOperation::Minus, a - b)];
                for (operation, expected) in expected {
                    assert_eq!(of(a).combined(operation, &of(b)), Some(of(&expected)), "{operation:?} of {kind}");
                }
            }
        }
        assert_eq!(Members::none(UserIdKind::U32).combined(SetOperation::Union, &Members::none(UserIdKind::U64)), None);
    }
}
