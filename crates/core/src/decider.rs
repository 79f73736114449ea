//! The decider: turns a batch of records into requests to the store, and its answers into output records.

mod budgets;
mod capacity;
mod fate;
mod gate;
mod gated;
mod offer;
mod pressure;
mod schemas;
#[cfg(test)]
mod tests;
mod unavailable;
mod undecided;

use std::{sync::Arc, time::Duration};

use super::{
    limits::OutputLimits,
    output::{self, Grounds, NumbersOf, OutputWriter},
    record::{ApprovedByChannel, Output, ReadBefore, RecordView, Records},
    retry,
};
use crate::{
    current::Current,
    dead_letter::DeadLetter,
    decode::{Header, decode},
    deferral::{DeferReason, Deferral},
    fields::FieldMap,
    intent::Intent,
    lease::{Answers, Claim, Owed},
    origin::Topic,
    policy::{Caps, GateReason, Policy, PolicyEval, Unavailable},
    pressure::Pressure,
    room::DecisionRoom,
    routes::Routes,
    segment::SegmentSet,
    tally::Tally,
    time::Time,
    verdict::{Decision, Verdict},
    wheel::Wheel,
};

pub(super) use budgets::BatchBudgets;
pub use budgets::{Patience, Unspent};
use capacity::BatchCapacity;
pub use capacity::PermitsFrom;
pub use fate::{Approval, Denier, Fate};
pub(super) use gate::facts;
pub use gated::{GatedBatch, PerRequest, RequestIndex, StoreAnswers};
use pressure::BatchPressure;
pub use pressure::Places;
pub use schemas::schemas_of;
pub use unavailable::UnavailableOutcome;
pub use undecided::{Decoded, Undecided};

/// By how much the names of the policy and segments that decide a batch may be longer than of those that were in force when it was
/// read: it is evaluated again after a wait.
const LONGER_NAMES_BYTES: usize = 256;

/// The inputs of every decision; shared by all lanes.
#[derive(Clone)]
pub struct Decider {
    /// The intents topic, part of every origin.
    pub topic: Topic,
    /// Where an intent's fields are.
    pub fields: Arc<FieldMap>,
    /// The segments in force.
    pub segments: Arc<Current<SegmentSet>>,
    /// The policy in force.
    pub policy: Arc<Current<Policy>>,
    /// What the output topics take.
    pub limits: Arc<OutputLimits>,
    /// Where intents are deferred to; `None`: nothing is deferred.
    pub wheel: Option<Wheel>,
    /// Who is active; `None`: the policy's `[pressure]` has no effect.
    pub pressure: Option<Arc<Pressure>>,
    /// What routes take; `None`: the policy's `[[routes]]` have no effect.
    pub routes: Option<Arc<Routes>>,
    /// The approved topics of channels that have their own.
    pub approved_by_channel: ApprovedByChannel,
}

/// Why an intent is suppressed before a cap is checked, and until when.
pub type GateDenial = (GateReason, Option<Time>);

/// What is to become of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Nothing is decided: the record is invalid, or a retry.
    Undecided,
    /// The intent is suppressed, or waits for its route. A retry waits, or is undelivered.
    Suppress(GateDenial),
    /// The intent is suppressed, unless the store knows that it was approved before. The store allows nothing new for it.
    LookUp {
        /// Its place among the requests.
        request: RequestIndex,
        /// Why it is suppressed.
        denial: GateDenial,
        /// Whether it waits where the store has no answer; else it is suppressed. `None`: it does not depend on the store, so it is
        /// suppressed at once.
        fallback: Option<Unavailable>,
    },
    /// It is approved, unrecorded.
    Bypass {
        /// In shadow mode: why it would have been suppressed.
        shadowed: Option<GateDenial>,
    },
    /// The store decides.
    CheckCaps {
        /// Its place among the requests.
        request: RequestIndex,
        /// The caps it is judged by.
        cap_set: usize,
        /// In shadow mode: why it would have been suppressed.
        shadowed: Option<GateDenial>,
        /// Its outcome where the store has no answer.
        fallback: Unavailable,
    },
}

/// The gate's result for one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateResult {
    /// What is to become of it.
    pub disposition: Disposition,
    /// The user's segment, by its place in the set.
    pub segment: Option<usize>,
    /// The set of budgets that it takes from, by its place in the batch's claim; `None` where from none.
    pub budgets: Option<u32>,
}

/// The decision of one batch: one clock, one policy, one set of segments.
pub struct BatchDecision {
    decider: Decider,
    set: Arc<SegmentSet>,
    eval: PolicyEval,
    /// `None` where no intent takes from a budget.
    budgets: Option<BatchBudgets>,
    /// `None` where there is no pressure.
    pressure: Option<BatchPressure>,
    /// `None` where there are no routes.
    capacity: Option<BatchCapacity>,
    /// Whether the policy names the segment, by its place in the set.
    named: Vec<bool>,
    /// The records that are looked up where the gate denies them.
    read_before: ReadBefore,
    /// The places of the requests that only look up.
    looked_up: Vec<RequestIndex>,
    /// The place of the set of caps that these get, where there is one: sets that the policy made later are behind it.
    nothing_fits: Option<usize>,
    now: Time,
}

