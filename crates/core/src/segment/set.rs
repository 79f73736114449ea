//! A set of segments, and the question it answers: which one is this user in?

mod lookup;

use std::sync::Arc;

use super::{Members, Sha256, UserIdKind, UserIds};
use crate::intent::Intent;
pub use lookup::LookupScratch;

#[derive(Debug, Clone)]
pub struct Segment {
    pub name: String,
    /// Checksum of the object that its members came from; the same one is not loaded twice.
    pub sha256: Sha256,
    /// Size of that object.
    pub bytes: u64,
    /// Who is in it; shared with the next set if that has the same object.
    pub members: Arc<Members>,
}

/// Two segments that have users in common, by their places in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// The one that wins.
    pub first: usize,
    pub second: usize,
    pub users: u64,
}

/// Where a user is; segments by their places in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserSegment {
    Nowhere,
    /// In this one alone.
    In(usize),
    /// In this one and in later ones too: this one wins, and a metric counts it.
    InSeveral(usize),
}

impl UserSegment {
    /// The segment that counts.
    pub const fn segment(self) -> Option<usize> {
        match self {
            Self::Nowhere => None,
            Self::In(segment) | Self::InSeveral(segment) => Some(segment),
        }
    }
}

#[derive(Debug, Clone)]
pub struct SegmentSet {
    version: String,
    ids: UserIds,
    segments: Vec<Segment>,
    names: Arc<[Box<str>]>,
    overlaps: Vec<Overlap>,
    /// For each segment, the later ones that it has users in common with.
    also_in: Vec<Vec<usize>>,
}

