//! Which buckets of deferred intents a lane reads: those whose time has come, the oldest first.
//!
//! A lane reads all its buckets until it meets a record whose time has not come. Then that bucket sleeps until it has: what is
//! behind the record is due no sooner (see [`weir_core::wheel`]). Where several buckets are overdue, the younger ones sleep until
//! the oldest one is empty. What a lane reads first may be of any of them, so at its start all sleep until no more comes.
//!
//! So nobody asks brokers for the lag of buckets: what comes late into a bucket that has been open for long is fetched at once, and
//! empty buckets only take a place in the session of fetches.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use weir_core::{
    ports::{Clock, Sink, Source, Store},
    record::Records,
    time::Time,
    wheel::{Bucket, OPENS_BEFORE_MS, Ring, Wheel},
};

use super::{Interruption, Lane, LaneState};

/// For how long nothing must come out of the buckets that are read until they count as empty: a fetch takes less as a rule.
const EMPTY_AFTER: Duration = Duration::from_millis(250);

/// The first record of a bucket that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    /// The time from which it may be decided.
    opens: Time,
    /// When its bucket begins.
    slot: Time,
}

/// The buckets of a lane.
#[derive(Debug)]
pub(super) struct Ripe {
    ring: Ring,
    wheel: Wheel,
    asleep: BTreeMap<i32, Head>,
    /// When something was read last.
    read_at: Option<Duration>,
    /// Whether a bucket was woken since the start: until then the oldest one may not have come yet.
    has_begun: bool,
}

impl Ripe {
    pub(super) fn new(ring: Ring, wheel: Wheel) -> Self {
        Self { ring, wheel, asleep: BTreeMap::new(), read_at: None, has_begun: false }
    }

    /// All buckets are read again, from the committed offsets on.
    pub(super) fn start(&mut self) {
        self.asleep.clear();
        self.read_at = None;
        self.has_begun = false;
    }

    /// The buckets to read next: the oldest ones that are open, once the current ones are empty.
    fn wake(&mut self, now: Time, passed: Duration) -> Vec<i32> {
        let open = self.asleep.values().filter(|head| head.opens <= now).map(|head| head.slot).min();
        let Some(oldest) = open else { return Vec::new() };
        if self.read_at.is_some_and(|at| passed.saturating_sub(at) < EMPTY_AFTER) {
            return Vec::new();
        }
        let woken = |(partition, head): (&i32, &Head)| (head.opens <= now && head.slot == oldest).then_some(*partition);
        let woken: Vec<i32> = self.asleep.iter().filter_map(woken).collect();
        self.asleep.retain(|partition, _| !woken.contains(partition));
        // What they have comes with the next fetch.
        self.read_at = Some(passed);
        self.has_begun = true;
        woken
    }

