//! A lane: one group member and one producer, from poll to commit.
//!
//! The steps of one iteration, in order:
//! 1. poll a batch, for at most what is left of the commit interval without what the rest is expected to take; one that is
//!    not full by then grows until the batch before is committed: to be decided earlier would gain it nothing;
//! 2. decide it (decode, gate, admit, encode), where it is full while the batch before is being committed; where the store
//!    has to be waited for, all of it is decided again by the clock, policy and segments of then;
//! 3. hand it over, as every member of a group does: `group_loop/batches.rs`.
//!
//! A batch that is not committed is decided again by its next reader, and the store answers what it answered before.
//!
//! invariant: no answer of the store survives a wait: recorded intents come back as replays, all others are judged again. Tokens of budgets
//! do, where their intents may be recorded: once, however often the store is asked.
//! invariant: a lane of intents that wait for a route rests while the store does not answer, and writes none of them back to the topic
//! that they came from: one without a permit is read again.

mod batch_limit;
pub mod batch_timer;
mod commit;
mod judge;
mod permits;
mod ripe;
mod rounds;
mod task;
#[cfg(test)]
pub(crate) mod tests;
mod unavailable_shards;
mod waiting;

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use weir_core::{
    batch::{
        decider::{Decider, Settlement},
        record::Records,
    },
    ports::{Clock, Sink, Source, Store},
};

pub use self::task::Task;
use self::{
    batch_limit::BatchLimit,
    batch_timer::BatchTimer,
    commit::InFlight,
    judge::Decided,
    permits::{Allowance, Asleep},
    ripe::Ripe,
    rounds::Rounds,
    unavailable_shards::UnavailableShards,
};
pub use super::group_loop::LaneError;
use super::{
    budgets::Claimant,
    deferred_shards::DeferredShards,
    group_loop::{GroupLoop, Interruption, Iteration, LoopState, serving},
    observer::{Observer, Stage},
    share::AskedTurns,
    status::LaneStatus,
    trace::{OpenTrace, Tracer},
};

/// How long an answer of the store holds until its batch is handed over to be committed; then all are asked for again.
/// A rebuild of lost histories relies on it: after this time, earlier records are either visible or void.
pub const ANSWERS_HOLD: Duration = Duration::from_secs(20);

/// How long a poll may wait at the least: a commit interval that has passed by then is no reason to take nothing.
const SHORTEST_POLL: Duration = Duration::from_millis(1);

#[derive(Debug, Clone)]
pub struct LaneSettings {
    pub batch: usize,
    /// How long it may take from the read of a record to its commit, where the machines keep up with it.
    pub commit_interval: Duration,
    /// How long it may take to end once it is told to stop.
    pub drain: Duration,
    /// How long a shard may be unavailable until `on_unavailable` of the policy applies to its intents; `None`: they wait.
    pub unavailable_after: Option<Duration>,
    /// What approved sends that wait to be recorded may take in memory, in bytes.
    pub deferred_bytes: usize,
    /// The shards that such sends are of; shared by all lanes of the process and by its HTTP interface.
    pub deferred_shards: Arc<DeferredShards>,
}

pub struct Lane<S, K, D, C> {
    pub source: S,
    pub sink: K,
    pub store: D,
    pub clock: C,
    pub task: Task,
    pub decider: Decider,
    pub budgets: Claimant,
    /// Where turns at the log of activity are asked for when partitions move.
    pub turns: AskedTurns,
    pub settings: LaneSettings,
    pub stop: CancellationToken,
    pub metrics: Arc<dyn Observer>,
    pub tracer: Option<Arc<dyn Tracer>>,
    pub status: Arc<LaneStatus>,
}

