//! The outcome of one intent under one policy, kept until all policies have one.

use crate::{
    basis::time::Time,
    decision::verdict::{SuppressReason, Suppressed, Verdict},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayOutcome {
    pub deferred: bool,
    /// Its verdict; `None` where it is still deferred at the end.
    pub ruling: Option<Ruling>,
}

/// A verdict, without what is not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// When it was given: when the intent came, or when its deferral was due.
    pub at: Time,
    pub sent: bool,
    /// Why it is suppressed, or would be but for shadow mode.
    pub why: Option<SuppressReason>,
    pub cap: Option<Box<str>>,
    pub budget: Option<Box<str>>,
}

impl ReplayOutcome {
    pub const STILL_DEFERRED: Self = Self { deferred: true, ruling: None };

    pub fn of(verdict: &Verdict<'_>, at: Time, deferred: bool) -> Self {
        let suppressed = verdict.suppressed();
        let cap = suppressed.and_then(|suppressed| suppressed.cause.cap()).map(|cap| cap.name.into());
        let budget = suppressed.and_then(|suppressed| suppressed.cause.budget()).map(|budget| budget.name.into());
        let sent = verdict.is_approved();
        Self { deferred, ruling: Some(Ruling { at, sent, why: suppressed.map(Suppressed::reason), cap, budget }) }
    }

    pub(super) fn sent(&self) -> bool {
        self.ruling.as_ref().is_some_and(|ruling| ruling.sent)
    }
}
