//! While a batch is admitted: which shards are asked, and whether what has no answer can be given up.

use std::{collections::BTreeSet, time::Duration};

use weir_core::{
    batch::{
        decider::{AskedBatch, RequestIndex, UnavailableOutcome},
        record::{RecordView, Records},
    },
    history::deferred_send::DeferredSend,
    ports::{Clock, Source, Store, StoreError},
};

use super::{
    super::{Interruption, serving::Serving},
    Promise, UnavailableShards, Why,
};
use crate::observer::{Event, Observer};

/// A batch that the store is asked about, and of how many shards that is.
struct ShardedBatch<'a, 'b, R> {
    batch: &'a mut AskedBatch<'b, R>,
    shards: u16,
}

impl<R: Records> ShardedBatch<'_, '_, R> {
    fn shard(&self, request: RequestIndex) -> u16 {
        self.batch.request(request).user.shard(self.shards)
    }

    /// The requests without an answer whose intents depend on one, with what becomes of these otherwise.
    fn lacking(&self) -> impl Iterator<Item = (RequestIndex, UnavailableOutcome)> {
        self.batch.lacking().filter(|(_, outcome)| *outcome != UnavailableOutcome::GivenUp)
    }
}

/// The writes that are deferred of a batch: of the sends that were approved without an answer.
pub(in crate::lane) fn promises<R: Records>(batch: &AskedBatch<'_, R>, shards: u16) -> Vec<Promise> {
    let promise = |(record, send): (RecordView<'_>, DeferredSend)| {
        let RecordView { partition, offset, .. } = record;
        Promise { partition, offset, shard: send.user.shard(shards), send }
    };
    batch.deferred_sends().map(promise).collect()
}

pub(in crate::lane) enum Admitted {
    /// All is answered, or can be given up or deferred.
    Settled,
    /// Some of these shards have to be waited for.
    Unanswered(BTreeSet<u16>),
    /// So many requests are too many for the store to answer in time.
    TooSlow(usize, String),
}

enum UnansweredState {
    /// None of them has to be waited for.
    Settled,
    /// Some have to.
    Waits,
    /// They could be given up, but no more writes may be deferred: they have to be waited for, too.
    Full,
}

