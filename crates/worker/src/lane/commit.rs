//! A lane as a member of its group: what it notes of a batch that is being committed, what it does after changes of the group and
//! failures, and at the end.

use std::{sync::Once, time::Duration};

use weir_core::{
    basis::time::Time,
    batch::{decider::Settlement, tally::Tally},
    ports::{Clock, CommitError, CommitTimes, Sink, Source, Store, TRANSACTION_TIMEOUT},
};

use super::{ANSWERS_HOLD, Interruption, Lane, LaneError, LaneState, Task, permits::Asleep, serving::Until};
use crate::{
    group_loop::{Committed, Ends, GroupLoop, Iteration, LagOf, LoopState},
    observer::Event,
    share::AskedTurns,
    trace::{Interval, OpenTrace},
};

/// Whether intents with times before 1971 were told of: once, not by each lane.
static EARLY_TIMES: Once = Once::new();

#[derive(Default)]
pub(crate) struct InFlight {
    pub(super) tally: Tally,
    pub(super) trace: Option<OpenTrace>,
    /// What is spent of limits once it is committed; it goes back where it is not handed over.
    pub(super) settlement: Settlement,
    /// Since when the store's answers hold.
    pub(super) asked_at: Duration,
    pub(super) asked_in: Option<Interval>,
    pub(super) decided_at: Option<Time>,
    /// From the end of the batch until it was handed over.
    pub(super) decided_in: Duration,
}

impl InFlight {
    fn end_trace(&mut self, committed: &Committed, error: Option<&CommitError>, now: Duration) {
        if let Some(trace) = self.trace.take() {
            trace.end(committed, &self.tally, error.map(ToString::to_string).as_deref(), now);
        }
    }
}

impl<S, K, D, C> GroupLoop for Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    type Source = S;
    type Sink = K;
    type Clock = C;
    type State = LaneState;
    type Taken = InFlight;

    fn ends(&mut self) -> Ends<'_, S, K, C> {
        let Self { source, sink, clock, stop, metrics, status, settings, .. } = self;
        Ends { source, sink, clock, stop, metrics: &**metrics, status, drain: settings.drain }
    }

    fn group(state: &mut LaneState) -> &mut LoopState<InFlight> {
        &mut state.group
    }

    fn turns(&self) -> Option<&AskedTurns> {
        let has_pressure = || self.decider.held.pressure.as_ref().is_some_and(|pressure| pressure.state().is_some());
        (self.task.decides() && has_pressure()).then_some(&self.turns)
    }

    fn name(&self) -> &'static str {
        self.task.as_str()
    }

    async fn take(&mut self, state: &mut LaneState) -> Result<Iteration<S::Batch, InFlight>, Interruption> {
        self.next_batch(state).await
    }

    fn handing_over(&mut self, state: &mut LaneState, batch: &mut InFlight) -> Result<(), Interruption> {
        let now = self.clock.passed();
        if now.saturating_sub(batch.asked_at) > ANSWERS_HOLD {
            return Err(Interruption::Rewind("the store's answers have become too old".to_owned()));
        }
        if let Some(trace) = &mut batch.trace {
            trace.handed_over(batch.asked_in, now);
        }
        batch.decided_in = now.saturating_sub(state.closed_at);
        batch.settlement.hand_over();
        state.unavailable.deferred.handed_over();
        Ok(())
    }

    fn committed(&mut self, state: &mut LaneState, mut in_flight: InFlight, times: &CommitTimes) {
        in_flight.end_trace(&state.group.committed, None, self.clock.passed());
        self.metrics.committed(&in_flight.tally, times);
        if in_flight.tally.early_times > 0 {
            EARLY_TIMES.call_once(|| {
                tracing::warn!(
                    "intents have a created_at, expires_at or not_before before 1971: they are expired, or not \
                     deferred. Numbers are milliseconds since 1970, not seconds; leave a time out, or write null, \
                     where there is none. weir_early_times_total counts such intents"
                );
            });
        }
        let committed_in = times.produce + times.flush + times.commit;
        state.batch_timer.took(in_flight.decided_in + committed_in);
        let done = &state.group.committed.in_flight;
        state.limit.committed(done.records, committed_in);
        if self.task == Task::Intents
            && let Some(decided_at) = in_flight.decided_at
        {
            self.metrics.records_committed(&done.stamps, decided_at, self.clock.now());
        }
        state.unavailable.deferred.committed(&*self.metrics);
        in_flight.settlement.committed();
        if let Some(routes) = &self.decider.held.routes {
            let failed = &in_flight.tally.failed;
            failed.iter().for_each(|(route, count)| routes.state(route).fail(*count));
        }
    }

    fn failed(&mut self, state: &mut LaneState, mut in_flight: InFlight, error: Option<&CommitError>) {
        state.unavailable.deferred.failed();
        let unclear = std::mem::take(&mut in_flight.settlement).failed();
        state.unclear.extend(unclear.map(|unclear| (unclear, self.clock.passed())));
        let Some(error) = error else { return };
        in_flight.end_trace(&state.group.committed, Some(error), self.clock.passed());
        let records = state.group.committed.in_flight.records;
        if matches!(error, CommitError::TooSlow(_)) && records > 0 {
            let records = state.limit.too_slow(records);
            self.metrics.happened(Event::BatchHalved);
            tracing::warn!(records, "the brokers are too slow for the batch: at most so many records from now on");
        }
    }

    /// Permits that are held leave other lanes and instances less of their route: not for as long as this lane cannot go on.
    fn waits(state: &mut LaneState, now: Duration) {
        let ended = state.unclear.iter_mut().filter(|(_, failed_at)| now >= *failed_at + TRANSACTION_TIMEOUT);
        ended.for_each(|(unclear, _)| unclear.transaction_ended());
    }

    fn show_lag(&mut self, state: &mut LaneState, found_nothing: bool) {
        let (committed, source) = (&mut state.group.committed, &self.source);
        match self.task.lag() {
            Some(LagOf::Intents) => committed.report(source, found_nothing, &*self.metrics, self.clock.now()),
            Some(LagOf::Beside(topic)) => {
                self.metrics.set_topic_lag(topic, committed.lag_of_all(source, found_nothing));
            }
            None => {}
        }
    }

    fn forget(&mut self, state: &mut LaneState) {
        if self.task == Task::Intents {
            state.group.committed.forget(&self.source, &*self.metrics);
        }
        self.metrics.happened(Event::Rebalanced);
    }

    fn start(&mut self, state: &mut LaneState) {
        if self.task == Task::Intents {
            self.decider.topic.id = self.source.topic_id();
        }
        if let Some(ripe) = &mut state.ripe {
            ripe.start();
        }
        state.asleep = Asleep::default();
        state.unclear.drain(..).for_each(|(unclear, _)| unclear.settle(self.source.starts()));
        state.unavailable.deferred.settle(self.source.starts(), &*self.metrics);
    }

    /// Completes deferred writes to shards that are available again by the end, as long as there is time.
    async fn before_end(&mut self, state: &mut LaneState) -> Result<(), LaneError> {
        let until = Until::End(state.group.ends_by.unwrap_or_default());
        let (store, mut serving) = self.store_and_serving(&state.group.committed, until);
        match state.unavailable.before_end(store, &mut serving).await {
            Err(Interruption::Fatal(message)) => Err(LaneError::Fatal(message)),
            Ok(()) | Err(Interruption::Stop | Interruption::Group | Interruption::Rewind(_)) => Ok(()),
        }
    }
}
