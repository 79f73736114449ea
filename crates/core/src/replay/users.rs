//! What each user was sent, under the policy and under the one it is compared with.

use std::collections::{BTreeMap, HashMap};

use super::{counts::POLICIES, outcome::ReplayOutcome};
use crate::basis::shard::UserHash;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCounts {
    pub user_id: Box<str>,
    /// The segment, by its place in the set.
    pub segment: Option<u32>,
    /// How many messages went out: under the policy, under the other one.
    pub approved: [u32; POLICIES],
}

impl UserCounts {
    fn changed(&self) -> bool {
        self.approved[0] != self.approved[1]
    }
}

/// All users that had an intent.
#[derive(Debug, Clone, Default)]
pub(super) struct UserTable(HashMap<UserHash, UserCounts>);

impl UserTable {
    pub(super) fn add(&mut self, user_id: &str, segment: Option<usize>, outcomes: &[ReplayOutcome]) {
        let user = self.0.entry(UserHash::of(user_id)).or_insert_with(|| UserCounts {
            user_id: user_id.into(),
            segment: segment.and_then(|segment| u32::try_from(segment).ok()),
            approved: [0; POLICIES],
        });
        for (outcome, approved) in outcomes.iter().zip(&mut user.approved) {
            *approved += u32::from(outcome.sent());
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// How many users were sent so many messages: of each policy.
    pub(super) fn spread(&self) -> BTreeMap<u32, [u64; POLICIES]> {
        let mut spread: BTreeMap<u32, [u64; POLICIES]> = BTreeMap::new();
        for user in self.0.values() {
            for (policy, approved) in user.approved.iter().enumerate() {
                spread.entry(*approved).or_default()[policy] += 1;
            }
        }
        spread
    }

    /// The users whose number of messages differs, those with the largest difference first, then by id.
    pub(super) fn changed(&self) -> Vec<&UserCounts> {
        let mut changed: Vec<&UserCounts> = self.0.values().filter(|user| user.changed()).collect();
        let key = |user: &UserCounts| std::cmp::Reverse(user.approved[0].abs_diff(user.approved[1]));
        changed.sort_unstable_by(|one, other| {
            key(one)
                .cmp(&key(other))
                .then_with(|| one.user_id.len().cmp(&other.user_id.len()))
                .then_with(|| one.user_id.cmp(&other.user_id))
        });
        changed
    }
}
