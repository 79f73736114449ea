//! Waiting for unavailable shards, without losing the place in the group, and for no longer than the policy says.

use std::{collections::BTreeSet, time::Duration};

use weir_core::{
    admit::AdmitBatch,
    decide::Answer,
    decider::UnavailableOutcome,
    deferred_send::DeferredSend,
    ports::{Clock, Sink, Source, Store, StoreError},
};

use super::{Interruption, Lane, LaneState, Task, committed::Committed, serving::Serving, unavailable_shards::Why};
use crate::{backoff::SERVE_EVERY, observer::Event};

/// Deferred writes in one call, at most.
const RECORD_AT_ONCE: usize = 4_096;

/// The requests of one batch to the store.
pub(super) struct BatchRequest<'q, 'b> {
    /// The requests.
    pub(super) admit_batch: &'q AdmitBatch<'b>,
    /// The outcome of each where the store cannot answer.
    pub(super) unavailable_outcomes: &'q [UnavailableOutcome],
    /// The shard of each.
    pub(super) shards: Vec<u16>,
    /// Whether what waits for the store is deferred.
    pub(super) may_defer: bool,
}

/// What came of asking.
pub(super) enum Admitted {
    /// All is answered, or can be given up or deferred.
    Settled,
    /// Some of these shards have to be waited for.
    Unanswered(BTreeSet<u16>),
}

