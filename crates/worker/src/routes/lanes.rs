//! The lanes of intents that wait: one for each route, from when the policy first has it.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    thread::{Builder, JoinHandle},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use weir_core::{basis::current::Current, limit::route::WhenFull, policy::Policy};

use crate::{
    lane::LaneError,
    status::LaneStatus,
    supervise::{LaneWork, to_its_end},
};

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The lanes of intents that wait. A route that is not in the policy any more keeps its lane, which decides what still waits.
pub struct WaitingLanes {
    pub policy: Arc<Current<Policy>>,
    /// Other routes for which something may wait.
    pub known: Arc<Current<BTreeSet<String>>>,
    pub make: MakesLane,
    pub stop: CancellationToken,
}

pub type MakesLane = Box<dyn Fn(&Arc<str>) -> LaneWork + Send>;

type Running = BTreeMap<Arc<str>, JoinHandle<Result<(), LaneError>>>;

impl WaitingLanes {
    /// Works until it is told to stop, and all lanes have ended.
    ///
    /// # Errors
    /// A lane failed; the others were stopped.
    pub fn run(self, runtime: &Handle) -> Result<(), LaneError> {
        // What the ends of a lane spawn runs on the runtime's own threads.
        let _entered = runtime.enter();
        let mut running = Running::new();
        loop {
            for route in waited_for(&self.policy.get(), &self.known.get()) {
                if let Entry::Vacant(place) = running.entry(route) {
                    let lane = self.start(place.key())?;
                    place.insert(lane);
                }
            }
            if self.stop.is_cancelled() || running.values().any(JoinHandle::is_finished) {
                self.stop.cancel();
                return running.into_iter().map(|(route, lane)| end_of(&route, lane)).fold(Ok(()), Result::and);
            }
            runtime.block_on(self.stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)));
        }
    }

    fn start(&self, route: &Arc<str>) -> Result<JoinHandle<Result<(), LaneError>>, LaneError> {
        let work = (self.make)(route);
        let lane = Builder::new().name(format!("waiting-{route}")).spawn(move || to_its_end(work));
        lane.map_err(|error| LaneError::Fatal(format!("no thread for the lane of the route {route}: {error}")))
    }
}

/// How the lanes stand, by their routes; clones are of the same.
#[derive(Debug, Clone, Default)]
pub struct WaitingStatuses(Arc<ArcSwap<BTreeMap<Arc<str>, Arc<LaneStatus>>>>);

impl WaitingStatuses {
    /// That of a lane, until it is removed.
    #[must_use]
    pub fn add(&self, route: &Arc<str>) -> Arc<LaneStatus> {
        self.0.rcu(|all| {
            let mut all = BTreeMap::clone(all);
            all.entry(Arc::clone(route)).or_default();
            all
        });
        self.0.load().get(route).cloned().unwrap_or_default()
    }

    /// The lane has ended.
    pub fn remove(&self, route: &str) {
        self.0.rcu(|all| {
            let mut all = BTreeMap::clone(all);
            all.remove(route);
            all
        });
    }

    #[must_use]
    pub fn all(&self) -> Arc<BTreeMap<Arc<str>, Arc<LaneStatus>>> {
        self.0.load_full()
    }
}

/// The routes that have a lane: those of a policy whose intents wait, and others for which something may wait.
#[must_use]
pub fn waited_for(policy: &Policy, known: &BTreeSet<String>) -> BTreeSet<Arc<str>> {
    let waiting = policy.routes.iter().filter(|route| route.when_full == WhenFull::Wait);
    waiting.map(|route| Arc::clone(&route.name)).chain(known.iter().map(|route| route.as_str().into())).collect()
}

fn end_of(route: &str, lane: JoinHandle<Result<(), LaneError>>) -> Result<(), LaneError> {
    let end = lane.join().unwrap_or_else(|_| Err(LaneError::Fatal("its thread failed".to_owned())));
    end.map_err(|LaneError::Fatal(message)| {
        LaneError::Fatal(format!("intents that wait for the route {route}: {message}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_keeps_its_status_until_it_has_ended() {
        let statuses = WaitingStatuses::default();
        let route: Arc<str> = "email".into();
        statuses.add(&route).assigned();
        assert!(statuses.add(&route).is_assigned() && statuses.clone().all()["email"].is_assigned());
        statuses.remove("email");
        assert!(statuses.all().is_empty() && !statuses.add(&route).is_assigned());
    }

    #[test]
    fn each_route_for_which_something_may_wait_has_one_lane() {
        let route =
            |name: &str, more: &str| format!("[[routes]]\nname = \"{name}\"\nchannel = \"{name}\"\nrate = 1\n{more}\n");
        let routes = [route("email", ""), route("sms", "when_full = \"suppress\""), route("push", "")].concat();
        let policy = crate::tests::policy(&routes);
        let known = BTreeSet::from(["email", "removed"].map(str::to_owned));
        let expected = BTreeSet::from(["email", "push", "removed"].map(Arc::<str>::from));
        assert_eq!(waited_for(&policy, &known), expected);
    }
}
