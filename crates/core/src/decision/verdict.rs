//! What became of an intent, as the outside is told.

use std::sync::Arc;

use serde::Serialize;

pub use crate::policy::{Counts, SuppressReason};
use crate::{
    basis::{origin::Origin, time::Time},
    deferral::DeferReason,
};

/// What a cap looks back over, as a policy writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapSpan<'a> {
    /// A sliding window's length, such as `24h`.
    Window(&'a str),
    /// A calendar period: `day`, `week` or `month`.
    Per(&'a str),
}

/// The cap that denied; if several did, the one that frees last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema)]
pub struct DenyingCap<'a> {
    /// Its name in the policy.
    pub name: &'a str,
    /// The largest sum of costs in its window.
    pub limit: u32,
    /// What it looks back over.
    #[serde(flatten)]
    pub span: CapSpan<'a>,
    /// The sum of costs in the window already.
    pub used: u32,
}

/// The budget that denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema)]
pub struct DenyingBudget<'a> {
    /// Its name in the policy.
    pub name: &'a str,
    /// The largest sum of costs in its window.
    pub limit: u64,
    /// The sum of costs in the window already, with the tokens that instances hold.
    pub used: u64,
}

/// Why one intent is not sent, with what belongs to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause<'a> {
    Cap(DenyingCap<'a>),
    Budget(DenyingBudget<'a>),
    /// There is no more to it.
    Plain(SuppressReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Suppressed<'a> {
    pub cause: Cause<'a>,
    /// The first moment at which this cause would let the same intent through; `None` where there is none.
    pub eligible_at: Option<Time>,
}

impl<'a> Cause<'a> {
    pub const fn cap(&self) -> Option<&DenyingCap<'a>> {
        if let Self::Cap(cap) = self { Some(cap) } else { None }
    }

    pub const fn budget(&self) -> Option<&DenyingBudget<'a>> {
        if let Self::Budget(budget) = self { Some(budget) } else { None }
    }
}

impl Suppressed<'_> {
    pub const fn reason(&self) -> SuppressReason {
        match self.cause {
            Cause::Cap(_) => SuppressReason::Cap,
            Cause::Budget(_) => SuppressReason::Budget,
            Cause::Plain(reason) => reason,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    Approved(Counts),
    /// It is sent because the policy is in shadow mode; else it would not have been.
    ShadowSuppressed(Suppressed<'a>, Counts),
    Suppressed(Suppressed<'a>),
}

impl<'a> Verdict<'a> {
    /// The word for it in envelopes, headers and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Approved(_) => "approved",
            Self::ShadowSuppressed(..) => "shadow-suppressed",
            Self::Suppressed(_) => "suppressed",
        }
    }

    pub const fn is_approved(&self) -> bool {
        match self {
            Self::Approved(_) | Self::ShadowSuppressed(..) => true,
            Self::Suppressed(_) => false,
        }
    }

    /// Why it is not sent, or would not have been.
    pub const fn suppressed(&self) -> Option<&Suppressed<'a>> {
        match self {
            Self::Approved(_) => None,
            Self::ShadowSuppressed(suppressed, _) | Self::Suppressed(suppressed) => Some(suppressed),
        }
    }
}

/// That an intent had been deferred before it was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema)]
pub struct Deferred {
    /// Why, the last time.
    pub why: DeferReason,
    /// How often.
    pub count: u32,
    /// Milliseconds from the intent's first record to this decision.
    pub waited_ms: u64,
}

/// A verdict with what it was based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'a> {
    pub verdict: Verdict<'a>,
    pub segment: Option<&'a str>,
    /// The time it was judged by.
    pub decided_at: Time,
    pub policy_version: &'a str,
    pub segments_version: &'a str,
    pub origin: Origin<'a>,
    /// What came before, where the intent had been deferred.
    pub deferred: Option<Deferred>,
    /// The names of the budgets that it took from; empty where it took from none.
    pub budgets: &'a [Arc<str>],
}

#[cfg(test)]
impl<'a> Decision<'a> {
    pub(crate) fn sample(verdict: Verdict<'a>) -> Self {
        Self {
            verdict,
            segment: None,
            decided_at: Time::from_millis(1_795_165_200_000).unwrap(),
            policy_version: "2026-11-20.1",
            segments_version: "2026-11-20T00:00:00Z",
            origin: Origin { topic: "send-intents", partition: 3, offset: 1234 },
            deferred: None,
            budgets: &[],
        }
    }
}
