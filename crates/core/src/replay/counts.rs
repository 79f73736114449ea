//! Counters under one policy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::decision::verdict::Verdict;

/// The most names of one kind (segments, channels, categories) that are counted one by one; what comes after them is
/// counted together, so that a tool that invents names does not fill the memory.
const MAX_NAMES: usize = 1000;
/// The name under which the rest is counted.
const THE_REST: &str = "(all others)";

/// Verdicts on some intents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct VerdictCounts {
    /// Approved.
    pub approved: u64,
    /// Approved only because the policy is in shadow mode.
    pub shadow_suppressed: u64,
    /// Suppressed.
    pub suppressed: u64,
}

impl VerdictCounts {
    pub(super) fn add(&mut self, verdict: &Verdict<'_>) {
        match verdict {
            Verdict::Approved(_) => self.approved += 1,
            Verdict::ShadowSuppressed(..) => self.shadow_suppressed += 1,
            Verdict::Suppressed(_) => self.suppressed += 1,
        }
    }

    /// The approved intents.
    pub const fn sent(&self) -> u64 {
        self.approved + self.shadow_suppressed
    }
}

/// One counter a name, and one for what has none.
#[derive(Debug, Clone, Default)]
pub(super) struct CountsByName<T> {
    unnamed: Option<T>,
    named: BTreeMap<String, T>,
}

impl<T: Default> CountsByName<T> {
    pub(super) fn of(&mut self, name: Option<&str>) -> &mut T {
        let Some(name) = name else { return self.unnamed.get_or_insert_default() };
        let full = self.named.len() >= MAX_NAMES;
        let name = if full && !self.named.contains_key(name) { THE_REST } else { name };
        if !self.named.contains_key(name) {
            self.named.insert(name.to_owned(), T::default());
        }
        self.named.get_mut(name).expect("it was put there")
    }

    pub(super) fn get(&self, name: Option<&str>) -> Option<&T> {
        name.map_or(self.unnamed.as_ref(), |name| self.named.get(name))
    }

    /// All of them, the unnamed first, then by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Option<&str>, &T)> {
        let named = self.named.iter().map(|(name, counter)| (Some(name.as_str()), counter));
        self.unnamed.iter().map(|counter| (None, counter)).chain(named)
    }
}
