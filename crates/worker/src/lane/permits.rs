//! The permits of a lane that decides intents which wait for a route: it reads no more than it has taken.

use std::{sync::Arc, time::Duration};

use weir_core::{
    decider::{BatchDecision, PermitsFrom},
    permits::LEASE,
    policy::Mode,
    ports::{Clock, Sink, Source, Store},
    record::Records,
    route::WhenFull,
    routes::{Pool, RouteState, Taken},
};

use super::{Interruption, Lane, LaneState, Task};
use crate::group_loop::GroupLoop;

/// How long a lane without permits rests until it looks again: permits are granted about twice a second.
const REST: Duration = Duration::from_millis(25);

/// How many records a lane may read, and the permits that it has taken for them.
pub(super) enum Allowance {
    /// So many: they take their permits when they are decided, if they need any.
    Records(usize),
    /// So many as there are permits.
    Permits(Taken),
}

impl Allowance {
    pub(super) fn records(&self) -> usize {
        match self {
            Self::Records(records) => *records,
            Self::Permits(taken) => usize::try_from(taken.permits()).unwrap_or(usize::MAX),
        }
    }

    /// Where this batch takes its permits. Returns permits that it cannot need.
    pub(super) fn for_batch(self, batch: &impl Records) -> PermitsFrom {
        match self {
            Self::Records(_) => PermitsFrom::Pools,
            Self::Permits(mut taken) => {
                taken.keep(u64::try_from(batch.len()).unwrap_or(u64::MAX));
                PermitsFrom::Taken(taken)
            }
        }
    }
}

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// How many of at most so many records may be read now.
    pub(super) fn allowance(&self, most: usize) -> Allowance {
        match self.waits_for() {
            // While nothing waits, permits are for intents that come.
            Some(route) if !route.is_queueing() => Allowance::Records(0),
            Some(route) => {
                let most = u64::try_from(most).unwrap_or(u64::MAX);
                Allowance::Permits(Taken::general(route, most, self.clock.passed()))
            }
            None => Allowance::Records(most),
        }
    }

    /// The permits that a batch of waiting intents keeps until it is judged again. Without them its intents would queue again, behind
    /// newer ones.
    pub(super) fn permits_kept(&self, batch_decision: &mut BatchDecision) -> Option<Taken> {
        let (taken, route) = (batch_decision.permits_where(|_| true), self.waits_for()?);
        taken.into_iter().find(|taken| Arc::ptr_eq(taken.state(), &route))
    }

    /// Where the records of a batch take their permits when it is judged again. Those that it has kept for as long as permits are leased
    /// go back first: other members may have been granted them meanwhile.
    pub(super) fn permits_again(
        &self,
        batch: &S::Batch,
        kept: Option<Taken>,
        kept_until: &mut Duration,
    ) -> PermitsFrom {
        let Some(route) = self.waits_for() else { return PermitsFrom::Pools };
        let passed = self.clock.passed();
        let kept = kept.filter(|_| passed < *kept_until);
        let mut taken = kept.unwrap_or_else(|| {
            *kept_until = passed + LEASE;
            Taken::none(route)
        });
        let lacking = u64::try_from(batch.len()).unwrap_or(u64::MAX).saturating_sub(taken.permits());
        taken.take(Pool::General, lacking, passed);
        PermitsFrom::Taken(taken)
    }

    /// The route whose waiting intents this lane reads, where that bounds it: not in shadow mode, nor once no intent waits for the
    /// route by the policy of now. The lane then reads on, and the policy decides what still waits.
    fn waits_for(&self) -> Option<Arc<RouteState>> {
        let Task::Waiting(topic) = self.task else { return None };
        let policy = self.decider.policy.get();
        let state = self.decider.routes.as_ref()?.waiting_on(topic)?;
        let route = policy.routes.iter().find(|route| route.name == state.name);
        let waits = route.is_some_and(|route| route.when_full == WhenFull::Wait);
        (policy.mode != Mode::Shadow && waits).then_some(state)
    }

    /// Reads nothing for a moment, and serves the group.
    pub(super) async fn rest(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        self.poll_commit(state, Duration::ZERO).await?;
        if self.serve_group().await?.is_some() {
            return Err(Interruption::Group);
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Interruption::Stop),
            () = self.clock.sleep(REST) => Ok(()),
        }
    }
}
