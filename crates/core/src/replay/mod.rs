//! What a replay of past intents gave, counted: by segment, channel, category, cap, reason, hour and user, under one
//! policy or under two side by side.

mod budgets;
mod counts;
mod pressure;
mod replayed;
mod report;
mod routes;
mod tally;

pub use budgets::ReplayBudgets;
pub use counts::VerdictCounts;
pub use pressure::{PressureTotals, ReplayPressure};
pub use replayed::Replayed;
pub use report::{
    BudgetRow, CapRow, ChangedIntents, ChangedUser, Changes, DeferralCounts, HourRow, NameRow, ReasonRow, ReplaySource,
    Report, Spread, Totals, Users,
};
pub use routes::{ReplayRoutes, RouteTotals};
pub use tally::{Judged, ReplayTally};
