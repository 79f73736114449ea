//! What a policy says: each segment's caps, who is never capped, when nothing is sent.
//!
//! A [`Policy`] is immutable; a reload makes a new one. [`PolicyEval`] applies one to a batch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    basis::{words, zone::Zone},
    history::decide::Scope,
    intent::class::{ClassNames, Filter},
    limit::{budget::Budget, pressure::PressureRule, route::Route},
};

mod cap_lists;
mod eval;
pub mod file;
mod quiet;
#[cfg(test)]
mod tests;

pub use crate::{
    basis::window::Period,
    intent::{
        reason::{GateReason, SuppressReason},
        selection::{Action, Selection},
    },
};
pub use eval::{DeniedCap, IntentFacts, PolicyEval};
pub use quiet::QuietHours;

/// What a cap looks back over, as the policy has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CapWindow {
    /// The last `length_ms` milliseconds.
    Sliding {
        /// The window's length in milliseconds, above 0.
        length_ms: i64,
        /// The length as it was written (`24h`), for people to recognise.
        text: Arc<str>,
    },
    /// The calendar period that the decision lies in, in the user's time zone.
    Per(Period),
}

impl CapWindow {
    /// The longest time in milliseconds that a send counts in this window: what the history must reach back.
    ///
    /// A calendar period is as long as it gets when clocks are put back in it (see [`Period::longest_ms`]).
    pub fn longest_ms(&self) -> i64 {
        match self {
            Self::Sliding { length_ms, .. } => *length_ms,
            Self::Per(period) => period.longest_ms(),
        }
    }
}

/// In words: `in any 24h`, `per day`.
impl std::fmt::Display for CapWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sliding { text, .. } => write!(f, "in any {text}"),
            Self::Per(period) => write!(f, "per {}", period.as_str()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cap {
    /// Its name, unlike that of any other cap of the segment.
    pub name: Arc<str>,
    /// The most that may be sent in the window, in costs; 0: never anything.
    pub limit: u32,
    pub window: CapWindow,
    /// The channels and categories that it is asked for, and that count.
    pub filter: Arc<Filter>,
    pub scope: Scope,
    pub action: Action,
}

/// What a segment's users are held to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caps {
    /// Nothing is counted against them.
    Unlimited,
    /// These, all of which must allow; at most [`crate::history::admit::MAX_CAPS`].
    Limited(Vec<Cap>),
}

impl Caps {
    /// The caps, none for an unlimited segment.
    pub fn list(&self) -> &[Cap] {
        match self {
            Self::Unlimited => &[],
            Self::Limited(caps) => caps,
        }
    }
}

/// Whether a send is in the user's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counts {
    /// It is recorded, and counts against later sends.
    Yes,
    /// It was approved while its history was unavailable: it counts once it is recorded, after the history is available.
    Later,
    /// It went by a bypass that does not count.
    No,
}

/// A rule for what is never capped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bypass {
    pub selection: Selection,
    pub counts: Counts,
}

words! {
    /// The disposition of an intent whose history is unavailable or lost; with the word for it in policies and metrics.
    pub enum Unavailable {
        /// It waits until the history is back; others go on.
        Wait = "wait",
        /// It is sent without asking a cap, and recorded once the history is back.
        Approve = "approve",
        Suppress = "suppress",
    }
}

/// A rule for intents of an unavailable shard. All its filters must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnUnavailable {
    pub filter: Filter,
    pub action: Unavailable,
}

/// Whether verdicts are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    Enforce,
    /// They are taken and reported, and everything is sent all the same.
    Shadow,
}

