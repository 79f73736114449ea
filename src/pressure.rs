//! How pressure stands, for people: `GET /v1/pressure` and the page.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use utoipa::ToSchema;
use weir_core::{document::value::in_words, policy::Policy, ports::Clock as _, time::Time};
use weir_worker::{
    clock::SystemClock,
    pressure::{PressureSeen, PressureStatus, Silence},
    refresh::Refreshed,
};

const MINUTE_MS: i64 = 60_000;

/// How pressure stands: `active_users`, `max_active_users` and `members` are of all instances, as this one knows.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(example = json!({
    "active_users": 812_345, "exempt_users": 4_210, "max_active_users": 1_000_000, "window": "30m",
    "throttling": false, "members": 4, "places": 46_913, "sync_age_s": 0.4, "unsynced": null
}))]
pub struct PressureView {
    /// The users who are active in the window, estimated within 2%.
    pub active_users: u64,
    /// How many of them became active in the window through this instance, by approved intents that the policy's pressure does not
    /// apply to. The maximum does not bound these. Counted since this instance started, or took up another maximum or window.
    pub exempt_users: u64,
    /// The most that may be active.
    pub max_active_users: u64,
    /// How long a user stays active: `30m`.
    #[schema(example = "30m")]
    pub window: String,
    /// Whether intents of inactive users are denied: starts at 99% of the maximum, ends below 95%.
    pub throttling: bool,
    /// The instances that share the maximum, this one included.
    pub members: u64,
    /// How many more users may become active by this instance's approvals before it asks for more places, once a second.
    pub places: u64,
    /// The age of what this instance knows of others: seconds since the log of activity last answered.
    #[schema(minimum = 0)]
    pub sync_age_s: f64,
    /// Why the log of activity does not answer; null while it does.
    pub unsynced: Option<Unsynced>,
}

/// The log of activity does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Unsynced {
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Time,
    /// Why.
    pub message: String,
}

/// What is known of pressure.
#[derive(Debug, Clone, PartialEq)]
pub enum PressureFound {
    /// The policy in force has no `[pressure]`.
    NoRule,
    /// The policy has it, and the users of its window have not been read yet.
    NotReadYet,
    /// How it stands.
    Seen(PressureView),
}

/// Where it is seen how pressure stands; clones see the same.
#[derive(Clone)]
pub struct PressureDesk {
    policy: Arc<Refreshed<Policy>>,
    status: PressureStatus,
}

impl PressureDesk {
    /// Of the policy in force, and what the task that syncs has found.
    #[must_use]
    pub const fn new(policy: Arc<Refreshed<Policy>>, status: PressureStatus) -> Self {
        Self { policy, status }
    }

    /// Looks.
    #[must_use]
    pub fn look(&self) -> PressureFound {
        if self.policy.current().pressure.is_none() {
            return PressureFound::NoRule;
        }
        match &*self.status.seen() {
            Some(seen) => PressureFound::Seen(PressureView::new(seen, SystemClock.now(), SystemClock.passed())),
            None => PressureFound::NotReadYet,
        }
    }
}

impl PressureView {
    /// At this time, which is `passed` by the monotonic clock.
    fn new(seen: &PressureSeen, now: Time, passed: Duration) -> Self {
        let PressureSeen { active_users, exempt_users, max_active_users, throttling, members, places, .. } = *seen;
        let unsynced = seen.unsynced.as_ref().map(|Silence { since, why }| {
            let for_ms = i64::try_from(passed.saturating_sub(*since).as_millis()).unwrap_or(i64::MAX);
            Unsynced { since: now.plus(for_ms.saturating_neg()), message: why.clone() }
        });
        Self {
            active_users,
            exempt_users,
            max_active_users,
            window: in_words(i64::from(seen.window_minutes) * MINUTE_MS),
            throttling,
            members,
            places,
            sync_age_s: passed.saturating_sub(seen.synced_at).as_secs_f64(),
            unsynced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_times_are_reckoned_from_the_monotonic_clock() {
        let seen = PressureSeen {
            active_users: 7,
            exempt_users: 1,
            max_active_users: 10,
            window_minutes: 90,
            throttling: false,
            members: 2,
            places: 3,
            synced_at: Duration::from_millis(4_500),
            unsynced: Some(Silence { since: Duration::from_secs(5), why: "no answer".to_owned() }),
        };
        let now = Time::default().plus(100_000);
        let view = PressureView::new(&seen, now, Duration::from_secs(6));
        assert_eq!((view.sync_age_s, &*view.window), (1.5, "1h 30m"));
        let unsynced = Unsynced { since: Time::default().plus(99_000), message: "no answer".to_owned() };
        assert_eq!(view.unsynced, Some(unsynced));
        // A turn that ended after the clock was read.
        let early = PressureView::new(&seen, now, Duration::from_secs(1));
        assert_eq!((early.sync_age_s, early.unsynced.unwrap().since), (0.0, now));
    }
}
