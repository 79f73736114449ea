//! Which buckets of deferred intents a lane reads: those whose time has come, the oldest first.
//!
//! A lane reads all its buckets until it meets a record whose time has not come. Then that bucket sleeps until it has: what is
//! behind the record is due no sooner (see [`weir_core::deferral::wheel`]). Where several buckets are overdue, the younger ones sleep until
//! the oldest one is empty: until its broker has told that it ends behind the last record that was read. The first record that a lane
//! reads may be of any bucket, so at its start all sleep until each has given a record or its end.
//!
//! A silent bucket, whose partition's leader does not answer, holds the others up for [`SILENT_FOR`]. Only then younger buckets are read
//! before it.
//!
//! So nobody asks brokers for the lag of buckets: what comes late into a bucket that has been open for long is fetched at once, and
//! empty buckets only take a place in the session of fetches.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use weir_core::{
    basis::time::Time,
    batch::record::Records,
    deferral::wheel::{Bucket, OPENS_BEFORE_MS, Ring, Wheel},
    ports::{Clock, Sink, Source, Store},
};

use super::{Interruption, Lane, LaneState};

/// For how long the other buckets wait for a silent one: longer than brokers take, as a rule, to elect another leader. Only the time of
/// polls counts: after any other wait of the lane, what brokers have answered meanwhile is still to be taken.
const SILENT_FOR: Duration = Duration::from_secs(10);

/// The first record of a bucket that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    offset: i64,
    /// The time from which it may be decided.
    opens: Time,
    /// When its bucket begins.
    slot: Time,
}

/// A bucket that is read and has not told its end.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// When it begins, by the first record that was read of it.
    slot: Time,
    /// The offset behind the last record that is known.
    next: i64,
    /// For how long it has given no record.
    silent: Duration,
}

/// A lane's start, until all buckets have given a record or their end.
#[derive(Debug, Default)]
struct Starting {
    heard: usize,
    /// For how long no further one has.
    silent: Duration,
}

#[derive(Debug)]
pub(super) struct Ripe {
    ring: Ring,
    wheel: Wheel,
    asleep: BTreeMap<i32, Head>,
    /// Those that are emptied now. The others that do not sleep were empty when they told their end, or are silent.
    reading: BTreeMap<i32, Reading>,
    starting: Option<Starting>,
    /// When the last poll began, by a clock that was right then.
    polled_at: Time,
}

impl Ripe {
    pub(super) fn new(ring: Ring, wheel: Wheel) -> Self {
        let (asleep, reading, starting) = (BTreeMap::new(), BTreeMap::new(), Some(Starting::default()));
        Self { ring, wheel, asleep, reading, starting, polled_at: Time::default() }
    }

    /// All buckets are read again, from the committed offsets on.
    pub(super) fn start(&mut self) {
        *self = Self::new(self.ring, self.wheel);
    }

    /// Whether ends have to be told before further buckets are read.
    fn awaits_ends(&self) -> bool {
        self.starting.is_some() || !self.reading.is_empty()
    }

    /// Notes which ends were told, and waits no longer for silent buckets. `all`: how many partitions the lane has.
    fn hear(&mut self, ends: &BTreeMap<i32, i64>, all: usize) {
        let ring = self.ring.as_str();
        if let Some(starting) = &mut self.starting {
            let heard = self.asleep.keys().chain(ends.keys()).collect::<BTreeSet<_>>().len();
            if heard > starting.heard {
                *starting = Starting { heard, silent: Duration::ZERO };
            }
            let is_silent = heard < all && starting.silent >= SILENT_FOR;
            if is_silent {
                tracing::warn!(
                    heard,
                    partitions = all,
                    "{ring} of deferred intents: partitions give neither a record nor their end: the lane reads the others"
                );
            }
            if heard >= all || is_silent {
                self.starting = None;
            }
        }
        self.reading.retain(|partition, bucket| {
            if ends.get(partition).is_some_and(|end| *end >= bucket.next) {
                return false;
            }
            let is_silent = bucket.silent >= SILENT_FOR;
            if is_silent {
                tracing::warn!(
                    partition,
                    "{ring} of deferred intents: a partition gives neither a record nor its end: the lane reads younger ones"
                );
            }
            !is_silent
        });
    }

