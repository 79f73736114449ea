//! Counts verdicts as a replay takes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    counts::{CountsByName, POLICIES, VerdictCounts},
    outcome::{ReplayOutcome, Ruling},
    pressure::PressurePeak,
    report::{ChangedIntents, DeferralCounts},
    routes::RouteTotals,
    users::{UserCounts, UserTable},
};
use crate::{
    basis::{time::Time, zone::Zone},
    decision::verdict::SuppressReason,
    intent::Intent,
    limit::budget::Budget,
    policy::{Cap, Policy},
};

const HOUR_MS: i64 = 60 * 60 * 1000;

pub(super) type PerPolicy<T> = [T; POLICIES];

/// One intent, judged by each policy.
#[derive(Debug, Clone, Copy)]
pub struct Judged<'j> {
    pub intent: &'j Intent<'j>,
    pub at: Time,
    /// The user's segment: its place in the set, and its name.
    pub segment: Option<(usize, &'j str)>,
    /// Its outcome under each policy, in their order.
    pub outcomes: &'j [ReplayOutcome],
}

/// A cap, as each policy has it, and how many intents it suppressed.
#[derive(Debug, Clone, Default)]
pub(super) struct CapTally {
    pub(super) caps: PerPolicy<Option<Cap>>,
    pub(super) suppressed: PerPolicy<u64>,
}

/// A budget, as each policy has it, and what it did.
#[derive(Debug, Clone, Default)]
pub(super) struct BudgetTally {
    pub(super) budgets: PerPolicy<Option<Budget>>,
    pub(super) suppressed: PerPolicy<u64>,
    /// When it first denied an intent.
    pub(super) first_spent: PerPolicy<Option<Time>>,
}

#[derive(Debug, Clone, Default)]
pub struct ReplayTally {
    pub(super) zone: Zone,
    pub(super) policies: Vec<Arc<Policy>>,
    pub(super) segment_names: Vec<String>,
    pub(super) totals: PerPolicy<VerdictCounts>,
    pub(super) deferrals: PerPolicy<DeferralCounts>,
    pub(super) peaks: PerPolicy<PressurePeak>,
    pub(super) routes: PerPolicy<Vec<RouteTotals>>,
    pub(super) segments: CountsByName<PerPolicy<VerdictCounts>>,
    pub(super) channels: CountsByName<PerPolicy<VerdictCounts>>,
    pub(super) categories: CountsByName<PerPolicy<VerdictCounts>>,
    pub(super) caps: CountsByName<BTreeMap<String, CapTally>>,
    pub(super) budgets: BTreeMap<String, BudgetTally>,
    pub(super) reasons: BTreeMap<SuppressReason, PerPolicy<u64>>,
    pub(super) hours: BTreeMap<Time, PerPolicy<VerdictCounts>>,
    pub(super) hours_of_day: [PerPolicy<VerdictCounts>; 24],
    pub(super) users: UserTable,
    pub(super) intents: ChangedIntents,
    pub(super) span: Option<(Time, Time)>,
}

impl ReplayTally {
    /// Nothing counted yet, for these policies (at most [`POLICIES`]) and the segments of this set. Hours are those of
    /// the first policy's zone.
    pub fn new(policies: Vec<Arc<Policy>>, segment_names: Vec<String>) -> Self {
        let mut caps: CountsByName<BTreeMap<String, CapTally>> = CountsByName::default();
        let segments: BTreeSet<Option<&str>> =
            segment_names.iter().map(|name| Some(name.as_str())).chain([None]).collect();
        let mut budgets: BTreeMap<String, BudgetTally> = BTreeMap::new();
        for (number, policy) in policies.iter().enumerate().take(POLICIES) {
            for budget in &policy.budgets {
                budgets.entry(budget.name.to_string()).or_default().budgets[number] = Some(budget.clone());
            }
            for segment in &segments {
                for cap in policy.caps_of(*segment).list() {
                    caps.of(*segment).entry(cap.name.to_string()).or_default().caps[number] = Some(cap.clone());
                }
            }
        }
        Self {
            zone: policies.first().map_or_else(Zone::utc, |policy| policy.timezone.clone()),
            policies,
            segment_names,
            caps,
            budgets,
            ..Self::default()
        }
    }

