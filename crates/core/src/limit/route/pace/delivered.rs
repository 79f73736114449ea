//! What a consumer group has delivered, from the offsets that it commits in each partition; and which partitions it does not pass.
//!
//! A consumer that fails on a record again and again stops one partition. Its lag would fill the room of the whole route in time. So a
//! partition is behind where intents were approved into it, and again a commit's time later, and nothing was committed of it until
//! others had gone on for two commits' time more. Then its lag counts as much as that of another one does, the mean, and what it
//! commits is no rate, until it has caught up. That the others committed so much later tells it from a group that has stopped; that
//! more was approved twice, from a partition at whose end are offsets without a record.
//!
//! At most as many partitions are behind as go on: where most of them stand, it is the group that stands, and all lag counts.
//!
//! A consumer that is slower than others fills the room, too, so that the others get no more than it takes. What it leaves does not
//! show that all have enough to do: each partition's part of that is bounded by what those have left that half of all intents are in.

use std::collections::BTreeMap;

use super::{Lag, to_f64};

/// A commit's time, in looks, where no longer one was seen: Kafka's default. There is a look each second.
pub(super) const STEP: u64 = 5;
/// The longest time between commits that is told from a partition that stands, in looks.
const LONGEST_STEP: u64 = 60;
/// What a commit has left of a partition counts up to so many times the median.
const UNEVEN: u64 = 4;
/// What was committed of a partition counts so much less with each look.
const FADES: f64 = 0.95;

/// How far a group is in one partition of an approved topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionLag {
    /// The offset that it has committed; `None`: none that is of this topic.
    pub committed: Option<u64>,
    /// Records behind that, or all of them.
    pub undelivered: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryLook<P> {
    /// The lag that a route's pace goes by.
    pub lag: Lag,
    /// The partitions that are behind: they count no more than their share of it.
    pub behind: Vec<Behind<P>>,
}

/// A partition that the group has not passed for a while though others go on, or that has not caught up since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behind<P> {
    pub partition: P,
    /// Its records that are not delivered.
    pub undelivered: u64,
    /// How many of them count.
    pub counted: u64,
}

/// Adds up what the group commits from one look to the next, over all partitions.
///
/// The first offset that it commits in a partition says nothing of how much it has delivered: with `auto.offset.reset=latest` that is
/// the partition's end. Nor does an offset that was deleted or went back, nor one that retention has overtaken. So the first look finds
/// 0, whatever is committed by then: a controller that goes on over a change of its route takes that for offsets that went back.
#[derive(Debug, Clone, Default)]
pub struct Delivered<P> {
    places: BTreeMap<P, PartitionStand>,
    /// Of each partition without a commit the least lag since it was found first.
    uncommitted: BTreeMap<P, u64>,
    looks: u64,
    sum: u64,
}

/// One partition as the last look found it. Times are looks, by number.
#[derive(Debug, Clone, Copy, Default)]
struct PartitionStand {
    committed: u64,
    undelivered: u64,
    /// When more was found committed last; 0: it never was.
    progressed: u64,
    /// Its least lag since then, or since it was found first.
    least: u64,
    /// When it began to go on: first, or after it stood for two commits' time.
    goes_on_from: u64,
    /// When more was found approved first since then.
    given: Option<u64>,
    /// And when again, a commit's time later.
    given_again: Option<u64>,
    /// How long it took from there to a commit, lately at the most.
    step: u64,
    /// How much was committed of it in the last looks: what weight it has.
    recent: f64,
    is_behind: bool,
}

impl<P: Ord + Clone> Delivered<P> {
    /// Another look at all partitions.
    pub fn look(&mut self, partitions: impl IntoIterator<Item = (P, PartitionLag)>) -> DeliveryLook<P> {
        self.looks += 1;
        let step = self.places.values().map(|place| place.step).fold(STEP, u64::max);
        let (mut places, mut uncommitted, mut undelivered_there) = (BTreeMap::new(), BTreeMap::new(), 0);
        for (partition, PartitionLag { committed, undelivered }) in partitions {
            let Some(committed) = committed else {
                undelivered_there += undelivered;
                let least = self.uncommitted.get(&partition).map_or(undelivered, |least| undelivered.min(*least));
                uncommitted.insert(partition, least);
                continue;
            };
            let fresh = PartitionStand { committed, undelivered, least: undelivered, ..PartitionStand::default() };
            let before = self.places.get(&partition).filter(|before| before.committed <= committed);
            self.sum += before.filter(|before| !before.is_behind).map_or(0, |before| committed - before.committed);
            let place = before.map_or(fresh, |before| before.followed_by(fresh, self.looks, step));
            places.insert(partition, place);
        }
        see_which_stand(&mut places, step);
        let share = catch_up(&mut places);
        (self.places, self.uncommitted) = (places, uncommitted);
        let counted: u64 = self.places.values().map(|place| place.counted(share)).sum();
        let (least, even) = self.least();
        let lag = Lag { end: self.sum + undelivered_there + counted, committed: self.sum, least, even, step };
        let behind = self.places.iter().filter(|(_, place)| place.is_behind).map(|(partition, place)| Behind {
            partition: partition.clone(),
            undelivered: place.undelivered,
            counted: place.counted(share),
        });
        DeliveryLook { lag, behind: behind.collect() }
    }

