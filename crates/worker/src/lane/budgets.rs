//! The tokens of budgets for a batch.

use std::time::Duration;

use weir_core::{
    decider::{BatchDecision, Decoded, Patience, Unspent},
    lease::{Claimed, Owed},
    ports::{Clock, Sink, Source, Store},
    record::Records,
};

use super::{
    Interruption, Lane, LaneState,
    serving::{Serving, Until},
};
use crate::budgets::Closed;

/// How long a batch waits for a budget until it is judged again, whatever came of it.
const JUDGE_AGAIN: Duration = Duration::from_secs(1);

impl From<Closed> for Interruption {
    fn from(closed: Closed) -> Self {
        Self::Fatal(closed.to_string())
    }
}

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Takes what a batch needs of budgets. `false`: it has to wait for them, and is judged again then.
    pub(super) async fn fund<'b>(
        &self,
        batch_decision: &mut BatchDecision,
        batch: &'b impl Records,
        decoded: &'b [Decoded<'b>],
        judged_at: Duration,
    ) -> Result<bool, Interruption> {
        let rests = self.task.rests();
        let patience = Patience {
            unavailable_after: self.settings.unavailable_after.filter(|_| !rests),
            may_defer: !rests && batch_decision.may_defer(),
        };
        let Some(claim) = batch_decision.claim(batch, decoded, judged_at, patience) else { return Ok(true) };
        match self.budgets.claim(claim).await? {
            Claimed::Answered(answers) => {
                batch_decision.claimed(answers);
                Ok(true)
            }
            Claimed::Pending => Ok(false),
        }
    }

    /// Gives back what a batch did not spend.
    pub(super) async fn give_back(&self, unspent: Unspent) -> Result<(), Interruption> {
        Ok(self.budgets.put_back(unspent).await?)
    }

    /// Has budgets count what replays owe that took no tokens.
    pub(super) async fn charge(&self, owed: Vec<Owed>) -> Result<(), Interruption> {
        Ok(self.budgets.charge(owed).await?)
    }

    /// Waits until the budgets may have what a batch needs. Serves the group meanwhile.
    pub(super) async fn wait_for_budgets(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        let Self { source, clock, stop, metrics, status, task, budgets, .. } = self;
        let (done, until) = ((*task == super::Task::Intents).then_some(&state.group.committed), Until::Interrupted);
        let mut serving = Serving { source, clock, stop, metrics: &**metrics, status, done, until };
        let ready = async {
            tokio::select! {
                () = budgets.ready() => {}
                () = clock.sleep(JUDGE_AGAIN) => {}
            }
        };
        serving.during(ready).await?;
        self.service_unavailable(state).await
    }
}
