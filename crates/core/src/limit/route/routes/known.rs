//! What is known of a route, and how long intents wait for it by that.

use std::{sync::Arc, time::Duration};

use super::place;
use crate::limit::route::{Route, pace::Throttle, permits::PermitGrant};

/// What the keeper knows of a route, over all instances: lanes go by it, and it is shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RouteKnown {
    /// The rule of the policy that the rates are of; `None`: nobody keeps the route by one now.
    pub rule: Option<Arc<Route>>,
    /// What delivery takes, per second.
    pub drain_per_s: f64,
    /// The best rate that is known ([`crate::limit::route::pace::Pace::best_per_s`]); `None`: there is none.
    pub best_per_s: Option<f64>,
    /// The rate that was measured ([`crate::limit::route::pace::Pace::measured_per_s`]); `None`: none was.
    pub measured_per_s: Option<f64>,
    /// Approved intents that are not delivered; `None`: not known.
    pub lag: Option<u64>,
    /// Intents that wait, by partition of the route's topic; empty where there is no topic.
    pub waiting: Vec<u64>,
    /// How long the oldest of them has waited, in milliseconds; `None`: none waits, or it is not known.
    pub oldest_waiting_ms: Option<u64>,
    /// [`super::RouteState::queued`] before they were counted.
    pub queued_before: u64,
    /// The most that delivery is given per second; `None`: no rate and no service.
    pub ceiling_per_s: Option<u64>,
    /// The last answer of the store. Its permits are those that the last turn came to, also without an answer; its processing time is by
    /// the reports that this instance has read, where it has none.
    pub grant: PermitGrant,
    /// Those of the permits that only reserved intents may take.
    pub reserved: u64,
    pub throttle: Throttle,
    /// What could not be found out or asked for, or else why it takes less than its ceiling; `None`: it does not.
    pub why: Option<String>,
    /// Whether its offsets are known, and the store answers for its permits.
    pub available: bool,
    /// Since when it approves nothing but probes, its offsets are not known, partitions are behind, or intents have waited for too long; by
    /// the monotonic clock.
    pub held_up_since: Option<Duration>,
    /// Since when the store does not answer for its permits, likewise.
    pub silent_since: Option<Duration>,
}

impl RouteKnown {
    /// The same where the policy has another rule by now, or nobody keeps the route: no intent is denied by rates of before.
    #[must_use]
    pub fn without_rates(&self) -> Self {
        Self { rule: None, best_per_s: None, measured_per_s: None, held_up_since: None, ..self.clone() }
    }

    pub fn waiting(&self) -> u64 {
        self.waiting.iter().sum()
    }

    /// How long all that waits takes, in milliseconds.
    pub fn expected_wait_ms(&self) -> u64 {
        takes_ms(self.waiting(), self.drain_per_s)
    }

    /// How long an intent of this hash that comes now waits for its turn at the best rate, in milliseconds. `None`: no rate is known.
    pub fn least_wait_ms(&self, hash: u64) -> Option<u64> {
        Some(takes_ms(self.before(hash), self.best_per_s?))
    }

    /// The same at the measured rate.
    pub fn measured_wait_ms(&self, hash: u64) -> Option<u64> {
        Some(takes_ms(self.before(hash), self.measured_per_s?))
    }

    /// How many are before an intent of this hash, at the least: partitions take turns, so it is behind those on its own one, and behind
    /// as many of each other one. But instances share the permits equally, however few of the partitions with intents one reads: where
    /// there are several, every other permit may be for its own partition.
    fn before(&self, hash: u64) -> u64 {
        let own = place(&self.waiting, hash).map_or(0, |place| self.waiting[place]);
        let by_turns = self.waiting.iter().map(|waiting| own.min(*waiting)).sum();
        let others = self.waiting() - own;
        if self.grant.members > 1 { own + own.min(others) } else { by_turns }
    }

    /// How long an intent may wait until its service would answer too late, in milliseconds: the service's timeout less the time on
    /// the network and in the service. `None` where no timeout is registered.
    pub fn answers_within_ms(&self, network_ms: i64) -> Option<i64> {
        let millis = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let left = millis(self.grant.timeout_ms?).saturating_sub(network_ms.saturating_mul(2));
        Some(left.saturating_sub(millis(self.grant.processing_ms.unwrap_or(0))))
    }
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
fn takes_ms(intents: u64, per_s: f64) -> u64 {
    (intents as f64 / per_s.max(f64::MIN_POSITIVE) * 1000.0) as u64
}
