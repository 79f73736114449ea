//! A batch that is through the gate, with its requests to the store and their answers. Records and requests are counted apart: an
//! intent that the store is not asked about has no request.

use std::ops::Index;

use super::{Decoded, GateResult};
use crate::{
    admit::{AdmitBatch, AdmitRequest},
    decide::Answer,
};

/// The place of a request among those of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestIndex(usize);

/// A value for each request of a batch.
#[derive(Debug, Clone, Default)]
pub struct PerRequest<T>(Vec<T>);

/// The store's answers to the requests of a batch.
#[derive(Debug, Clone, Default)]
pub struct StoreAnswers {
    /// As many as requests, or none before the store is asked.
    answers: Vec<Option<Answer>>,
    /// Requests that were asked, have no answer, and may have been recorded; ascending.
    unclear: Vec<RequestIndex>,
}

/// A batch that is through the gate.
#[derive(Debug)]
pub struct GatedBatch<'b, R> {
    pub(super) records: &'b R,
    pub(super) decoded: &'b [Decoded<'b>],
    /// Of each record.
    pub(super) results: Vec<GateResult>,
    pub(super) requests: AdmitBatch<'b>,
    answers: StoreAnswers,
}

impl RequestIndex {
    /// Of the request that is added next to these.
    pub(super) const fn next(requests: &[AdmitRequest<'_>]) -> Self {
        Self(requests.len())
    }

    /// The place in [`AdmitBatch::requests`].
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }
}

impl<T> FromIterator<T> for PerRequest<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl<T> Index<RequestIndex> for PerRequest<T> {
    type Output = T;

    fn index(&self, request: RequestIndex) -> &T {
        &self.0[request.0]
    }
}

impl<T> PerRequest<T> {
    /// The values, in the order of the requests.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

impl StoreAnswers {
    /// The answer to a request; `None`: it has none, or not yet.
    #[must_use]
    #[inline]
    pub fn get(&self, request: RequestIndex) -> Option<Answer> {
        self.answers.get(request.0).copied().flatten()
    }

    /// Whether a request without an answer may have been recorded.
    pub(super) fn is_unclear(&self, request: RequestIndex) -> bool {
        self.unclear.binary_search(&request).is_ok()
    }
}

impl From<Vec<Option<Answer>>> for StoreAnswers {
    fn from(answers: Vec<Option<Answer>>) -> Self {
        Self { answers, unclear: Vec::new() }
    }
}

impl<'b, R> GatedBatch<'b, R> {
    pub(super) fn new(
        (records, decoded): (&'b R, &'b [Decoded<'b>]),
        results: Vec<GateResult>,
        requests: AdmitBatch<'b>,
    ) -> Self {
        Self { records, decoded, results, requests, answers: StoreAnswers::default() }
    }

    /// The records.
    #[must_use]
    pub const fn records(&self) -> &'b R {
        self.records
    }

    /// The result of each record, in their order.
    #[must_use]
    pub fn results(&self) -> &[GateResult] {
        &self.results
    }

    /// The same, to be changed: for the replay of past intents, whose budgets are asked after the gate.
    pub fn results_mut(&mut self) -> &mut [GateResult] {
        &mut self.results
    }

    /// What the store is asked.
    #[must_use]
    pub const fn requests(&self) -> &AdmitBatch<'b> {
        &self.requests
    }

    /// One request.
    #[must_use]
    pub fn request(&self, index: RequestIndex) -> &AdmitRequest<'b> {
        &self.requests.requests[index.0]
    }

    /// The answers, as far as there are some.
    #[must_use]
    pub const fn answers(&self) -> &StoreAnswers {
        &self.answers
    }

    /// Takes the answers to all requests.
    pub fn answer(&mut self, answers: impl Into<StoreAnswers>) {
        self.answers = answers.into();
    }

    /// What the store is asked, and the places of its answers.
    pub fn to_ask(&mut self) -> (&AdmitBatch<'b>, &mut [Option<Answer>]) {
        self.answers.answers.resize(self.requests.requests.len(), None);
        (&self.requests, &mut self.answers.answers)
    }

    /// The requests that have no answer, ascending.
    pub fn unanswered(&self) -> impl Iterator<Item = RequestIndex> {
        (0..self.requests.requests.len()).map(RequestIndex).filter(|request| self.answers.get(*request).is_none())
    }

    /// Some of what the store is asked.
    #[must_use]
    pub fn part(&self, requests: &[RequestIndex]) -> AdmitBatch<'b> {
        let AdmitBatch { now, cap_sets, .. } = &self.requests;
        let requests = requests.iter().map(|request| self.request(*request).clone()).collect();
        AdmitBatch { now: *now, cap_sets: cap_sets.clone(), requests }
    }

    /// Takes the answers to these requests.
    pub fn answer_part(&mut self, requests: &[RequestIndex], answers: Vec<Option<Answer>>) {
        let (_, places) = self.to_ask();
        requests.iter().zip(answers).for_each(|(request, answer)| places[request.0] = answer);
    }

    /// These requests were asked, in this order: those without an answer may have been recorded all the same.
    pub fn asked(&mut self, requests: &[RequestIndex]) {
        let Self { answers: StoreAnswers { answers, unclear }, .. } = self;
        unclear.extend(requests.iter().filter(|request| answers.get(request.0).is_none_or(Option::is_none)));
    }
}
