//! Which shards are unavailable, and since when.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use weir_core::ports::in_short;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Silent,
    /// It has lost its history, or that is being rebuilt.
    Lost,
}

/// What is done about an unavailable shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is not asked; the store checks in the background whether it is available again.
    Watched(Why),
    /// It was found available, and is asked again; whether it answers is not known yet.
    Tried,
}

#[derive(Debug)]
struct Absence {
    /// When its first unanswered request began; a time of [`weir_core::ports::Clock::passed`].
    since: Duration,
    stage: Stage,
}

/// The shards that have not answered. Always empty if all intents wait, unless the lane rests meanwhile.
///
/// invariant: a shard's time runs from its first unanswered request until it answers one. So its intents wait once,
/// however many batches come meanwhile.
#[derive(Debug)]
pub(super) struct Absences {
    /// `redis.unavailable_after`
    after: Option<Duration>,
    /// Whether the lane rests while any of them is watched: its intents never go by the policy.
    rests: bool,
    shards: BTreeMap<u16, Absence>,
}

impl Absences {
    pub(super) fn new(after: Option<Duration>) -> Self {
        Self { after, rests: false, shards: BTreeMap::new() }
    }

    /// Those of a lane that rests until all shards answer.
    pub(super) fn of_resting() -> Self {
        Self { rests: true, ..Self::new(Some(Duration::MAX)) }
    }

    pub(super) fn rests(&self) -> bool {
        self.rests && self.shards.values().any(|absence| absence.stage != Stage::Tried)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// The shards that must not be asked.
    pub(super) fn watched(&self) -> BTreeSet<u16> {
        self.shards.iter().filter(|(_, absence)| absence.stage != Stage::Tried).map(|(shard, _)| *shard).collect()
    }

    /// Whether the shard has an unanswered request and has answered none since.
    pub(super) fn is_known(&self, shard: u16) -> bool {
        self.shards.contains_key(&shard)
    }

    pub(super) fn is_watched(&self, shard: u16) -> bool {
        self.shards.get(&shard).is_some_and(|absence| absence.stage != Stage::Tried)
    }

    /// The shard was found available: it may be asked.
    pub(super) fn found_back(&mut self, shard: u16) {
        if let Some(absence) = self.shards.get_mut(&shard) {
            absence.stage = Stage::Tried;
        }
    }

    /// The shard has answered; `true` if it was unavailable.
    pub(super) fn answered(&mut self, shard: u16) -> bool {
        self.shards.remove(&shard).is_some()
    }

    /// The shard has not answered a request that began then; `true` if it was available before.
    pub(super) fn not_answered(&mut self, shard: u16, since: Duration, why: Why) -> bool {
        if self.after.is_none() {
            return false;
        }
        let stage = Stage::Watched(why);
        let news = !self.shards.contains_key(&shard);
        self.shards.entry(shard).or_insert(Absence { since, stage }).stage = stage;
        news
    }

    /// Whether the shard has been unavailable for so long that the policy's rule applies.
    pub(super) fn is_overdue(&self, shard: u16, now: Duration) -> bool {
        self.due(shard).is_some_and(|due| now >= due)
    }

    pub(super) fn next_due(&self, now: Duration) -> Option<Duration> {
        self.shards.keys().filter_map(|shard| self.due(*shard)).filter(|due| *due > now).min()
    }

    fn due(&self, shard: u16) -> Option<Duration> {
        Some(self.shards.get(&shard)?.since.saturating_add(self.after?))
    }

    pub(super) fn lost(&self) -> usize {
        self.shards.values().filter(|absence| absence.stage == Stage::Watched(Why::Lost)).count()
    }

    pub(super) fn trouble(&self) -> Option<String> {
        let part = |why, what: &str| {
            let of = self.shards.iter().filter(|(_, absence)| absence.stage == Stage::Watched(why));
            let shards: Vec<u16> = of.map(|(shard, _)| *shard).collect();
            (!shards.is_empty()).then(|| format!("shards {} {what}", in_short(&shards)))
        };
        let parts = [
            part(Why::Silent, "of Redis do not answer"),
            part(Why::Lost, "have lost their history: restore it with weir rebuild"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let then = match self.rests {
            true => "what waits stays where it is until they answer",
            false => "their intents go by on_unavailable",
        };
        (!parts.is_empty()).then(|| format!("{}; {then}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_time_runs_from_the_first_asking_until_an_answer() {
        let mut shards = Absences::new(Some(s(10)));
        assert!(shards.not_answered(3, s(1), Why::Silent));
        assert!(!shards.not_answered(3, s(8), Why::Silent), "no news");
        assert_eq!((shards.is_overdue(3, s(10)), shards.is_overdue(3, s(11))), (false, true));
        shards.found_back(3);
        assert!(shards.watched().is_empty() && shards.is_overdue(3, s(11)), "found back is not yet an answer");
        shards.not_answered(3, s(20), Why::Lost);
        assert!(shards.is_overdue(3, s(20)) && shards.is_watched(3) && shards.lost() == 1);
        assert!(shards.answered(3) && shards.is_empty());
        shards.not_answered(3, s(30), Why::Silent);
        assert!(!shards.is_overdue(3, s(39)), "a new absence");
        assert_eq!((shards.next_due(s(39)), shards.next_due(s(40))), (Some(s(40)), None));
    }

    #[test]
    fn where_everything_waits_no_shard_is_ever_overdue() {
        let mut shards = Absences::new(None);
        shards.not_answered(3, s(1), Why::Silent);
        assert!(shards.is_empty() && !shards.is_overdue(3, s(1_000_000)));
    }

    #[test]
    fn a_resting_lane_rests_until_all_shards_answer_and_none_is_ever_overdue() {
        let mut shards = Absences::of_resting();
        assert!(!shards.rests());
        shards.not_answered(3, s(1), Why::Silent);
        shards.not_answered(4, s(1), Why::Lost);
        assert!(shards.rests() && !shards.is_overdue(3, s(1_000_000)));
        let trouble = "shards [3] of Redis do not answer, shards [4] have lost their history: restore it with weir rebuild; what \
                       waits stays where it is until they answer";
        assert_eq!(shards.trouble().unwrap(), trouble);
        shards.found_back(3);
        assert!(shards.rests(), "one is watched still");
        shards.found_back(4);
        assert!(!shards.rests(), "both are asked again");
        assert!(shards.answered(3) && shards.answered(4) && shards.is_empty());
    }

    #[test]
    fn trouble_names_the_shards_but_never_hundreds_of_them() {
        let mut shards = Absences::new(Some(s(1)));
        (0..300).for_each(|shard| _ = shards.not_answered(shard, s(0), Why::Silent));
        shards.not_answered(1000, s(0), Why::Lost);
        let expected = "shards [0, 1, 2, 3, 4, 5, 6, 7] and 292 more of Redis do not answer, shards [1000] have lost their \
                        history: restore it with weir rebuild; their intents go by on_unavailable";
        assert_eq!(shards.trouble().unwrap(), expected);
    }
}
