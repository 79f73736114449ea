//! What a replay of past intents gave, counted: by segment, channel, category, cap, reason, hour and user, under one
//! policy or under two side by side.

mod budgets;
mod counts;
mod outcome;
mod pressure;
mod report;
mod routes;
mod tally;
mod users;

pub use budgets::ReplayBudgets;
pub use counts::{MAX_NAMES, POLICIES, VerdictCounts};
pub use outcome::{ReplayOutcome, Ruling};
pub use pressure::{PressurePeak, PressureTotals, ReplayPressure};
pub use report::{
    BudgetRow, CapRow, ChangedIntents, ChangedUser, Changes, DeferralCounts, HourRow, NameRow, ReasonRow, ReplaySource,
    Report, Spread, Totals, Users,
};
pub use routes::{ReplayRoutes, RouteTotals};
pub use tally::{Judged, ReplayTally};
pub use users::UserCounts;
