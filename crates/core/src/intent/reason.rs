//! Why intents are not sent, or not now: the words for it, and what a gate or a limit says.

use serde::Serialize;

use super::selection::Action;
use crate::basis::{time::Time, words};

/// For each: what it is, its word, and why, for people, where no more is known. Where an intent may be deferred for it, what it is then.
macro_rules! reasons {
    ($(
        $(#[$of:meta])+
        $reason:ident = $word:literal, $why:literal;
        $(deferred #[$deferred:meta])?
    )+) => {
        words! {
            /// Why an intent is suppressed.
            ///
            /// Later versions may add reasons: ignore unknown ones.
            #[derive(Serialize, schemars::JsonSchema)]
            #[serde(rename_all = "snake_case")]
            pub enum SuppressReason {
                $($(#[$of])+ $reason = $word,)+
            }
        }

        impl SuppressReason {
            /// Why, for people, where no more is known.
            pub const fn in_words(self) -> &'static str {
                match self {
                    $(Self::$reason => $why,)+
                }
            }
        }

        words! {
            /// Why an intent is deferred.
            #[derive(Serialize, schemars::JsonSchema)]
            #[serde(rename_all = "snake_case")]
            pub enum DeferReason {
                $($(#[$deferred] $reason = $word,)?)+
                /// Its delivery failed, and is tried again.
                Retry = "retry",
            }
        }
    };
}

reasons! {
    /// A cap of the user's segment denies it.
    Cap = "cap", "a cap denies it";
    deferred /// A cap denies it, whose action is `defer`.

    /// A budget of the policy is spent.
    Budget = "budget", "a budget of the policy is spent";
    deferred /// A budget is spent whose `when_spent` is `defer`.

    /// This id was approved for this user before.
    Duplicate = "duplicate", "an intent with this id was approved for this user before";

    /// A `[[stop]]` of the policy matches it.
    Stopped = "stopped", "a [[stop]] of the policy matches it";

    /// It is past `expires_at`, or older than the policy's `max_age`.
    Expired = "expired", "its expires_at has come, or it is older than the policy's max_age";

    /// `not_before` is in the future, and it cannot be deferred until then.
    TooEarly = "too_early", "its not_before has not come";
    deferred /// `not_before` is in the future.

    /// It is in quiet hours in the user's time zone.
    QuietHours = "quiet_hours", "the user is in quiet hours";
    deferred /// It is quiet where the user is.

    /// Too many users are active, and this one is not (`[pressure]` of the policy).
    Pressure = "pressure", "as many users are active as the policy's [pressure] allows, and this one is not";
    deferred /// Too many users are active, and the policy's `[pressure]` defers.

    /// Its route takes no more now (`[[routes]]` of the policy), or it has waited for that for 72 h.
    Capacity = "capacity", "its route takes no more now, or it has waited for 72 h";
    deferred /// Its route takes no more now.

    /// The user's history is unavailable or lost, and the policy suppresses meanwhile.
    Unavailable = "unavailable", "the history is unavailable, and the policy does not wait";
    deferred /// The user's history is unavailable.
}

impl DeferReason {
    pub(crate) fn of(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str().as_bytes() == word)
    }
}

/// Why an intent is denied by a gate or a limit, and until when.
pub type GateDenial = (GateReason, Option<Time>);

/// Why an intent goes no further: what a gate or a limit says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GateReason {
    /// A `[[stop]]` of the policy matches it.
    Stopped,
    /// `expires_at` has come, or it is older than the policy's `max_age`.
    Expired,
    /// `not_before` has not come.
    TooEarly,
    /// It is quiet where the user is.
    QuietHours,
    /// A limit has nothing for it now: what it says, and what the policy says of that.
    Limit(SuppressReason, Action),
    /// Its route takes no more now, and it waits for that: the route's place in the policy.
    RouteFull(u32),
    /// A budget is spent: its place in the batch's claim.
    Budget(u32),
    /// A budget cannot be asked, and its intents are suppressed meanwhile.
    BudgetUnavailable,
    /// A budget cannot be asked, and its intents are deferred meanwhile.
    BudgetWaits,
}

impl GateReason {
    /// What is said of an intent that is not sent for this reason.
    pub const fn word(self) -> SuppressReason {
        match self {
            Self::Stopped => SuppressReason::Stopped,
            Self::Expired => SuppressReason::Expired,
            Self::TooEarly => SuppressReason::TooEarly,
            Self::QuietHours => SuppressReason::QuietHours,
            Self::Limit(word, _) => word,
            Self::RouteFull(_) => SuppressReason::Capacity,
            // A budget that is known says more than that.
            Self::Budget(_) | Self::BudgetUnavailable | Self::BudgetWaits => SuppressReason::Unavailable,
        }
    }

    /// Whether a limit has nothing for the intent now: it is offered what comes back of it.
    pub const fn is_of_limit(self) -> bool {
        !matches!(self, Self::Stopped | Self::Expired | Self::TooEarly | Self::QuietHours)
    }
}
