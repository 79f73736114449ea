//! The budgets of a run's policy; and their checks, by recorded and by true times.

use serde_json::Value;
use weir_core::{
    intent::class::table_name,
    limit::budget::{BudgetSpan, RecordSpend},
};

use super::{prelude::*, rules::of_category, tells::Denial};

const NAMES: [&str; 3] = ["first", "second", "third"];
const DAY_MS: i64 = 24 * 3_600_000;

/// How many totals of campaigns are kept: in most runs so few that some have to go.
pub fn draw_max_totals(env: &Env) -> u32 {
    let drawn = [6, 12, 100_000][env.dice("totals", 0).usize(..3)];
    if env.sabotage() == Sabotage::GoneTotalReopened { 6 } else { drawn }
}

/// None, or up to three.
pub fn draw(env: &Env, may_defer: bool) -> Vec<Budget> {
    let chance = if env.sabotage().is_about(About::Budgets) { 1_000 } else { 550 };
    let count = if env.chance(chance) { 1 + env.index(NAMES.len()) } else { 0 };
    NAMES[..count].iter().map(|name| draw_one(env, name, may_defer)).collect()
}

/// Limits are small, so that most are reached.
fn draw_one(env: &Env, name: &str, may_defer: bool) -> Budget {
    // This planted bug shows in totals of campaigns only.
    let is_total_of_campaign = env.sabotage() == Sabotage::GoneTotalReopened;
    let each = env.chance(250) || is_total_of_campaign;
    let (filter, limits) = match env.index(5) {
        0..3 => (Filter::default(), [4, 12, 30]),
        3 => (on_channel("push"), [2, 5, 10]),
        // These are bypassed, and in no history.
        _ => (of_category("receipt"), [1, 2, 4]),
    };
    let limits = if each { [1, 2, 4] } else { limits };
    let limit = limits[env.index(3)];
    let rolling = |length_ms: i64| BudgetSpan::Rolling { length_ms, text: format!("{length_ms}ms").into() };
    let rest = [BudgetSpan::Per(Period::Day), BudgetSpan::Total];
    let mut spans: Vec<BudgetSpan> = [2_000, 8_000, 40_000].map(rolling).into_iter().chain(rest).collect();
    // These planted bugs show in rolling windows only.
    let is_rolling = [Sabotage::LeaseOutlived, Sabotage::NodeClockTrusted].contains(&env.sabotage());
    let drawn = spans.swap_remove(env.index(if is_rolling { 3 } else { 5 }));
    let span = if is_total_of_campaign { BudgetSpan::Total } else { drawn };
    // With few a day, what is deferred would come back for weeks.
    let may_defer = may_defer && (span != BudgetSpan::Per(Period::Day) || limit >= 30);
    Budget {
        name: name.into(),
        selection: Selection { filter, campaigns: None },
        scope: if each { Scope::SameCampaign } else { Scope::Every },
        limit,
        span,
        best_effort: true,
        when_spent: if may_defer && env.chance(500) { Action::Defer } else { Action::Suppress },
        on_unavailable: if env.chance(700) { WhenUnavailable::Wait } else { WhenUnavailable::Suppress },
    }
}

fn is_asked_for(budget: &Budget, ask: &Ask) -> bool {
    let Filter { channels, categories } = &budget.selection.filter;
    let fits = match (channels, categories) {
        (Some(_), _) => ask.kind == Kind::Push,
        (None, Some(_)) => ask.kind == Kind::Receipt,
        (None, None) => true,
    };
    fits && (budget.scope == Scope::Every || ask.campaign.is_some())
}

/// The one of these budgets that an intent takes from.
fn id_of(budget: &Budget, ask: &Ask) -> BudgetId {
    let campaign = ask.campaign.as_deref().filter(|_| budget.scope == Scope::SameCampaign);
    BudgetId { name: Arc::clone(&budget.name), campaign: campaign.map(|name| table_name(name).into()) }
}

/// An approved record that took from a budget.
#[derive(Debug, Clone, Copy)]
struct Taken {
    cost: u64,
    /// Its `decided_at`.
    at: i64,
    decided: Option<Decided>,
    /// When it came into the history: before it was decided where it is a replay; `None`: it never did.
    recorded: Option<Duration>,
    visible: Duration,
}

