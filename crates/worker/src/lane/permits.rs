//! The permits of a lane that decides intents which wait for a route: it reads no more than it has taken, and what has waited for too
//! long.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use weir_core::{
    basis::time::Time,
    batch::{decider::Takes, record::Records},
    limit::route::{
        WhenFull, is_overdue,
        permits::LEASE,
        routes::{Pool, RouteState, Taken},
    },
    policy::Mode,
    ports::{Clock, Sink, Source, Store},
};

use super::{InFlight, Interruption, Iteration, Lane, LaneState, Task};
use crate::group_loop::GroupLoop;

/// How long a lane without permits rests until it looks again: permits are granted about twice a second.
const REST: Duration = Duration::from_millis(25);

/// How long a partition without permits is not read at the most: then what it has may have waited for too long.
const SLEEP: Duration = Duration::from_secs(10);

/// Partitions that a lane does not read: what they have needs permits, and there are none. All of them are read from the start on.
#[derive(Debug, Default)]
pub(super) struct Asleep {
    partitions: BTreeSet<i32>,
    /// Until then, by the monotonic clock.
    until: Duration,
}

impl Asleep {
    pub(super) fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }
}

/// How many records a lane may read, and the permits that it has taken for them.
pub(super) enum Allowance {
    /// So many: they take their permits when they are decided, if they need any.
    Records(usize),
    /// As many as there are permits, and more that may have waited for too long.
    Permits {
        taken: Taken,
        /// Until when they may be used, by the monotonic clock.
        kept_until: Duration,
        /// How many more records: those need none.
        overdue: usize,
    },
}

impl Allowance {
    pub(super) fn records(&self) -> usize {
        match self {
            Self::Records(records) => *records,
            Self::Permits { taken, overdue, .. } => count(taken).saturating_add(*overdue),
        }
    }

    /// Until when its permits may be used; `None`: it has none.
    pub(super) const fn kept_until(&self) -> Option<Duration> {
        match self {
            Self::Records(_) => None,
            Self::Permits { kept_until, .. } => Some(*kept_until),
        }
    }
}

fn count(taken: &Taken) -> usize {
    usize::try_from(taken.units()).unwrap_or(usize::MAX)
}

