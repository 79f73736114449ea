//! A batch that is through the gate, and what it asks the store.

use std::sync::Arc;

use super::{
    Decider, Disposition, GateDenial, GateResult, KeptLimits, KeptTokens, Undecided,
    asked::{AskedBatch, RequestIndex},
    fate::Fates,
    intents::{Intents, facts},
    limits::BatchLimits,
};
use crate::{
    basis::{
        origin::Topic,
        shard::{OriginMark, PartitionMarks},
        time::Time,
    },
    batch::{
        record::{ReadBefore, RecordView, Records},
        tally::SegmentCounts,
    },
    deferral::DeferReason,
    history::{
        admit::{AdmitBatch, AdmitRequest, CapQuery},
        decide::RecordWhen,
    },
    intent::Intent,
    limit::budget::lease::{Claim, Funded},
    policy::{GateReason, Mode, Policy, PolicyEval, Unavailable},
    segment::UserSegment,
};

/// A batch that is through the gate, and has taken places and permits. Where it is dropped, they go back.
pub struct GatedBatch<'b, R> {
    pub(super) decider: Decider,
    pub(super) intents: Intents<'b, R>,
    pub(super) limits: BatchLimits,
    /// The records that are looked up where they are denied.
    pub(super) read_before: ReadBefore,
    pub(super) now: Time,
}

pub(super) struct Requests<'b> {
    pub(super) batch: AdmitBatch<'b>,
    /// The places of the requests that only look up, and have no set of caps yet.
    looked_up: Vec<RequestIndex>,
    /// The place of the set of caps that these get, where there is one: sets that the policy made later are behind it.
    nothing_fits: Option<usize>,
    /// The partition of the last record, with the marks of its records: records come in runs of one partition.
    run: Option<(i32, PartitionMarks)>,
}

impl<'b> Requests<'b> {
    fn new(now: Time, most: usize) -> Self {
        let batch = AdmitBatch { now, cap_sets: Vec::new(), requests: Vec::with_capacity(most) };
        Self { batch, looked_up: Vec::new(), nothing_fits: None, run: None }
    }

    pub(super) fn len(&self) -> usize {
        self.batch.requests.len()
    }

    /// The mark of the record that an intent came with first.
    #[inline]
    fn origin(&mut self, topic: &Topic, view: &RecordView<'_>) -> OriginMark {
        if let Some(deferral) = view.deferral {
            return OriginMark::of(&deferral.topic, deferral.partition, deferral.offset);
        }
        let marks = match self.run {
            Some((partition, marks)) if partition == view.partition => marks,
            Some(_) | None => PartitionMarks::of(topic, view.partition),
        };
        self.run = Some((view.partition, marks));
        marks.at(view.offset)
    }

    #[inline]
    fn add(&mut self, request: AdmitRequest<'b>) -> RequestIndex {
        let index = RequestIndex::next(&self.batch.requests);
        self.batch.requests.push(request);
        index
    }

    /// Adds the sets of caps that only the requests from this one on have. What is only looked up is asked for with a cap that nothing fits
    /// into.
    pub(super) fn add_cap_sets(&mut self, from: usize, more: Vec<Vec<CapQuery>>) {
        let AdmitBatch { cap_sets, requests, .. } = &mut self.batch;
        if let Some(place) = self.nothing_fits {
            requests[from..].iter_mut().filter(|request| request.cap_set >= place).for_each(|of| of.cap_set += 1);
        }
        cap_sets.extend(more);
        if !self.looked_up.is_empty() {
            let place = *self.nothing_fits.get_or_insert_with(|| {
                cap_sets.push(vec![CapQuery::nothing()]);
                cap_sets.len() - 1
            });
            self.looked_up.drain(..).for_each(|request| requests[request.get()].cap_set = place);
        }
    }
}

impl<'b, R: Records> GatedBatch<'b, R> {
    /// Whether the permits that a lane took for intents which wait are too few for the batch: without one an intent would queue again,
    /// behind newer ones.
    pub fn is_short_of_permits(&self) -> bool {
        self.limits.is_short()
    }

    /// What the intents take from budgets; `None`: nothing.
    pub fn claim(&self) -> Option<&Arc<Claim>> {
        self.limits.claim()
    }

    pub fn policy(&self) -> &Policy {
        self.intents.eval.policy()
    }

    pub const fn now(&self) -> Time {
        self.now
    }

    /// The same batch, judged again: with the tokens that were kept when it was [given up](AskedBatch::give_up) before.
    #[must_use]
    pub fn keeping(mut self, tokens: KeptTokens) -> Self {
        self.limits.kept = tokens;
        self
    }

