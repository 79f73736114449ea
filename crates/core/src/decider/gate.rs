//! The gate of a batch: what is to become of each record, and what the store is asked.

use super::{BatchDecision, Decoded, Disposition, GateResult, GatedBatch, RequestIndex};
use crate::{
    admit::{AdmitBatch, AdmitRequest, CapQuery},
    decide::RecordWhen,
    deferral::DeferReason,
    intent::Intent,
    policy::{Gate, GateReason, IntentFacts, Mode, PolicyEval, Unavailable},
    record::{RecordView, Records},
    segment::{LookupScratch, UserSegment},
    shard::OriginMark,
    tally::SegmentCounts,
    time::Time,
};

impl BatchDecision {
    /// Finds each intent's segment and disposition; the batch of requests is for the store.
    pub fn gate<'b, R: Records>(
        &mut self,
        records: &'b R,
        decoded: &'b [Decoded<'b>],
    ) -> (GatedBatch<'b, R>, SegmentCounts) {
        let now = self.now;
        self.gate_each(records, decoded, |_| now)
    }

    /// The same, each intent at its own time, by its place in the batch: for the replay of past intents.
    pub fn gate_each<'b, R: Records>(
        &mut self,
        records: &'b R,
        decoded: &'b [Decoded<'b>],
        at: impl Fn(usize) -> Time,
    ) -> (GatedBatch<'b, R>, SegmentCounts) {
        let mut user_segments = self.user_segments(decoded).into_iter();
        let mut gate_results = Vec::with_capacity(decoded.len());
        let mut requests = Vec::with_capacity(decoded.len());
        let mut counts = SegmentCounts::default();
        for (index, decoded) in decoded.iter().enumerate() {
            let Ok(intent) = decoded else {
                let disposition = self.undecided(index, at(index));
                gate_results.push(GateResult { disposition, segment: None, budgets: None });
                continue;
            };
            let user_segment = user_segments.next().unwrap_or(UserSegment::Nowhere);
            if let UserSegment::InSeveral(_) = user_segment {
                counts.overlaps += 1;
            }
            let segment = user_segment.segment();
            if segment.is_some_and(|segment| !self.named[segment]) {
                counts.unnamed += 1;
            }
            let now = at(index);
            self.eval.turn_to(now);
            let disposition = self.disposition((index, intent, now), segment, &records.get(index), &mut requests);
            let budgets = match &self.budgets {
                Some(budgets) => budgets.set_of(index),
                None => None,
            };
            gate_results.push(GateResult { disposition, segment, budgets });
        }
        let mut cap_sets = Vec::new();
        self.add_cap_sets(&mut cap_sets, &mut requests);
        let requests = AdmitBatch { now: self.now, cap_sets, requests };
        (GatedBatch::new((records, decoded), gate_results, requests), counts)
    }

    /// The disposition of a record that is not decided. A delivery that is tried again may have no permit of its route.
    fn undecided(&self, index: usize, now: Time) -> Disposition {
        match self.capacity.as_ref().map(|capacity| capacity.gate(index, Gate::Bypass, now)) {
            Some(Gate::Suppress { reason, eligible_at }) => Disposition::Suppress((reason, eligible_at)),
            Some(Gate::Bypass | Gate::CheckCaps { .. }) | None => Disposition::Undecided,
        }
    }

    /// Adds the sets of caps that the policy has made since. What is only looked up is asked for with a cap that nothing fits into.
    pub(super) fn add_cap_sets(&mut self, cap_sets: &mut Vec<Vec<CapQuery>>, requests: &mut [AdmitRequest<'_>]) {
        cap_sets.extend(self.eval.take_cap_sets());
        if !self.looked_up.is_empty() {
            let place = *self.nothing_fits.get_or_insert_with(|| {
                cap_sets.push(vec![CapQuery::nothing()]);
                cap_sets.len() - 1
            });
            self.looked_up.drain(..).for_each(|request| requests[request.get()].cap_set = place);
        }
    }

    /// The segments of all intents, in their order.
    fn user_segments(&self, decoded: &[Decoded<'_>]) -> Vec<UserSegment> {
        let numbers = decoded.iter().flatten().map(|intent| self.set.number_of(intent));
        let mut found = Vec::with_capacity(decoded.len());
        self.set.lookup_many(numbers, &mut LookupScratch::default(), &mut found);
        found
    }

    pub(super) fn disposition<'b>(
        &mut self,
        (index, intent, now): (usize, &'b Intent<'b>, Time),
        segment: Option<usize>,
        record: &RecordView<'_>,
        requests: &mut Vec<AdmitRequest<'b>>,
    ) -> Disposition {
        let facts = facts(intent, segment, record);
        let gate = self.eval.gate(&facts);
        let gate = match &self.pressure {
            Some(pressure) => pressure.gate(index, gate, now),
            None => gate,
        };
        let gate = match &self.capacity {
            Some(capacity) => capacity.gate(index, gate, now),
            None => gate,
        };
        let gate = match &self.budgets {
            Some(budgets) => budgets.gate(index, gate, &self.eval),
            None => gate,
        };
        let (gate, shadowed) = match (gate, self.eval.policy().mode) {
            (Gate::Suppress { reason, eligible_at }, Mode::Enforce) => {
                let denial = (reason, eligible_at);
                // It is asked about again, whether it was recorded before or not.
                if reason == GateReason::BudgetWaits {
                    return Disposition::Suppress(denial);
                }
                let was_asked = record.deferral.is_some_and(|deferral| deferral.why == DeferReason::Unavailable);
                let may_be_recorded = was_asked || self.read_before.has(record.partition, record.offset);
                if !may_be_recorded {
                    return Disposition::Suppress(denial);
                }
                let policy = self.eval.policy();
                let fallback = if !policy.records(&facts.class) {
                    // Its class does not depend on the store: only an earlier policy may have recorded it.
                    None
                } else if matches!(reason, GateReason::RouteFull(_)) {
                    // One that waits for capacity is not looked up again: whether it was approved must be known now.
                    Some(Unavailable::Wait)
                } else {
                    Some(policy.unavailable(&facts.class))
                };
                let request = self.add_request(intent, record, PolicyEval::NO_CAPS, requests);
                self.looked_up.push(request);
                return Disposition::LookUp { request, denial, fallback };
            }
            // Nothing is suppressed in shadow mode, but the reason is reported.
            (Gate::Suppress { reason, eligible_at }, Mode::Shadow) => {
                (self.eval.route(&facts), Some((reason, eligible_at)))
            }
            (gate @ (Gate::Bypass | Gate::CheckCaps { .. }), Mode::Enforce | Mode::Shadow) => (gate, None),
        };
        let Gate::CheckCaps { cap_set } = gate else { return Disposition::Bypass { shadowed } };
        let request = self.add_request(intent, record, cap_set, requests);
        let fallback = self.eval.policy().unavailable(&facts.class);
        Disposition::CheckCaps { request, cap_set, shadowed, fallback }
    }

    /// Adds what the store is asked of an intent; gives its place.
    #[inline]
    fn add_request<'b>(
        &self,
        intent: &'b Intent<'b>,
        record: &RecordView<'_>,
        cap_set: usize,
        requests: &mut Vec<AdmitRequest<'b>>,
    ) -> RequestIndex {
        let index = RequestIndex::next(requests);
        requests.push(AdmitRequest {
            user: intent.user,
            id: intent.id_hash,
            origin: match record.deferral {
                Some(deferral) => OriginMark::of(&deferral.topic, deferral.partition, deferral.offset),
                None => OriginMark::of(&self.decider.topic, record.partition, record.offset),
            },
            class: intent.class(),
            cost: intent.cost,
            cap_set,
            record: match self.eval.policy().mode {
                Mode::Enforce => RecordWhen::IfAllowed,
                Mode::Shadow => RecordWhen::Always,
            },
        });
        index
    }
}

impl GateResult {
    /// The request by which the store is asked, whether it decides or looks up.
    #[must_use]
    pub const fn request(&self) -> Option<RequestIndex> {
        match self.disposition {
            Disposition::CheckCaps { request, .. } | Disposition::LookUp { request, .. } => Some(request),
            Disposition::Undecided | Disposition::Suppress(_) | Disposition::Bypass { .. } => None,
        }
    }
}

/// What the policy looks at.
pub(crate) fn facts<'b>(intent: &'b Intent<'b>, segment: Option<usize>, record: &RecordView<'_>) -> IntentFacts<'b> {
    let (kafka_timestamp, not_before) = match record.deferral {
        None => (record.timestamp, intent.not_before),
        Some(deferral) if deferral.is_until_capacity() => (Some(deferral.first_at), intent.not_before),
        // Whoever reads a deferred intent too soon defers it again.
        Some(deferral) => (Some(deferral.first_at), intent.not_before.max(Some(deferral.due))),
    };
    IntentFacts {
        segment,
        class: intent.class(),
        created_at: intent.created_at,
        kafka_timestamp,
        expires_at: intent.expires_at,
        not_before,
        zone: intent.timezone.as_ref(),
    }
}
