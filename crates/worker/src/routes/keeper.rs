//! The tasks of the routes, as the policy in force has them.

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use tokio_util::sync::{CancellationToken, DropGuard};
use weir_core::{
    current::Current,
    policy::Policy,
    ports::{Clock, Permits},
    route::Route,
    routes::Routes,
};

use super::{
    LooksAtRoutes, RoutesStatus,
    learnt::{LastLearnt, Learnt},
    offsets::{LastLook, keep_looking},
    route_keeper::{RouteKeeper, TURN_EVERY},
};

/// What a keeper reaches, and where it shows what it knows.
#[derive(Clone)]
pub struct KeeperLinks<C> {
    /// The routes in force.
    pub policy: Arc<Current<Policy>>,
    /// What lanes take permits from.
    pub routes: Arc<Routes>,
    /// Where offsets are seen.
    pub offsets: Arc<dyn LooksAtRoutes>,
    /// The clock.
    pub clock: C,
    /// How the routes stand.
    pub status: RoutesStatus,
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
    kept: BTreeMap<Arc<str>, Kept>,
}

/// A route with its tasks; dropped, they end.
struct Kept {
    route: Route,
    learnt: LastLearnt,
    _stop: DropGuard,
}

impl<F, P, S, C> RoutesKeeper<F, S, C>
where
    F: Fn() -> P,
    S: Fn(RouteTask),
    P: Permits + 'static,
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
        let status = self.links.status.clone();
        let mut changed = BTreeMap::new();
        self.kept.retain(|name, kept| {
            let stays = policy.routes.contains(&kept.route);
            if !stays {
                status.remove(name);
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
            let before = changed.get(&route.name).and_then(|(before, learnt)| Some((before, learnt.as_deref()?)));
            let (learnt, last_learnt) = (Learnt::before(route, before), LastLearnt::default());
            let cells = (look, self.links.status.add(&route.name), Arc::clone(&last_learnt));
            let keeper = RouteKeeper::new(route, state, ((self.permits)(), clock), (learnt, cells));
            (self.spawn)(Box::pin(keeper.run(stop.clone())));
            let kept = Kept { route: route.clone(), learnt: last_learnt, _stop: stop.drop_guard() };
            self.kept.insert(Arc::clone(&route.name), kept);
        }
    }
}
