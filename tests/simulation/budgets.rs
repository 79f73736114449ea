//! The budgets of a run's policy: as plain numbers for the checker, and as weir has them.

use weir_core::{
    history::decide::Scope,
    intent::class::table_name,
    limit::budget::{Budget, BudgetId, BudgetSpan, WhenUnavailable},
    policy::{Action, Period, Selection},
};

use super::{
    env::Env,
    rules::{of_category, on_channel},
    sabotage::{About, Sabotage},
    workload::{Ask, Kind},
};

const NAMES: [&str; 3] = ["first", "second", "third"];
pub const DAY_MS: i64 = 24 * 3_600_000;

/// What a budget looks back over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// So many milliseconds.
    Last(i64),
    /// The day of the policy's zone, which is UTC.
    Day,
    /// All time.
    Total,
}

/// Which intents a budget is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Everything,
    Pushes,
    /// Which are bypassed, and in no history.
    Receipts,
}

/// A budget, as the checker needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    pub name: &'static str,
    pub limit: u64,
    pub over: Over,
    of: Of,
    /// Each campaign has one of its own.
    pub each: bool,
    /// What it denies is deferred.
    pub defers: bool,
    /// What it cannot be asked for waits.
    pub waits: bool,
}

/// How many totals of campaigns are kept: in most runs so few that some have to go.
pub fn draw_max_totals(env: &Env) -> u32 {
    let drawn = [6, 12, 100_000][env.dice("totals", 0).usize(..3)];
    if env.sabotage() == Sabotage::GoneTotalReopened { 6 } else { drawn }
}

/// None, or up to three.
pub fn draw(env: &Env, may_defer: bool) -> [Option<Allowance>; NAMES.len()] {
    let chance = if env.sabotage().is_about(About::Budgets) { 1_000 } else { 550 };
    let count = if env.chance(chance) { 1 + env.index(NAMES.len()) } else { 0 };
    let mut names = NAMES.into_iter().enumerate();
    [(); NAMES.len()].map(|()| {
        let (place, name) = names.next()?;
        (place < count).then(|| Allowance::draw(env, name, may_defer))
    })
}

impl Allowance {
    /// Limits are small, so that most are reached.
    fn draw(env: &Env, name: &'static str, may_defer: bool) -> Self {
        // This planted bug shows in totals of campaigns only.
        let is_total_of_campaign = env.sabotage() == Sabotage::GoneTotalReopened;
        let each = env.chance(250) || is_total_of_campaign;
        let of = [Of::Everything, Of::Everything, Of::Everything, Of::Pushes, Of::Receipts][env.index(5)];
        let limits = match (each, of) {
            (true, _) | (false, Of::Receipts) => [1, 2, 4],
            (false, Of::Pushes) => [2, 5, 10],
            (false, Of::Everything) => [4, 12, 30],
        };
        let limit = limits[env.index(3)];
        let windows = [Over::Last(2_000), Over::Last(8_000), Over::Last(40_000), Over::Day, Over::Total];
        // These planted bugs show in rolling windows only.
        let rolling = [Sabotage::LeaseOutlived, Sabotage::NodeClockTrusted].contains(&env.sabotage());
        let among = if rolling { 3 } else { windows.len() };
        let drawn = windows[env.index(among)];
        let over = if is_total_of_campaign { Over::Total } else { drawn };
        // With few a day, what is deferred would come back for weeks.
        let may_defer = may_defer && (over != Over::Day || limit >= 30);
        Self { name, limit, over, of, each, defers: may_defer && env.chance(500), waits: env.chance(700) }
    }

    /// Whether it is asked for an intent.
    pub fn is_asked_for(&self, ask: &Ask) -> bool {
        let fits = match self.of {
            Of::Everything => true,
            Of::Pushes => ask.kind == Kind::Push,
            Of::Receipts => ask.kind == Kind::Receipt,
        };
        fits && (!self.each || ask.campaign.is_some())
    }

    /// Which budget the intents of a campaign take from.
    pub fn id(&self, campaign: Option<&str>) -> BudgetId {
        let campaign = campaign.filter(|_| self.each).map(|name| table_name(name).into());
        BudgetId { name: self.name.into(), campaign }
    }

    pub fn to_weir(self) -> Budget {
        let filter = match self.of {
            Of::Everything => weir_core::intent::class::Filter::default(),
            Of::Pushes => on_channel("push"),
            Of::Receipts => of_category("receipt"),
        };
        Budget {
            name: self.name.into(),
            selection: Selection { filter, campaigns: None },
            scope: if self.each { Scope::SameCampaign } else { Scope::Every },
            limit: self.limit,
            span: match self.over {
                Over::Last(length_ms) => BudgetSpan::Rolling { length_ms, text: format!("{length_ms}ms").into() },
                Over::Day => BudgetSpan::Per(Period::Day),
                Over::Total => BudgetSpan::Total,
            },
            best_effort: true,
            when_spent: if self.defers { Action::Defer } else { Action::Suppress },
            on_unavailable: if self.waits { WhenUnavailable::Wait } else { WhenUnavailable::Suppress },
        }
    }
}