    /// What commits have left ([`Lag::least`], [`Lag::even`]).
    fn least(&self) -> (u64, u64) {
        let counted = self.places.values().filter(|place| !place.is_behind).map(|place| (place.least, place.recent));
        let uncommitted = self.uncommitted.values().map(|least| (*least, 0.0));
        let mut leasts: Vec<(u64, f64)> = counted.chain(uncommitted).collect();
        leasts.sort_unstable_by_key(|(least, _)| *least);
        let all: f64 = leasts.iter().map(|(_, recent)| recent).sum();
        let mut below = 0.0;
        let median = leasts.iter().find(|(_, recent)| {
            below += recent;
            all > 0.0 && 2.0 * below >= all
        });
        let most = median.map_or(u64::MAX, |(median, _)| UNEVEN.saturating_mul(*median));
        leasts.iter().fold((0, 0), |(sum, even), (least, _)| (sum + least, even + least.min(&most)))
    }
}

impl PartitionStand {
    /// The same partition as the next look finds it.
    fn followed_by(self, now: Self, look: u64, step: u64) -> Self {
        let least = self.least.min(now.undelivered);
        let recent = FADES * self.recent;
        let next = Self { committed: now.committed, undelivered: now.undelivered, least, recent, ..self };
        if now.committed > self.committed {
            let took = self.given.map_or(0, |given| look - given);
            let stood = self.progressed == 0 || took > 2 * step;
            let goes_on_from = if stood { look } else { self.goes_on_from };
            // Commits that have become more frequent are believed little by little.
            let took = if took > LONGEST_STEP { 0 } else { took };
            let step = took.max(self.step - self.step.div_ceil(10));
            let least = now.undelivered;
            let recent = next.recent + to_f64(now.committed - self.committed);
            return Self {
                progressed: look,
                goes_on_from,
                given: None,
                given_again: None,
                step,
                least,
                recent,
                ..next
            };
        }
        if now.undelivered <= self.undelivered {
            return next;
        }
        let given = self.given.unwrap_or(look);
        let again = (look >= given + step).then_some(look);
        Self { given: Some(given), given_again: self.given_again.or(again), ..next }
    }

    /// How much of it counts.
    fn counted(&self, share: u64) -> u64 {
        if self.is_behind { self.undelivered.min(share) } else { self.undelivered }
    }
}

/// Finds the partitions that stand while others go on.
fn see_which_stand<P>(places: &mut BTreeMap<P, PartitionStand>, step: u64) {
    // One commit is not enough: after a stop of the whole group, each consumer commits at its own time.
    let goes_on = |place: &&PartitionStand| !place.is_behind && place.progressed >= place.goes_on_from + 2 * step;
    let mut progressed: Vec<u64> = places.values().filter(goes_on).map(|place| place.progressed).collect();
    progressed.sort_unstable();
    // How many others have gone on for two commits' time more than this one.
    let others = |place: &PartitionStand| {
        let from = place.given_again.map_or(u64::MAX, |since| since + 2 * step);
        progressed.len() - progressed.partition_point(|at| *at < from)
    };
    let standing = places.values().filter(|place| place.is_behind || others(place) > 0).count();
    for place in places.values_mut() {
        let others = others(place);
        place.is_behind |= others > 0 && others >= standing;
    }
}

