//! The decision on a batch: claim, gate, admit, encode.

use std::{collections::BTreeSet, time::Duration};

use weir_core::{
    decide::Answer,
    decider::{Decoded, Disposition, GateResult, PermitsFrom, Places, UnavailableOutcome},
    deferred_send::DeferredSend,
    moving::move_on,
    ports::{Clock, Sink, Source, Store},
    record::{Output, ReadBefore, Records},
    retry::try_again,
    routes::Taken,
    tally::Tally,
};

use super::{
    Allowance, Interruption, Lane, LaneState, Promise, Rounds, Stage, Task,
    waiting::{Admitted, BatchRequest},
};
use crate::trace::Interval;

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Turns records into outputs; waits for the store as long as it takes or the policy says, but not beyond a change of
    /// the group. After a wait the whole batch is judged again.
    pub(super) async fn decide(
        &mut self,
        state: &mut LaneState,
        batch: &S::Batch,
        allowance: Allowance,
    ) -> Result<Decided, Interruption> {
        if let Task::Move(wheel) = self.task {
            let now = self.time_to_decide(state, batch).await?;
            if state.ripe.as_ref().is_some_and(|ripe| ripe.is_far_from_due(batch, now)) {
                return Err(Interruption::Rewind(
                    "the clock was put back: deferred intents are not due yet".to_owned(),
                ));
            }
            return Ok(Decided::of(move_on(&self.decider, batch, wheel, now), self.clock.passed()));
        }
        if let Task::Retry(wheel) = self.task {
            let now = self.time_to_decide(state, batch).await?;
            return Ok(Decided::of(try_again(&self.decider, batch, wheel, now), self.clock.passed()));
        }
        let mut rounds = Rounds::begin(self.clock.passed());
        let decoded = self.decider.decode(batch);
        self.service_unavailable(state).await?;
        let mut permits = allowance.for_batch(batch);
        loop {
            match self.judge(state, (batch, &decoded), permits, &mut rounds).await? {
                Judged::Decided(decided) => return Ok(*decided),
                Judged::Unanswered(shards) => self.wait_for(state, &shards, rounds.pause()).await?,
                Judged::Unfunded => self.wait_for_budgets(state).await?,
            }
            permits = self.permits_again(batch);
        }
    }

    /// Judges a batch once, by the clock, policy and segments of now.
    async fn judge(
        &mut self,
        state: &mut LaneState,
        (batch, decoded): (&S::Batch, &[Decoded<'_>]),
        permits: PermitsFrom,
        rounds: &mut Rounds,
    ) -> Result<Judged, Interruption> {
        let now = self.time_to_decide(state, batch).await?;
        let asked_at = self.clock.passed();
        let mut batch_decision = self.decider.begin_batch(now);
        // What was asked for in a round before may have been recorded, whatever came of the answer.
        batch_decision.look_up(if rounds.is_first() { self.source.read_before() } else { ReadBefore::All });
        self.decider.give_up_overdue(asked_at);
        batch_decision.press(batch, decoded, Places::Take);
        batch_decision.take_permits(batch, decoded, permits, asked_at);
        if !self.fund(&mut batch_decision, batch, decoded, asked_at).await? {
            return Ok(Judged::Unfunded);
        }
        let (gate_results, admit_batch, counts) = batch_decision.gate(batch, decoded);
        self.metrics.gated(counts);
        if rounds.is_first() {
            self.metrics.stage(Stage::Decode, rounds.gated(self.clock.passed()));
        }

        let (mut answers, mut unclear) = (vec![None; admit_batch.requests.len()], Vec::new());
        let unavailable_outcomes = batch_decision.fallback(&gate_results);
        let shards = self.store.shards();
        let batch_request = BatchRequest {
            admit_batch: &admit_batch,
            unavailable_outcomes: &unavailable_outcomes,
            shards: admit_batch.requests.iter().map(|request| request.user.shard(shards)).collect(),
            may_defer: batch_decision.may_defer(),
        };
        if !answers.is_empty()
            && let Admitted::Unanswered(shards) = self.admit(state, &batch_request, &mut answers, &mut unclear).await?
        {
            self.give_back(batch_decision.unspent_so_far(&gate_results, &answers, &unclear)).await?;
            return Ok(Judged::Unanswered(shards));
        }
        batch_decision.note_active(&gate_results, &answers);
        let admitted = self.clock.passed();
        self.metrics.stage(Stage::Admit, rounds.admitted(admitted));
        let asked = (!answers.is_empty()).then(|| rounds.asked(admitted));

        let (outputs, mut tally) =
            batch_decision.outputs(batch, decoded, &gate_results, (&answers, &|class| self.store.numbers(class)));
        let unspent = batch_decision.unspent(&gate_results, &answers, &unclear);
        batch_decision.count_tokens(&unspent, &mut tally);
        self.give_back(unspent).await?;
        self.metrics.stage(Stage::Encode, self.clock.passed() - admitted);
        let promises = promises(batch, &gate_results, &batch_request, &answers);
        let permits = batch_decision.permits_of(&outputs);
        Ok(Judged::Decided(Box::new(Decided { outputs, tally, asked_at, asked, promises, permits })))
    }
}

/// What came of judging a batch once.
enum Judged {
    /// It is decided.
    Decided(Box<Decided>),
    /// The store has to be waited for, in these shards.
    Unanswered(BTreeSet<u16>),
    /// A budget has to be waited for.
    Unfunded,
}

/// A batch, decided.
pub(super) struct Decided {
    pub(super) outputs: Vec<Output>,
    pub(super) tally: Tally,
    /// Since when the store's answers hold.
    pub(super) asked_at: Duration,
    /// When the store was asked, rounds before included; `None`: nothing was asked for.
    pub(super) asked: Option<Interval>,
    /// The writes that are deferred once it is committed.
    pub(super) promises: Vec<Promise>,
    /// The permits that are spent once it is committed.
    pub(super) permits: Vec<Taken>,
}

impl Decided {
    /// A batch for which nothing is asked.
    fn of((outputs, tally): (Vec<Output>, Tally), asked_at: Duration) -> Self {
        Self { outputs, tally, asked_at, asked: None, promises: Vec::new(), permits: Vec::new() }
    }
}

/// The sends of a batch that were approved without an answer.
fn promises(
    batch: &impl Records,
    gate_results: &[GateResult],
    batch_request: &BatchRequest<'_, '_>,
    answers: &[Option<Answer>],
) -> Vec<Promise> {
    if answers.iter().all(Option::is_some) {
        return Vec::new();
    }
    let mut promises = Vec::new();
    for (index, gate_result) in gate_results.iter().enumerate() {
        match gate_result.disposition {
            Disposition::CheckCaps { request, .. }
                if answers[request].is_none()
                    && batch_request.unavailable_outcomes[request] == UnavailableOutcome::Approved =>
            {
                let record = batch.get(index);
                let send =
                    DeferredSend::new(&batch_request.admit_batch.requests[request], batch_request.admit_batch.now);
                let (partition, offset) = (record.partition, record.offset);
                promises.push(Promise { partition, offset, shard: batch_request.shards[request], send });
            }
            Disposition::CheckCaps { .. }
            | Disposition::LookUp { .. }
            | Disposition::Undecided
            | Disposition::Suppress(_)
            | Disposition::Bypass { .. } => {}
        }
    }
    promises
}