impl Decider {
    /// Starts on a batch.
    #[must_use]
    pub fn begin_batch(&self, now: Time) -> BatchDecision {
        let set = self.segments.get();
        let policy = self.policy.get();
        let names: Vec<&str> = set.segments().iter().map(|segment| segment.name.as_str()).collect();
        let named = names.iter().map(|name| policy.segments.contains_key(*name)).collect();
        let eval = PolicyEval::new(policy, &names, now);
        let (decider, read_before) = (self.clone(), ReadBefore::none());
        let looked_up = Vec::new();
        let (budgets, pressure, capacity, nothing_fits) = (None, None, None, None);
        BatchDecision {
            decider,
            set,
            eval,
            budgets,
            pressure,
            capacity,
            named,
            read_before,
            looked_up,
            nothing_fits,
            now,
        }
    }

    /// Reads the intents; the clock has no part in it. One whose output could not be written is none: decided here, before the
    /// store is asked, so that nothing is recorded for it.
    #[must_use]
    pub fn decode<'b>(&self, records: &'b impl Records) -> Vec<Decoded<'b>> {
        let room = DecisionRoom::new(self.limits.of_decisions(), self.names_bytes());
        let one = |index| {
            if let Some(limit_bytes) = records.not_inflated(index) {
                return Err(DeadLetter::not_inflated(limit_bytes).into());
            }
            if records.is_foreign(index) {
                return Err(DeadLetter::foreign().into());
            }
            let record: RecordView<'b> = records.get(index);
            let headers = record.header_pairs().map(|(key, value)| Header { key, value });
            let intent = decode(record.value, headers, &self.fields)?;
            let value_bytes = record.value.map_or(0, <[u8]>::len);
            if record.deferral.is_some_and(Deferral::is_until_retry) {
                return Err(retry::decoded(intent, &self.limits, (value_bytes, records.bytes_beside_value(index))));
            }
            match room.fits(value_bytes.max(intent.value().envelope_bytes()), records.bytes_beside_value(index)) {
                Ok(()) => Ok(intent),
                Err(oversize) => Err(DeadLetter::not_writable(value_bytes, oversize).into()),
            }
        };
        (0..records.len()).map(one).collect()
    }

    /// How many bytes the names have together that a decision writes, at most.
    fn names_bytes(&self) -> usize {
        let (set, policy) = (self.segments.get(), self.policy.get());
        let longest_cap = |caps: &Caps| match caps {
            Caps::Unlimited => 0,
            Caps::Limited(caps) => caps.iter().map(|cap| cap.name.len()).max().unwrap_or(0),
        };
        let cap = policy.segments.values().chain([&policy.default]).map(|caps| longest_cap(caps)).max().unwrap_or(0);
        let segment = set.segments().iter().map(|segment| segment.name.len()).max().unwrap_or(0);
        // One byte more for each: six bytes are enough for its quotes and comma.
        let budgets: usize = policy.budgets.iter().map(|budget| budget.name.len() + 1).sum();
        self.topic.name.len()
            + policy.version.len()
            + set.version().len()
            + segment
            + cap
            + budgets
            + LONGER_NAMES_BYTES
    }
}

