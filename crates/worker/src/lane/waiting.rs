//! Waiting for the store, for budgets, for a turn, for schemas and for a clock that is right, without losing the place in the group.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use weir_core::{
    basis::time::Time,
    batch::{decider::schemas_of, record::Records},
    ports::{Clock, HeldSchemas, Sink, Source, Store},
};

use super::{
    Interruption, Lane, LaneState,
    serving::{Serving, Until},
};
use crate::{
    backoff::{LONGEST_BACKOFF, SERVE_EVERY, backoff},
    group_loop::{Committed, GroupLoop, LoopState},
    observer::Event,
};

/// How long a batch waits for a budget until it is judged again, whatever came of it.
const JUDGE_AGAIN: Duration = Duration::from_secs(1);

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Looks after unavailable shards and their deferred writes. Cheap where there are none.
    pub(super) async fn service_unavailable(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        if state.unavailable.is_empty() {
            return Ok(());
        }
        if state.unavailable.deferred.is_promised() {
            self.poll_commit(state, Duration::ZERO).await?;
        }
        let (store, mut serving) = self.store_and_serving(&state.group.committed, Until::Interrupted);
        state.unavailable.before_poll(store, &mut serving).await
    }

    /// Waits until a batch without answers from these shards is worth another round, or until `latest`.
    pub(super) async fn wait_for(
        &mut self,
        state: &mut LaneState,
        shards: &BTreeSet<u16>,
        (pause, latest): (Duration, Duration),
    ) -> Result<(), Interruption> {
        let began = self.clock.passed();
        let until = began + pause.min(state.unavailable.until_due(began));
        loop {
            self.wait_a_little(state, pause).await?;
            self.service_unavailable(state).await?;
            let now = self.clock.passed();
            if now >= latest || now >= until && state.unavailable.is_worth_asking(shards, now) {
                return Ok(());
            }
        }
    }

    /// Waits until the budgets may have what a batch needs. Serves the group meanwhile.
    pub(super) async fn wait_for_budgets(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        let Self { source, clock, stop, metrics, status, task, budgets, .. } = self;
        let committed = &state.group.committed;
        let (done, until) = (task.lag().map(|of| (of, committed)), Until::Interrupted);
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

    /// Waits, before the first batch of partitions that were assigned, for what others know of their users. Serves the group meanwhile.
    pub(super) async fn wait_for_turn(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        let LoopState { first_waits_for, committed, .. } = &mut state.group;
        let Some(turn) = first_waits_for else { return Ok(()) };
        let (_, mut serving) = self.store_and_serving(committed, Until::Interrupted);
        let clock = serving.clock;
        serving.during(turn.over(clock)).await?;
        *first_waits_for = None;
        Ok(())
    }

    /// The time to decide these records at. While most other clocks contradict this machine's, waits as for an unavailable
    /// Redis: serves the group, reads nothing, hears the shutdown signal.
    pub(super) async fn time_to_decide(&mut self, state: &LaneState, records: &S::Batch) -> Result<Time, Interruption> {
        let mut waited = false;
        loop {
            match self.clock.time_to_decide(records.appends()) {
                Ok(now) => {
                    if waited {
                        tracing::info!("the clock is right again: this lane continues");
                        state.unavailable.show(&self.status);
                    }
                    return Ok(now);
                }
                Err(wrong) => self.status.set_trouble(Some(wrong.to_string())),
            }
            waited = true;
            self.wait_a_little(state, SERVE_EVERY).await?;
        }
    }

    /// Makes the schemas of a batch ready, and holds them. Waits for the registry as long as it takes: nothing says what an intent
    /// is whose schema is not known. Serves the group and unavailable shards meanwhile, and notes the commit of the batch before.
    pub(super) async fn prepare_schemas(
        &mut self,
        state: &mut LaneState,
        batch: &S::Batch,
    ) -> Result<HeldSchemas, Interruption> {
        let fields = Arc::clone(&self.decider.fields);
        let ids = schemas_of(&fields, batch);
        let Some(schemas) = fields.schemas().filter(|_| !ids.is_empty()) else { return Ok(HeldSchemas::new()) };
        let mut pauses = backoff();
        let mut waited = false;
        loop {
            let (_, mut serving) = self.store_and_serving(&state.group.committed, Until::Interrupted);
            match serving.during(schemas.prepare(&ids)).await? {
                Ok(held) => {
                    if waited {
                        tracing::info!("the schemas are there: this lane continues");
                        state.unavailable.show(&self.status);
                    }
                    return Ok(held);
                }
                Err(error) => {
                    tracing::warn!("{error}; intents wait, asking again");
                    self.metrics.happened(Event::SchemasUnavailable);
                    self.status.set_trouble(Some(error.to_string()));
                    waited = true;
                }
            }
            self.wait_a_little(state, pauses.next().unwrap_or(LONGEST_BACKOFF)).await?;
            self.poll_commit(state, Duration::ZERO).await?;
            self.service_unavailable(state).await?;
        }
    }

    /// A pause before the next attempt, short while shards are unavailable. A stop ends it.
    pub(super) async fn wait_a_little(&mut self, state: &LaneState, pause: Duration) -> Result<(), Interruption> {
        self.store_and_serving(&state.group.committed, Until::Interrupted).1.serve().await?;
        let longest = state.unavailable.longest_pause(self.clock.passed());
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = self.clock.sleep(pause.min(longest)) => {}
        }
        self.store_and_serving(&state.group.committed, Until::Interrupted).1.serve().await
    }

    pub(super) fn store_and_serving<'l>(
        &'l mut self,
        done: &'l Committed,
        until: Until,
    ) -> (&'l mut D, Serving<'l, S, C>) {
        let Self { source, store, clock, stop, metrics, status, task, .. } = self;
        let done = task.lag().map(|of| (of, done));
        (store, Serving { source, clock, stop, metrics: &**metrics, status, done, until })
    }
}
