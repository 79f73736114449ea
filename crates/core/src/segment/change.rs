//! What became of the users from one version of a set to another.

use std::borrow::Cow;

use serde::Serialize;

use super::{Members, SegmentSet, SetOperation};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SegmentChange {
    pub name: String,
    /// How many users it had; `None` if it was not there.
    pub before: Option<u64>,
    /// How many it has; `None` if it is gone.
    pub after: Option<u64>,
    /// Users who were in no segment before.
    pub added: u64,
    /// Users who are in no segment now.
    pub removed: u64,
    pub moved_in: u64,
    pub moved_out: u64,
}

/// Users who went from one segment to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Move {
    pub from: String,
    pub to: String,
    pub users: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetChange {
    /// The earlier version.
    pub since: String,
    /// Each segment of either: those of the later version in its order, then those that are gone.
    pub segments: Vec<SegmentChange>,
    /// Who went where, in the order of the segments.
    pub moves: Vec<Move>,
}

/// One segment's users who came, and those who went.
struct Flow {
    name: String,
    joined: Members,
    left: Members,
}

impl SetChange {
    /// Compares two versions; `None` if their ids are of different kinds, which cannot be compared.
    pub fn between(before: &SegmentSet, after: &SegmentSet) -> Option<Self> {
        if before.user_id() != after.user_id() {
            return None;
        }
        let (all_before, all_after) = (everybody(before)?, everybody(after)?);
        let gone = before.segments().iter().filter(|segment| after.position(&segment.name).is_none());
        let (mut segments, mut flows) = (Vec::new(), Vec::new());
        for name in after.segments().iter().chain(gone).map(|segment| &segment.name) {
            let (old, new) = (members(before, name), members(after, name));
            let joined = new.combined(SetOperation::Minus, &old)?;
            let left = old.combined(SetOperation::Minus, &new)?;
            let (moved_in, moved_out) = (joined.intersection_len(&all_before), left.intersection_len(&all_after));
            segments.push(SegmentChange {
                name: name.clone(),
                before: before.position(name).map(|_| old.len()),
                after: after.position(name).map(|_| new.len()),
                added: joined.len() - moved_in,
                removed: left.len() - moved_out,
                moved_in,
                moved_out,
            });
            flows.push(Flow { name: name.clone(), joined, left });
        }
        Some(Self { since: before.version().to_owned(), segments, moves: moves(&flows) })
    }
}

fn members<'s>(set: &'s SegmentSet, name: &str) -> Cow<'s, Members> {
    match set.position(name) {
        Some(at) => Cow::Borrowed(set.segments()[at].members.as_ref()),
        None => Cow::Owned(Members::none(set.user_id())),
    }
}

fn everybody(set: &SegmentSet) -> Option<Members> {
    let none = Members::none(set.user_id());
    set.segments().iter().try_fold(none, |all, segment| all.combined(SetOperation::Union, &segment.members))
}

fn moves(flows: &[Flow]) -> Vec<Move> {
    let mut moves = Vec::new();
    for from in flows.iter().filter(|flow| !flow.left.is_empty()) {
        for to in flows.iter().filter(|flow| !flow.joined.is_empty()) {
            let users = from.left.intersection_len(&to.joined);
            if users > 0 {
                moves.push(Move { from: from.name.clone(), to: to.name.clone(), users });
            }
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::UserIdKind;

    #[test]
    fn each_user_who_came_went_or_moved_is_counted_once() {
        let counts = |change: &SegmentChange| {
            (change.before, change.after, [change.added, change.removed, change.moved_in, change.moved_out])
        };
        for kind in UserIdKind::ALL {
            let before = SegmentSet::of(kind, &[("new", &[1, 2, 3, 4]), ("old", &[7, 8]), ("gone", &[9])]);
            let after = SegmentSet::of(kind, &[("old", &[2, 3, 7]), ("fresh", &[8]), ("new", &[1, 5])]);
            let change = SetChange::between(&before, &after).unwrap();
            let names: Vec<&str> = change.segments.iter().map(|segment| segment.name.as_str()).collect();
            assert_eq!(names, ["old", "fresh", "new", "gone"]);
            let expected = [
                (Some(2), Some(3), [0, 0, 2, 1]),
                (None, Some(1), [0, 0, 1, 0]),
                (Some(4), Some(2), [1, 1, 0, 2]),
                (Some(1), None, [0, 1, 0, 0]),
            ];
            assert_eq!(change.segments.iter().map(counts).collect::<Vec<_>>(), expected, "{kind}");
            let moves: Vec<_> = change.moves.iter().map(|m| (m.from.as_str(), m.to.as_str(), m.users)).collect();
            assert_eq!(moves, [("old", "fresh", 1), ("new", "old", 2)]);
            let same = SetChange::between(&before, &before).unwrap();
            assert!(same.moves.is_empty() && same.segments.iter().all(|segment| segment.added + segment.removed == 0));
        }
        let [narrow, wide] = [UserIdKind::U32, UserIdKind::U64].map(|kind| SegmentSet::of(kind, &[]));
        assert_eq!(SetChange::between(&narrow, &wide), None);
    }
}
