//! What a batch is judged by.

use std::time::Duration;

use super::Decoded;
use crate::{basis::time::Time, batch::record::ReadBefore, limit::share::Taken};

/// Records, and what [`Decider::decode`](super::Decider::decode) has made of them.
pub struct DecodedBatch<'b, R> {
    pub records: &'b R,
    pub decoded: &'b [Decoded<'b>],
}

/// What a batch is judged by, beside the policy and the segments in force.
#[derive(Debug)]
pub struct Ground<'b> {
    pub times: Times<'b>,
    /// The monotonic clock when that was read.
    pub passed: Duration,
    /// An intent among these that the gate denies is looked up in the store: if it was approved before, it is approved as it was then,
    /// whatever the clock and the policy say now.
    pub read_before: ReadBefore,
    pub takes: Takes,
    /// How it goes about budgets; `None`: it asks none.
    pub budgets: Option<Patience>,
}

/// The clock of a batch.
#[derive(Debug, Clone, Copy)]
pub enum Times<'b> {
    /// It is read once.
    One(Time),
    /// Each record has its own: for the replay of past intents, those of one minute.
    Each(&'b [Time]),
}

/// What a batch takes of limits.
#[derive(Debug)]
pub enum Takes {
    /// Places and permits that the lanes of the process share.
    FromPools,
    /// The same. The lane reads intents that waited for this route, and took permits before, if they still wait by the policy of then.
    /// Intents of other routes use the shared permits.
    WithPermits(Taken),
    /// Nothing: it is only asked what would become of an intent. Tokens that it is granted are to
    /// [go back](super::AskedBatch::put_back) at once.
    Nothing,
}

/// How long a budget may be unavailable until its intents go by `on_unavailable`, and what replays take of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Of intents that are suppressed then, or deferred; `None`: they wait.
    pub unavailable_after: Option<Duration>,
    pub may_defer: bool,
    /// Whether a replay pays to a budget that has not counted its admission. Where it is an answer that is repeated, it does not: it paid
    /// when it was given first.
    pub replays_pay: bool,
}

impl Times<'_> {
    /// That of the batch as a whole.
    pub(super) fn first(self) -> Time {
        match self {
            Self::One(time) => time,
            Self::Each(times) => times.first().copied().unwrap_or_default(),
        }
    }

    /// That of a record, by its place.
    #[inline]
    pub(super) fn at(self, record: usize) -> Time {
        match self {
            Self::One(time) => time,
            Self::Each(times) => times[record],
        }
    }
}
