//! A lane as a member of its group: what it does between batches, after changes of the group and failures, and at the end.

use weir_core::ports::{Clock, CommitError, CommitTimes, Sink, Source, Store};

use super::{
    Interruption, Lane, LaneError, LaneState, Task, permits::Asleep, serving::Until, unavailable_shards::CommitOutcome,
};
use crate::{
    group_loop::{Ends, GroupLoop, LoopState},
    observer::Event,
};

impl AsMut<LoopState> for LaneState {
    fn as_mut(&mut self) -> &mut LoopState {
        &mut self.group
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

    fn ends(&mut self) -> Ends<'_, S, K, C> {
        let Self { source, sink, clock, stop, metrics, status, settings, .. } = self;
        Ends { source, sink, clock, stop, metrics: &**metrics, status, drain: settings.drain }
    }

    fn name(&self) -> &'static str {
        self.task.as_str()
    }

    async fn run_batches(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        self.decide_batches(state).await
    }

    fn committed(&mut self, state: &mut LaneState, times: &CommitTimes) {
        self.note_committed(state, times);
    }

    fn failed(&mut self, state: &mut LaneState, error: Option<&CommitError>) {
        self.note_failed(state, error);
    }

    fn forget(&mut self, state: &mut LaneState) {
        if self.task == Task::Intents {
            state.committed.forget(&self.source, &*self.metrics);
        }
        state.committed.clear();
        self.metrics.happened(Event::Rebalanced);
    }

    fn start(&mut self, state: &mut LaneState) {
        let starts = self.source.starts();
        if self.task == Task::Intents {
            self.decider.topic.id = self.source.topic_id();
        }
        if let Some(ripe) = &mut state.ripe {
            ripe.start();
        }
        state.asleep = Asleep::default();
        state.committed.starts(starts);
        state.unavailable.after_commit(CommitOutcome::ReadFrom(starts), &*self.metrics);
    }

    /// Completes deferred writes to shards that are available again by the end, as long as there is time.
    async fn before_end(&mut self, state: &mut LaneState) -> Result<(), LaneError> {
        let until = Until::End(state.group.ends_by());
        let (store, mut serving) = self.store_and_serving(&state.committed, until);
        match state.unavailable.before_end(store, &mut serving).await {
            Err(Interruption::Fatal(message)) => Err(LaneError::Fatal(message)),
            Ok(()) | Err(Interruption::Stop | Interruption::Group | Interruption::Rewind(_)) => Ok(()),
        }
    }
}
