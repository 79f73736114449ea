//! What a lane does about unavailable shards, before a poll, while admitting and after a commit. Where all shards answer, each call
//! returns at once.

mod absences;
mod admitting;
mod deferred_writes;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use weir_core::ports::{Clock, Source, Store, StoreError};

use self::{
    absences::{Absences, Why},
    deferred_writes::DeferredWrites,
};
pub(super) use self::{
    admitting::{Admitted, promises},
    deferred_writes::Promise,
};
use super::{Interruption, LaneSettings, Task, serving::Serving};
use crate::{backoff::SERVE_EVERY, status::LaneStatus};

/// Deferred writes in one call, at most.
const RECORD_AT_ONCE: usize = 4_096;

/// The shards that do not answer, and the writes that are deferred until they do.
#[derive(Debug)]
pub(super) struct UnavailableShards {
    absences: Absences,
    pub(super) deferred: DeferredWrites,
    /// What deferred writes may take in memory, in bytes.
    deferred_bytes: usize,
}

impl UnavailableShards {
    pub(super) fn new(settings: &LaneSettings, task: Task) -> Self {
        let absences = if task.rests() { Absences::of_resting() } else { Absences::new(settings.unavailable_after) };
        Self {
            absences,
            deferred: DeferredWrites::new(Arc::clone(&settings.deferred_shards)),
            deferred_bytes: settings.deferred_bytes,
        }
    }

    /// Whether all shards answer, and no write is deferred.
    pub(super) fn is_empty(&self) -> bool {
        self.absences.is_empty() && self.deferred.is_empty()
    }

    /// Whether the lane rests until shards answer again.
    pub(super) fn rests(&self) -> bool {
        self.absences.rests()
    }

    /// Before a poll, and while a batch waits: looks which shards are available again, and completes their deferred writes.
    pub(super) async fn before_poll<S: Source, D: Store, C: Clock>(
        &mut self,
        store: &mut D,
        serving: &mut Serving<'_, S, C>,
    ) -> Result<(), Interruption> {
        for shard in store.watch(&self.absences.watched()) {
            self.absences.found_back(shard);
        }
        let deferred = self.deferred.len();
        for shard in self.deferred.shards() {
            if !self.absences.is_watched(shard) {
                self.record_deferred(store, serving, shard).await?;
            }
        }
        let (recorded, left) = (deferred - self.deferred.len(), self.deferred.len());
        if recorded > 0 {
            tracing::info!(recorded, left, "recorded sends that were approved while their shards were unavailable");
        }
        self.show(serving.status);
        Ok(())
    }

    /// Completes the deferred writes of a shard; one that does not take them is unavailable.
    async fn record_deferred<S: Source, D: Store, C: Clock>(
        &mut self,
        store: &mut D,
        serving: &mut Serving<'_, S, C>,
        shard: u16,
    ) -> Result<(), Interruption> {
        loop {
            let sends = self.deferred.first(shard, RECORD_AT_ONCE);
            if sends.is_empty() {
                return Ok(());
            }
            // What is older than the history by this clock is trimmed: deferred writes wait until the clock is right.
            let Ok(now) = serving.clock.time_to_decide(&[]) else { return Ok(()) };
            let began = serving.clock.passed();
            let why = match serving.during(store.record(&sends, now)).await? {
                Ok(()) => {
                    self.deferred.recorded(shard, sends.len(), serving.metrics);
                    continue;
                }
                Err(StoreError::LostHistory { .. }) => Why::Lost,
                Err(StoreError::Temporary(_) | StoreError::NotRecorded(_) | StoreError::TooSlow(_)) => Why::Silent,
                Err(StoreError::Fatal(message)) => return Err(Interruption::Fatal(message)),
            };
            self.absences.not_answered(shard, began, why);
            return Ok(());
        }
    }

    /// Before the lane ends: completes deferred writes to shards that are available again, as long as there is time.
    pub(super) async fn before_end<S: Source, D: Store, C: Clock>(
        &mut self,
        store: &mut D,
        serving: &mut Serving<'_, S, C>,
    ) -> Result<(), Interruption> {
        self.deferred.settle(&[], serving.metrics);
        while !self.deferred.is_empty() {
            serving.serve().await?;
            self.before_poll(store, serving).await?;
            if !self.deferred.is_empty() {
                serving.clock.sleep(SERVE_EVERY).await;
            }
        }
        Ok(())
    }

    /// How long it is until intents of another shard go by the policy; for ever where there is none.
    pub(super) fn until_due(&self, now: Duration) -> Duration {
        self.absences.next_due(now).map_or(Duration::MAX, |due| due.saturating_sub(now))
    }

    /// How long a batch may pause: until a shard is overdue, and not for long while shards are watched.
    pub(super) fn longest_pause(&self, now: Duration) -> Duration {
        let longest = if self.absences.is_empty() { Duration::MAX } else { SERVE_EVERY };
        longest.min(self.until_due(now))
    }

    /// Whether a batch without answers from these shards is worth another round: one of them may be asked, or has been unavailable
    /// for long enough to go by the policy.
    pub(super) fn is_worth_asking(&self, shards: &BTreeSet<u16>, now: Duration) -> bool {
        shards.iter().any(|shard| !self.absences.is_watched(*shard) || self.absences.is_overdue(*shard, now))
    }

    /// Reports the unavailable shards to the health endpoints.
    pub(super) fn show(&self, status: &LaneStatus) {
        status.set_trouble(self.absences.trouble());
        status.set_lost_shards(self.absences.lost());
    }
}
