//! What a replay of past intents gave: what the policies have in common, and the report on them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    counts::{CountsByName, VerdictCounts},
    report::{
        BudgetRow, CapRow, ChangedIntents, ChangedUser, Changes, HourRow, NameRow, ReasonRow, ReplaySource, Report,
        Shape, Spread, Totals, Users,
    },
    tally::{BudgetCount, CapCount, CapKey, ReplayTally},
};
use crate::{
    basis::{shard::UserHash, time::Time},
    decision::verdict::SuppressReason,
    history::decide::Scope,
    intent::Intent,
    limit::budget::Budget,
    policy::Mode,
    segment::SegmentSet,
};

/// What a replay of past intents gave: under one policy, or under two side by side.
pub struct Replayed {
    segments: Arc<SegmentSet>,
    /// Under each policy, in their order.
    pub tallies: Vec<ReplayTally>,
    /// The users that had an intent.
    users: HashMap<UserHash, Box<str>>,
    span: Option<(Time, Time)>,
}

impl Replayed {
    /// Nothing was read yet.
    pub fn new(segments: Arc<SegmentSet>) -> Self {
        Self { segments, tallies: Vec::new(), users: HashMap::new(), span: None }
    }

    /// An intent was read, which came at this time.
    pub fn read(&mut self, intent: &Intent<'_>, at: Time) {
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        self.users.entry(intent.user).or_insert_with(|| Box::from(&*intent.user_id));
    }

    /// The report. `names` are the policies', as they were asked for; at most `shown` users are listed.
    pub fn report(&self, source: ReplaySource, names: &[String], shown: usize) -> Report {
        let hours = self.by(|tally| tally.hours.iter().map(|(begin, counts)| (*begin, *counts)));
        let of_day = |hour: usize| self.tallies.iter().map(|tally| tally.hours_of_day[hour]).collect();
        Report {
            schema: Shape::V1,
            source,
            from: self.span.map(|(first, _)| first),
            to: self.span.map(|(_, last)| last),
            timezone: self.tallies.first().map_or("UTC", |tally| tally.zone.name()),
            policies: self.tallies.iter().zip(names).map(|(tally, name)| totals(tally, name)).collect(),
            segments: self.names(|tally| &tally.segments),
            caps: self.caps(),
            budgets: self.budgets(),
            reasons: self.reasons(),
            channels: self.names(|tally| &tally.channels),
            categories: self.names(|tally| &tally.categories),
            hours: hours.into_iter().map(|(begin, outcomes)| HourRow { begin, outcomes }).collect(),
            hours_of_day: (0..24).map(of_day).collect(),
            users: self.users(shown),
        }
    }

    /// The users whose number of messages differs between two policies, those with the largest difference first, then by id; with the names
    /// of their segments.
    pub fn changed_users(&self) -> impl Iterator<Item = (&str, Option<&str>, [u32; 2])> {
        let mut changed = Vec::new();
        if let [policy, against] = &self.tallies[..] {
            let users = self.users.iter();
            let counts = users.map(|(hash, id)| (&**id, [policy, against].map(|tally| tally.approved(*hash))));
            changed.extend(counts.filter(|(_, [one, other])| one != other));
        }
        changed.sort_unstable_by_key(|(id, [one, other])| (Reverse(one.abs_diff(*other)), id.len(), *id));
        changed.into_iter().map(move |(id, approved)| {
            let segment = self.segments.lookup(id).segment();
            (id, segment.map(|place| self.segments.segments()[place].name.as_str()), approved)
        })
    }

    /// What each policy has under each key, one entry per policy.
    fn by<'t, K: Ord, V: Clone + Default, I: Iterator<Item = (K, V)>>(
        &'t self,
        of: impl Fn(&'t ReplayTally) -> I,
    ) -> BTreeMap<K, Vec<V>> {
        let mut rows = BTreeMap::new();
        for (number, tally) in self.tallies.iter().enumerate() {
            for (key, value) in of(tally) {
                rows.entry(key).or_insert_with(|| vec![V::default(); self.tallies.len()])[number] = value;
            }
        }
        rows
    }

    fn names(&self, of: fn(&ReplayTally) -> &CountsByName<VerdictCounts>) -> Vec<NameRow> {
        let rows = self.by(|tally| of(tally).iter().map(|(name, counts)| (name, *counts)));
        let row = |(name, outcomes): (Option<&str>, Vec<VerdictCounts>)| {
            let sent: Vec<u64> = outcomes.iter().map(VerdictCounts::sent).collect();
            NameRow { name: name.map(str::to_owned), difference: difference(&sent), outcomes }
        };
        // An intent that is still deferred has no verdict.
        let some = rows.into_iter().filter(|(_, counts)| counts.iter().any(|of| *of != VerdictCounts::default()));
        some.map(row).collect()
    }