    /// Gives the batch up, which has taken no tokens in this round: the permits of its records, and the tokens of rounds before. Places go
    /// back.
    #[must_use]
    pub fn give_up(mut self) -> KeptLimits {
        KeptLimits { units: self.limits.units(), tokens: std::mem::take(&mut self.limits.kept) }
    }

    /// Finds each intent's disposition. `funded`: what became of the claim, where it has one; without it no budget can be
    /// asked.
    #[must_use]
    pub fn ask(mut self, funded: Option<Funded>) -> AskedBatch<'b, R> {
        self.limits.answer(funded, &mut self.intents.denials);
        let records = self.intents.decoded.len();
        let mut results = Vec::with_capacity(records);
        let mut requests = Requests::new(self.now, records);
        let mut segments = SegmentCounts::default();
        for record in 0..records {
            let user_segment = self.intents.segment(record);
            if let UserSegment::InSeveral(_) = user_segment {
                segments.overlaps += 1;
            }
            let segment = user_segment.segment();
            if segment.is_some_and(|segment| !self.intents.eval.names(segment)) {
                segments.unnamed += 1;
            }
            let disposition = self.dispose(record, segment, &mut requests);
            results.push(GateResult { disposition, segment });
        }
        requests.add_cap_sets(0, self.intents.eval.take_cap_sets());
        let (answers, unclear, is_asking) = (Vec::new(), self.limits.kept.requests(&results), false);
        let fates = Fates { results, answers, unclear, is_asking, mode: self.policy().mode };
        AskedBatch { gated: self, requests, fates, segments, offers: 0 }
    }

    /// What is to become of a record, by what is said of it.
    pub(super) fn dispose(
        &mut self,
        record: usize,
        segment: Option<usize>,
        requests: &mut Requests<'b>,
    ) -> Disposition {
        let (records, decoded, now) = (self.intents.records, self.intents.decoded, self.intents.at(record));
        let intent = match &decoded[record] {
            Ok(intent) => intent,
            Err(Undecided::Invalid(_)) => return Disposition::Undecided,
            Err(Undecided::Retry(_)) => {
                return self.intents.denial(record).map_or(Disposition::Undecided, Disposition::Suppress);
            }
        };
        let view = records.get(record);
        let facts = facts(intent, segment, &view);
        self.intents.eval.turn_to(now);
        let denial = self.intents.denial_by(record, &facts);
        let shadowed = match (denial, self.policy().mode) {
            (Some(denial), Mode::Enforce) => return self.denied((intent, &view), denial, requests),
            // Nothing is suppressed in shadow mode, but the reason is reported.
            (denial, Mode::Enforce | Mode::Shadow) => denial,
        };
        let Some(cap_set) = self.intents.eval.route(&facts) else { return Disposition::Bypass { shadowed } };
        let origin = requests.origin(&self.decider.topic, &view);
        let request = requests.add(self.request((intent, origin), cap_set));
        let fallback = self.policy().unavailable(&facts.class);
        Disposition::CheckCaps { request, cap_set, shadowed, fallback }
    }

    /// What is to become of an intent that is denied: it may have been recorded before.
    fn denied(
        &self,
        (intent, view): (&'b Intent<'b>, &RecordView<'_>),
        denial: GateDenial,
        requests: &mut Requests<'b>,
    ) -> Disposition {
        let was_asked = view.deferral.is_some_and(|deferral| deferral.why == DeferReason::Unavailable);
        let may_be_recorded = was_asked || self.read_before.has(view.partition, view.offset);
        // One that waits for a budget is asked about again, whether it was recorded before or not.
        if !may_be_recorded || denial.0 == GateReason::BudgetWaits {
            return Disposition::Suppress(denial);
        }
        let (policy, class) = (self.policy(), intent.class());
        let fallback = if !policy.records(&class) {
            // Its class does not depend on the store: only an earlier policy may have recorded it.
            None
        } else if matches!(denial.0, GateReason::RouteFull(_)) {
            // One that waits for capacity is not looked up again: whether it was approved must be known now.
            Some(Unavailable::Wait)
        } else {
            Some(policy.unavailable(&class))
        };
        let origin = requests.origin(&self.decider.topic, view);
        let request = requests.add(self.request((intent, origin), PolicyEval::NO_CAPS));
        requests.looked_up.push(request);
        Disposition::LookUp { request, denial, fallback }
    }

    #[inline]
    fn request(&self, (intent, origin): (&'b Intent<'b>, OriginMark), cap_set: usize) -> AdmitRequest<'b> {
        AdmitRequest {
            user: intent.user,
            id: intent.id_hash,
            origin,
            class: intent.class(),
            cost: intent.cost,
            cap_set,
            record: match self.policy().mode {
                Mode::Enforce => RecordWhen::IfAllowed,
                Mode::Shadow => RecordWhen::Always,
            },
        }
    }
}
