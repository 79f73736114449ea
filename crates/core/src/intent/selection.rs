//! Which intents a rule of a policy applies to, and what becomes of those that it holds back.

use std::collections::BTreeSet;

use super::class::{ClassNames, Filter, is_among};

/// The intents that a rule applies to. What it names must all fit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    pub filter: Filter,
    /// The campaigns, `None` for all, also for intents without one.
    pub campaigns: Option<BTreeSet<String>>,
}

impl Selection {
    pub fn matches(&self, class: &ClassNames<'_>) -> bool {
        is_among(&self.campaigns, class.campaign) && self.filter.matches(class.channel, class.category)
    }
}

/// What becomes of an intent that may be sent later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Action {
    /// The intent is suppressed, with `eligible_at`.
    #[default]
    Suppress,
    /// It is deferred until then.
    Defer,
}