/// Finds the partitions that have caught up, and returns how much of one that is behind counts: the mean of those that are not.
fn catch_up<P>(places: &mut BTreeMap<P, PartitionStand>) -> u64 {
    let (mut count, mut undelivered) = (0, 0_u64);
    for place in places.values().filter(|place| !place.is_behind) {
        (count, undelivered) = (count + 1, undelivered + place.undelivered);
    }
    let share = undelivered.checked_div(count).unwrap_or(u64::MAX);
    for place in places.values_mut() {
        let is_near = place.undelivered <= share.max(1).saturating_mul(2);
        place.is_behind &= place.given_again.is_some() || !is_near;
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_from_one_look_to_the_next_was_delivered_and_nothing_else() {
        let mut delivered = Delivered::default();
        let mut look = |partitions: [(Option<u64>, u64); 2]| {
            let lags = partitions.map(|(committed, undelivered)| PartitionLag { committed, undelivered });
            let DeliveryLook { lag, behind } = delivered.look([0, 1].into_iter().zip(lags));
            assert!(behind.is_empty(), "none stands for long");
            (lag.committed, lag.undelivered())
        };
        assert_eq!(look([(Some(100), 50), (None, 9_000)]), (0, 9_050), "where nothing is committed, all of it is left");
        assert_eq!(look([(Some(120), 30), (None, 9_000)]), (20, 9_030));
        assert_eq!(look([(Some(120), 30), (None, 4_000)]), (20, 4_030), "retention has deleted some");
        assert_eq!(look([(Some(130), 20), (Some(9_000), 0)]), (30, 20), "the first offset may be the end");
        assert_eq!(look([(Some(130), 20), (Some(9_007), 0)]), (37, 20));
        assert_eq!(look([(None, 150), (Some(9_007), 0)]), (37, 150), "an offset was deleted");
        assert_eq!(look([(Some(150), 0), (Some(9_000), 7)]), (37, 7), "and another one went back");
        assert_eq!(look([(Some(151), 0), (Some(9_001), 6)]), (39, 6));
    }

    #[test]
    fn what_a_slow_consumer_leaves_counts_little_and_so_do_partitions_with_few_intents_or_none() {
        let look = |undelivered: fn(u64) -> u64| {
            let mut delivered = Delivered::default();
            let looks = (0..60).map(|at| {
                let full = (0..12).map(|number| (Some(10 * at), undelivered(number)));
                let light = (0..12).map(|_| (Some(at / 10), 0));
                let lags = full.chain(light).chain((0..12).map(|_| (None, 0)));
                let lags = lags.map(|(committed, undelivered)| PartitionLag { committed, undelivered });
                let lag = delivered.look(lags.enumerate()).lag;
                (lag.least, lag.even)
            });
            looks.last().unwrap()
        };
        assert_eq!(look(|_| 100), (1_200, 1_200), "half of all intents are in the full ones");
        assert_eq!(look(|number| if number == 0 { 1_000 } else { 2 }), (1_022, 30));
    }

    /// An offset of a partition, by second.
    type Offset = fn(u64) -> u64;

    /// The looks at which partitions are behind, and which; each has what was approved in it by a second, and what was committed.
    fn behind(seconds: u64, partitions: [(Offset, Offset); 3]) -> Vec<(u64, Vec<Behind<usize>>)> {
        let mut delivered = Delivered::default();
        let found = (0..seconds).map(|at| {
            let lags = partitions.iter().map(|(end, committed)| {
                let (end, committed) = (end(at), committed(at));
                PartitionLag { committed: Some(committed), undelivered: end - committed }
            });
            (at, delivered.look(lags.enumerate()).behind)
        });
        found.filter(|(_, behind)| !behind.is_empty()).collect()
    }

    const GIVEN: Offset = |at| 10 * at;
    const COMMITTED: Offset = |at| 10 * (at / 5 * 5);

    #[test]
    fn a_partition_that_is_not_passed_counts_as_much_as_another_until_it_has_caught_up() {
        // From 400 s on it is passed, at 40 per second.
        let stands: Offset = |at| (950 + 40 * at.saturating_sub(400)).min(COMMITTED(at));
        let found = behind(800, [(GIVEN, COMMITTED), (GIVEN, COMMITTED), (GIVEN, stands)]);
        let (first, last) = (found[0].0, found[found.len() - 1].0);
        assert!((110..130).contains(&first), "{first}");
        assert!((480..510).contains(&last), "{last}");
        assert_eq!(found.len() as u64, last - first + 1, "without a gap");
        for (at, behind) in &found {
            let [Behind { partition: 2, counted, .. }] = behind[..] else { panic!("{at}: {behind:?}") };
            assert!(counted <= 50, "no more than the others have: {at}: {behind:?}");
        }
    }

    #[test]
    fn a_partition_without_traffic_is_not_behind_and_one_that_commits_less_often_is_not_either_once_that_is_known() {
        // At its end are offsets without a record: those of an aborted batch.
        let end: Offset = |at| if at < 100 { 70 } else { 10_070 };
        let passed: Offset = |_| 70;
        assert!(behind(400, [(GIVEN, COMMITTED), (GIVEN, COMMITTED), (end, passed)]).is_empty());
        let seldom: Offset = |at| 10 * (at / 40 * 40);
        let found = behind(1_000, [(GIVEN, COMMITTED), (GIVEN, COMMITTED), (GIVEN, seldom)]);
        assert!(found.last().is_none_or(|(at, _)| *at < 200), "{found:?}");
    }

    #[test]
    fn where_most_partitions_stand_or_all_of_them_none_is_behind() {
        let stands: Offset = |at| COMMITTED(at.min(100));
        let a_step_later: Offset = |at| COMMITTED(at.min(105));
        assert!(behind(900, [(GIVEN, stands), (GIVEN, stands), (GIVEN, COMMITTED)]).is_empty());
        assert!(behind(900, [(GIVEN, a_step_later), (GIVEN, stands), (GIVEN, a_step_later)]).is_empty());
        // And where they go on again, each at its own time.
        let goes_on: Offset = |at| if at < 500 { COMMITTED(at.min(100)) } else { COMMITTED(at) };
        let goes_on_later: Offset = |at| if at < 504 { COMMITTED(at.min(100)) } else { 10 * ((at + 1) / 5 * 5 - 1) };
        assert!(behind(900, [(GIVEN, goes_on), (GIVEN, goes_on_later), (GIVEN, goes_on)]).is_empty());
    }
}
