//! Pressure: the users who are active, over all instances.

use std::{sync::Arc, time::Duration};

use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use utoipa::ToSchema;
use weir_core::{
    basis::document::value::in_words,
    limit::pressure::{PressureRule, activity::CELLS_PER_USER},
    policy::{Action, Policy},
    ports::Clock as _,
};
use weir_worker::{
    clock::SystemClock,
    pressure::{MEMBER_FOR, PressureSeen, PressureStatus, REPORTED_AFTER, Silence},
    refresh::Refreshed,
};

use super::{Degraded, FindingRows, LimitView, LimitedIntent, PolicyLimits, ShownLimits, found};
use crate::{http::Degradation, metrics::Metrics, selections::filter_in_words};

pub(super) const OF_POLICY: PolicyLimits =
    PolicyLimits { in_words: |policy| policy.pressure.iter().map(pressure_in_words).collect(), not_looked_at };

/// What is shown of pressure: its task knows how it stands.
pub struct PressureShown {
    pub policy: Arc<Refreshed<Policy>>,
    pub status: PressureStatus,
}

/// What is known of pressure.
#[derive(Debug, Clone, PartialEq)]
pub enum PressureFound {
    /// The policy in force has no `[pressure]`.
    NoRule,
    /// The policy has it, and the users of its window have not been read yet.
    NotReadYet,
    /// How it stands.
    Seen(Box<PressureView>),
}

/// How pressure stands, over all instances, as this one knows.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(example = json!({
    "kind": "pressure", "name": "active users", "window": "30m", "limit": 1_000_000, "used": 812_345, "left": 187_655,
    "held": 46_913, "leased": null, "members": 4, "free_at": null, "why": null, "available": true,
    "exempt_users": 4_210, "throttling": false, "sync_age_s": 0.4
}))]
pub struct PressureView {
    /// `used`: the users who are active in the window, estimated within 2%. `held`: how many more may become active by this
    /// instance's approvals before it asks again, once a second.
    #[serde(flatten)]
    pub shared: LimitView,
    /// How many of the active users became so in the window through this instance, by approved intents that the policy's pressure
    /// does not apply to. The limit does not bound these. Counted since this instance started, or took up another maximum or window.
    pub exempt_users: u64,
    /// Whether intents of inactive users are denied: starts at 99% of the limit, ends below 95%.
    pub throttling: bool,
    /// The age of what this instance knows of others: seconds since the log of activity last answered.
    #[schema(minimum = 0)]
    pub sync_age_s: f64,
}

impl PressureShown {
    /// How it stands.
    #[must_use]
    pub fn found(&self) -> PressureFound {
        if self.policy.current().pressure.is_none() {
            return PressureFound::NoRule;
        }
        match &*self.status.seen() {
            Some(seen) => {
                let silence = self.status.unsynced();
                PressureFound::Seen(Box::new(PressureView::new(seen, silence.as_ref().as_ref(), SystemClock.passed())))
            }
            None => PressureFound::NotReadYet,
        }
    }
}

impl ShownLimits for PressureShown {
    fn rows(&self) -> FindingRows<'_> {
        found(match self.found() {
            PressureFound::Seen(view) => Some(view),
            PressureFound::NoRule | PressureFound::NotReadYet => None,
        })
    }

    fn degraded(&self) -> Vec<Degradation> {
        let unsynced = self.status.unsynced();
        let Some(Silence { since, why }) = &*unsynced else { return Vec::new() };
        let lasts = SystemClock.passed().saturating_sub(*since);
        let message = format!(
            "this instance and others do not tell each other who is active ({why}): users who are active here still pass, and \
             nobody else comes in after {} s",
            MEMBER_FOR.as_secs()
        );
        let degraded = Degradation::lasting(Degraded::Pressure, lasts, message);
        (lasts >= REPORTED_AFTER).then_some(degraded).into_iter().collect()
    }

    fn note(&self, metrics: &Metrics) {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let seen = self.status.seen();
        let of = |read: fn(&PressureSeen) -> u64| number(seen.as_ref().as_ref().map_or(0, read));
        metrics.pressure_active_users.set(of(|seen| seen.active_users));
        metrics.pressure_max_active_users.set(of(|seen| seen.max_active_users));
        metrics.pressure_throttling.set(of(|seen| u64::from(seen.throttling)));
        metrics.pressure_members.set(of(|seen| seen.members));
        let unsynced = self.status.unsynced();
        let passed = unsynced.as_ref().as_ref().map(|silence| SystemClock.passed().saturating_sub(silence.since));
        metrics.pressure_unsynced.set(passed.unwrap_or_default().as_secs_f64());
    }
}

impl PressureView {
    /// When so much has passed by the monotonic clock.
    fn new(seen: &PressureSeen, silence: Option<&Silence>, passed: Duration) -> Self {
        let throttled =
            seen.throttling.then_some("throttling: intents that it applies to are approved for active users only");
        let silent = silence.map(|silence| silence.why.clone());
        let bare = LimitView::of_pressure(seen.max_active_users, seen.window_minutes).used(Some(seen.active_users));
        let shared = LimitView {
            held: Some(seen.places),
            members: Some(seen.members),
            available: silent.is_none(),
            why: silent.or(throttled.map(str::to_owned)),
            ..bare
        };
        let sync_age_s = passed.saturating_sub(seen.synced_at).as_secs_f64();
        Self { shared, exempt_users: seen.exempt_users, throttling: seen.throttling, sync_age_s }
    }
}

fn pressure_in_words(rule: &PressureRule) -> String {
    let PressureRule { max_active_users, window_minutes: _, filter, action } = rule;
    let (most, window) = (HumanCount(*max_active_users), in_words(rule.window_ms()));
    let (what, memory) = (filter_in_words(filter, " of "), HumanBytes(max_active_users * CELLS_PER_USER));
    let action = match action {
        Action::Suppress => "suppressed",
        Action::Defer => "deferred, and spread over the window",
    };
    format!(
        "Pressure: at most {most} users are active in {window} (takes {memory} of memory); then intents{what} of other users are {action}."
    )
}

/// Where nobody knows who is active.
fn not_looked_at(policy: &Policy, intent: &LimitedIntent<'_>) -> Vec<LimitView> {
    let class = &intent.class;
    let rule = policy.pressure.as_ref().filter(|rule| rule.filter.matches(class.channel, class.category));
    rule.map(LimitView::of_rule).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_what_is_known_of_pressure_is_reckoned_from_the_monotonic_clock() {
        let seen = PressureSeen {
            active_users: 7,
            exempt_users: 1,
            max_active_users: 10,
            window_minutes: 90,
            throttling: true,
            members: 2,
            places: 3,
            synced_at: Duration::from_millis(4_500),
        };
        let silence = Silence { since: Duration::from_secs(5), why: "no answer".to_owned() };
        let view = PressureView::new(&seen, Some(&silence), Duration::from_secs(6));
        assert_eq!((view.sync_age_s, &*view.shared.span.to_string()), (1.5, "in any 1h 30m"));
        assert_eq!((view.shared.why.as_deref(), view.shared.available), (Some("no answer"), false));
        // A turn that ended after the clock was read.
        assert!(PressureView::new(&seen, None, Duration::from_secs(1)).sync_age_s <= 0.0);
    }
}
