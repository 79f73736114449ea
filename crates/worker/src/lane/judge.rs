//! The decision on a batch: claim, gate, admit, encode.

use std::{collections::BTreeSet, time::Duration};

use weir_core::{
    decider::{BatchDecision, Decoded, PermitsFrom, Places},
    moving::move_on,
    permits::LEASE,
    ports::{Clock, Sink, Source, Store},
    record::{Output, ReadBefore},
    retry::try_again,
    routes::Taken,
    tally::Tally,
};

use super::{
    Allowance, Interruption, Lane, LaneState, Rounds, Stage, Task,
    serving::Until,
    unavailable_shards::{Admitted, AskedBatch, Promise},
};
use crate::{observer::Event, trace::Interval};

/// How long a batch offers what limits gave in vain to its other intents, at most, where the store is slow: its answers hold for a while only.
const OFFERS_WITHIN: Duration = Duration::from_secs(1);

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
        let mut kept_until = self.clock.passed() + LEASE;
        // They are in memory until the batch is decoded.
        let schemas = self.prepare_schemas(state, batch).await?;
        if let Task::Retry(wheel) = self.task {
            let now = self.time_to_decide(state, batch).await?;
            return Ok(Decided::of(try_again(&self.decider, batch, wheel, now), self.clock.passed()));
        }
        let mut rounds = Rounds::begin(self.clock.passed());
        let decoded = self.decider.decode(batch);
        drop(schemas);
        self.service_unavailable(state).await?;
        let mut permits = self.permits_for(batch, allowance);
        if self.clock.passed() >= kept_until {
            // The schemas were waited for.
            drop(permits);
            permits = self.permits_again(batch, None, &mut kept_until);
        }
        loop {
            let kept = match self.judge(state, (batch, &decoded), permits, &mut rounds).await? {
                Judged::Decided(decided) => return Ok(*decided),
                Judged::Unanswered(shards, kept) => {
                    // Permits are not held any longer: what waits is read again by new ones.
                    let latest = if self.task.rests() { kept_until } else { Duration::MAX };
                    self.wait_for(state, &shards, (rounds.pause(), latest)).await?;
                    if self.clock.passed() >= latest {
                        return Err(Interruption::Rewind("the store does not answer for intents that wait".to_owned()));
                    }
                    kept
                }
                Judged::Unfunded(kept) => {
                    self.wait_for_budgets(state).await?;
                    kept
                }
            };
            permits = self.permits_again(batch, kept, &mut kept_until);
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
        if batch_decision.is_short_of_permits() {
            return Err(Interruption::Rewind("the permits of intents that wait have gone back".to_owned()));
        }
        if !self.fund(&mut batch_decision, batch, decoded, asked_at).await? {
            return Ok(Judged::Unfunded(self.permits_kept(&mut batch_decision)));
        }
        let (gated, counts) = batch_decision.gate(batch, decoded);
        self.metrics.gated(counts);
        if rounds.is_first() {
            self.metrics.stage(Stage::Decode, rounds.gated(self.clock.passed()));
        }

        let mut asked = AskedBatch::new(gated, &batch_decision, self.store.shards());
        if let Some(shards) = self.settle(state, &mut batch_decision, &mut asked, rounds).await? {
            return Ok(Judged::Unanswered(shards, self.permits_kept(&mut batch_decision)));
        }
        batch_decision.note_active(&asked.gated);
        let admitted = self.clock.passed();
        self.metrics.stage(Stage::Admit, rounds.admitted(admitted));
        let asked_in = (!asked.is_empty()).then(|| rounds.asked(admitted));

        let (outputs, mut tally) = batch_decision.outputs(&asked.gated, &|class| self.store.numbers(class));
        let unspent = batch_decision.unspent(&asked.gated);
        batch_decision.count_tokens(&unspent, &mut tally);
        self.give_back(unspent).await?;
        self.charge(batch_decision.owed(&asked.gated)).await?;
        self.metrics.stage(Stage::Encode, self.clock.passed() - admitted);
        let (promises, permits) = (asked.promises(), batch_decision.permits_of(&outputs));
        Ok(Judged::Decided(Box::new(Decided { outputs, tally, asked_at, asked_in, promises, permits })))
    }

    /// Asks the store for a batch, and again for the intents that get what limits gave to others in vain. Gives the shards that have to
    /// be waited for, where there are some.
    async fn settle(
        &mut self,
        state: &mut LaneState,
        batch_decision: &mut BatchDecision,
        asked: &mut AskedBatch<'_, S::Batch>,
        rounds: &mut Rounds,
    ) -> Result<Option<BTreeSet<u16>>, Interruption> {
        let offers_until = self.clock.passed() + OFFERS_WITHIN;
        for offers in 0..=BatchDecision::MOST_OFFERS {
            if asked.has_unanswered() {
                rounds.ask();
                let admitted = self.admit(state, asked).await;
                if !matches!(admitted, Ok(Admitted::Settled)) {
                    self.give_back(batch_decision.unspent_so_far(&asked.gated)).await?;
                }
                match admitted? {
                    Admitted::Settled => {}
                    Admitted::TooSlow(requests, message) => return Err(self.ask_for_fewer(state, requests, message)),
                    Admitted::Unanswered(shards) => return Ok(Some(shards)),
                }
            }
            let may_offer = offers < BatchDecision::MOST_OFFERS && self.clock.passed() < offers_until;
            if !may_offer || !asked.offer(batch_decision, self.store.shards()) {
                break;
            }
        }
        Ok(None)
    }

    /// Asks the store once, and serves the group meanwhile.
    async fn admit(
        &mut self,
        state: &mut LaneState,
        batch: &mut AskedBatch<'_, S::Batch>,
    ) -> Result<Admitted, Interruption> {
        let (store, mut serving) = self.store_and_serving(&state.group.committed, Until::Interrupted);
        state.unavailable.admit((store, &mut serving), batch).await
    }

    /// So many requests were too many for the store: the batch is read again, in parts.
    fn ask_for_fewer(&self, state: &mut LaneState, requests: usize, message: String) -> Interruption {
        let records = state.limit.too_slow(requests);
        self.metrics.happened(Event::BatchHalved);
        tracing::warn!(records, "{message}; at most so many records at a time from now on");
        Interruption::Rewind(message)
    }
}

/// What came of judging a batch once.
enum Judged {
    /// It is decided.
    Decided(Box<Decided>),
    /// The store has to be waited for, in these shards. With the permits that the batch keeps.
    Unanswered(BTreeSet<u16>, Option<Taken>),
    /// A budget has to be waited for. With the permits that the batch keeps.
    Unfunded(Option<Taken>),
}

/// A batch, decided.
pub(super) struct Decided {
    pub(super) outputs: Vec<Output>,
    pub(super) tally: Tally,
    /// Since when the store's answers hold.
    pub(super) asked_at: Duration,
    /// When the store was asked, rounds before included; `None`: nothing was asked for.
    pub(super) asked_in: Option<Interval>,
    /// The writes that are deferred once it is committed.
    pub(super) promises: Vec<Promise>,
    /// The permits that are spent once it is committed.
    pub(super) permits: Vec<Taken>,
}

impl Decided {
    /// A batch for which nothing is asked.
    fn of((outputs, tally): (Vec<Output>, Tally), asked_at: Duration) -> Self {
        Self { outputs, tally, asked_at, asked_in: None, promises: Vec::new(), permits: Vec::new() }
    }
}
