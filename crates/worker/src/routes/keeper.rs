//! The tasks of the routes, as the policy in force has them.

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use arc_swap::ArcSwap;
use tokio_util::sync::{CancellationToken, DropGuard};
use weir_core::{
    basis::current::Current,
    limit::route::{Route, permits::RoutePermits, routes::Routes},
    policy::Policy,
    ports::{Clock, Share},
};

use super::{
    LooksAtRoutes,
    learnt::{LastLearnt, Learnt},
    offsets::{LastLook, keep_looking},
    route_keeper::{RouteKeeper, RouteLinks, TURN_EVERY},
};

#[derive(Clone)]
pub struct KeeperLinks<C> {
    pub policy: Arc<Current<Policy>>,
    pub routes: Arc<Routes>,
    pub offsets: Arc<dyn LooksAtRoutes>,
    pub clock: C,
}

/// A task of one route: a part of the process, like the keeper itself.
pub type RouteTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Keeps tasks for each route of the policy in force.
pub struct RoutesKeeper<F, S, C> {
    links: KeeperLinks<C>,
    /// Makes a client for the permits of one route.
    permits: F,
    /// Runs a task beside this one.
    spawn: S,
    kept: BTreeMap<Arc<str>, KeptRoute>,
}

/// A route with its tasks; dropped, they end.
struct KeptRoute {
    route: Route,
    learnt: LastLearnt,
    _stop: DropGuard,
}

impl<F, P, S, C> RoutesKeeper<F, S, C>
where
    F: Fn() -> P,
    S: Fn(RouteTask),
    P: Share<RoutePermits> + 'static,
    C: Clock + Clone + 'static,
{
    /// A keeper that keeps nothing yet; `permits` makes a client for each route, and `spawn` runs its tasks.
    #[must_use]
    pub const fn new(links: KeeperLinks<C>, permits: F, spawn: S) -> Self {
        Self { links, permits, spawn, kept: BTreeMap::new() }
    }

    /// Follows the policy until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let clock = self.links.clock.clone();
        loop {
            self.follow();
            if stop.run_until_cancelled(clock.sleep(TURN_EVERY)).await.is_none() {
                return;
            }
        }
    }

    /// Begins to keep routes that are new or have changed, and ends those that are gone.
    fn follow(&mut self) {
        let policy = self.links.policy.get();
        let mut changed = BTreeMap::new();
        self.kept.retain(|name, kept| {
            let stays = policy.routes.contains(&kept.route);
            if !stays {
                changed.insert(Arc::clone(name), (kept.route.clone(), kept.learnt.load_full()));
            }
            stays
        });
        for route in &policy.routes {
            if self.kept.contains_key(&route.name) {
                continue;
            }
            let offsets = match self.links.offsets.of(route) {
                Ok(offsets) => offsets,
                Err(reason) => {
                    tracing::warn!(route = &*route.name, "the route's offsets cannot be looked at: {reason}");
                    continue;
                }
            };
            let (stop, look) = (CancellationToken::new(), LastLook::default());
            let state = self.links.routes.state(&route.name);
            let clock = self.links.clock.clone();
            let looking = keep_looking(offsets, Arc::clone(&state), clock.clone(), Arc::clone(&look), stop.clone());
            (self.spawn)(Box::pin(looking));
            let before = changed.get(&route.name).map(|(before, learnt)| (before, &**learnt));
            let learnt: LastLearnt = Arc::new(ArcSwap::from_pointee(Learnt::before(route, &state, before)));
            let links = RouteLinks { permits: (self.permits)(), clock, look, last_learnt: Arc::clone(&learnt) };
            let keeper = RouteKeeper::new(route, state, links);
            (self.spawn)(Box::pin(keeper.run(stop.clone())));
            let kept = KeptRoute { route: route.clone(), learnt, _stop: stop.drop_guard() };
            self.kept.insert(Arc::clone(&route.name), kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_core::{
        basis::time::Time,
        limit::route::{
            pace::{Lag, Sample},
            permits::EmbeddedPermits,
        },
    };

    use super::*;
    use crate::{
        clock::SystemClock,
        routes::{AskingBack, Looking, RouteOffsets},
    };

    /// Offsets that nobody looks at: no task runs.
    struct Unseen;

    impl LooksAtRoutes for Unseen {
        fn of(&self, _: &Route) -> Result<Box<dyn RouteOffsets>, String> {
            Ok(Box::new(Self))
        }
    }

    impl RouteOffsets for Unseen {
        fn look(&mut self) -> Looking<'_> {
            unreachable!("no task runs")
        }

        fn waiting_since(&mut self, _: Time) -> AskingBack {
            unreachable!("no task runs")
        }
    }

    fn policy(route: &str) -> Arc<Policy> {
        Arc::new(crate::tests::policy(&format!("[[routes]]\nname = \"email\"\nwhen_full = \"suppress\"\n{route}\n")))
    }

    /// What the route takes at this second, of a consumer that takes 300 per second.
    fn turn(learnt: &mut Learnt, at: u64) -> f64 {
        let lag = Some(Lag { end: 100_000 + 300 * at, committed: 300 * at });
        let sample = Sample { at: Duration::from_secs(at), lag, ceiling: None, slow: 1.0, approved: u64::MAX };
        learnt.controller.turn(&sample).drain_per_s
    }

    #[test]
    fn what_was_learnt_is_kept_over_changes_without_a_look_between_them_unless_it_is_of_another_delivery() {
        const EMAIL: &str = "channel = \"email\"\nconsumer_group = \"hedwig\"\n";
        for (changed, keeps) in [
            (format!("{EMAIL}rate = 1000\nahead = \"60s\"\n"), true),
            ("channel = \"email\"\nconsumer_group = \"errol\"\n".to_owned(), false),
            ("channel = \"push\"\nconsumer_group = \"hedwig\"\n".to_owned(), false),
            (format!("{EMAIL}service = \"mail\"\n"), false),
        ] {
            let current = Current::new(policy(EMAIL));
            let (policies, routes) = (Arc::clone(&current), Routes::new());
            let links = KeeperLinks { policy: policies, routes, offsets: Arc::new(Unseen), clock: SystemClock };
            let permits = || EmbeddedPermits::new("weir-0", Time::default);
            let mut keeper = RoutesKeeper::new(links, permits, drop::<RouteTask>);
            keeper.follow();
            let mut learnt = Learnt::clone(&keeper.kept["email"].learnt.load_full());
            learnt.note_times((20, 2_000));
            (0..60).for_each(|at| _ = turn(&mut learnt, at));
            keeper.kept["email"].learnt.store(Arc::new(learnt));
            for change in [&changed, &format!("{changed}max_attempts = 4\n")] {
                current.replace(policy(change));
                keeper.follow();
            }
            let mut learnt = Learnt::clone(&keeper.kept["email"].learnt.load_full());
            assert_eq!(learnt.mean_ms(), keeps.then_some(100), "{changed}");
            let rate = turn(&mut learnt, 60);
            assert_eq!(rate > 250.0, keeps, "{changed}: {rate}");
        }
    }
}
