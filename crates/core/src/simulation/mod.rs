//! What a replay of past intents gave, counted: by segment, channel, category, cap, reason, hour and user, under one
//! policy or under two side by side.

mod counts;
mod report;
mod tally;
mod users;

pub use counts::{Counts, MAX_NAMES, POLICIES};
pub use report::{
    CapRow, ChangedIntents, ChangedUser, Changes, HourRow, NameRow, ReasonRow, Report, Source, Spread, Totals, Users,
    VerdictCounts,
};
pub use tally::{Judged, Tally};
pub use users::UserCounts;
