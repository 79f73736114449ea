//! The desk: turns a batch of records into questions for the store, and its answers into output records.

use std::sync::Arc;

use super::{
    output::OutputWriter,
    record::{Output, RecordView, Records},
    refresh::Refreshed,
};
use crate::{
    domain::{
        admit::{AdmitBatch, Ask},
        class::ClassNames,
        dead_letter::DeadLetter,
        decide::{Answer, Record},
        decode::{FieldMap, decode},
        intent::Intent,
        policy::{Gate, GateReason, IntentFacts, Mode, Policy, PolicyEval},
        segment::{LookupScratch, Membership, SegmentSet},
        shard::{IdHash, OriginMark, UserHash},
        time::Time,
    },
    metrics::Metrics,
};

/// What a desk needs to know; shared by all lanes.
#[derive(Clone)]
pub struct Desk {
    /// The intents topic, part of every origin.
    pub topic: Arc<str>,
    /// Where an intent's fields are.
    pub fields: Arc<FieldMap>,
    /// The segments in force.
    pub segments: Arc<Refreshed<SegmentSet>>,
    /// The policy in force.
    pub policy: Arc<Refreshed<Policy>>,
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
    /// It goes out, unrecorded.
    Bypass,
    /// The store decides.
    Ask {
        /// Its place among the asks.
        ask: usize,
        /// In shadow mode: what would have held it back.
        shadowed: Option<Held>,
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

/// One batch on the desk: one clock, one policy, one set of segments.
pub struct Sitting {
    desk: Desk,
    set: Arc<SegmentSet>,
    eval: PolicyEval,
    now: Time,
}

/// A decoded record, or why it is no intent.
pub type Decoded<'a> = Result<Intent<'a>, DeadLetter>;

impl Desk {
    /// Starts on a batch.
    #[must_use]
    pub fn sit(&self, now: Time) -> Sitting {
        let set = self.segments.current();
        let names: Vec<&str> = set.segments().iter().map(|segment| segment.name.as_str()).collect();
        let eval = PolicyEval::new(self.policy.current(), &names, now);
        Sitting { desk: self.clone(), set, eval, now }
    }
}

impl Sitting {
    /// Reads the intents.
    #[must_use]
    pub fn decode<'b>(&self, records: &'b impl Records) -> Vec<Decoded<'b>> {
        (0..records.len()).map(|index| decode(&records.get(index).raw(), &self.desk.fields)).collect()
    }

    /// Finds each intent's segment and its way; what the store has to decide is in the batch of asks.
    pub fn gate<'b>(
        &mut self,
        records: &'b impl Records,
        decoded: &'b [Decoded<'b>],
        metrics: &Metrics,
    ) -> (Vec<Draft>, AdmitBatch<'b>) {
        let memberships = self.memberships(decoded);
        let names = self.eval.policy().unnamed_places(&self.set);
        let mut drafts = Vec::with_capacity(decoded.len());
        let mut asks = Vec::with_capacity(decoded.len());
        let mut place = memberships.iter();
        for (index, decoded) in decoded.iter().enumerate() {
            let Ok(intent) = decoded else {
                drafts.push(Draft { way: Way::DeadLetter, segment: None });
                continue;
            };
            let membership = place.next().copied().unwrap_or(Membership::Nowhere);
            self.count(membership, metrics);
            let segment = membership.segment();
            let way = self.way(intent, segment, &records.get(index), &mut asks);
            drafts.push(Draft { way, segment });
        }
        let cap_sets = self.eval.cap_sets().to_vec();
        (drafts, AdmitBatch { now: self.now, cap_sets, asks })
    }
}