    /// The buckets to read next: the oldest ones that are open, once the current ones are empty.
    fn wake(&mut self, now: Time) -> Vec<i32> {
        self.polled_at = now;
        if self.awaits_ends() {
            return Vec::new();
        }
        let open = self.asleep.values().filter(|head| head.opens <= now).map(|head| head.slot).min();
        let Some(oldest) = open else { return Vec::new() };
        let is_woken = |head: &Head| head.opens <= now && head.slot == oldest;
        for (partition, head) in self.asleep.iter().filter(|(_, head)| is_woken(head)) {
            let bucket = Reading { slot: oldest, next: head.offset + 1, silent: Duration::ZERO };
            self.reading.insert(*partition, bucket);
        }
        self.asleep.retain(|_, head| !is_woken(head));
        self.reading.keys().copied().collect()
    }

    /// Puts buckets to sleep by the records that were read: buckets that are not open, buckets younger than the oldest open
    /// one, and at the start all. Returns the offset to which each goes back. `now`: `None` while the clock is wrong; nothing is due then.
    /// `waited`: how long the poll waited for records.
    ///
    /// # Errors
    /// The partition of a record that is not of its bucket.
    fn put_back(&mut self, batch: &impl Records, now: Option<Time>, waited: Duration) -> Result<Vec<(i32, i64)>, i32> {
        let puts_all = self.starting.is_some() || now.is_none();
        let now = now.unwrap_or(self.polled_at);
        self.starting.iter_mut().for_each(|starting| starting.silent += waited);
        self.reading.values_mut().for_each(|bucket| bucket.silent += waited);
        let heads = self.heads(batch, now)?;
        // A bucket is as old as the first record that was read of it.
        let mut firsts: BTreeMap<i32, Head> = BTreeMap::new();
        for (partition, head) in &heads {
            let slot = self.reading.get(partition).map_or(head.slot, |bucket| bucket.slot);
            firsts.entry(*partition).or_insert(Head { slot, ..*head });
        }
        let open = firsts.values().chain(self.asleep.values()).filter(|head| head.opens <= now);
        let others = self.reading.iter().filter(|(partition, _)| !firsts.contains_key(partition));
        let oldest = open.map(|head| head.slot).chain(others.map(|(_, bucket)| bucket.slot)).min();
        let (mut from, mut asleep) = (Vec::new(), BTreeSet::new());
        for (partition, head) in heads {
            let slot = firsts[&partition].slot;
            if asleep.contains(&partition) {
                continue;
            }
            if puts_all || head.opens > now || Some(slot) > oldest {
                asleep.insert(partition);
                self.reading.remove(&partition);
                self.asleep.insert(partition, head);
                from.push((partition, head.offset));
            } else {
                self.reading.insert(partition, Reading { slot, next: head.offset + 1, silent: Duration::ZERO });
            }
        }
        Ok(from)
    }

    /// The partition of each record, and what its bucket is where it is the first one.
    ///
    /// # Errors
    /// The partition of a record that is not of its bucket.
    fn heads(&self, batch: &impl Records, now: Time) -> Result<Vec<(i32, Head)>, i32> {
        let (ring, wheel) = (self.ring, self.wheel);
        let head = |index: usize| {
            let record = batch.get(index);
            // A record that weir has not written becomes a dead letter at once.
            let due = record.deferral.map_or(Time::MIN, |deferral| deferral.due);
            let bucket = Bucket { ring, partition: record.partition };
            if wheel.is_misplaced(bucket, due, now) {
                return Err(record.partition);
            }
            let (opens, slot) = (ring.opens(due), wheel.slot_of(bucket, due, now));
            Ok((record.partition, Head { offset: record.offset, opens, slot }))
        };
        (0..batch.len()).map(head).collect()
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
        if ripe.awaits_ends() {
            let ends = self.source.ends_read().into_iter().map(|end| (end.partition, end.next_offset));
            ripe.hear(&ends.collect(), self.source.partitions());
        }
        let woken = ripe.wake(now);
        if !woken.is_empty() {
            self.source.resume(&woken).await?;
        }
        Ok(())
    }

    /// Puts back what of a batch is not to be taken yet. `waited`: how long its poll waited for records.
    pub(super) async fn put_unripe_back(
        &mut self,
        state: &mut LaneState,
        batch: &mut S::Batch,
        waited: Duration,
    ) -> Result<(), Interruption> {
        let Some(ripe) = &mut state.ripe else { return Ok(()) };
        let from = ripe.put_back(batch, self.clock.time_to_decide(&[]).ok(), waited).map_err(|partition| {
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
