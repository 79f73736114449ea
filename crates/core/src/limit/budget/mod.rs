//! Budgets of a policy: so much may be approved in a window, over all users and instances.
//!
//! Which approvals a budget counts, and the window that it is in at a moment. How instances share one is in [`ledger`]
//! (the tokens that were granted) and [`lease`] (the tokens that one instance holds).

pub mod lease;
pub mod ledger;

use std::sync::Arc;

use crate::{
    basis::{
        shard::shard_of_name,
        time::Time,
        window::{Period, Window},
        zone::Zone,
    },
    history::decide::Scope,
    intent::{
        class::{ClassNames, table_name},
        selection::{Action, Selection},
    },
    limit::budget::lease::BudgetUse,
};

/// The largest limit of a budget, in costs: what Lua's numbers count exactly is 9 times as much.
pub const MAX_LIMIT: u64 = 1_000_000_000_000_000;

pub const MAX_BUDGETS: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Its name, unlike that of any other budget of the policy.
    pub name: Arc<str>,
    /// The intents that it is asked for, and that count.
    pub selection: Selection,
    /// One budget for all of them, or one for each campaign (then intents without a campaign need none).
    pub scope: Scope,
    /// The most that may be approved in the window, in costs, at most [`MAX_LIMIT`]; 0: never anything.
    pub limit: u64,
    pub span: BudgetSpan,
    /// Whether a refill takes what is left where that is less than one unit.
    pub best_effort: bool,
    pub when_spent: Action,
    pub on_unavailable: WhenUnavailable,
}

/// What a budget looks back over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetSpan {
    /// The last `length_ms` milliseconds.
    Rolling {
        length_ms: i64,
        /// The length as it was written (`1h`).
        text: Arc<str>,
    },
    /// The calendar period in the policy's time zone.
    Per(Period),
    /// All time: it never frees.
    Total,
}

/// What becomes of an intent whose budget cannot be asked, once the tokens that this instance holds are spent. It is never
/// approved: that could exceed the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenUnavailable {
    #[default]
    Wait,
    /// It is suppressed as unavailable.
    Suppress,
}

/// Which budget: the same for all instances and versions of the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BudgetId {
    pub name: Arc<str>,
    /// The campaign, where each has a budget of its own; a long name is shortened by [`table_name`].
    pub campaign: Option<Arc<str>>,
}

/// The window that a budget is in at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpanNow {
    Rolling {
        window_ms: i64,
    },
    Period {
        start: Time,
        /// When the next one begins.
        end: Time,
    },
    Total,
}

/// What an approved record took from budgets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSpend {
    /// When it was decided.
    pub at: Time,
    /// What it took from each.
    pub cost: u8,
    /// The intent's campaign: each may have a budget of its own.
    pub campaign: Option<String>,
    /// The names of the budgets; none for most records.
    pub budgets: Vec<String>,
}

impl Budget {
    /// Whether each campaign has a budget of its own.
    #[must_use]
    pub fn is_of_each_campaign(&self) -> bool {
        self.scope == Scope::SameCampaign
    }

    /// Which budget an intent of this class takes from; `None` where none of these.
    #[must_use]
    pub fn id_for(&self, class: &ClassNames<'_>) -> Option<BudgetId> {
        if !self.selection.matches(class) {
            return None;
        }
        let campaign = match self.scope {
            Scope::Every => None,
            Scope::SameCampaign => Some(table_name(class.campaign?).into()),
        };
        Some(BudgetId { name: Arc::clone(&self.name), campaign })
    }

    /// The budget of this id as it is used at `now`, in the policy's zone, by intents that wait for its ledger.
    #[must_use]
    pub fn used_by(&self, id: BudgetId, zone: &Zone, now: Time) -> BudgetUse {
        BudgetUse {
            id,
            limit: self.limit,
            span: self.span.at(zone, now),
            best_effort: self.best_effort,
            unavailable_after: None,
        }
    }
}

impl BudgetId {
    /// As the ledger's keys name it, unlike any other budget: `<bytes of the name>:<name>`, and `:<campaign>` where there is one.
    #[must_use]
    pub fn key_name(&self) -> String {
        let Self { name, campaign } = self;
        match campaign {
            None => format!("{}:{name}", name.len()),
            Some(campaign) => format!("{}:{name}:{campaign}", name.len()),
        }
    }

    /// Whether its key never ends by itself, and there may be one for each name that somebody invents.
    #[must_use]
    pub fn is_total_of_campaign(&self, span: SpanNow) -> bool {
        self.campaign.is_some() && span == SpanNow::Total
    }