    pub fn add(&mut self, judged: &Judged<'_>) {
        let Judged { intent, at, segment, outcomes } = *judged;
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        let name = segment.map(|(_, name)| name);
        for (policy, outcome) in outcomes.iter().enumerate() {
            self.deferrals[policy].add(outcome);
            if let Some(ruling) = &outcome.ruling {
                self.ruling(policy, intent, name, ruling);
            }
        }
        self.users.add(&intent.user_id, segment.map(|(place, _)| place), outcomes);
        if let [Some(policy), Some(against)] = [0, 1].map(|policy| outcomes.get(policy)?.ruling.as_ref()) {
            self.intents.newly_approved += u64::from(policy.sent && !against.sent);
            self.intents.newly_suppressed += u64::from(!policy.sent && against.sent);
        }
    }

    fn ruling(&mut self, policy: usize, intent: &Intent<'_>, segment: Option<&str>, ruling: &Ruling) {
        let (hour, hour_of_day) = hour(&self.zone, ruling.at);
        let places = [
            &mut self.totals,
            self.segments.of(segment),
            self.channels.of(intent.channel.as_deref()),
            self.categories.of(intent.category.as_deref()),
            self.hours.entry(hour).or_default(),
            &mut self.hours_of_day[hour_of_day],
        ];
        for counts in places {
            counts[policy].add(ruling);
        }
        if let Some(reason) = ruling.why {
            self.reasons.entry(reason).or_default()[policy] += 1;
        }
        // All caps of the policies are there from the start.
        if let Some(cap) = &ruling.cap
            && let Some(tally) = self.caps.of(segment).get_mut(&**cap)
        {
            tally.suppressed[policy] += 1;
        }
        if let Some(budget) = &ruling.budget
            && let Some(tally) = self.budgets.get_mut(&**budget)
        {
            tally.suppressed[policy] += 1;
        }
    }

    /// What the pressure of a policy (its number) came to.
    pub fn pressed(&mut self, policy: usize, peak: PressurePeak) {
        if let Some(found) = self.peaks.get_mut(policy) {
            *found = peak;
        }
    }

    /// What the routes of a policy (its number) came to.
    pub fn routed(&mut self, policy: usize, routes: Vec<RouteTotals>) {
        if let Some(found) = self.routes.get_mut(policy) {
            *found = routes;
        }
    }

    /// When a budget of a policy (its number) first denied an intent.
    pub fn first_spent(&mut self, policy: usize, budget: &str, at: Time) {
        if let Some(tally) = self.budgets.get_mut(budget) {
            tally.first_spent[policy] = Some(at);
        }
    }

    /// The users whose number of messages differs between the policies, those with the largest difference first; with
    /// the names of their segments.
    pub fn changed_users(&self) -> impl Iterator<Item = (&UserCounts, Option<&str>)> {
        let changed = if self.policies.len() > 1 { self.users.changed() } else { Vec::new() };
        changed.into_iter().map(|user| (user, self.segment_of(user)))
    }

    fn segment_of(&self, user: &UserCounts) -> Option<&str> {
        self.segment_names.get(usize::try_from(user.segment?).ok()?).map(String::as_str)
    }
}

/// The begin of the hour that a zone's clocks show, and which of the day's it is.
fn hour(zone: &Zone, at: Time) -> (Time, usize) {
    let offset_ms = i64::from(zone.time_zone().to_offset(at.timestamp()).seconds()) * 1000;
    let shown_ms = at.millis() + offset_ms;
    let begin = at.plus(-shown_ms.rem_euclid(HOUR_MS));
    let of_day = usize::try_from(shown_ms.div_euclid(HOUR_MS).rem_euclid(24)).unwrap_or(0);
    (begin, of_day)
}
