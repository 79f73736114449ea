//! What a process has learnt of a route's delivery: it outlives a change of the route's policy.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use weir_core::limit::route::{Route, delivery_signals::DeliverySignals, pace::Controller};

use super::times::DeliveryTimes;

/// What is learnt of one route, sample by sample.
#[derive(Debug, Clone)]
pub(super) struct Learnt {
    pub(super) controller: Controller,
    pub(super) signals: DeliverySignals,
    pub(super) times: DeliveryTimes,
}

/// What a route's task has learnt up to its last sample.
pub(super) type LastLearnt = Arc<ArcSwapOption<Learnt>>;

impl Learnt {
    /// Nothing but what was learnt before, where that is of the same delivery. `times`: the sums of what was reported by now.
    pub(super) fn before(route: &Route, times: (u64, u64), before: Option<(&Route, &Self)>) -> Self {
        let reserved_permille = route.reserved.as_ref().map_or(0, |reserved| reserved.share_permille);
        match before.filter(|(before, _)| before.delivery() == route.delivery()) {
            Some((_, Self { controller, signals, times })) => Self {
                controller: controller.clone().changed_to(route.ahead_ms, reserved_permille),
                signals: signals.clone(),
                times: times.clone(),
            },
            None => Self {
                controller: Controller::new(route.ahead_ms, reserved_permille),
                signals: DeliverySignals::default(),
                times: DeliveryTimes::new(times),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_core::{
        basis::document::Format,
        limit::route::pace::{Lag, Sample},
        policy::file::parse_policy,
    };

    use super::*;

    fn route(more: &str) -> Route {
        let text = format!(
            "version = \"1\"\ndefault = {{ caps = \"unlimited\" }}\n[[routes]]\nname = \"email\"\nwhen_full = \"suppress\"\n{more}"
        );
        parse_policy("p.toml", &text, Format::Toml, 86_400_000).unwrap().routes.remove(0)
    }

    fn turn(learnt: &mut Learnt, at: u64) -> f64 {
        let lag = Some(Lag { end: 100_000 + 300 * at, committed: 300 * at });
        learnt
            .controller
            .turn(&Sample { at: Duration::from_secs(at), lag, ceiling: None, slow: 1.0, approved: u64::MAX })
            .drain_per_s
    }

    #[test]
    fn a_change_of_the_policy_keeps_the_estimate_and_another_group_topic_or_service_does_not() {
        let old = route("channel = \"email\"\nconsumer_group = \"hedwig\"\n");
        let mut learnt = Learnt::before(&old, (0, 0), None);
        learnt.times.look((20, 2_000));
        (0..60).for_each(|at| _ = turn(&mut learnt, at));
        for (changed, keeps) in [
            ("channel = \"email\"\nconsumer_group = \"hedwig\"\nrate = 1000\nahead = \"60s\"\n", true),
            ("channel = \"email\"\nconsumer_group = \"errol\"\n", false),
            ("channel = \"push\"\nconsumer_group = \"hedwig\"\n", false),
            ("channel = \"email\"\nconsumer_group = \"hedwig\"\nservice = \"mail\"\n", false),
        ] {
            let mut kept = Learnt::before(&route(changed), (20, 2_000), Some((&old, &learnt)));
            assert_eq!(kept.times.mean_ms(), keeps.then_some(100), "{changed}");
            let rate = turn(&mut kept, 60);
            assert_eq!(rate > 250.0, keeps, "{changed}: {rate}");
        }
    }
}
