//! Sends that are not in their histories yet: of the past, or approved while the history was unavailable.

use super::admit::AdmitRequest;
use crate::{
    basis::{
        shard::{IdHash, OriginMark, UserHash},
        time::Time,
    },
    intent::class::ClassNames,
};

/// A send as it is put into its user's history, whoever keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastSend<'a> {
    pub user: UserHash,
    pub id: IdHash,
    /// Where the intent came from; [`OriginMark::RESTORED`] where that is not known.
    pub origin: OriginMark,
    /// When it was decided.
    pub at: Time,
    pub class: ClassNames<'a>,
    /// What it takes from caps, 1 to 255.
    pub cost: u8,
}

/// What a [`DeferredSend`] takes in memory besides its names, in bytes: itself, its place in a list that doubles, and their allocations.
const FIXED_BYTES: usize = 288;

/// A send that is to be put into its user's history, at the time at which it was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeferredSend {
    pub user: UserHash,
    pub id: IdHash,
    pub origin: OriginMark,
    pub at: Time,
    /// What it takes from caps, 1 to 255.
    pub cost: u8,
    names: [Option<Box<str>>; 3],
}

impl DeferredSend {
    /// What this request comes to when it is approved at a time without an answer.
    pub fn new(request: &AdmitRequest<'_>, at: Time) -> Self {
        let ClassNames { channel, category, campaign } = request.class;
        let names = [channel, category, campaign].map(|name| name.map(Box::from));
        Self { user: request.user, id: request.id, origin: request.origin, at, cost: request.cost, names }
    }

    pub fn past(&self) -> PastSend<'_> {
        let Self { user, id, origin, at, cost, ref names } = *self;
        let [channel, category, campaign] = names.each_ref().map(Option::as_deref);
        PastSend { user, id, origin, at, class: ClassNames { channel, category, campaign }, cost }
    }

    /// What it takes in memory, in bytes, rounded up.
    pub fn bytes(&self) -> usize {
        FIXED_BYTES + self.names.iter().flatten().map(|name| name.len()).sum::<usize>()
    }
}
