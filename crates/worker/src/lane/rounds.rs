//! The rounds in which one batch is judged: one, unless the store or a budget has to be waited for.

use std::time::Duration;

use weir_core::batch::decider::KeptTokens;

use crate::{
    backoff::{LONGEST_BACKOFF, backoff},
    trace::Interval,
};

pub(super) struct Rounds {
    pauses: Box<dyn Iterator<Item = Duration>>,
    began: Duration,
    /// When the first round had been through the gate.
    gated: Option<Duration>,
    was_asked: bool,
    /// Of what the rounds before have asked for.
    pub(super) tokens: KeptTokens,
    /// Whether it has claimed tokens of budgets.
    pub(super) has_claimed: bool,
    /// Whether it was judged again to claim tokens that it had kept.
    has_claimed_kept: bool,
}

impl Rounds {
    pub(super) fn begin(now: Duration) -> Self {
        let (gated, was_asked, tokens, has_claimed, has_claimed_kept) = Default::default();
        Self { pauses: Box::new(backoff()), began: now, gated, was_asked, tokens, has_claimed, has_claimed_kept }
    }

    /// Whether nothing has been asked for this batch before.
    pub(super) fn is_first(&self) -> bool {
        !self.was_asked
    }

    /// The store is asked: it may record what is judged again in another round, whatever that one waits for.
    pub(super) fn ask(&mut self) {
        self.was_asked = true;
    }

    /// Whether the batch may be judged again at once for tokens that it gives back: the first time.
    pub(super) fn may_claim_kept(&mut self) -> bool {
        !std::mem::replace(&mut self.has_claimed_kept, true)
    }

    /// The first round is through the gate; how long that took.
    pub(super) fn gated(&mut self, now: Duration) -> Duration {
        self.gated = Some(now);
        now.saturating_sub(self.began)
    }

    /// From the first gate until all was answered.
    pub(super) fn asked(&self, now: Duration) -> Interval {
        Interval { from: self.gated.unwrap_or(now), to: now }
    }

    pub(super) fn pause(&mut self) -> Duration {
        self.pauses.next().unwrap_or(LONGEST_BACKOFF)
    }
}
