//! A batch that asks the store, with the answers. Records and requests are counted apart: an intent that the store is not asked about
//! has no request.

use super::{Fate, GateResult, GatedBatch, UnavailableOutcome, fate::Fates, gated::Requests};
use crate::{
    basis::store_error::StoreError,
    batch::{
        record::{RecordView, Records},
        tally::SegmentCounts,
    },
    history::{
        admit::{AdmitBatch, AdmitRequest},
        decide::Answer,
        deferred_send::DeferredSend,
    },
    policy::Mode,
};

/// The place of a request among those of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestIndex(usize);

/// A batch that asks the store: what it asks, and what the store has answered so far. Where it is dropped, places and permits go back,
/// and so do the tokens but for those of what is recorded, or may be.
pub struct AskedBatch<'b, R> {
    pub(super) gated: GatedBatch<'b, R>,
    pub(super) requests: Requests<'b>,
    pub(super) fates: Fates,
    pub(super) segments: SegmentCounts,
    /// How often it has offered what came back.
    pub(super) offers: usize,
}

impl RequestIndex {
    /// Of the request that is added next to these.
    pub(super) const fn next(requests: &[AdmitRequest<'_>]) -> Self {
        Self(requests.len())
    }

    /// The place in [`AdmitBatch::requests`].
    pub const fn get(self) -> usize {
        self.0
    }
}

impl<'b, R: Records> AskedBatch<'b, R> {
    pub const fn segment_counts(&self) -> SegmentCounts {
        self.segments
    }

    /// What the gate and the limits say of a record, by its place.
    pub fn result(&self, record: usize) -> &GateResult {
        &self.fates.results[record]
    }

    /// What became of a record, as far as the store has answered.
    pub fn fate(&self, record: usize) -> Fate {
        self.fates.get(record)
    }

    pub const fn requests(&self) -> &AdmitBatch<'b> {
        &self.requests.batch
    }

    pub fn request(&self, request: RequestIndex) -> &AdmitRequest<'b> {
        &self.requests.batch.requests[request.0]
    }

    pub fn answer_to(&self, request: RequestIndex) -> Option<Answer> {
        self.fates.answer(request)
    }

    /// Takes the answers to all requests.
    pub fn answer(&mut self, answers: Vec<Option<Answer>>) {
        (self.fates.answers, self.fates.unclear, self.fates.is_asking) = (answers, Vec::new(), false);
    }

    /// What the store is asked, and the places of its answers. It may record any of it until [`AskedBatch::heard`] says what it was.
    pub fn to_ask(&mut self) -> (&AdmitBatch<'b>, &mut [Option<Answer>]) {
        self.fates.is_asking = true;
        self.fates.answers.resize(self.requests.len(), None);
        (&self.requests.batch, &mut self.fates.answers)
    }

    /// The requests that have no answer, ascending.
    pub fn unanswered(&self) -> impl Iterator<Item = RequestIndex> {
        (0..self.requests.len()).map(RequestIndex).filter(|request| self.fates.answer(*request).is_none())
    }

    /// Some of what the store is asked; the same as [`AskedBatch::to_ask`], with [`AskedBatch::answer_part`].
    #[must_use]
    pub fn part(&mut self, requests: &[RequestIndex]) -> AdmitBatch<'b> {
        self.fates.is_asking = true;
        let AdmitBatch { now, cap_sets, .. } = &self.requests.batch;
        let requests = requests.iter().map(|request| self.request(*request).clone()).collect();
        AdmitBatch { now: *now, cap_sets: cap_sets.clone(), requests }
    }

    pub fn answer_part(&mut self, requests: &[RequestIndex], answers: Vec<Option<Answer>>) {
        let places = &mut self.fates.answers;
        places.resize(self.requests.len(), None);
        requests.iter().zip(answers).for_each(|(request, answer)| places[request.0] = answer);
    }

    /// The store was asked these requests, in this order, and has ended with this error, if with any.
    pub fn heard(&mut self, requests: &[RequestIndex], error: Option<&StoreError>) {
        // A shard that has lost its history records nothing, and one that refuses does not either.
        let records_nothing = matches!(error, Some(StoreError::LostHistory { .. } | StoreError::NotRecorded(_)));
        self.asked(if records_nothing { &[] } else { requests });
    }

    /// These requests were asked, in this order: those without an answer may have been recorded all the same.
    pub(super) fn asked(&mut self, requests: &[RequestIndex]) {
        let Fates { answers, unclear, is_asking, .. } = &mut self.fates;
        *is_asking = false;
        unclear.extend(requests.iter().filter(|request| answers.get(request.0).is_none_or(Option::is_none)));
        // Some were so from the beginning.
        unclear.sort_unstable();
    }

    /// The requests that have no answer, each with what becomes of its intent if it gets none, in the order of the records.
    pub fn lacking(&self) -> impl Iterator<Item = (RequestIndex, UnavailableOutcome)> {
        self.unanswered_records().filter_map(|(_, request, fate)| match fate {
            Fate::Unanswered { outcome, .. } => Some((request, outcome)),
            Fate::Undecided | Fate::Approved(..) | Fate::Suppressed(..) => None,
        })
    }

    fn unanswered_records(&self) -> impl Iterator<Item = (usize, RequestIndex, Fate)> {
        let unanswered = |(record, result): (usize, &GateResult)| {
            let request = result.request().filter(|request| self.fates.answer(*request).is_none())?;
            Some((record, request, self.fate(record)))
        };
        self.fates.results.iter().enumerate().filter_map(unanswered)
    }

    /// Whether it needs no answer to the requests that have none.
    pub fn gives_up(&self) -> bool {
        self.lacking().all(|(_, outcome)| outcome == UnavailableOutcome::GivenUp)
    }

    /// Whether an intent whose history is unavailable, and which may wait, is deferred.
    pub fn may_defer(&self) -> bool {
        self.gated.decider.wheel.is_some() && self.fates.mode == Mode::Enforce
    }

    /// What is to be recorded later of the records that are approved without an answer.
    pub fn deferred_sends(&self) -> impl Iterator<Item = (RecordView<'_>, DeferredSend)> {
        let approved = self.unanswered_records().filter(|(.., fate)| fate.is_approved());
        approved.map(|(record, request, _)| (self.gated.intents.records.get(record), self.deferred_send(request)))
    }

    /// What is to be recorded later of this request, if it is approved without an answer.
    pub fn deferred_send(&self, request: RequestIndex) -> DeferredSend {
        DeferredSend::new(self.request(request), self.requests.batch.now)
    }

    /// Gives back all tokens that a batch was granted which only asks ([`Takes::Nothing`](super::Takes::Nothing)), before it has answers.
    pub fn put_back(&mut self) {
        drop(self.gated.limits.give_up(&self.fates));
    }
}

impl<R> Drop for AskedBatch<'_, R> {
    fn drop(&mut self) {
        self.gated.limits.give_up(&self.fates);
    }
}