impl SegmentSet {
    /// Puts a set together. Compares all segments with each other, which for large ones is work for a
    /// thread that may block.
    pub fn new(version: String, ids: UserIds, segments: Vec<Segment>) -> Self {
        let mut overlaps = Vec::new();
        let mut also_in = vec![Vec::new(); segments.len()];
        for (first, segment) in segments.iter().enumerate() {
            for (second, other) in segments.iter().enumerate().skip(first + 1) {
                let users = segment.members.intersection_len(&other.members);
                if users > 0 {
                    overlaps.push(Overlap { first, second, users });
                    also_in[first].push(second);
                }
            }
        }
        let names = segments.iter().map(|segment| Box::<str>::from(segment.name.as_str())).collect();
        Self { version, ids, segments, names, overlaps, also_in }
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    pub const fn user_id(&self) -> UserIdKind {
        self.ids.kind()
    }

    /// The segments, in order of precedence.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Their names, in the same order.
    pub const fn names(&self) -> &Arc<[Box<str>]> {
        &self.names
    }

    /// The pairs of segments that have users in common; there should be none.
    pub fn overlaps(&self) -> &[Overlap] {
        &self.overlaps
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.segments.iter().position(|segment| segment.name == name)
    }

    /// The number by which the bitmaps know this user; `None` for one that is in no segment by its form.
    pub fn number(&self, user_id: &str) -> Option<u64> {
        self.ids.number(user_id)
    }

    /// The number by which the bitmaps know the user of an intent, as [`SegmentSet::number`] gives it.
    pub fn number_of(&self, intent: &Intent<'_>) -> Option<u64> {
        self.ids.number_of(&intent.user_id, intent.user)
    }

    /// Whether a user is in the segment at this place, whatever other ones it is in.
    pub fn contains(&self, segment: usize, user_id: &str) -> bool {
        let Some(number) = self.number(user_id) else { return false };
        self.segments.get(segment).is_some_and(|segment| segment.members.contains(number))
    }

    pub fn lookup(&self, user_id: &str) -> UserSegment {
        self.number(user_id).map_or(UserSegment::Nowhere, |number| self.lookup_number(number))
    }

    fn lookup_number(&self, number: u64) -> UserSegment {
        let first = self.segments.iter().position(|segment| segment.members.contains(number));
        first.map_or(UserSegment::Nowhere, |first| self.also_elsewhere(first, number))
    }

    /// Whether a user whose first segment this is is in later ones too.
    fn also_elsewhere(&self, first: usize, number: u64) -> UserSegment {
        // Sets should not overlap, and then this list is empty and the first hit is the whole answer.
        if self.also_in[first].iter().any(|&other| self.segments[other].members.contains(number)) {
            UserSegment::InSeveral(first)
        } else {
            UserSegment::In(first)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    impl SegmentSet {
        /// Segments of users whose ids are these numbers.
        pub(crate) fn of(kind: UserIdKind, segments: &[(&str, &[u64])]) -> Self {
            let ids = UserIds::new(kind, "");
            let members = |numbers: &[u64]| {
                let numbers: BTreeSet<u64> = numbers.iter().filter_map(|id| ids.number(&id.to_string())).collect();
                Arc::new(Members::of(kind, numbers))
            };
            let segment = |(name, numbers): &(&str, &[u64])| {
                let (name, members) = ((*name).to_owned(), members(numbers));
                Segment { name, sha256: Sha256([0; 32]), bytes: 0, members }
            };
            Self::new("v1".to_owned(), ids.clone(), segments.iter().map(segment).collect())
        }
    }

    #[test]
    fn a_user_in_two_segments_is_in_the_first_and_that_is_told() {
        for kind in UserIdKind::ALL {
            let set = SegmentSet::of(kind, &[("a", &[1, 2]), ("b", &[3, 2]), ("c", &[4, 3, 2])]);
            let cases = [
                ("1", UserSegment::In(0)),
                ("2", UserSegment::InSeveral(0)),
                ("3", UserSegment::InSeveral(1)),
                ("4", UserSegment::In(2)),
                ("5", UserSegment::Nowhere),
                ("04", UserSegment::Nowhere),
            ];
            for (user, expected) in cases {
                assert_eq!(set.lookup(user), expected, "{user} as {kind}");
            }
            assert_eq!(set.overlaps().iter().map(|pair| pair.users).collect::<Vec<_>>(), [1, 1, 2]);
            assert!(set.contains(2, "2") && !set.contains(1, "1") && !set.contains(9, "1"));
        }
    }

    #[test]
    fn a_batch_is_answered_as_its_users_one_by_one_in_their_order_however_many_segments_there_are() {
        let every = |first: u64, step: u64| -> Vec<u64> { (0..401).map(|at| at * step + first).collect() };
        let mut members: Vec<(String, Vec<u64>)> = (0..40).map(|n| (format!("s{n}"), every(n / 2, 1_000))).collect();
        members.splice(0..0, [("odd".to_owned(), every(1, 2)), ("third".to_owned(), every(0, 3))]);
        let segments: Vec<(&str, &[u64])> = members.iter().map(|(name, of)| (name.as_str(), of.as_slice())).collect();
        let few = (0..2_100).rev().map(|n| n * 7 % 2_100);
        let users: Vec<String> = few.chain((0..401_000).step_by(83)).map(|n: u32| n.to_string()).collect();
        let users: Vec<&str> = users.iter().map(String::as_str).chain(["x"]).collect();
        for kind in UserIdKind::ALL {
            for some in [1, 2, 3, 8, 9, 42] {
                let set = SegmentSet::of(kind, &segments[..some]);
                let (mut scratch, mut found) = (LookupScratch::default(), vec![UserSegment::In(9)]);
                set.lookup_many(users.iter().map(|user| set.number(user)), &mut scratch, &mut found);
                let single: Vec<UserSegment> = users.iter().map(|user| set.lookup(user)).collect();
                assert_eq!(found, single, "{kind}, {some} segments");
                let has = [UserSegment::InSeveral(0), UserSegment::Nowhere].map(|one| found.contains(&one));
                assert_eq!(has, [some > 1, true], "{kind}, {some} segments");
            }
        }
    }
}
