//! The desk: turns a batch of records into questions for the store, and its answers into output records.

use std::sync::Arc;

use super::{
    limits::OutputLimits,
    output::{self, NumbersOf, OutputWriter},
    record::{Output, ReadBefore, RecordView, Records},
};
use crate::{
    admit::{AdmitBatch, Ask, CapQuery},
    current::Current,
    dead_letter::DeadLetter,
    decide::{Answer, Record},
    decode::{Header, decode},
    fields::FieldMap,
    intent::Intent,
    origin::Topic,
    policy::{Caps, Gate, GateReason, IntentFacts, Mode, Policy, PolicyEval, Unavailable},
    room::DecisionRoom,
    segment::{LookupScratch, Membership, SegmentSet},
    shard::OriginMark,
    tally::{SegmentCounts, Tally},
    time::Time,
    verdict::{Decision, Verdict},
};

/// By how much the names of the policy and segments that decide a batch may be longer than of those that were in force when it was
/// read: it is evaluated again after a wait.
const LONGER_NAMES_BYTES: usize = 256;

/// What a desk needs to know; shared by all lanes.
#[derive(Clone)]
pub struct Desk {
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
}

/// Why an intent is held back before a cap is looked at, and until when.
pub type Held = (GateReason, Option<Time>);

/// What is to become of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It is no intent.
    DeadLetter,
    /// It is held back.
    Hold(Held),
    /// It is held back, unless the store knows that it was approved before: the store is asked, and allows nothing new.
    LookUp {
        /// Its place among the asks.
        ask: usize,
        /// Why it is held back.
        held: Held,
        /// Whether it waits where the store has no answer; else it is held back.
        otherwise: Unavailable,
    },
    /// Nothing goes out for it: it is done already, or waits for its history.
    LeftOut,
    /// It goes out, unrecorded.
    Bypass {
        /// In shadow mode: what would have held it back.
        shadowed: Option<Held>,
    },
    /// The store decides.
    Ask {
        /// Its place among the asks.
        ask: usize,
        /// The caps it is judged by.
        cap_set: usize,
        /// In shadow mode: what would have held it back.
        shadowed: Option<Held>,
        /// What becomes of it where the store has no answer.
        otherwise: Unavailable,
    },
}

/// One record's way, and its user's segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draft {
    /// What is to become of it.
    pub way: Way,
    /// The user's segment, by its place in the set.
    pub segment: Option<usize>,
}

/// What comes of giving an ask up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// It is not given up: it waits.
    Never,
    /// It is sent, and owed to its history.
    Sent,
    /// It is not sent.
    Held,
}

/// One batch on the desk: one clock, one policy, one set of segments.
pub struct Sitting {
    desk: Desk,
    set: Arc<SegmentSet>,
    eval: PolicyEval,
    /// Whether the policy names the segment, by its place in the set.
    named: Vec<bool>,
    /// Whether a record is left out, by its place in the batch; empty where none is.
    left_out: Vec<bool>,
    /// The records that are looked up where the gate denies them.
    read_before: ReadBefore,
    /// The places of the asks that only look up.
    looked_up: Vec<usize>,
    now: Time,
}

/// What a gate made of a batch: one draft per record, what the store is asked, and counts of segments.
pub type Gated<'b> = (Vec<Draft>, AdmitBatch<'b>, SegmentCounts);

/// A decoded record, or why it is no intent.
pub type Decoded<'a> = Result<Intent<'a>, DeadLetter>;

impl Desk {
    /// Starts on a batch.
    #[must_use]
    pub fn sit(&self, now: Time) -> Sitting {
        let set = self.segments.get();
        let policy = self.policy.get();
        let names: Vec<&str> = set.segments().iter().map(|segment| segment.name.as_str()).collect();
        let named = names.iter().map(|name| policy.segments.contains_key(*name)).collect();
        let eval = PolicyEval::new(policy, &names, now);
        let (left_out, looked_up) = (Vec::new(), Vec::new());
        Sitting { desk: self.clone(), set, eval, named, left_out, read_before: ReadBefore::none(), looked_up, now }
    }

    /// Reads the intents; the clock has no part in it. One whose output could not be written is none: decided here, before the
    /// store is asked, so that nothing is recorded for it.
    #[must_use]
    pub fn decode<'b>(&self, records: &'b impl Records) -> Vec<Decoded<'b>> {
        let room = DecisionRoom::new(self.limits.of_decisions(), self.names_bytes());
        let one = |index| {
            if let Some(limit_bytes) = records.not_inflated(index) {
                return Err(DeadLetter::not_inflated(limit_bytes));
            }
            let record: RecordView<'b> = records.get(index);
            let headers = record.header_pairs().map(|(key, value)| Header { key, value });
            let intent = decode(record.value, headers, &self.fields)?;
            let value_bytes = record.value.map_or(0, <[u8]>::len);
            match room.fits(value_bytes, records.bytes_beside_value(index)) {
                Ok(()) => Ok(intent),
                Err(oversize) => Err(DeadLetter::not_writable(value_bytes, oversize)),
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
        self.topic.name.len() + policy.version.len() + set.version().len() + segment + cap + LONGER_NAMES_BYTES
    }
}

