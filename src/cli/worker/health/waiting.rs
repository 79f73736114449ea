//! How the lanes of intents that wait for routes are: what `/livez`, `/readyz`, `/v1/status` and `/metrics` ask.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use weir_worker::{routes::WaitingStatuses, status::LaneStatus};

use super::{deleted, of_lane};
use crate::{
    http::Degradation,
    metrics::{Metrics, OfRouteLabel},
};

/// The lanes of waiting intents.
pub(in crate::cli::worker) struct WaitingHealth {
    statuses: WaitingStatuses,
    /// Those that the start waits for.
    at_start: Vec<(Arc<str>, Arc<LaneStatus>)>,
}

impl WaitingHealth {
    /// Of these lanes; the start waits for those of these routes.
    pub(in crate::cli::worker) fn new(statuses: &WaitingStatuses, at_start: BTreeSet<Arc<str>>) -> Self {
        let with_status = |route| {
            let lane = statuses.add(&route);
            (route, lane)
        };
        Self { statuses: statuses.clone(), at_start: at_start.into_iter().map(with_status).collect() }
    }

    /// The lane that makes no progress, if there is one.
    pub(super) fn stuck(&self, passed: Duration) -> Result<(), String> {
        match self.statuses.all().iter().find(|(_, lane)| lane.is_stuck(passed)) {
            Some((route, _)) => Err(format!("{}: no progress for 60 s", name(route))),
            None => Ok(()),
        }
    }

    /// The lanes that have never had their partitions.
    pub(super) fn unready(&self) -> impl Iterator<Item = String> {
        let unready = self.at_start.iter().filter(|(_, lane)| !lane.was_assigned());
        unready.map(|(route, _)| format!("{} waits for its partitions", name(route)))
    }

    /// What the lanes wait for, and what was lost.
    pub(super) fn degraded(&self) -> Vec<Degradation> {
        let of = |(route, lane): (&Arc<str>, &Arc<LaneStatus>)| {
            let waits = of_lane(lane).map(|waits| Degradation { route: Some(route.to_string()), ..waits });
            [waits, deleted(lane)]
        };
        self.statuses.all().iter().flat_map(of).flatten().collect()
    }

    /// How many shards without their history a lane waits for, at the most.
    pub(super) fn lost_shards(&self) -> usize {
        self.statuses.all().values().map(|lane| lane.lost_shards()).max().unwrap_or(0)
    }

    pub(super) fn note(&self, metrics: &Metrics) {
        metrics.waiting_lane_ready.clear();
        for (route, lane) in self.statuses.all().iter() {
            let label = OfRouteLabel { route: route.to_string() };
            metrics.waiting_lane_ready.get_or_create(&label).set(i64::from(lane.is_assigned()));
        }
    }
}

/// A lane, for people.
fn name(route: &str) -> String {
    format!("the lane of intents that wait for the route {route}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Degraded;

    #[test]
    fn lanes_of_waiting_intents_belong_to_the_start_and_are_seen_when_they_are_stuck_or_wait() {
        let (statuses, email): (_, Arc<str>) = (WaitingStatuses::default(), "email".into());
        let health = WaitingHealth::new(&statuses, BTreeSet::from([Arc::clone(&email)]));
        let (lane, later) = (statuses.add(&email), statuses.add(&"push".into()));
        let unready: Vec<String> = health.unready().collect();
        assert_eq!(unready, ["the lane of intents that wait for the route email waits for its partitions"]);
        lane.assigned();
        lane.revoked();
        assert_eq!(health.unready().count(), 0, "it has had its partitions, and the other route came later");

        let s = Duration::from_secs;
        lane.progressed(s(1));
        later.progressed(s(40));
        assert_eq!(health.stuck(s(61)), Ok(()));
        let stuck = health.stuck(s(62)).unwrap_err();
        assert_eq!(stuck, "the lane of intents that wait for the route email: no progress for 60 s");

        lane.note_deleted("some are lost".to_owned());
        later.set_trouble(Some("it waits".to_owned()));
        later.set_lost_shards(3);
        let degraded = health.degraded().into_iter().map(|one| (one.what, one.route, one.message));
        let expected = [
            (Degraded::Deleted, None, "some are lost".to_owned()),
            (Degraded::Lane, Some("push".to_owned()), "it waits".to_owned()),
        ];
        assert_eq!(degraded.collect::<Vec<_>>(), expected);
        assert_eq!(health.lost_shards(), 3);
    }
}
