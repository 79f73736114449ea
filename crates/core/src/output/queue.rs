//! Which intents wait for their route, and where.

use std::{collections::BTreeMap, sync::Arc};

use super::GateResult;
use crate::{
    decide::AdmitVerdict,
    decider::{Disposition, StoreAnswers},
    intent::Intent,
    policy::GateReason,
    record::Destination,
    route::Route,
    routes::{RouteState, Routes, place},
};

/// The partition that stands for the one that the record's key has.
const BY_KEY: i32 = -1;

/// The route that an intent waits for, by its place in the policy; `None` where it does not wait.
pub(super) fn waits_for_route(gate_result: &GateResult, answers: &StoreAnswers) -> Option<usize> {
    let is_replay = |request| answers.get(request).is_some_and(|answer| answer.verdict == AdmitVerdict::Replayed);
    match gate_result.disposition {
        Disposition::Suppress((GateReason::RouteFull(route), _)) => usize::try_from(route).ok(),
        Disposition::LookUp { request, denial: (GateReason::RouteFull(route), _), .. } if !is_replay(request) => {
            usize::try_from(route).ok()
        }
        Disposition::Suppress(_)
        | Disposition::LookUp { .. }
        | Disposition::Undecided
        | Disposition::Bypass { .. }
        | Disposition::CheckCaps { .. } => None,
    }
}

/// The topics of waiting intents, with what one batch adds to them.
pub(super) struct Queues<'w> {
    routes: Option<&'w Routes>,
    /// By the route's name.
    queues: BTreeMap<Arc<str>, Queue>,
}

/// One topic: its route, and how many wait on each of its partitions.
struct Queue {
    state: Arc<RouteState>,
    waiting: Vec<u64>,
    added: u64,
}

impl<'w> Queues<'w> {
    pub(super) const fn new(routes: Option<&'w Routes>) -> Self {
        Self { routes, queues: BTreeMap::new() }
    }

    /// Where an intent of this route is to wait.
    pub(super) fn place(&mut self, route: &Route, intent: &Intent<'_>) -> Destination {
        let Some(routes) = self.routes else { unreachable!("a route denies where there are routes") };
        let queue = self.queues.entry(Arc::clone(&route.name)).or_insert_with(|| {
            let state = routes.state(&route.name);
            let waiting = state.waiting();
            Queue { state, waiting, added: 0 }
        });
        queue.added += 1;
        let partition = place(&queue.waiting, route.fair_by.hash_of(intent));
        if let Some(partition) = partition {
            queue.waiting[partition] += 1;
        }
        let partition = partition.and_then(|partition| i32::try_from(partition).ok()).unwrap_or(BY_KEY);
        Destination::Waiting { topic: queue.state.topic, partition }
    }
}

impl Drop for Queues<'_> {
    /// Later intents queue behind them.
    fn drop(&mut self) {
        for queue in self.queues.values() {
            queue.state.queue(queue.added);
        }
    }
}