impl Sitting {
    /// Reads the intents.
    #[must_use]
    pub fn decode<'b>(&self, records: &'b impl Records) -> Vec<Decoded<'b>> {
        self.desk.decode(records)
    }

    /// From now on these records are left out, by their places in the batch; none where there are no places.
    pub fn leave_out(&mut self, places: Vec<bool>) {
        self.left_out = places;
    }

    /// From now on an intent among these that the gate denies is looked up in the store: if it was approved before, it is
    /// approved as it was then, whatever the clock and the policy say now.
    pub fn look_up(&mut self, read_before: ReadBefore) {
        self.read_before = read_before;
    }

    /// Finds each intent's segment and its way; what the store has to decide is in the batch of asks.
    pub fn gate<'b>(&mut self, records: &'b impl Records, decoded: &'b [Decoded<'b>]) -> Gated<'b> {
        let now = self.now;
        self.gate_each(records, decoded, |_| now)
    }

    /// The same, each intent at its own time, by its place in the batch: for the replay of past intents.
    pub fn gate_each<'b>(
        &mut self,
        records: &'b impl Records,
        decoded: &'b [Decoded<'b>],
        at: impl Fn(usize) -> Time,
    ) -> Gated<'b> {
        let mut memberships = self.memberships(decoded).into_iter();
        let mut drafts = Vec::with_capacity(decoded.len());
        let mut asks = Vec::with_capacity(decoded.len());
        let mut counts = SegmentCounts::default();
        for (index, decoded) in decoded.iter().enumerate() {
            let left_out = self.left_out.get(index).is_some_and(|left_out| *left_out);
            let Ok(intent) = decoded else {
                let way = if left_out { Way::LeftOut } else { Way::DeadLetter };
                drafts.push(Draft { way, segment: None });
                continue;
            };
            let membership = memberships.next().unwrap_or(Membership::Nowhere);
            if left_out {
                drafts.push(Draft { way: Way::LeftOut, segment: None });
                continue;
            }
            if let Membership::InSeveral(_) = membership {
                counts.overlaps += 1;
            }
            let segment = membership.segment();
            if segment.is_some_and(|segment| !self.named[segment]) {
                counts.unnamed += 1;
            }
            self.eval.turn_to(at(index));
            let way = self.way(intent, segment, &records.get(index), &mut asks);
            drafts.push(Draft { way, segment });
        }
        let cap_sets = self.cap_sets(&mut asks);
        (drafts, AdmitBatch { now: self.now, cap_sets, asks }, counts)
    }

    /// The sets of caps of all asks. What is only looked up is asked for with a cap that nothing fits into.
    fn cap_sets(&mut self, asks: &mut [Ask<'_>]) -> Vec<Vec<CapQuery>> {
        let mut cap_sets = self.eval.take_cap_sets();
        if !self.looked_up.is_empty() {
            for ask in self.looked_up.drain(..) {
                asks[ask].cap_set = cap_sets.len();
            }
            cap_sets.push(vec![CapQuery::nothing()]);
        }
        cap_sets
    }

    /// The segments of all intents, in their order.
    fn memberships(&self, decoded: &[Decoded<'_>]) -> Vec<Membership> {
        let numbers = decoded.iter().flatten().map(|intent| self.set.number_of(intent));
        let mut found = Vec::with_capacity(decoded.len());
        self.set.lookup_many(numbers, &mut LookupScratch::default(), &mut found);
        found
    }

    fn way<'b>(
        &mut self,
        intent: &'b Intent<'b>,
        segment: Option<usize>,
        record: &RecordView<'_>,
        asks: &mut Vec<Ask<'b>>,
    ) -> Way {
        let facts = facts(intent, segment, record.timestamp);
        let (gate, shadowed) = match (self.eval.gate(&facts), self.eval.policy().mode) {
            (Gate::Suppress { reason, eligible_at }, Mode::Enforce) => {
                let held = (reason, eligible_at);
                if !self.read_before.has(record.partition, record.offset) || !self.eval.policy().records(&facts.class) {
                    return Way::Hold(held);
                }
                let otherwise = self.eval.policy().unavailable(&facts.class);
                let ask = self.ask(intent, record, PolicyEval::NO_CAPS, asks);
                self.looked_up.push(ask);
                return Way::LookUp { ask, held, otherwise };
            }
            // Nothing is held back in shadow mode, but it is told what would have been.
            (Gate::Suppress { reason, eligible_at }, Mode::Shadow) => {
                (self.eval.route(&facts), Some((reason, eligible_at)))
            }
            (gate @ (Gate::Bypass | Gate::Ask { .. }), Mode::Enforce | Mode::Shadow) => (gate, None),
        };
        let Gate::Ask { cap_set } = gate else { return Way::Bypass { shadowed } };
        let ask = self.ask(intent, record, cap_set, asks);
        let otherwise = self.eval.policy().unavailable(&facts.class);
        Way::Ask { ask, cap_set, shadowed, otherwise }
    }

    /// Adds what the store is asked of an intent; gives its place.
    fn ask<'b>(
        &self,
        intent: &'b Intent<'b>,
        record: &RecordView<'_>,
        cap_set: usize,
        asks: &mut Vec<Ask<'b>>,
    ) -> usize {
        asks.push(Ask {
            user: intent.user,
            id: intent.id_hash,
            origin: OriginMark::of(&self.desk.topic, record.partition, record.offset),
            class: intent.class(),
            cost: intent.cost,
            cap_set,
            record: match self.eval.policy().mode {
                Mode::Enforce => Record::IfAllowed,
                Mode::Shadow => Record::Always,
            },
        });
        asks.len() - 1
    }

    /// What becomes of each ask that the store has no answer to, in their order.
    #[must_use]
    pub fn otherwise(&self, drafts: &[Draft]) -> Vec<GivenUp> {
        let mode = self.eval.policy().mode;
        let given_up = |draft: &Draft| match draft.way {
            Way::DeadLetter | Way::Hold(_) | Way::Bypass { .. } | Way::LeftOut => None,
            Way::LookUp { otherwise, .. } => Some(match otherwise {
                Unavailable::Wait => GivenUp::Never,
                Unavailable::Approve | Unavailable::Suppress => GivenUp::Held,
            }),
            Way::Ask { otherwise, .. } => Some(match (otherwise, mode) {
                (Unavailable::Wait, _) => GivenUp::Never,
                (Unavailable::Approve, _) | (Unavailable::Suppress, Mode::Shadow) => GivenUp::Sent,
                (Unavailable::Suppress, Mode::Enforce) => GivenUp::Held,
            }),
        };
        drafts.iter().filter_map(given_up).collect()
    }

    /// The decision on a record that is an intent, as [`Sitting::outputs`] would write it.
    #[must_use]
    pub fn decision<'s>(&'s self, record: &RecordView<'_>, draft: &Draft, answers: &[Option<Answer>]) -> Decision<'s> {
        OutputWriter::new(&self.desk, &self.set, &self.eval, self.now, &|_| None).decision(record, draft, answers)
    }

    /// The policy of the batch.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        self.eval.policy()
    }

    /// What became of an intent (not of a dead letter) that was judged at `now`, and the time it was judged by.
    /// `answers` are the store's, all there.
    #[must_use]
    pub fn ruling(&self, draft: &Draft, answers: &[Option<Answer>], now: Time) -> (Verdict<'_>, Time) {
        output::ruling(&self.eval, draft, answers, now)
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

    /// Writes the outputs, one a record, and counts them. An ask without an answer was given up. `numbers` gives those that
    /// stand for a class in the store, where they are known.
    #[must_use]
    pub fn outputs(
        &self,
        records: &impl Records,
        decoded: &[Decoded<'_>],
        drafts: &[Draft],
        (answers, numbers): (&[Option<Answer>], NumbersOf<'_>),
    ) -> (Vec<Output>, Tally) {
        let mut writer = OutputWriter::new(&self.desk, &self.set, &self.eval, self.now, numbers);
        let mut outputs = Vec::with_capacity(decoded.len());
        for (index, (decoded, draft)) in decoded.iter().zip(drafts).enumerate() {
            let bytes_beside = if decoded.is_err() { records.bytes_beside_value(index) } else { 0 };
            outputs.push(writer.write((&records.get(index), bytes_beside), decoded, draft, answers));
        }
        (outputs, writer.finish())
    }
}

fn facts<'b>(intent: &'b Intent<'b>, segment: Option<usize>, kafka_timestamp: Option<Time>) -> IntentFacts<'b> {
    IntentFacts {
        segment,
        class: intent.class(),
        created_at: intent.created_at,
        kafka_timestamp,
        expires_at: intent.expires_at,
        not_before: intent.not_before,
        zone: intent.timezone.as_ref(),
    }
}
