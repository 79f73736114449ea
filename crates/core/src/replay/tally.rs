//! Counts the verdicts of one policy as a replay takes them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    budgets::ReplayBudgets,
    counts::{CountsByName, VerdictCounts},
    pressure::{PressureTotals, ReplayPressure},
    report::DeferralCounts,
    routes::ReplayRoutes,
};
use crate::{
    basis::{document::value::in_words, shard::UserHash, time::Time, zone::Zone},
    decision::verdict::{SuppressReason, Verdict},
    intent::Intent,
    limit::budget::Budget,
    policy::{Cap, Policy},
    segment::SegmentSet,
};

const HOUR_MS: i64 = 60 * 60 * 1000;

/// A cap of a segment: the segment, and the cap's name.
pub(super) type CapKey<'t> = (Option<&'t str>, &'t str);
/// A cap, where the policy has it, and how many intents it suppressed.
pub(super) type CapCount<'t> = (Option<&'t Cap>, u64);
/// A budget, where the policy has it, how many intents it suppressed, and when it first did.
pub(super) type BudgetCount<'t> = (Option<&'t Budget>, u64, Option<Time>);

/// An intent that has got its verdict.
#[derive(Debug, Clone, Copy)]
pub struct Judged<'j> {
    /// Its number, as [`ReplayTally::number`] has given it.
    pub number: usize,
    pub intent: &'j Intent<'j>,
    /// The user's segment.
    pub segment: Option<&'j str>,
    /// When it came, or when its deferral was due.
    pub at: Time,
    /// Whether it was deferred before.
    pub deferred: bool,
}

/// What a replay of past intents gives under one policy.
pub struct ReplayTally {
    pub(super) policy: Arc<Policy>,
    pub(super) zone: Zone,
    pub budgets: ReplayBudgets,
    /// `None` where the policy has none.
    pub pressure: Option<ReplayPressure>,
    pub routes: ReplayRoutes,
    pub deferred: DeferralCounts,
    pub(super) counts: VerdictCounts,
    pub(super) segments: CountsByName<VerdictCounts>,
    pub(super) channels: CountsByName<VerdictCounts>,
    pub(super) categories: CountsByName<VerdictCounts>,
    /// How many intents each cap of each segment suppressed.
    by_cap: CountsByName<CountsByName<u64>>,
    by_budget: CountsByName<u64>,
    pub(super) reasons: BTreeMap<SuppressReason, u64>,
    pub(super) hours: BTreeMap<Time, VerdictCounts>,
    pub(super) hours_of_day: [VerdictCounts; 24],
    /// Whether each intent was sent, by number; `None` without a verdict.
    pub(super) sent: Vec<Option<bool>>,
    /// How many messages went out to each user.
    users: HashMap<UserHash, u32>,
}

impl ReplayTally {
    /// Nothing counted yet under this policy. Hours are those of this zone; `first`: the time of the first intent.
    pub fn new(policy: &Arc<Policy>, zone: Zone, first: Time) -> Self {
        Self {
            policy: Arc::clone(policy),
            zone,
            budgets: ReplayBudgets::new(Arc::clone(policy)),
            pressure: ReplayPressure::new(policy, first),
            routes: ReplayRoutes::new(Arc::clone(policy)),
            deferred: DeferralCounts::default(),
            counts: VerdictCounts::default(),
            segments: CountsByName::default(),
            channels: CountsByName::default(),
            categories: CountsByName::default(),
            by_cap: CountsByName::default(),
            by_budget: CountsByName::default(),
            reasons: BTreeMap::new(),
            hours: BTreeMap::new(),
            hours_of_day: Default::default(),
            sent: Vec::new(),
            users: HashMap::new(),
        }
    }

    /// Numbers the next records in the order in which they were read, and returns the first number. `None` is a record without an intent.
    pub fn number<'i, 'v: 'i>(&mut self, intents: impl IntoIterator<Item = Option<&'i Intent<'v>>>) -> usize {
        let first = self.sent.len();
        for intent in intents {
            self.sent.push(None);
            // The first names are counted one by one, and they are the same under each policy.
            if let Some(intent) = intent {
                self.channels.of(intent.channel.as_deref());
                self.categories.of(intent.category.as_deref());
            }
        }
        first
    }

    pub fn add(&mut self, judged: &Judged<'_>, verdict: &Verdict<'_>) {
        let Judged { number, intent, segment, at, deferred } = *judged;
        let (hour, hour_of_day) = hour(&self.zone, at);
        let places = [
            &mut self.counts,
            self.segments.of(segment),
            self.channels.of(intent.channel.as_deref()),
            self.categories.of(intent.category.as_deref()),
            self.hours.entry(hour).or_default(),
            &mut self.hours_of_day[hour_of_day],
        ];
        for counts in places {
            counts.add(verdict);
        }
        self.deferred.intents += u64::from(deferred);
        self.sent[number] = Some(verdict.is_approved());
        if verdict.is_approved() {
            *self.users.entry(intent.user).or_default() += 1;
            self.routes.approve(&intent.class(), at);
        }
        if let Some(suppressed) = verdict.suppressed() {
            *self.reasons.entry(suppressed.reason()).or_default() += 1;
            if let Some(cap) = suppressed.cause.cap() {
                *self.by_cap.of(segment).of(Some(cap.name)) += 1;
            }
            if let Some(budget) = suppressed.cause.budget() {
                *self.by_budget.of(Some(budget.name)) += 1;
            }
        }
    }

    /// How many messages went out to a user.
    pub(super) fn approved(&self, user: UserHash) -> u32 {
        self.users.get(&user).copied().unwrap_or_default()
    }

    /// The caps of users in these segments and in none.
    pub(super) fn suppressed_by_caps<'t>(
        &'t self,
        segments: &'t SegmentSet,
    ) -> impl Iterator<Item = (CapKey<'t>, CapCount<'t>)> {
        let names = segments.segments().iter().map(|segment| Some(segment.name.as_str())).chain([None]);
        names.flat_map(move |segment| {
            let suppressed = self.by_cap.get(segment);
            let by = move |cap: &Cap| suppressed.and_then(|caps| caps.get(Some(&*cap.name))).copied();
            let caps = self.policy.caps_of(segment).list().iter();
            caps.map(move |cap| ((segment, &*cap.name), (Some(cap), by(cap).unwrap_or_default())))
        })
    }

    /// The budgets by name.
    pub(super) fn suppressed_by_budgets(&self) -> impl Iterator<Item = (&str, BudgetCount<'_>)> {
        self.policy.budgets.iter().map(move |budget| {
            let suppressed = self.by_budget.get(Some(&*budget.name)).copied().unwrap_or_default();
            let first_spent = self.budgets.first_spent.get(&budget.name).copied();
            (&*budget.name, (Some(budget), suppressed, first_spent))
        })
    }

    pub(super) fn pressure_totals(&self) -> Option<PressureTotals> {
        let (rule, pressure) = (self.policy.pressure.as_ref()?, self.pressure.as_ref()?);
        Some(PressureTotals {
            max_active_users: rule.max_active_users,
            window: in_words(rule.window_ms()),
            peak_active_users: pressure.peak,
            peak_at: pressure.peak_at,
            suppressed: self.reasons.get(&SuppressReason::Pressure).copied().unwrap_or_default(),
            deferred: pressure.deferred,
        })
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
