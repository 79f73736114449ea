//! Between batches: changes of the group, ways back after failures, and the end.

use std::time::Duration;

use weir_core::ports::{Clock, CommitError, GroupEvent, Sink, Source, SourceError, Store, StoreError};

use super::{Interruption, Lane, LaneError, LaneState, Task, unavailable_shards::Why};
use crate::{
    backoff::{LONGEST_BACKOFF, SERVE_EVERY, backoff},
    observer::Event,
};

/// What is kept of the time to end, at most: for leaving the group, and for the committed offsets that the lane may be waiting
/// for when it is told to stop (4 s).
const LEAVING: Duration = Duration::from_secs(5);

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Takes up a change of partitions, when nothing is in flight any more.
    pub(super) async fn take_up_change(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        self.status.revoked();
        self.await_commit(state).await?;
        if self.task == Task::Intents {
            state.committed.forget(&self.source, &*self.metrics);
        }
        state.committed.clear();
        self.metrics.happened(Event::Rebalanced);
        for pause in backoff() {
            // Serving the group replaces a change that is out of date by now.
            let Some(event) = self.serve_group().await? else { break };
            match self.source.settle().await {
                Ok(()) => {
                    self.settled(state, event);
                    break;
                }
                Err(SourceError::Temporary(reason)) => {
                    tracing::warn!("taking up a change of partitions: {reason}; trying again");
                    self.status.set_trouble(Some(reason));
                    self.pause_or_stop(pause).await?;
                }
                Err(SourceError::Fatal(reason)) => return Err(Interruption::Fatal(reason)),
            }
        }
        self.status.set_trouble(None);
        Ok(())
    }

    /// Notes what the group has given or taken.
    fn settled(&mut self, state: &mut LaneState, event: GroupEvent) {
        self.take_up_starts(state);
        match event {
            GroupEvent::Revoked => tracing::info!("the group has taken this lane's partitions"),
            GroupEvent::Assigned => {
                self.status.assigned();
                tracing::info!(partitions = self.source.partitions(), "the group has given this lane its partitions");
            }
        }
    }

    /// Brings sink and source back to the committed offsets.
    pub(super) async fn rewind(&mut self, state: &mut LaneState, reason: &str) -> Result<(), Interruption> {
        tracing::warn!("back to the committed offsets: {reason}");
        self.status.set_trouble(Some(reason.to_owned()));
        // Where reading failed, a commit may still be under way; one that fails says no more than is known.
        loop {
            match self.poll_commit(state, SERVE_EVERY).await {
                Ok(false) => self.status.progressed(self.clock.passed()),
                Err(Interruption::Fatal(message)) => return Err(Interruption::Fatal(message)),
                Ok(true) | Err(Interruption::Stop | Interruption::Group | Interruption::Rewind(_)) => break,
            }
            if self.out_of_time(state) {
                return Err(Interruption::Stop);
            }
        }
        state.in_flight.clear();
        state.in_flight_permits.clear();
        state.deferred.failed();
        let pause = state.pauses.next().unwrap_or(LONGEST_BACKOFF);
        self.pause_or_stop(pause).await?;
        self.recover_sink().await?;
        for pause in backoff() {
            // A change of partitions starts at the committed offsets by itself; and what is revoked must not be assigned again.
            if self.serve_group().await?.is_some() {
                return Err(Interruption::Group);
            }
            match self.source.rewind().await {
                Ok(()) => break,
                Err(SourceError::Temporary(reason)) => {
                    tracing::warn!("going back to the committed offsets: {reason}; trying again");
                    self.status.set_trouble(Some(reason));
                    self.pause_or_stop(pause).await?;
                }
                Err(SourceError::Fatal(reason)) => return Err(Interruption::Fatal(reason)),
            }
        }
        self.status.set_trouble(None);
        self.take_up_starts(state);
        Ok(())
    }

    /// Takes up where reading starts: what lies before was committed.
    fn take_up_starts(&mut self, state: &mut LaneState) {
        let starts = self.source.starts();
        if self.task == Task::Intents {
            self.decider.topic.id = self.source.topic_id();
        }
        if let Some(ripe) = &mut state.ripe {
            ripe.start();
        }
        state.committed.starts(starts);
        state.deferred.settle(starts, &*self.metrics);
    }

    /// Makes the sink usable, however long it takes.
    pub(super) async fn recover_sink(&mut self) -> Result<(), Interruption> {
        for pause in backoff() {
            match self.try_recover_sink().await? {
                Ok(()) => break,
                Err(CommitError::Failed(reason) | CommitError::TooSlow(reason)) => {
                    tracing::warn!("the producer is not ready: {reason}; trying again");
                    self.status.set_trouble(Some(reason));
                    self.serve_group().await?;
                    self.pause_or_stop(pause).await?;
                }
                Err(CommitError::Fenced(reason) | CommitError::Fatal(reason)) => {
                    return Err(Interruption::Fatal(reason));
                }
            }
        }
        self.status.set_trouble(None);
        Ok(())
    }

    /// One try, which may take long. It serves the group meanwhile and ends on the shutdown signal.
    async fn try_recover_sink(&mut self) -> Result<Result<(), CommitError>, Interruption> {
        let Self { source, sink, clock, stop, status, .. } = self;
        let mut recovering = std::pin::pin!(sink.recover());
        loop {
            status.progressed(clock.passed());
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Interruption::Stop),
                outcome = &mut recovering => return Ok(outcome),
                () = clock.sleep(SERVE_EVERY) => {}
            }
            // What the group wants is taken up when the sink is usable.
            let _ = source.poll(&mut source.batch(), 0, Duration::ZERO).await?;
        }
    }

    async fn pause_or_stop(&self, pause: Duration) -> Result<(), Interruption> {
        self.status.progressed(self.clock.passed());
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Interruption::Stop),
            () = self.clock.sleep(pause) => Ok(()),
        }
    }

    /// Whether the lane was told to stop so long ago that it must not wait any more.
    pub(super) fn out_of_time(&self, state: &mut LaneState) -> bool {
        if !self.stop.is_cancelled() {
            return false;
        }
        let passed = self.clock.passed();
        let drain = self.settings.drain;
        passed >= *state.ends_by.get_or_insert(passed + drain.saturating_sub(LEAVING.min(drain / 4)))
    }

    /// Completes deferred writes to shards that are available again by the end, as long as there is time.
    pub(super) async fn flush_deferred_writes(&mut self, state: &mut LaneState) -> Result<(), LaneError> {
        state.deferred.settle(&[], &*self.metrics);
        while !state.deferred.is_empty() && !self.out_of_time(state) {
            self.status.progressed(self.clock.passed());
            for shard in self.store.watch(&state.unavailable.watched()) {
                state.unavailable.found_back(shard);
            }
            for shard in state.deferred.shards() {
                let left = state.ends_by.unwrap_or_default().saturating_sub(self.clock.passed());
                let sends = state.deferred.first(shard, usize::MAX);
                if state.unavailable.is_watched(shard) || left.is_zero() {
                    continue;
                }
                let Ok(now) = self.clock.time_to_decide(&[]) else { continue };
                let began = self.clock.passed();
                tokio::select! {
                    biased;
                    outcome = self.store.record(&sends, now) => match outcome {
                        Ok(()) => state.deferred.recorded(shard, sends.len(), &*self.metrics),
                        Err(StoreError::Fatal(message)) => return Err(LaneError::Fatal(message)),
                        Err(StoreError::Temporary(_) | StoreError::TooSlow(_)) => _ = state.unavailable.not_answered(shard, began, Why::Silent),
                        Err(StoreError::LostHistory { .. }) => _ = state.unavailable.not_answered(shard, began, Why::Lost),
                    },
                    () = self.clock.sleep(left) => {}
                }
            }
            if !state.deferred.is_empty() {
                self.clock.sleep(SERVE_EVERY).await;
            }
        }
        Ok(())
    }

    /// Lets the batch in flight come to its end. A failure loses nothing: it is read again by its next owner.
    pub(super) async fn drain(&mut self, state: &mut LaneState) -> Result<(), LaneError> {
        loop {
            self.status.progressed(self.clock.passed());
            if self.out_of_time(state) {
                tracing::warn!(
                    "the last batch was not committed in time: what became of it is settled by whoever takes over"
                );
                return Ok(());
            }
            match self.poll_commit(state, SERVE_EVERY).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Interruption::Fatal(message)) => return Err(LaneError::Fatal(message)),
                Err(Interruption::Rewind(reason)) => {
                    tracing::warn!("the last batch was not committed, and will be decided again: {reason}");
                    return Ok(());
                }
                Err(Interruption::Stop | Interruption::Group) => return Ok(()),
            }
        }
    }
}
