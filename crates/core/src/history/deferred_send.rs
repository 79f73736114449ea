//! A send that was approved while its history was unavailable, and is not in it yet.

use super::admit::AdmitRequest;
use crate::{
    basis::{
        shard::{IdHash, OriginMark, UserHash},
        time::Time,
    },
    intent::class::ClassNames,
};

/// What it takes in memory besides its names, in bytes: itself, its place in a list that doubles, and their allocations.
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

    pub fn class(&self) -> ClassNames<'_> {
        let [channel, category, campaign] = self.names.each_ref().map(Option::as_deref);
        ClassNames { channel, category, campaign }
    }

    /// What it takes in memory, in bytes, rounded up.
    pub fn bytes(&self) -> usize {
        FIXED_BYTES + self.names.iter().flatten().map(|name| name.len()).sum::<usize>()
    }
}