/// The state of the requests without an answer.
enum UnansweredState {
    /// None of them has to be waited for.
    Settled,
    /// Some have to.
    Waits,
    /// They could be given up, but no more writes may be deferred: they have to be waited for, too.
    Full,
}

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Asks the store once. `Settled` if all requests are answered, follow the policy, or are deferred until their shard is
    /// available. `unclear` gets the indexes of requests without an answer. Serves the group meanwhile. Unavailable shards are
    /// not asked: the store watches them in the background.
    pub(super) async fn admit(
        &mut self,
        state: &mut LaneState,
        request: &BatchRequest<'_, '_>,
        answers: &mut [Option<Answer>],
        unclear: &mut Vec<usize>,
    ) -> Result<Admitted, Interruption> {
        let trouble = self.ask(state, request, answers, unclear).await?;
        match self.unanswered_state(state, request, answers, self.clock.passed()) {
            UnansweredState::Settled => {
                self.show_unavailable(state);
                return Ok(Admitted::Settled);
            }
            UnansweredState::Waits => {}
            UnansweredState::Full => self.note_deferred_is_full(state),
        }
        if let Some(error) = trouble {
            self.note_failure(&error);
        }
        let unanswered = (0..answers.len()).filter(|&at| answers[at].is_none()).map(|at| request.shards[at]);
        Ok(Admitted::Unanswered(unanswered.collect()))
    }

    fn note_deferred_is_full(&self, state: &mut LaneState) {
        if state.deferred.is_full_for_the_first_time() {
            self.metrics.happened(Event::DeferredFull);
            tracing::warn!(
                bytes = state.deferred.bytes(),
                "as many approved sends as fit into worker.memory wait to be recorded: intents of unavailable shards wait \
                 from now on, whatever on_unavailable says"
            );
        }
    }

    /// Waits until a batch without answers from these shards is worth another round: one of them may be asked, or has been
    /// unavailable for long enough to go by the policy.
    pub(super) async fn wait_for(
        &mut self,
        state: &mut LaneState,
        shards: &BTreeSet<u16>,
        pause: Duration,
    ) -> Result<(), Interruption> {
        let began = self.clock.passed();
        let until = state.unavailable.next_due(began).map_or(began + pause, |due| due.min(began + pause));
        loop {
            self.wait_a_little(state, pause).await?;
            self.service_unavailable(state).await?;
            let now = self.clock.passed();
            let news = |shard: &u16| !state.unavailable.is_watched(*shard) || state.unavailable.is_overdue(*shard, now);
            if now >= until && shards.iter().any(news) {
                return Ok(());
            }
        }
    }

    fn note_failure(&self, error: &StoreError) {
        tracing::warn!("the store did not answer everything: {error}; asking again");
        self.metrics.happened(Event::StoreFailed);
        if let StoreError::LostHistory { shards, .. } = error {
            self.status.set_lost_shards(shards.len());
        }
        self.status.set_trouble(Some(error.to_string()));
    }

    /// A pause before the next attempt: until a shard is overdue at the longest, and short while others are watched. A stop
    /// ends it.
    pub(super) async fn wait_a_little(&mut self, state: &LaneState, pause: Duration) -> Result<(), Interruption> {
        self.serving(&state.committed).serve().await?;
        let now = self.clock.passed();
        let until_due = state.unavailable.next_due(now).map_or(Duration::MAX, |due| due.saturating_sub(now));
        let longest = if state.unavailable.is_empty() { pause } else { SERVE_EVERY };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = self.clock.sleep(pause.min(longest).min(until_due)) => {}
        }
        self.serving(&state.committed).serve().await
    }

    /// Asks for the answers that are missing, except those of unavailable shards. Returns why some are still missing.
    async fn ask(
        &mut self,
        state: &mut LaneState,
        request: &BatchRequest<'_, '_>,
        answers: &mut [Option<Answer>],
        unclear: &mut Vec<usize>,
    ) -> Result<Option<StoreError>, Interruption> {
        let BatchRequest { admit_batch, shards, .. } = request;
        let deferred_shards = &self.settings.deferred_shards;
        self.heed_others(state, shards);
        let may_ask = |shard: u16| !state.unavailable.is_watched(shard) && !deferred_shards.has(shard);
        let known = state.unavailable.is_empty() && deferred_shards.is_empty();
        let open = (0..answers.len()).filter(|&at| answers[at].is_none() && (known || may_ask(shards[at])));
        let places: Vec<usize> = open.collect();
        if places.is_empty() {
            return Ok(None);
        }
        let began = self.clock.passed();
        let outcome = if known {
            let (store, serving) = self.store_and_serving(&state.committed);
            serving.during(store.admit(admit_batch, answers)).await?
        } else {
            // The others are left out, so that nothing waits for a node that is known not to answer.
            let part = AdmitBatch {
                now: admit_batch.now,
                cap_sets: admit_batch.cap_sets.clone(),
                requests: places.iter().map(|&at| admit_batch.requests[at].clone()).collect(),
            };
            let mut of_part = vec![None; places.len()];
            let (store, serving) = self.store_and_serving(&state.committed);
            let outcome = serving.during(store.admit(&part, &mut of_part)).await?;
            places.iter().zip(of_part).for_each(|(&at, answer)| answers[at] = answer);
            outcome
        };
        unclear.extend(places.iter().filter(|&&at| answers[at].is_none()));
        if !matches!(outcome, Err(StoreError::TooSlow(_))) {
            note_answers(state, request, answers, &Asked { places: &places, began, error: outcome.as_ref().err() });
        }
        match outcome {
            Ok(()) => Ok(None),
            Err(StoreError::Fatal(message)) => Err(Interruption::Fatal(message)),
            // What was answered is answered the same when it is read again, and a smaller batch is answered whole.
            Err(StoreError::TooSlow(message)) => {
                let records = state.limit.too_slow(places.len());
                self.metrics.happened(Event::BatchHalved);
                tracing::warn!(records, "{message}; at most so many records at a time from now on");
                Err(Interruption::Rewind(message))
            }
            Err(error @ (StoreError::Temporary(_) | StoreError::LostHistory { .. })) => Ok(Some(error)),
        }
    }

    /// A shard with deferred writes of another lane was unavailable to that one: it is watched here, too.
    fn heed_others(&self, state: &mut LaneState, shards: &[u16]) {
        let deferred_shards = &self.settings.deferred_shards;
        if deferred_shards.is_empty() {
            return;
        }
        let now = self.clock.passed();
        for shard in shards.iter().filter(|shard| deferred_shards.has(**shard)) {
            if !state.deferred.lacks(*shard) && !state.unavailable.is_known(*shard) {
                state.unavailable.not_answered(*shard, now, Why::Silent);
            }
        }
    }

    /// Whether what has no answer can be given up.
    fn unanswered_state(
        &self,
        state: &LaneState,
        request: &BatchRequest<'_, '_>,
        answers: &[Option<Answer>],
        now: Duration,
    ) -> UnansweredState {
        let mut bytes = state.deferred.bytes();
        let mut sent = false;
        for at in (0..answers.len()).filter(|&at| answers[at].is_none()) {
            let shard = request.shards[at];
            if !state.unavailable.is_overdue(shard, now) {
                return UnansweredState::Waits;
            }
            // It is available again, and its deferred writes come first: then it decides.
            if self.settings.deferred_shards.has(shard) && !state.unavailable.is_watched(shard) {
                return UnansweredState::Waits;
            }
            match request.unavailable_outcomes[at] {
                UnavailableOutcome::Wait if !request.may_defer => return UnansweredState::Waits,
                UnavailableOutcome::Wait | UnavailableOutcome::Suppressed => {}
                UnavailableOutcome::Approved => {
                    sent = true;
                    bytes += DeferredSend::new(&request.admit_batch.requests[at], request.admit_batch.now).bytes();
                }
            }
        }
        if sent && bytes > self.settings.deferred_bytes { UnansweredState::Full } else { UnansweredState::Settled }
    }

    /// Looks after unavailable shards: whether they are available again, and their deferred writes. Cheap where there are none.
    pub(super) async fn service_unavailable(&mut self, state: &mut LaneState) -> Result<(), Interruption> {
        if state.unavailable.is_empty() && state.deferred.is_empty() {
            return Ok(());
        }
        if state.deferred.is_promised() {
            self.poll_commit(state, Duration::ZERO).await?;
        }
        for shard in self.store.watch(&state.unavailable.watched()) {
            state.unavailable.found_back(shard);
        }
        let deferred = state.deferred.len();
        for shard in state.deferred.shards() {
            if !state.unavailable.is_watched(shard) {
                self.record_deferred(state, shard).await?;
            }
        }
        let (recorded, left) = (deferred - state.deferred.len(), state.deferred.len());
        if recorded > 0 {
            tracing::info!(recorded, left, "recorded sends that were approved while their shards were unavailable");
        }
        self.show_unavailable(state);
        Ok(())
    }

    /// Completes the deferred writes of a shard; one that does not take them is unavailable.
    async fn record_deferred(&mut self, state: &mut LaneState, shard: u16) -> Result<(), Interruption> {
        loop {
            let sends = state.deferred.first(shard, RECORD_AT_ONCE);
            if sends.is_empty() {
                return Ok(());
            }
            // What is older than the history by this clock is trimmed: deferred writes wait until the clock is right.
            let Ok(now) = self.clock.time_to_decide(&[]) else { return Ok(()) };
            let began = self.clock.passed();
            let (store, serving) = self.store_and_serving(&state.committed);
            let outcome = serving.during(store.record(&sends, now)).await?;
            let why = match outcome {
                Ok(()) => {
                    state.deferred.recorded(shard, sends.len(), &*self.metrics);
                    continue;
                }
                Err(StoreError::LostHistory { .. }) => Why::Lost,
                Err(StoreError::Temporary(_) | StoreError::TooSlow(_)) => Why::Silent,
                Err(StoreError::Fatal(message)) => return Err(Interruption::Fatal(message)),
            };
            state.unavailable.not_answered(shard, began, why);
            return Ok(());
        }
    }

    /// Reports the unavailable shards to the health endpoints.
    pub(super) fn show_unavailable(&self, state: &LaneState) {
        self.status.set_trouble(state.unavailable.trouble());
        self.status.set_lost_shards(state.unavailable.lost());
    }

    fn serving<'l>(&'l mut self, done: &'l Committed) -> Serving<'l, S, C> {
        self.store_and_serving(done).1
    }

    fn store_and_serving<'l>(&'l mut self, done: &'l Committed) -> (&'l mut D, Serving<'l, S, C>) {
        let Self { source, store, clock, stop, metrics, status, task, .. } = self;
        let done = (*task == Task::Intents).then_some(done);
        (store, Serving { source, clock, stop, metrics: &**metrics, status, done })
    }
}

