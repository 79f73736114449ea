//! Counters, under the policy and under the one it is compared with.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::outcome::Ruling;

/// At most so many policies are compared.
pub const POLICIES: usize = 2;
/// The most names of one kind (segments, channels, categories) that are counted one by one; what comes after them is
/// counted together, so that a tool that invents names does not fill the memory.
pub const MAX_NAMES: usize = 1000;
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
    pub(super) fn add(&mut self, ruling: &Ruling) {
        match (ruling.sent, ruling.why) {
            (true, None) => self.approved += 1,
            (true, Some(_)) => self.shadow_suppressed += 1,
            (false, _) => self.suppressed += 1,
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

    /// All of them, the unnamed first, then by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Option<&str>, &T)> {
        let named = self.named.iter().map(|(name, counter)| (Some(name.as_str()), counter));
        self.unnamed.iter().map(|counter| (None, counter)).chain(named)
    }
}