impl UnavailableShards {
    /// Asks the store once. `Settled` if all requests are answered, follow the policy, or are deferred until their shard is
    /// available. Serves the group meanwhile. Unavailable shards are not asked: the store watches them in the background.
    pub(in crate::lane) async fn admit<S: Source, D: Store, C: Clock>(
        &mut self,
        (store, serving): (&mut D, &mut Serving<'_, S, C>),
        batch: &mut AskedBatch<'_, impl Records>,
    ) -> Result<Admitted, Interruption> {
        let batch = ShardedBatch { shards: store.shards(), batch };
        self.heed_others(&batch, serving.clock.passed());
        let requests = self.may_be_asked(&batch);
        let began = serving.clock.passed();
        let outcome = ask((store, serving), batch.batch, &requests).await;
        // Where it was interrupted, too.
        batch.batch.heard(&requests, outcome.as_ref().ok().and_then(|asked| asked.as_ref().err()));
        let error = match outcome? {
            // What was answered is answered the same when it is read again, and a smaller batch is answered whole.
            Err(StoreError::TooSlow(message)) => return Ok(Admitted::TooSlow(requests.len(), message)),
            Err(StoreError::Fatal(message)) => return Err(Interruption::Fatal(message)),
            Err(error @ (StoreError::Temporary(_) | StoreError::NotRecorded(_) | StoreError::LostHistory { .. })) => {
                Some(error)
            }
            Ok(()) => None,
        };
        self.note_answers(&batch, &requests, (began, error.as_ref()));
        match self.unanswered_state(&batch, serving.clock.passed()) {
            UnansweredState::Settled => {
                self.show(serving.status);
                return Ok(Admitted::Settled);
            }
            UnansweredState::Waits => {}
            UnansweredState::Full => self.note_full(serving.metrics),
        }
        if let Some(error) = error {
            note_failure(serving, &error);
        }
        Ok(Admitted::Unanswered(batch.lacking().map(|(request, _)| batch.shard(request)).collect()))
    }

    /// A shard with deferred writes of another lane was unavailable to that one: it is watched here, too.
    fn heed_others(&mut self, batch: &ShardedBatch<'_, '_, impl Records>, now: Duration) {
        let all = self.deferred.of_all_lanes();
        if all.is_empty() {
            return;
        }
        let shards = batch.batch.requests().requests.iter().map(|request| request.user.shard(batch.shards));
        for shard in shards.filter(|shard| all.has(*shard)) {
            if !self.deferred.lacks(shard) && !self.absences.is_known(shard) {
                self.absences.not_answered(shard, now, Why::Silent);
            }
        }
    }

    /// The requests without an answer whose shards may be asked.
    fn may_be_asked(&self, batch: &ShardedBatch<'_, '_, impl Records>) -> Vec<RequestIndex> {
        let of_all_lanes = self.deferred.of_all_lanes();
        let all = self.absences.is_empty() && of_all_lanes.is_empty();
        let may_ask = |shard: u16| !self.absences.is_watched(shard) && !of_all_lanes.has(shard);
        batch.batch.unanswered().filter(|request| all || may_ask(batch.shard(*request))).collect()
    }

    fn note_answers(
        &mut self,
        batch: &ShardedBatch<'_, '_, impl Records>,
        asked: &[RequestIndex],
        (began, error): (Duration, Option<&StoreError>),
    ) {
        if self.absences.is_empty() && error.is_none() {
            return;
        }
        let why = |shard: u16| match error {
            Some(StoreError::LostHistory { shards, .. }) if shards.contains(&shard) => Why::Lost,
            Some(_) | None => Why::Silent,
        };
        let is_silent = |request: &&RequestIndex| batch.batch.answer_to(**request).is_none();
        let silent: BTreeSet<u16> = asked.iter().filter(is_silent).map(|request| batch.shard(*request)).collect();
        for shard in asked.iter().map(|request| batch.shard(*request)).filter(|shard| !silent.contains(shard)) {
            self.absences.answered(shard);
        }
        let news = silent.into_iter().filter(|shard| self.absences.not_answered(*shard, began, why(*shard))).count();
        if news > 0 {
            tracing::warn!(shards = news, "shards do not answer: their intents wait, or go by on_unavailable in time");
        }
    }

    /// Whether what has no answer can be given up.
    fn unanswered_state(&self, batch: &ShardedBatch<'_, '_, impl Records>, now: Duration) -> UnansweredState {
        let mut bytes = self.deferred.bytes();
        let mut sent = false;
        for (request, outcome) in batch.lacking() {
            let shard = batch.shard(request);
            if !self.absences.is_overdue(shard, now) {
                return UnansweredState::Waits;
            }
            // It is available again, and its deferred writes come first: then it decides.
            if self.deferred.of_all_lanes().has(shard) && !self.absences.is_watched(shard) {
                return UnansweredState::Waits;
            }
            match outcome {
                UnavailableOutcome::Wait if !batch.batch.may_defer() => return UnansweredState::Waits,
                UnavailableOutcome::Wait | UnavailableOutcome::Suppressed | UnavailableOutcome::GivenUp => {}
                UnavailableOutcome::Approved => {
                    sent = true;
                    bytes += batch.batch.deferred_send(request).bytes();
                }
            }
        }
        if sent && bytes > self.deferred_bytes { UnansweredState::Full } else { UnansweredState::Settled }
    }

    fn note_full(&mut self, metrics: &dyn Observer) {
        if self.deferred.is_full_for_the_first_time() {
            metrics.happened(Event::DeferredFull);
            tracing::warn!(
                bytes = self.deferred.bytes(),
                "as many approved sends as fit into worker.memory wait to be recorded: intents of unavailable shards wait \
                 from now on, whatever on_unavailable says"
            );
        }
    }
}

async fn ask<S: Source, D: Store, C: Clock>(
    (store, serving): (&mut D, &mut Serving<'_, S, C>),
    batch: &mut AskedBatch<'_, impl Records>,
    requests: &[RequestIndex],
) -> Result<Result<(), StoreError>, Interruption> {
    if requests.is_empty() {
        return Ok(Ok(()));
    }
    if requests.len() == batch.requests().requests.len() {
        let (all, answers) = batch.to_ask();
        return serving.during(store.admit(all, answers)).await;
    }
    // The others are left out, so that nothing waits for a node that is known not to answer.
    let part = batch.part(requests);
    let mut answers = vec![None; requests.len()];
    let outcome = serving.during(store.admit(&part, &mut answers)).await?;
    batch.answer_part(requests, answers);
    Ok(outcome)
}

fn note_failure<S, C>(serving: &Serving<'_, S, C>, error: &StoreError) {
    tracing::warn!("the store did not answer everything: {error}; asking again");
    serving.metrics.happened(Event::StoreFailed);
    if let StoreError::LostHistory { shards, .. } = error {
        serving.status.set_lost_shards(shards.len());
    }
    serving.status.set_trouble(Some(error.to_string()));
}