    /// Puts buckets to sleep by the records that were read: buckets that are not open, buckets younger than the oldest open
    /// one, and at the start all. Returns the offset to which each goes back.
    ///
    /// # Errors
    /// The partition of a record that is not of its bucket.
    fn put_back(&mut self, batch: &impl Records, now: Time, passed: Duration) -> Result<Vec<(i32, i64)>, i32> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let (ring, wheel) = (self.ring, self.wheel);
        let head = |index: usize| {
            let record = batch.get(index);
            // A record that weir has not written becomes a dead letter at once.
            let due = record.deferral.map_or(Time::MIN, |deferral| deferral.due);
            let bucket = Bucket { ring, partition: record.partition };
            if wheel.is_misplaced(bucket, due, now) {
                return Err(record.partition);
            }
            let head = Head { opens: ring.opens(due), slot: wheel.slot_of(bucket, due, now) };
            Ok((record.partition, record.offset, head))
        };
        let heads: Vec<(i32, i64, Head)> = (0..batch.len()).map(head).collect::<Result<_, _>>()?;
        // A bucket is as old as the first record that was read of it.
        let mut firsts: BTreeMap<i32, Head> = BTreeMap::new();
        heads.iter().for_each(|(partition, _, head)| _ = firsts.entry(*partition).or_insert(*head));
        let open = firsts.values().chain(self.asleep.values()).filter(|head| head.opens <= now);
        let oldest = open.map(|head| head.slot).min();
        let (mut from, mut asleep) = (Vec::new(), BTreeSet::new());
        for (partition, offset, head) in heads {
            let waits = !self.has_begun || head.opens > now || Some(firsts[&partition].slot) > oldest;
            if waits && asleep.insert(partition) {
                self.asleep.insert(partition, head);
                from.push((partition, offset));
            }
        }
        if firsts.values().any(|first| first.opens <= now && Some(first.slot) <= oldest) {
            self.read_at = Some(passed);
        }
        Ok(from)
    }

    /// Puts all buckets to sleep that something was read of: while the clock is wrong nothing is due.
    fn put_all_back(&mut self, batch: &impl Records) -> Vec<(i32, i64)> {
        let mut from = Vec::new();
        for index in 0..batch.len() {
            let record = batch.get(index);
            let due = record.deferral.map_or(Time::MIN, |deferral| deferral.due);
            let head = Head { opens: self.ring.opens(due), slot: self.ring.slot(due) };
            if !from.iter().any(|(partition, _)| *partition == record.partition) {
                self.asleep.insert(record.partition, head);
                from.push((record.partition, record.offset));
            }
        }
        from
    }

    /// Whether a batch holds records that are far from due: the clock was put back since they were read.
    pub(super) fn is_far_from_due(&self, batch: &impl Records, now: Time) -> bool {
        let far = |index| {
            let deferral = batch.get(index).deferral;
            deferral.is_some_and(|deferral| self.ring.opens(deferral.due) > now.plus(OPENS_BEFORE_MS))
        };
        (0..batch.len()).any(far)
    }
}

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Reads on in buckets whose time has come.
    pub(super) async fn wake_buckets(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        if state.ripe.is_none() {
            return Ok(());
        }
        // By a wrong clock buckets would be read too early, or never.
        let now = self.time_to_decide(state, &self.source.batch()).await?;
        let Some(ripe) = &mut state.ripe else { return Ok(()) };
        let woken = ripe.wake(now, self.clock.passed());
        if !woken.is_empty() {
            self.source.resume(&woken).await?;
        }
        Ok(())
    }

    /// Puts back what of a batch is not to be taken yet.
    pub(super) async fn put_unripe_back(
        &mut self,
        state: &mut LaneState,
        batch: &mut S::Batch,
    ) -> Result<(), Interruption> {
        let Some(ripe) = &mut state.ripe else { return Ok(()) };
        let from = match self.clock.time_to_decide(&[]) {
            Ok(now) => ripe.put_back(batch, now, self.clock.passed()),
            Err(_) => Ok(ripe.put_all_back(batch)),
        };
        let from = from.map_err(|partition| {
            Interruption::Fatal(format!(
                "partition {partition} of the {} of deferred intents holds an intent that belongs to another: partitions were added to \
                 the topic. Set kafka.deferred to a new prefix, whose topics weir check --create creates, and list the old one in \
                 kafka.deferred_before once its topics have the partitions of before (docs/operations.md)",
                ripe.ring.as_str()
            ))
        })?;
        if !from.is_empty() {
            self.source.put_back(batch, &from).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use weir_core::{
        deferral::{DeferReason, Deferral},
        record::{Headers, RecordView},
    };

    use super::*;

    struct NoHeaders;

    impl Headers for NoHeaders {
        fn header(&self, _: usize) -> Option<(&[u8], Option<&[u8]>)> {
            None
        }
    }

    /// Records: partition, offset and deferral.
    struct Batch(Vec<(i32, i64, Deferral)>);

    impl Records for Batch {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn get(&self, index: usize) -> RecordView<'_> {
            let (partition, offset, deferral) = &self.0[index];
            let (partition, offset) = (*partition, *offset);
            let deferral = Some(deferral);
            RecordView { key: None, value: None, partition, offset, timestamp: None, headers: &NoHeaders, deferral }
        }
    }

    fn time(clock: &str) -> Time {
        Time::from_rfc3339(&format!("2026-11-20T{clock}:00Z")).unwrap()
    }

    /// Records of the minutes with one share: partition, offset, and when each is due.
    fn batch(records: &[(i32, i64, &str)]) -> Batch {
        let deferral = |due| Deferral {
            due: time(due),
            topic: "t".into(),
            partition: 0,
            offset: 0,
            first_at: Time::default(),
            why: DeferReason::TooEarly,
            count: 1,
        };
        Batch(records.iter().map(|(partition, offset, due)| (*partition, *offset, deferral(due))).collect())
    }

    /// Buckets of a lane that has woken one.
    fn begun(ring: Ring, shares: u16) -> Ripe {
        Ripe { has_begun: true, ..Ripe::new(ring, Wheel { shares }) }
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_bucket_sleeps_until_its_first_record_is_due() {
        let mut ripe = begun(Ring::Minutes, 1);
        // 18:30 is minute 30 of the two hours that the ring has.
        let read = batch(&[(30, 7, "18:30"), (31, 0, "18:31"), (30, 8, "18:30"), (31, 1, "18:31")]);
        assert_eq!(ripe.put_back(&read, time("18:30"), s(1)), Ok([(31, 0)].to_vec()));
        assert_eq!(ripe.wake(time("18:30"), s(10)), [] as [i32; 0]);
        assert_eq!(ripe.wake(time("18:31"), s(60)), [31]);
        assert_eq!(ripe.wake(time("18:31"), s(70)), [] as [i32; 0], "it is awake");
    }

    #[test]
    fn a_record_of_the_next_round_waits_behind_those_of_this_one() {
        let mut ripe = begun(Ring::Minutes, 1);
        let read = batch(&[(30, 7, "18:30"), (30, 8, "20:30"), (30, 9, "20:30")]);
        assert_eq!(ripe.put_back(&read, time("19:40"), s(1)), Ok([(30, 8)].to_vec()));
        assert_eq!(ripe.wake(time("20:29"), s(3_000)), [] as [i32; 0]);
        assert_eq!(ripe.wake(time("20:30"), s(3_060)), [30]);
    }

    #[test]
    fn the_oldest_bucket_is_emptied_before_the_next_one_is_read() {
        let mut ripe = begun(Ring::Minutes, 1);
        let read = batch(&[(32, 0, "18:32"), (30, 0, "18:30"), (31, 0, "18:31"), (31, 1, "18:31")]);
        assert_eq!(ripe.put_back(&read, time("18:45"), s(1)), Ok([(32, 0), (31, 0)].to_vec()));
        assert_eq!(ripe.wake(time("18:45"), s(1)), [] as [i32; 0], "bucket 30 may have more");
        assert_eq!(ripe.put_back(&batch(&[(30, 1, "18:30")]), time("18:45"), s(2)), Ok(Vec::new()));
        assert_eq!(ripe.wake(time("18:45"), s(3)), [31]);
        assert_eq!(ripe.wake(time("18:45"), s(3)), [] as [i32; 0], "what 31 has is on its way");
        assert_eq!(ripe.wake(time("18:45"), s(4)), [32]);
    }

    #[test]
    fn at_the_start_nothing_is_taken_until_the_oldest_bucket_must_have_come() {
        let mut ripe = Ripe::new(Ring::Minutes, Wheel { shares: 1 });
        let ms = Duration::from_millis;
        // The answer of a broker comes in pieces: the younger bucket first.
        assert_eq!(
            ripe.put_back(&batch(&[(31, 4, "18:31"), (31, 5, "18:31")]), time("18:45"), ms(0)),
            Ok(vec![(31, 4)])
        );
        assert_eq!(ripe.wake(time("18:45"), ms(100)), [] as [i32; 0]);
        assert_eq!(ripe.put_back(&batch(&[(30, 7, "18:30")]), time("18:45"), ms(100)), Ok(vec![(30, 7)]));
        // Buckets that fill meanwhile and are not due hold nothing up.
        assert_eq!(ripe.put_back(&batch(&[(50, 0, "18:50")]), time("18:45"), ms(300)), Ok(vec![(50, 0)]));
        assert_eq!(ripe.wake(time("18:45"), ms(350)), [30]);
        assert_eq!(ripe.put_back(&batch(&[(30, 7, "18:30")]), time("18:45"), ms(400)), Ok(Vec::new()));
        assert_eq!(ripe.wake(time("18:45"), ms(650)), [31]);
        ripe.start();
        assert_eq!(ripe.put_back(&batch(&[(31, 4, "18:31")]), time("18:45"), ms(700)), Ok(vec![(31, 4)]), "once more");
    }

    #[test]
    fn what_was_overdue_when_it_was_moved_on_is_read_in_the_bucket_of_that_minute() {
        let mut ripe = begun(Ring::Minutes, 2);
        // Two shares of 18:45, with records that were due at several times.
        let read = batch(&[(90, 0, "09:10"), (91, 0, "03:01"), (90, 1, "04:00")]);
        assert_eq!(ripe.put_back(&read, time("18:45"), s(1)), Ok(Vec::new()));
    }

    #[test]
    fn a_bucket_with_records_of_several_times_is_read_on() {
        let mut ripe = begun(Ring::Minutes, 1);
        // Moved on at 18:45, which is minute 45 of two hours, and due when minute 45 was last: 16:45.
        let read = batch(&[(45, 0, "09:10"), (45, 1, "16:45"), (45, 2, "09:10")]);
        assert_eq!(ripe.put_back(&read, time("18:45"), s(1)), Ok(Vec::new()));
    }

    #[test]
    fn an_older_bucket_that_sleeps_is_emptied_before_a_younger_one_that_fills() {
        let mut ripe = begun(Ring::Minutes, 1);
        assert_eq!(ripe.put_back(&batch(&[(31, 0, "18:31")]), time("18:30"), s(0)), Ok([(31, 0)].to_vec()));
        // 31 is due, and sleeps; 45 is filled, and is not read on.
        let read = batch(&[(45, 0, "18:45")]);
        assert_eq!(ripe.put_back(&read, time("18:45"), s(900)), Ok([(45, 0)].to_vec()));
        assert_eq!(ripe.wake(time("18:45"), s(901)), [31]);
        assert_eq!(ripe.wake(time("18:45"), s(902)), [45]);
    }

    #[test]
    fn a_record_that_is_not_of_its_bucket_is_found_and_one_that_was_moved_on_late_is_none() {
        let mut ripe = begun(Ring::Hours, 2);
        // Written when a bucket had one partition: 42 is half of bucket 21 now.
        assert_eq!(ripe.put_back(&batch(&[(42, 0, "18:00")]), time("09:00"), s(1)), Err(42));
        let mut ripe = begun(Ring::Minutes, 1);
        // Moved on by a clock that is four minutes ahead.
        assert_eq!(ripe.put_back(&batch(&[(34, 0, "18:31")]), time("18:30"), s(1)), Ok([(34, 0)].to_vec()));
    }

    #[test]
    fn while_the_clock_is_wrong_all_that_was_read_is_put_back() {
        let mut ripe = begun(Ring::Hours, 1);
        let read = batch(&[(42, 3, "18:00"), (42, 4, "18:10"), (44, 0, "20:00")]);
        assert_eq!(ripe.put_all_back(&read), [(42, 3), (44, 0)]);
        assert_eq!(ripe.wake(time("17:55"), s(1)), [42]);
        assert!(
            ripe.is_far_from_due(&read, time("17:55"))
                && !ripe.is_far_from_due(&batch(&[(42, 3, "18:00")]), time("17:55"))
        );
    }

    #[test]
    fn an_hour_is_read_from_five_minutes_before_it_begins() {
        let mut ripe = begun(Ring::Hours, 1);
        let read = batch(&[(42, 0, "18:00"), (42, 1, "18:59")]);
        assert_eq!(ripe.put_back(&read, time("17:54"), s(1)), Ok([(42, 0)].to_vec()));
        assert_eq!(ripe.wake(time("17:55"), s(61)), [42]);
        assert_eq!(ripe.put_back(&read, time("17:55"), s(62)), Ok(Vec::new()));
    }
}