/// The state of a lane between iterations. Times are those of [`Clock::passed`].
pub(crate) struct LaneState {
    /// When the last batch was closed and the next one began.
    closed_at: Duration,
    batch_timer: BatchTimer,
    group: LoopState<InFlight>,
    limit: BatchLimit,
    /// Whether the last look at the topic found no record.
    found_nothing: bool,
    unavailable: UnavailableShards,
    /// Which buckets are read now, and which sleep; `None` where a lane reads none.
    ripe: Option<Ripe>,
    /// Partitions of waiting intents that are not read: what they have needs permits.
    asleep: Asleep,
    /// What limits gave to batches whose commit failed, and when that was, until it is known what is committed.
    unclear: Vec<(Settlement, Duration)>,
}

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Works until it is told to stop; what is decided by then is committed. Dropped half way it loses nothing: what was
    /// not committed is decided again by its next reader.
    pub async fn run(&mut self) -> Result<(), LaneError> {
        let mut state = LaneState {
            closed_at: self.clock.passed(),
            batch_timer: BatchTimer::new(self.settings.commit_interval),
            group: LoopState::default(),
            limit: BatchLimit::new(self.settings.batch),
            found_nothing: false,
            unavailable: UnavailableShards::new(&self.settings, self.task),
            ripe: self.task.ring().map(|(ring, wheel)| Ripe::new(ring, wheel)),
            asleep: Asleep::default(),
            unclear: Vec::new(),
        };
        let end = self.work(&mut state).await;
        state.unavailable.deferred.say_what_is_left();
        end
    }

    async fn next_batch(&mut self, state: &mut LaneState) -> Result<Iteration<S::Batch, InFlight>, Interruption> {
        self.wait_for_turn(state).await?;
        let began = self.clock.passed();
        self.service_unavailable(state).await?;
        self.wake_buckets(state).await?;
        if state.unavailable.rests() {
            return self.rest(state).await;
        }
        let since = began.saturating_sub(state.closed_at);
        // Of what waits, a lane that found nothing tries for one: the permits are for members that have something to read.
        let tries = state.found_nothing && matches!(self.task, Task::Waiting(_));
        let allowance = self.allowance(if tries { 1 } else { state.limit.get() })?;
        if allowance.records() == 0 {
            return self.rest(state).await;
        }
        self.wake_partitions(state, &allowance).await?;
        let open_for = state.batch_timer.open_for().saturating_sub(since).max(SHORTEST_POLL);
        let mut batch = self.source.batch();
        self.fill(state, &mut batch, &allowance, open_for).await?;
        // An idle lane starts a new interval, so that its first record is not committed all alone.
        state.closed_at = self.clock.passed();
        // What was put back since it has no permit is there.
        state.found_nothing = batch.is_empty() && state.asleep.is_empty();
        self.looked_for_waiting(state);
        if batch.is_empty() {
            return Ok(Iteration::Idle);
        }
        self.metrics.stage(Stage::Poll, state.closed_at - began);
        let full = self.source.is_full(&batch, allowance.records());
        if !full && !self.poll_commit(state, Duration::ZERO).await? {
            self.await_commit(state).await?;
            self.fill(state, &mut batch, &allowance, Duration::ZERO).await?;
            state.closed_at = self.clock.passed();
        }
        self.decide_batch(state, batch, allowance).await
    }

    /// Adds to a batch until it has as many records as are allowed, is full, or so long.
    async fn fill(
        &mut self,
        state: &mut LaneState,
        batch: &mut S::Batch,
        allowance: &Allowance,
        wait: Duration,
    ) -> Result<(), Interruption> {
        let began = self.clock.passed();
        let event = self.source.poll(batch, allowance.records(), wait).await?;
        // A process that was frozen has not waited.
        let waited = self.clock.passed().saturating_sub(began).min(wait);
        if event.is_some() {
            return Err(Interruption::Group);
        }
        self.put_unripe_back(state, batch, waited).await?;
        self.put_early_back(state, batch, allowance).await
    }

    async fn decide_batch(
        &mut self,
        state: &mut LaneState,
        batch: S::Batch,
        allowance: Allowance,
    ) -> Result<Iteration<S::Batch, InFlight>, Interruption> {
        if self.task == Task::Intents {
            state.group.committed.deciding(&batch);
        }
        let tracer = self.tracer.as_deref();
        let trace = tracer.and_then(|tracer| OpenTrace::begin(tracer, &batch, self.clock.passed()));
        let Decided { outputs, tally, asked_at, asked_in, promises, settlement } =
            self.decide(state, &batch, allowance).await?;
        let decided_at = Some(self.clock.now());
        state.unavailable.deferred.decided(promises);
        let in_flight = InFlight { tally, trace, settlement, asked_at, asked_in, decided_at, ..InFlight::default() };
        Ok(Iteration::Took(batch, outputs, in_flight))
    }
}
