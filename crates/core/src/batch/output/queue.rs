//! Where intents wait for their route.

use std::{collections::BTreeMap, sync::Arc};

use super::{Came, Grounds, OutputWriter};
use crate::{
    batch::record::{Destination, Output, OutputValue},
    decision::room::{Oversize, RECORD_BYTES},
    deferral::Deferral,
    intent::dead_letter::DeadLetter,
    limit::route::{
        Route,
        routes::{RouteState, Routes, place},
    },
};

/// The partition that stands for the one that the record's key has.
const BY_KEY: i32 = -1;

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

    fn of(&mut self, route: &Route) -> &mut Queue {
        let Some(routes) = self.routes else { unreachable!("a route denies where there are routes") };
        self.queues.entry(Arc::clone(&route.name)).or_insert_with(|| {
            let state = routes.state(&route.name);
            let waiting = state.waiting();
            Queue { state, waiting, added: 0 }
        })
    }
}

impl Queue {
    fn to(&self, partition: i32) -> Destination {
        Destination::Waiting { topic: self.state.topic, partition }
    }

    /// Where an intent of this hash is to wait.
    fn place(&mut self, hash: u64) -> Destination {
        self.added += 1;
        let partition = place(&self.waiting, hash);
        if let Some(partition) = partition {
            self.waiting[partition] += 1;
        }
        self.to(partition.and_then(|partition| i32::try_from(partition).ok()).unwrap_or(BY_KEY))
    }
}

impl<'b> OutputWriter<'_, 'b> {
    /// The record of an intent that waits for its route, by the route's place in the policy. Where the route's topic does not take it,
    /// it is a dead letter: nothing is recorded for it yet.
    pub(super) fn waiting(&mut self, came: &Came<'_, 'b>, route: usize) -> Output {
        let Grounds { decider, eval, now, .. } = self.grounds;
        let (record, bytes_beside, route) = (came.record, (came.bytes_beside)(), &eval.policy().routes[route]);
        let queue = self.queues.of(route);
        let headers = Deferral::until_capacity(record, &decider.topic, now).headers();
        let mut output = Output { to: queue.to(BY_KEY), value: OutputValue::AsItCame, headers };
        let bytes = RECORD_BYTES + output.content_bytes(record, bytes_beside);
        if let Err(oversize) = Oversize::check(bytes, decider.limits.get(output.to)) {
            let letter = DeadLetter::not_writable(record.value_bytes(), oversize);
            return self.dead(&letter, record, bytes_beside);
        }
        output.to = queue.place(route.fair_by.hash_of(came.intent));
        output
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
