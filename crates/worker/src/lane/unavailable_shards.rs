//! Which shards are unavailable, and since when.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use weir_core::ports::in_short;

/// Why a shard is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It does not answer.
    Silent,
    /// It has lost its history, or that is being rebuilt.
    Lost,
}

/// What is done about an unavailable shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is not asked; the store looks in the background whether it is back.
    Watched(Why),
    /// It was found back, and is asked again; whether it answers is not known yet.
    Tried,
}

#[derive(Debug)]
struct Absence {
    /// When the asking began that it did not answer; a time of [`weir_core::ports::Clock::passed`].
    since: Duration,
    stage: Stage,
}

/// The shards that have not answered. Empty for ever where everything waits.
///
/// invariant: a shard's time runs from the first asking that it did not answer until it answers one; so what is held up
/// by it is held up once, however many batches come meanwhile.
#[derive(Debug)]
pub(super) struct UnavailableShards {
    /// `redis.unavailable_after`
    after: Option<Duration>,
    shards: BTreeMap<u16, Absence>,
}

impl UnavailableShards {
    pub(super) fn new(after: Option<Duration>) -> Self {
        Self { after, shards: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// The shards that are not to be asked.
    pub(super) fn watched(&self) -> BTreeSet<u16> {
        self.shards.iter().filter(|(_, away)| away.stage != Stage::Tried).map(|(shard, _)| *shard).collect()
    }

    /// Whether it has not answered, and not answered since.
    pub(super) fn is_known(&self, shard: u16) -> bool {
        self.shards.contains_key(&shard)
    }

    pub(super) fn is_watched(&self, shard: u16) -> bool {
        self.shards.get(&shard).is_some_and(|away| away.stage != Stage::Tried)
    }

    /// It was found back: it may be asked.
    pub(super) fn found_back(&mut self, shard: u16) {
        if let Some(away) = self.shards.get_mut(&shard) {
            away.stage = Stage::Tried;
        }
    }

    /// It has answered; `true` if it was away.
    pub(super) fn answered(&mut self, shard: u16) -> bool {
        self.shards.remove(&shard).is_some()
    }

    /// It has not answered an asking that began then; `true` if that is news.
    pub(super) fn not_answered(&mut self, shard: u16, since: Duration, why: Why) -> bool {
        if self.after.is_none() {
            return false;
        }
        let stage = Stage::Watched(why);
        let news = !self.shards.contains_key(&shard);
        self.shards.entry(shard).or_insert(Absence { since, stage }).stage = stage;
        news
    }

    /// Whether it has been away for long enough to go by the policy.
    pub(super) fn is_overdue(&self, shard: u16, now: Duration) -> bool {
        self.due(shard).is_some_and(|due| now >= due)
    }

    /// The next moment from which on another shard is overdue.
    pub(super) fn next_due(&self, now: Duration) -> Option<Duration> {
        self.shards.keys().filter_map(|shard| self.due(*shard)).filter(|due| *due > now).min()
    }

    fn due(&self, shard: u16) -> Option<Duration> {
        Some(self.shards.get(&shard)?.since.saturating_add(self.after?))
    }

    /// How many shards have lost their history.
    pub(super) fn lost(&self) -> usize {
        self.shards.values().filter(|away| away.stage == Stage::Watched(Why::Lost)).count()
    }

    /// What to tell whoever asks how the lane is.
    pub(super) fn trouble(&self) -> Option<String> {
        let of = |why| -> Vec<u16> {
            let of = self.shards.iter().filter(|(_, away)| away.stage == Stage::Watched(why));
            of.map(|(shard, _)| *shard).collect()
        };
        let part = |why, what: &str| {
            let shards = of(why);
            (!shards.is_empty()).then(|| format!("shards {} {what}", in_short(&shards)))
        };
        let parts = [
            part(Why::Silent, "of Redis do not answer"),
            part(Why::Lost, "have lost their history: restore it with weir rebuild"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("{}; their intents go by on_unavailable", parts.join(", ")))
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
        let mut away = UnavailableShards::new(Some(s(10)));
        assert!(away.not_answered(3, s(1), Why::Silent));
        assert!(!away.not_answered(3, s(8), Why::Silent), "no news");
        assert_eq!((away.is_overdue(3, s(10)), away.is_overdue(3, s(11))), (false, true));
        away.found_back(3);
        assert!(away.watched().is_empty() && away.is_overdue(3, s(11)), "found back is not yet an answer");
        away.not_answered(3, s(20), Why::Lost);
        assert!(away.is_overdue(3, s(20)) && away.is_watched(3) && away.lost() == 1);
        assert!(away.answered(3) && away.is_empty());
        away.not_answered(3, s(30), Why::Silent);
        assert!(!away.is_overdue(3, s(39)), "a new absence");
        assert_eq!((away.next_due(s(39)), away.next_due(s(40))), (Some(s(40)), None));
    }

    #[test]
    fn where_everything_waits_no_shard_is_ever_overdue() {
        let mut away = UnavailableShards::new(None);
        away.not_answered(3, s(1), Why::Silent);
        assert!(away.is_empty() && !away.is_overdue(3, s(1_000_000)));
    }

    #[test]
    fn trouble_names_the_shards_but_never_hundreds_of_them() {
        let mut away = UnavailableShards::new(Some(s(1)));
        (0..300).for_each(|shard| _ = away.not_answered(shard, s(0), Why::Silent));
        away.not_answered(1000, s(0), Why::Lost);
        assert_eq!(
            away.trouble().unwrap(),
            "shards [0, 1, 2, 3, 4, 5, 6, 7] and 292 more of Redis do not answer, shards [1000] have lost their history: \
             restore it with weir rebuild; their intents go by on_unavailable"
        );
    }
}