    fn caps(&self) -> Vec<CapRow> {
        let row = |((segment, name), counts): (CapKey<'_>, Vec<CapCount<'_>>)| {
            let (caps, suppressed): (Vec<_>, Vec<_>) = counts.into_iter().unzip();
            CapRow {
                segment: segment.map(str::to_owned),
                cap: name.to_owned(),
                limits: caps.iter().map(|cap| cap.map(|cap| cap.limit)).collect(),
                windows: caps.iter().map(|cap| cap.map(|cap| cap.window.to_string())).collect(),
                difference: difference(&suppressed),
                suppressed,
            }
        };
        self.by(|tally| tally.suppressed_by_caps(&self.segments)).into_iter().map(row).collect()
    }

    fn budgets(&self) -> Vec<BudgetRow> {
        let row = |(name, counts): (&str, Vec<BudgetCount<'_>>)| {
            let suppressed: Vec<u64> = counts.iter().map(|(_, suppressed, _)| *suppressed).collect();
            BudgetRow {
                budget: name.to_owned(),
                limits: counts.iter().map(|(budget, ..)| budget.map(|budget| budget.limit)).collect(),
                windows: counts.iter().map(|(budget, ..)| budget.map(budget_window)).collect(),
                difference: difference(&suppressed),
                suppressed,
                first_spent: counts.iter().map(|(.., first_spent)| *first_spent).collect(),
            }
        };
        self.by(ReplayTally::suppressed_by_budgets).into_iter().map(row).collect()
    }

    fn reasons(&self) -> Vec<ReasonRow> {
        let rows = self.by(|tally| tally.reasons.iter().map(|(reason, suppressed)| (*reason, *suppressed)));
        let row = |(reason, suppressed): (SuppressReason, Vec<u64>)| ReasonRow {
            reason,
            difference: difference(&suppressed),
            suppressed,
        };
        rows.into_iter().map(row).collect()
    }

    fn users(&self, shown: usize) -> Users {
        let mut spread: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for user in self.users.keys() {
            for (number, tally) in self.tallies.iter().enumerate() {
                spread.entry(tally.approved(*user)).or_insert_with(|| vec![0; self.tallies.len()])[number] += 1;
            }
        }
        let mut changed = None;
        if let [policy, against] = &self.tallies[..] {
            let (mut more, mut fewer, mut first) = (0, 0, Vec::new());
            for (user_id, segment, approved) in self.changed_users() {
                more += u64::from(approved[0] > approved[1]);
                fewer += u64::from(approved[0] < approved[1]);
                if first.len() < shown {
                    let (user_id, segment) = (user_id.to_owned(), segment.map(str::to_owned));
                    first.push(ChangedUser { user_id, segment, approved: approved.into() });
                }
            }
            changed = Some(Changes { more, fewer, first, intents: changed_intents(policy, against) });
        }
        let approved_per_user = spread.into_iter().map(|(approved, users)| Spread { approved, users }).collect();
        Users { seen: self.users.len() as u64, approved_per_user, changed }
    }
}

fn totals(tally: &ReplayTally, name: &str) -> Totals {
    Totals {
        policy: name.to_owned(),
        version: tally.policy.version.clone(),
        shadow: tally.policy.mode == Mode::Shadow,
        counts: tally.counts,
        deferred: tally.deferred,
        pressure: tally.pressure_totals(),
        routes: tally.routes.totals(),
    }
}

/// How many more in the first of two.
fn difference(counts: &[u64]) -> Option<i64> {
    let [first, second] = counts else { return None };
    Some(first.cast_signed().saturating_sub(second.cast_signed()))
}

fn changed_intents(policy: &ReplayTally, against: &ReplayTally) -> ChangedIntents {
    let both = || policy.sent.iter().zip(&against.sent);
    let count = |sent: [bool; 2]| both().filter(|(one, other)| [**one, **other] == sent.map(Some)).count() as u64;
    ChangedIntents { newly_approved: count([true, false]), newly_suppressed: count([false, true]) }
}

/// What a budget looks back over, in words: `in any 1h`, `per day of each campaign`.
fn budget_window(budget: &Budget) -> String {
    match budget.scope {
        Scope::Every => budget.span.to_string(),
        Scope::SameCampaign => format!("{} of each campaign", budget.span),
    }
}
