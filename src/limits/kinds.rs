//! The words of limits, and of what can be degraded.

use serde::Serialize;
use utoipa::ToSchema;
use weir_core::basis::words;

/// A line for each limit: what is limited, its word, and of which people are told where it is degraded.
macro_rules! limits {
    ($($(#[$of:meta])* $kind:ident = $word:literal, degraded { $(#[$degraded:meta])* };)+) => {
        words! {
            /// What is limited.
            #[derive(Serialize, ToSchema)]
            #[serde(rename_all = "snake_case")]
            pub enum LimitKind {
                $($(#[$of])* $kind = $word,)+
            }
        }

        words! {
            /// What can be degraded.
            #[derive(Serialize, ToSchema)]
            #[serde(rename_all = "snake_case")]
            pub enum Degraded {
                /// Shards of Redis do not answer.
                ShardsUnavailable = "shards_unavailable",
                /// Shards of Redis have lost their history.
                ShardsLost = "shards_lost",
                /// The segments could not be refreshed: the last good set is in force.
                Segments = "segments",
                /// The policy could not be refreshed: the last good one is in force.
                Policy = "policy",
                /// A lane waits, or decides without some shards.
                Lane = "lane",
                /// The reader of refunds waits.
                Refunds = "refunds",
                /// The reader of activity waits.
                Activity = "activity",
                /// The reader of reports of deliveries waits.
                DeliveryReports = "delivery_reports",
                /// Within the last day it was found that retention had deleted deferred or waiting intents undecided.
                Deleted = "deleted",
                $($(#[$degraded])* $kind = $word,)+
            }
        }
    };
}

limits! {
    /// What may be approved, in costs.
    Budget = "budget", degraded {
        /// Budgets whose ledger does not answer.
    };
    /// The users who are active.
    Pressure = "pressure", degraded {
        /// The active users of other instances are not known.
    };
    /// Intents per second, as delivery takes them.
    Route = "route", degraded {
        /// A route that is held up, whose permits are not shared, or in which intents have waited for too long.
    };
    /// Admissions per second, as the instances of a service have registered.
    Service = "service", degraded {
        /// A service that gets no admission from this instance, because Redis does not answer for its share.
    };
}