/// From which offset on each partition is to be put back, so that what is left of a batch needs no more than so many permits.
fn without_permits(batch: &impl Records, mut permits: usize, now: Time) -> BTreeMap<i32, i64> {
    let mut from = BTreeMap::new();
    for index in 0..batch.len() {
        let record = batch.get(index);
        if from.contains_key(&record.partition) || is_overdue(record.timestamp, now) {
            continue;
        }
        match permits.checked_sub(1) {
            Some(left) => permits = left,
            None => _ = from.insert(record.partition, record.offset),
        }
    }
    from
}

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// How many of at most so many records may be read now.
    ///
    /// # Errors
    /// Another process has taken over the turns of this instance. Its producers are fenced, too; but this lane, without permits, commits
    /// nothing by which it would hear of that, and nobody else reads its partitions.
    pub(super) fn allowance(&self, most: usize) -> Result<Allowance, Interruption> {
        let passed = self.clock.passed();
        Ok(match self.waits_for() {
            Some(route) if route.is_taken_over() => {
                return Err(Interruption::Fatal(format!(
                    "another instance took over the turns of this one at the route {}: give each instance a kafka.instance of its own. This \
                     one stops",
                    route.name
                )));
            }
            // While nothing waits, permits are for intents that come.
            Some(route) if !route.is_queueing() => {
                route.looked(false, passed);
                Allowance::Records(0)
            }
            Some(route) => {
                let overdue = usize::try_from(route.overdue()).unwrap_or(usize::MAX);
                let taken = Taken::general(route, u64::try_from(most).unwrap_or(u64::MAX), passed);
                let overdue = overdue.min(most.saturating_sub(count(&taken)));
                // A batch without permits does not wait for longer, either.
                let kept_until = taken.until().min(passed + LEASE);
                Allowance::Permits { taken, kept_until, overdue }
            }
            None => Allowance::Records(most),
        })
    }

    /// Where a batch takes its permits that was read by this allowance. Returns permits that it cannot need.
    pub(super) fn permits_for(&self, batch: &S::Batch, allowance: Allowance) -> Takes {
        match allowance {
            Allowance::Records(_) => self.no_permits(),
            Allowance::Permits { mut taken, .. } => {
                taken.keep(0, u64::try_from(batch.len()).unwrap_or(u64::MAX));
                Takes::WithPermits(taken)
            }
        }
    }

    /// None that were taken before. What was read at full speed, and waits again by the policy of when it is decided, is read again.
    fn no_permits(&self) -> Takes {
        self.queue().map_or(Takes::FromPools, |route| Takes::WithPermits(Taken::none(route)))
    }

    /// Of the permits of a batch that is given up, those that a batch of waiting intents keeps until it is judged again. Without them its
    /// intents would queue again, behind newer ones.
    pub(super) fn permits_kept(&self, permits: Vec<Taken>) -> Option<Taken> {
        let route = self.waits_for()?;
        permits.into_iter().find(|taken| taken.is_of(&route))
    }

    /// Where the records of a batch take their permits when it is judged again. Those that it has kept for as long as they were leased
    /// are given up first: other members may have been granted them meanwhile.
    pub(super) fn permits_again(&self, batch: &S::Batch, kept: Option<Taken>, kept_until: &mut Duration) -> Takes {
        let Some(route) = self.waits_for() else { return self.no_permits() };
        let passed = self.clock.passed();
        let kept = kept.filter(|_| passed < *kept_until);
        let mut taken = kept.unwrap_or_else(|| {
            *kept_until = passed + LEASE;
            Taken::none(route)
        });
        let lacking = u64::try_from(batch.len()).unwrap_or(u64::MAX).saturating_sub(taken.units());
        taken.take(Pool::General, lacking, passed);
        *kept_until = taken.until().min(*kept_until);
        Takes::WithPermits(taken)
    }

    /// Tells the route whether this lane has found intents that wait, with or without permits for them.
    pub(super) fn looked_for_waiting(&self, state: &LaneState) {
        if let Some(route) = self.waits_for() {
            route.looked(!state.found_nothing, self.clock.passed());
        }
    }

    /// The route whose waiting intents this lane reads, where that bounds it: not in shadow mode, nor once no intent waits for the
    /// route by the policy of now. The lane then reads on, and the policy decides what still waits.
    fn waits_for(&self) -> Option<Arc<RouteState>> {
        let (state, policy) = (self.queue()?, self.decider.policy.get());
        let route = policy.routes.iter().find(|route| route.name == state.name);
        let waits = route.is_some_and(|route| route.when_full == WhenFull::Wait);
        (policy.mode != Mode::Shadow && waits).then_some(state)
    }

    /// The route whose topic of waiting intents this lane reads, whatever the policy says.
    fn queue(&self) -> Option<Arc<RouteState>> {
        let Task::Waiting(topic) = self.task else { return None };
        self.decider.held.routes.as_ref()?.waiting_on(topic)
    }

    /// Puts back what has no permit and has not waited for too long, and reads no more of its partitions.
    pub(super) async fn put_early_back(
        &mut self,
        state: &mut LaneState,
        batch: &mut S::Batch,
        allowance: &Allowance,
    ) -> Result<(), Interruption> {
        let Allowance::Permits { taken, overdue, .. } = allowance else { return Ok(()) };
        if *overdue == 0 {
            return Ok(());
        }
        let from: Vec<(i32, i64)> = without_permits(batch, count(taken), self.clock.now()).into_iter().collect();
        if !from.is_empty() {
            state.asleep.partitions.extend(from.iter().map(|(partition, _)| *partition));
            state.asleep.until = self.clock.passed() + SLEEP;
            self.source.put_back(batch, &from).await?;
        }
        Ok(())
    }

    /// Reads on in partitions that were put back, once there are permits for what they have, or it may have waited for too long.
    pub(super) async fn wake_partitions(
        &mut self,
        state: &mut LaneState,
        allowance: &Allowance,
    ) -> Result<(), Interruption> {
        let has_none =
            matches!(allowance, Allowance::Permits { taken, overdue, .. } if taken.units() == 0 && *overdue > 0);
        if state.asleep.is_empty() || has_none && self.clock.passed() < state.asleep.until {
            return Ok(());
        }
        let partitions: Vec<i32> = std::mem::take(&mut state.asleep).partitions.into_iter().collect();
        Ok(self.source.resume(&partitions).await?)
    }

    /// Reads nothing for a moment, and serves the group.
    pub(super) async fn rest(&mut self, state: &mut LaneState) -> Result<Iteration<S::Batch, InFlight>, Interruption> {
        self.poll_commit(state, Duration::ZERO).await?;
        self.serve().await?;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Interruption::Stop),
            () = self.clock.sleep(REST) => Ok(Iteration::Rested),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_core::limit::route::MAX_WAIT_MS;

    use super::*;
    use crate::tests::{Row, Rows};

    #[test]
    fn a_partition_is_put_back_from_its_first_record_without_a_permit_on_and_overdue_ones_before_need_none() {
        let now = Time::from_millis(1_000 * MAX_WAIT_MS).unwrap();
        let (old, new) = (Some(now.plus(-MAX_WAIT_MS)), Some(now.plus(1 - MAX_WAIT_MS)));
        let all = [(1, 5, old), (2, 7, new), (1, 6, new), (1, 7, new), (2, 8, new), (3, 0, old), (1, 8, old)];
        let row = |(partition, offset, timestamp)| Row { partition, offset, timestamp, deferral: None };
        let batch = Rows(all.map(row).into());
        let from = |permits| without_permits(&batch, permits, now).into_iter().collect::<Vec<_>>();
        assert_eq!(from(0), [(1, 6), (2, 7)]);
        assert_eq!(from(1), [(1, 6), (2, 8)]);
        assert_eq!(from(3), [(2, 8)]);
        assert_eq!(from(4), []);
    }
}
