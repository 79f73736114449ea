//! The decision on a batch: claim, gate, admit, encode.

use std::{collections::BTreeSet, time::Duration};

use weir_core::{
    batch::{
        decider::{AskedBatch, DecodedBatch, Ground, KeptLimits, Patience, Settlement, Takes, Times},
        moving::move_on,
        record::{Output, ReadBefore},
        retry::try_again,
        tally::Tally,
    },
    limit::route::{permits::LEASE, routes::Taken},
    ports::{Clock, Sink, Source, Store},
};

use super::{
    Allowance, Interruption, Lane, LaneState, Rounds, Stage, Task,
    serving::Until,
    unavailable_shards::{Admitted, Promise, promises},
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
        // A process that was suspended since may hold what other members have been granted by now.
        let mut kept_until = allowance.kept_until().unwrap_or_else(|| self.clock.passed() + LEASE);
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
            // The records, the commit before them or the schemas were waited for.
            drop(permits);
            permits = self.permits_again(batch, None, &mut kept_until);
        }
        loop {
            let decoded = DecodedBatch { records: batch, decoded: &decoded };
            let kept = match self.judge(state, decoded, permits, &mut rounds).await? {
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
                Judged::Again(kept) => kept,
            };
            permits = self.permits_again(batch, kept, &mut kept_until);
        }
    }

    /// Judges a batch once, by the clock, policy and segments of now.
    async fn judge(
        &mut self,
        state: &mut LaneState,
        batch: DecodedBatch<'_, S::Batch>,
        takes: Takes,
        rounds: &mut Rounds,
    ) -> Result<Judged, Interruption> {
        let now = self.time_to_decide(state, batch.records).await?;
        let (asked_at, rests) = (self.clock.passed(), self.task.rests());
        let gated = self.decider.begin(
            batch,
            Ground {
                times: Times::One(now),
                passed: asked_at,
                // What was asked for in a round before may have been recorded, whatever came of the answer.
                read_before: if rounds.is_first() { self.source.read_before() } else { ReadBefore::All },
                takes,
                budgets: Some(Patience {
                    unavailable_after: self.settings.unavailable_after.filter(|_| !rests),
                    may_defer: !rests && self.decider.wheel.is_some(),
                    replays_pay: true,
                }),
            },
        );
        if gated.is_short_of_permits() {
            return Err(Interruption::Rewind("the permits of intents that wait have gone back".to_owned()));
        }
        let gated = gated.keeping(std::mem::take(&mut rounds.tokens));
        let mut asked = match self.budgets.fund(gated, &mut rounds.has_claimed).await? {
            Ok(asked) => asked,
            Err(kept) => return Ok(Judged::Unfunded(self.keep(kept, rounds))),
        };
        self.metrics.gated(asked.segment_counts());
        if rounds.is_first() {
            self.metrics.stage(Stage::Decode, rounds.gated(self.clock.passed()));
        }

        if let Some(shards) = self.answer(state, &mut asked, rounds).await? {
            return Ok(Judged::Unanswered(shards, self.keep(asked.give_up(), rounds)));
        }
        if asked.lacks_kept_tokens() && rounds.may_claim_kept() {
            return Ok(Judged::Again(self.keep(asked.give_up(), rounds)));
        }
        let admitted = self.clock.passed();
        let since_gate = rounds.asked(admitted);
        self.metrics.stage(Stage::Admit, since_gate.to.saturating_sub(since_gate.from));
        let asked_in = (!asked.requests().requests.is_empty()).then_some(since_gate);

        let promises = promises(&asked, self.store.shards());
        let (mut decided, settlement) = asked.finish();
        let (outputs, tally) = decided.outputs(&|class| self.store.numbers(class));
        self.metrics.stage(Stage::Encode, self.clock.passed() - admitted);
        Ok(Judged::Decided(Box::new(Decided { outputs, tally, asked_at, asked_in, promises, settlement })))
    }

    /// Keeps what a batch keeps until it is judged again; gives its permits. Others go back at once.
    fn keep(&self, KeptLimits { units, tokens }: KeptLimits, rounds: &mut Rounds) -> Option<Taken> {
        rounds.tokens = tokens;
        self.permits_kept(units)
    }

    /// Asks the store for a batch, and again for the intents that get what limits gave to others in vain. Gives the shards that have to
    /// be waited for, where there are some.
    async fn answer(
        &mut self,
        state: &mut LaneState,
        asked: &mut AskedBatch<'_, S::Batch>,
        rounds: &mut Rounds,
    ) -> Result<Option<BTreeSet<u16>>, Interruption> {
        let offers_until = self.clock.passed() + OFFERS_WITHIN;
        loop {
            if asked.unanswered().next().is_some() {
                rounds.ask();
                let (store, mut serving) = self.store_and_serving(&state.group.committed, Until::Interrupted);
                let admitted = state.unavailable.admit((store, &mut serving), asked).await?;
                match admitted {
                    Admitted::Settled => {}
                    Admitted::TooSlow(requests, message) => return Err(self.ask_for_fewer(state, requests, message)),
                    Admitted::Unanswered(shards) => return Ok(Some(shards)),
                }
            }
            if self.clock.passed() >= offers_until || !asked.offer() {
                return Ok(None);
            }
        }
    }

    /// So many requests were too many for the store: the batch is read again, in parts.
    fn ask_for_fewer(&self, state: &mut LaneState, requests: usize, message: String) -> Interruption {
        let records = state.limit.too_slow(requests);
        self.metrics.happened(Event::BatchHalved);
        tracing::warn!(records, "{message}; at most so many records at a time from now on");
        Interruption::Rewind(message)
    }
}

enum Judged {
    Decided(Box<Decided>),
    /// The store has to be waited for, in these shards. With the permits that the batch keeps.
    Unanswered(BTreeSet<u16>, Option<Taken>),
    /// A budget has to be waited for. With the permits that the batch keeps.
    Unfunded(Option<Taken>),
    /// The batch has given back tokens that its own intents lacked. With the permits that it keeps.
    Again(Option<Taken>),
}

pub(super) struct Decided {
    pub(super) outputs: Vec<Output>,
    pub(super) tally: Tally,
    /// Since when the store's answers hold.
    pub(super) asked_at: Duration,
    /// When the store was asked, rounds before included; `None`: nothing was asked for.
    pub(super) asked_in: Option<Interval>,
    /// The writes that are deferred once it is committed.
    pub(super) promises: Vec<Promise>,
    /// What is spent of limits once it is committed.
    pub(super) settlement: Settlement,
}

impl Decided {
    /// A batch for which nothing is asked.
    fn of((outputs, tally): (Vec<Output>, Tally), asked_at: Duration) -> Self {
        let (promises, settlement) = (Vec::new(), Settlement::default());
        Self { outputs, tally, asked_at, asked_in: None, promises, settlement }
    }
}