    #[must_use]
    pub fn shard(&self, shards: u16) -> u16 {
        shard_of_name(&self.key_name(), shards)
    }
}

/// In words: `spring`, or `spring of campaign may`.
impl std::fmt::Display for BudgetId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.campaign {
            None => write!(f, "{}", self.name),
            Some(campaign) => write!(f, "{} of campaign {campaign}", self.name),
        }
    }
}

impl SpanNow {
    /// The time from which on approvals count at `now`: all of them in total.
    #[must_use]
    pub fn start(self, now: Time) -> Time {
        match self {
            Self::Rolling { window_ms } => now.plus(-window_ms),
            Self::Period { start, .. } => start,
            Self::Total => Time::MIN,
        }
    }

    /// When nothing counts any more of what counts at `now`; `None`: never.
    #[must_use]
    pub fn over_at(self, now: Time) -> Option<Time> {
        match self {
            Self::Rolling { window_ms } => Some(now.plus(window_ms)),
            Self::Period { end, .. } => Some(end),
            Self::Total => None,
        }
    }
}

impl BudgetSpan {
    /// The window at `now`, in the policy's zone.
    #[must_use]
    pub fn at(&self, zone: &Zone, now: Time) -> SpanNow {
        match self {
            Self::Rolling { length_ms, .. } => SpanNow::Rolling { window_ms: *length_ms },
            Self::Per(period) => match period.window(zone, now) {
                Window::Calendar { start, next, .. } => SpanNow::Period { start, end: next },
                Window::Sliding { .. } => SpanNow::Total,
            },
            Self::Total => SpanNow::Total,
        }
    }
}

/// In words: `in any 1h`, `per day`, `in total`.
impl std::fmt::Display for BudgetSpan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rolling { text, .. } => write!(f, "in any {text}"),
            Self::Per(period) => write!(f, "per {}", period.as_str()),
            Self::Total => write!(f, "in total"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::class::{Filter, MAX_NAME_BYTES};

    /// One of all intents.
    pub(in crate::limit::budget) fn budget(name: &str, scope: Scope, span: BudgetSpan) -> Budget {
        let (name, selection) = (name.into(), Selection::default());
        let (when_spent, on_unavailable) = (Action::Suppress, WhenUnavailable::Wait);
        Budget { name, selection, scope, limit: 10, span, best_effort: false, when_spent, on_unavailable }
    }

    #[test]
    fn an_intent_takes_from_the_budgets_that_match_it() {
        let class = |channel, campaign| ClassNames { channel, category: None, campaign };
        let id = |campaign: Option<&str>| Some(BudgetId { name: "b".into(), campaign: campaign.map(Into::into) });
        let all = Selection::default();
        let filter = Filter { channels: Some(["push".to_owned()].into()), categories: None };
        let push = Selection { filter, campaigns: None };
        let spring = Selection { filter: Filter::default(), campaigns: Some(["spring".to_owned()].into()) };
        let cases = [
            (&all, Scope::Every, class(None, None), id(None)),
            (&all, Scope::SameCampaign, class(None, None), None),
            (&all, Scope::SameCampaign, class(None, Some("spring")), id(Some("spring"))),
            (&push, Scope::Every, class(Some("push"), Some("spring")), id(None)),
            (&push, Scope::Every, class(Some("sms"), None), None),
            (&spring, Scope::Every, class(None, Some("spring")), id(None)),
            (&spring, Scope::Every, class(None, Some("summer")), None),
        ];
        for (selection, scope, class, expected) in cases {
            let budget = Budget { selection: selection.clone(), ..budget("b", scope, BudgetSpan::Total) };
            assert_eq!(budget.id_for(&class), expected, "{class:?} of {selection:?}, {scope:?}");
        }
    }

    #[test]
    fn what_counts_now_counts_for_a_window_or_until_its_period_ends_or_for_ever() {
        let now = Time::default().plus(1_000);
        let (start, end) = (now.plus(-10), now.plus(20));
        let over = [SpanNow::Rolling { window_ms: 30 }, SpanNow::Period { start, end }, SpanNow::Total];
        assert_eq!(over.map(|span| span.over_at(now)), [Some(now.plus(30)), Some(end), None]);
    }

    #[test]
    fn a_long_campaign_has_the_name_that_approved_records_have() {
        let long = "é".repeat(MAX_NAME_BYTES);
        let class = ClassNames { channel: None, category: None, campaign: Some(&long) };
        let id = budget("b", Scope::SameCampaign, BudgetSpan::Total).id_for(&class).unwrap();
        assert_eq!(id.campaign.as_deref(), Some(&*table_name(&long)));
        assert_ne!(id.campaign.as_deref(), Some(&*long));
    }
}