impl BatchDecision {
    /// Reads the intents.
    #[must_use]
    pub fn decode<'b>(&self, records: &'b impl Records) -> Vec<Decoded<'b>> {
        self.decider.decode(records)
    }

    /// From now on an intent among these that the gate denies is looked up in the store: if it was approved before, it is
    /// approved as it was then, whatever the clock and the policy say now.
    pub fn look_up(&mut self, read_before: ReadBefore) {
        self.read_before = read_before;
    }

    /// Finds the users who may not come in now, where the policy limits how many are active; before [`BatchDecision::claim`].
    pub fn press<'b>(&mut self, records: &'b impl Records, decoded: &'b [Decoded<'b>], places: Places) {
        let now = self.now;
        self.press_each((records, decoded), |_| now, places);
    }

    /// The same, each intent at its own time, by its place in the batch: for the replay of past intents, those of one minute.
    pub fn press_each<'b>(
        &mut self,
        (records, decoded): (&'b impl Records, &'b [Decoded<'b>]),
        at: impl Fn(usize) -> Time,
        places: Places,
    ) {
        if self.eval.policy().pressure.is_none() {
            return;
        }
        if let Some(pressure) = &self.decider.pressure {
            self.pressure = BatchPressure::of(pressure, &mut self.eval, (records, decoded), (self.now, at), places);
        }
    }

    /// Marks the users of approved intents as active, once the batch is decided.
    pub fn note_active<R>(&mut self, gated: &GatedBatch<'_, R>) {
        let fates = self.fates(gated);
        if let Some(pressure) = &mut self.pressure {
            pressure.note(fates);
        }
    }

    /// What the intents take from budgets, where they take from any: to be asked for before the gate. `judged_at`: the monotonic
    /// clock when this batch's clock was read.
    pub fn claim<'b>(
        &mut self,
        records: &'b impl Records,
        decoded: &'b [Decoded<'b>],
        judged_at: Duration,
        patience: Patience,
    ) -> Option<Arc<Claim>> {
        if self.eval.policy().budgets.is_empty() {
            return None;
        }
        self.budgets = BatchBudgets::of(
            (&mut self.eval, self.pressure.as_ref(), self.capacity.as_ref()),
            (records, decoded),
            (self.now, judged_at),
            patience,
        );
        self.budgets.as_ref().map(BatchBudgets::claim)
    }

    /// What became of the claim: the gate goes by it.
    pub fn claimed(&mut self, answers: Answers) {
        if let Some(budgets) = &mut self.budgets {
            budgets.answer(answers);
        }
    }

    /// The tokens of the claim that are not spent, now that the store has answered. The tokens of requests that have no answer and may
    /// have been recorded all the same count as spent.
    #[must_use]
    pub fn unspent<R>(&self, gated: &GatedBatch<'_, R>) -> Unspent {
        self.budgets.as_ref().map(|budgets| budgets.unspent(self.fates(gated))).unwrap_or_default()
    }

    /// The same, where the batch is not decided, and is judged again: what nothing was recorded for claims again then.
    #[must_use]
    pub fn unspent_so_far<R>(&self, gated: &GatedBatch<'_, R>) -> Unspent {
        self.budgets.as_ref().map(|budgets| budgets.unspent_so_far(self.fates(gated))).unwrap_or_default()
    }

    /// What replays of a decided batch owe to budgets of which they took no tokens.
    #[must_use]
    pub fn owed<R>(&self, gated: &GatedBatch<'_, R>) -> Vec<Owed> {
        self.budgets.as_ref().map(|budgets| budgets.owed(self.fates(gated))).unwrap_or_default()
    }

    /// All tokens of the claim, for a decision that is not carried out.
    #[must_use]
    pub fn granted(&self) -> Unspent {
        self.budgets.as_ref().map(BatchBudgets::granted).unwrap_or_default()
    }

    /// Counts the tokens that the batch took and was denied.
    pub fn count_tokens(&self, unspent: &Unspent, tally: &mut Tally) {
        if let Some(budgets) = &self.budgets {
            budgets.count(unspent, tally);
        }
    }

    /// The decision on a record that is an intent, by its place in the batch, as [`BatchDecision::outputs`] would write it.
    #[must_use]
    pub fn decision(&self, gated: &GatedBatch<'_, impl Records>, index: usize) -> Decision<'_> {
        let (record, gate_result) = (gated.records.get(index), &gated.results[index]);
        self.writer(&|_| None).decision(&record, gate_result, &self.fate(gated, index))
    }

    fn writer<'w, 'b>(&'w self, numbers: NumbersOf<'w>) -> OutputWriter<'w, 'b> {
        OutputWriter::new(&self.decider, &self.set, self.grounds(), self.now, numbers)
    }

    fn grounds(&self) -> Grounds<'_> {
        Grounds { eval: &self.eval, budgets: self.budgets.as_ref() }
    }

    /// The policy of the batch.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        self.eval.policy()
    }

    /// What became of an intent (not of a dead letter) that was judged at `now`, and the time it was judged by.
    /// `answers` are the store's, all there.
    #[must_use]
    pub fn ruling(&self, gate_result: &GateResult, answers: &StoreAnswers, now: Time) -> (Verdict<'_>, Time) {
        self.grounds().ruling(&Fate::of(&gate_result.disposition, answers, self.eval.policy().mode), now)
    }

    /// Why and until when an intent is deferred, where intents can be, that got this verdict at `now`; `None` where the verdict
    /// stands.
    #[must_use]
    pub fn to_defer(
        &self,
        gate_result: &GateResult,
        intent: &Intent<'_>,
        verdict: &Verdict<'_>,
        now: Time,
    ) -> Option<(DeferReason, Time)> {
        let segment = gate_result.segment.map(|place| self.set.segments()[place].name.as_str());
        output::to_defer((&self.eval, &self.decider.limits), (segment, intent.user), verdict, now)
    }

    /// The segments of the batch.
    #[must_use]
    pub fn segments(&self) -> &SegmentSet {
        &self.set
    }

    /// The clock of the batch.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Writes the outputs, one per record, and counts them. A request without an answer has its fallback. `numbers` gives
    /// the store's numbers of a class, where they are known.
    #[must_use]
    pub fn outputs(&self, gated: &GatedBatch<'_, impl Records>, numbers: NumbersOf<'_>) -> (Vec<Output>, Tally) {
        let GatedBatch { records, decoded, results, .. } = gated;
        let mut writer = self.writer(numbers);
        let mut outputs = Vec::with_capacity(decoded.len());
        for (index, (decoded, gate_result)) in decoded.iter().zip(results).enumerate() {
            let bytes_beside = || records.bytes_beside_value(index);
            outputs.push(writer.write((&records.get(index), &bytes_beside), decoded, gate_result, gated.answers()));
        }
        (outputs, writer.finish())
    }
}