/// A checked policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// What its author calls this version.
    pub version: String,
    /// The zone of users whose intents name none.
    pub timezone: Zone,
    pub segments: BTreeMap<String, Arc<Caps>>,
    /// What everybody else is held to: users of no segment, and of a segment that is not named.
    pub default: Arc<Caps>,
    /// What is never capped; the first rule that matches says whether it counts.
    pub bypass: Vec<Bypass>,
    /// Rules for unavailable shards. The first matching rule applies; an intent that matches none waits.
    pub on_unavailable: Vec<OnUnavailable>,
    pub quiet_hours: Option<QuietHours>,
    /// What is not sent any more, deferred intents included.
    pub stops: Vec<Selection>,
    /// How many users may be active; `None`: any number.
    pub pressure: Option<PressureRule>,
    /// What may be approved over all users; names are unique, and there are at most [`crate::limit::budget::MAX_BUDGETS`].
    pub budgets: Vec<Budget>,
    /// Where approved intents are delivered, and how fast; the first that matches an intent is its route. Names are unique, and there
    /// are at most [`crate::limit::route::MAX_ROUTES`].
    pub routes: Vec<Route>,
    /// The longest that an intent is deferred at a time, in milliseconds.
    pub defer_max_ms: i64,
    /// An intent older than this, in milliseconds, has expired.
    pub max_age_ms: Option<i64>,
    pub mode: Mode,
}

impl Policy {
    pub fn caps_of(&self, segment: Option<&str>) -> &Arc<Caps> {
        segment.and_then(|name| self.segments.get(name)).unwrap_or(&self.default)
    }

    /// Whether an intent of this class is recorded when it is approved: all but those of a bypass that does not count.
    pub fn records(&self, class: &ClassNames<'_>) -> bool {
        self.bypass.iter().find(|rule| rule.selection.matches(class)).is_none_or(|rule| rule.counts != Counts::No)
    }

    #[inline]
    pub fn unavailable(&self, class: &ClassNames<'_>) -> Unavailable {
        let rule = self.on_unavailable.iter().find(|rule| rule.filter.matches(class.channel, class.category));
        rule.map_or(Unavailable::Wait, |rule| rule.action)
    }

    /// The route of an intent of this class, by its place in [`Policy::routes`].
    pub fn route_of(&self, class: &ClassNames<'_>) -> Option<usize> {
        self.routes.iter().position(|route| route.matches(class))
    }

    /// Whether it asks for deferral somewhere.
    pub fn defers(&self) -> bool {
        let caps = self.segments.values().chain([&self.default]).flat_map(|caps| caps.list());
        self.quiet_hours.as_ref().is_some_and(|quiet| quiet.action == Action::Defer)
            || caps.into_iter().any(|cap| cap.action == Action::Defer)
            || self.pressure.as_ref().is_some_and(|pressure| pressure.action == Action::Defer)
            || self.budgets.iter().any(|budget| budget.when_spent == Action::Defer)
    }

    /// The segments of a set that the policy does not name: their users fall under `[default]`. In the set's order.
    pub fn unnamed<'s, S: AsRef<str>>(&self, set: &'s [S]) -> Vec<&'s str> {
        set.iter().map(S::as_ref).filter(|name| !self.segments.contains_key(*name)).collect()
    }

    /// The segments that the policy names and a set does not have: a spelling mistake, as a rule.
    pub fn absent<S: AsRef<str>>(&self, set: &[S]) -> Vec<&str> {
        let in_set: BTreeSet<&str> = set.iter().map(S::as_ref).collect();
        self.segments.keys().map(String::as_str).filter(|name| !in_set.contains(name)).collect()
    }

    pub fn campaigns(&self) -> impl Iterator<Item = &str> {
        let Self { bypass, stops, budgets, routes, .. } = self;
        let selections = bypass.iter().map(|rule| &rule.selection).chain(stops);
        let selections = selections.chain(budgets.iter().map(|budget| &budget.selection));
        let selections = selections.chain(routes.iter().map(|route| &route.filter));
        let reserved = routes.iter().filter_map(|route| Some(&route.reserved.as_ref()?.filter));
        let named = selections.chain(reserved).filter_map(|selection| selection.campaigns.as_ref());
        named.flatten().map(String::as_str)
    }

    /// How far back the history must reach for these caps, in milliseconds.
    pub fn longest_window_ms(&self) -> i64 {
        let all = self.segments.values().chain([&self.default]);
        all.flat_map(|caps| caps.list()).map(|cap| cap.window.longest_ms()).max().unwrap_or(0)
    }
}