/// An asking that is over.
struct Asked<'a> {
    /// The places of the requests.
    places: &'a [usize],
    began: Duration,
    error: Option<&'a StoreError>,
}

/// Takes from an asking which shards answer and which do not.
fn note_answers(state: &mut LaneState, request: &BatchRequest<'_, '_>, answers: &[Option<Answer>], asked: &Asked<'_>) {
    let Asked { places, began, error } = *asked;
    if state.unavailable.is_empty() && error.is_none() {
        return;
    }
    let why = |shard: u16| match error {
        Some(StoreError::LostHistory { shards, .. }) if shards.contains(&shard) => Why::Lost,
        Some(_) | None => Why::Silent,
    };
    let mut news = Vec::new();
    let silent: BTreeSet<u16> =
        places.iter().filter(|&&at| answers[at].is_none()).map(|&at| request.shards[at]).collect();
    for &at in places.iter().filter(|&&at| answers[at].is_some() && !silent.contains(&request.shards[at])) {
        state.unavailable.answered(request.shards[at]);
    }
    for &at in places.iter().filter(|&&at| answers[at].is_none()) {
        let shard = request.shards[at];
        if state.unavailable.not_answered(shard, began, why(shard)) {
            news.push(shard);
        }
    }
    if !news.is_empty() {
        tracing::warn!(
            shards = news.len(),
            "shards do not answer: their intents wait, or go by on_unavailable in time"
        );
    }
}