/// What weir itself reads in an approved record.
pub fn spent(out: &Out) -> RecordSpend {
    match out.approved() {
        ApprovedRecord::Counts(sent) => sent.spent(),
        ApprovedRecord::DoesNotCount(spent) => spent,
        other @ (ApprovedRecord::Foreign | ApprovedRecord::Retried) => panic!("an approval of weir's: {other:?}"),
    }
}

impl Judge<'_> {
    pub fn budgets(&mut self, broker: &Broker, outs: &[&Out], cluster: &Cluster) {
        self.broken.extend(cluster.till.broken.iter().cloned());
        self.asked_once(cluster);
        let world = self.world;
        let mut taken: BTreeMap<BudgetId, (&Budget, Vec<Taken>)> = BTreeMap::new();
        for out in outs.iter().filter(|out| out.is_approval()) {
            let Some(ask) = self.asks.get(&out.intent.first) else { continue };
            let asked: Vec<&Budget> = world.budgets_of(ask).collect();
            let RecordSpend { at, cost, budgets, .. } = spent(out);
            // In shadow mode those take nothing that a cap was not asked for.
            let took = told(out).reason.is_none_or(|reason| ["cap", "duplicate"].contains(&reason.as_str()));
            if !asked.iter().filter(|_| took).map(|budget| &*budget.name).eq(budgets.iter().map(String::as_str)) {
                self.broken
                    .push(format!("budget: {ask:?} takes from {asked:?}, and says that it did from {budgets:?}"));
            }
            let (cost, at) = (u64::from(cost), at.millis());
            let decided = self.world.decided(out, ask, |_| true);
            let recorded = self.ledger.ever.get(&(field_of(&ask.user), at, IdHash::of(&ask.id)));
            let recorded = recorded.map(|known| known.first);
            let visible = broker.visible_at(out).unwrap_or_default();
            for budget in asked {
                let (_, all) = taken.entry(id_of(budget, ask)).or_insert((budget, Vec::new()));
                all.push(Taken { cost, at, decided, recorded, visible });
            }
        }
        if self.world.setting.mode == Mode::Shadow {
            return;
        }
        for (id, (budget, taken)) in &taken {
            let key = self.world.keyspace.opened.keyspace.budget_key(id);
            let forgotten = match self.world.keyspace.wait_replicas {
                0 => cluster.till.forgotten(&key),
                _ => 0,
            };
            // A node with an old snapshot grants by what that has, until its shards are marked to be rebuilt.
            let forgotten = forgotten + cluster.till.granted_on_return(&key);
            // A replay is approved whatever is left, also one that a count which began meanwhile does not have.
            let is_on_top = |recorded, visible| cluster.till.is_not_counted(&key, wall_ms(recorded), wall_ms(visible));
            let on_top = taken.iter().filter(|taken| taken.recorded.is_some_and(|at| is_on_top(at, taken.visible)));
            let on_top = on_top.map(|taken| taken.cost);
            self.limit(id, budget, taken, budget.limit + forgotten + on_top.sum::<u64>());
        }
    }

    /// Tokens are granted at most once for each turn in which a process asks for some, however often it is repeated.
    fn asked_once(&mut self, cluster: &Cluster) {
        let told = lock(&self.world.keyspace.tells.told);
        for (id, asked) in &told.asked {
            let granted = cluster.till.grants_of(&self.world.keyspace.opened.keyspace.budget_key(id));
            if granted > *asked {
                self.broken.push(format!("budget: {id} was asked for {asked} times, and granted {granted} times"));
            }
        }
    }

    /// No window holds more than the limit.
    fn limit(&mut self, id: &BudgetId, budget: &Budget, taken: &[Taken], limit: u64) {
        let off = self.world.most_off();
        let is_exact = off <= 100;
        let sum = |within: &dyn Fn(&Taken) -> bool| -> u64 {
            taken.iter().filter(|taken| within(taken)).map(|taken| taken.cost).sum()
        };
        let mut most = 0;
        match budget.span {
            BudgetSpan::Total => most = sum(&|_| true),
            BudgetSpan::Per(_) if is_exact => {
                let inside = |at: i64| (off..DAY_MS - off).contains(&at.rem_euclid(DAY_MS));
                let days: BTreeSet<i64> = taken.iter().map(|taken| taken.at.div_euclid(DAY_MS)).collect();
                for day in days {
                    most = most.max(sum(&|taken| taken.at.div_euclid(DAY_MS) == day && inside(taken.at)));
                }
            }
            BudgetSpan::Per(_) => {}
            BudgetSpan::Rolling { length_ms, .. } => {
                let length_ms = length_ms - 2 * off;
                for end in taken.iter().filter(|_| is_exact) {
                    most = most.max(sum(&|taken| (end.at - length_ms + 1..=end.at).contains(&taken.at)));
                }
                // What a rebuild restores counts from when a wrong clock said that it was decided.
                if is_exact || self.world.rebuilds.borrow().begun == 0 {
                    let length = Duration::from_millis(u64::try_from(length_ms.max(0)).unwrap());
                    for first in taken.iter().filter_map(|taken| taken.decided) {
                        let end = first.from + length;
                        most = most.max(sum(&|taken| {
                            taken.decided.is_some_and(|decided| decided.from >= first.from) && taken.visible < end
                        }));
                    }
                }
            }
        }
        if most > limit {
            let (over, mut taken) = (&budget.span, taken.to_vec());
            taken.sort_by_key(|taken| taken.at);
            self.broken.push(format!("budget: {most} of {limit} of {id} {over:?} were approved: {taken:?}"));
        }
    }

    /// Whether the budget that an envelope names denied this intent for a reason.
    pub fn is_spent(&self, out: &Out, ask: &Ask, envelope: &Value) -> bool {
        let named = &envelope["budget"];
        let is_named = |budget: &&Budget| named["name"] == *budget.name && named["limit"] == budget.limit;
        let budget = self.world.budgets_of(ask).find(is_named);
        budget.is_some_and(|budget| self.was_denied(out, ask, budget))
    }

    /// Whether an intent is deferred by one of its budgets for a reason.
    pub fn may_be_deferred(&self, out: &Out, ask: &Ask) -> bool {
        let mut budgets = self.world.budgets_of(ask).filter(|budget| budget.when_spent == Action::Defer);
        budgets.any(|budget| self.was_denied(out, ask, budget))
    }

    /// Whether an intent may go by this `on_unavailable`, because a budget cannot be asked that has it.
    pub fn has_budget_that(&self, ask: &Ask, goes: WhenUnavailable) -> bool {
        self.world.budgets_of(ask).any(|budget| budget.on_unavailable == goes)
    }

    /// Whether the ledger had told the process that decided that there is too little.
    fn was_denied(&self, out: &Out, ask: &Ask, budget: &Budget) -> bool {
        if u64::from(ask.cost) > budget.limit {
            return true;
        }
        let (id, upto) = (id_of(budget, ask), out.submit.at);
        let from = upto.saturating_sub(ANSWERS_HOLD).max(out.fetched);
        let from = self.world.before_freezes(out.submit.process, from, upto);
        let holds = |denial: &Denial| match denial.holds {
            Some(holds) => self.world.awake(denial.process, denial.at) + holds >= from,
            None => true,
        };
        let told = lock(&self.world.keyspace.tells.told);
        let mut denials = told.denials.iter().filter(|denial| denial.process == out.submit.process);
        denials.any(|denial| denial.budget == id && denial.at <= upto && holds(denial))
    }
}

impl World {
    fn budgets_of<'s>(&'s self, ask: &'s Ask) -> impl Iterator<Item = &'s Budget> {
        self.setting.budgets.iter().filter(|budget| is_asked_for(budget, ask))
    }

    /// When a process takes notice of something.
    fn awake(&self, process: u64, at: Duration) -> Duration {
        let frozen = self.freezes_of(process).into_iter().find(|(from, to)| (*from..*to).contains(&at));
        frozen.map_or(at, |(_, thawed)| thawed)
    }
}
