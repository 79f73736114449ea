//! The task of each route that takes a process's turns at its permits.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio_util::sync::{CancellationToken, DropGuard};
use weir_core::{
    current::Current,
    delivery_signals::{Deliveries, DeliverySignals},
    pace::{Controller, Pace, Sample, Throttle, by_ceiling},
    permits::{LEASE, MOST},
    policy::Policy,
    ports::{Clock, PermitGrant, PermitTurn, Permits, StoreError},
    route::Route,
    routes::{Pool, RouteKnown, RouteState, Routes},
};

use super::{
    LooksAtRoutes, RouteCell, RouteSeen, RoutesStatus,
    offsets::{LastLook, Looked, keep_looking},
};

/// From one turn to the next: at most two a second.
const TURN_EVERY: Duration = Duration::from_millis(550);
/// A look that is older says nothing of the lag any more.
const LOOK_HOLDS: Duration = Duration::from_secs(3);
/// How long the store may take to answer a turn.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// While the store does not answer, this instance's part of the room is halved so often.
const HALVED_EVERY: Duration = Duration::from_secs(10);
/// An instance without demand holds at most this part of its share, so that a burst finds permits.
const IDLE_PART: u64 = 4;
/// The part of what is left, or was used by the last turn, that lanes keep while a turn is under way.
const KEPT_PART: u64 = 4;

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

/// Keeps a task for each route of the policy in force.
pub struct RoutesKeeper<F, C> {
    links: KeeperLinks<C>,
    /// Makes a client for the permits of one route.
    permits: F,
    kept: BTreeMap<Arc<str>, (Route, DropGuard)>,
}

impl<F, P, C> RoutesKeeper<F, C>
where
    F: Fn() -> P,
    P: Permits + 'static,
    C: Clock + Clone + 'static,
{
    /// A keeper that keeps nothing yet; `permits` makes a client for each route.
    #[must_use]
    pub const fn new(links: KeeperLinks<C>, permits: F) -> Self {
        Self { links, permits, kept: BTreeMap::new() }
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
        self.kept.retain(|name, (kept, _)| {
            let stays = policy.routes.iter().any(|route| route == kept);
            if !stays {
                status.remove(name);
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
            tokio::spawn(keep_looking(offsets, Arc::clone(&state), clock.clone(), Arc::clone(&look), stop.clone()));
            let keeper =
                RouteKeeper::new(route, state, ((self.permits)(), clock), (look, self.links.status.add(&route.name)));
            tokio::spawn(keeper.run(stop.clone()));
            self.kept.insert(Arc::clone(&route.name), (route.clone(), stop.drop_guard()));
        }
    }
}

/// The task of one route.
struct RouteKeeper<P, C> {
    route: Route,
    state: Arc<RouteState>,
    permits: P,
    clock: C,
    look: LastLook,
    cell: RouteCell,
    controller: Controller,
    signals: DeliverySignals,
    pace: Option<Pace>,
    /// When the controller was given a sample last.
    sampled_at: Option<Duration>,
    /// The last answer of the store.
    grant: PermitGrant,
    /// Since when the store does not answer.
    silent_since: Option<Duration>,
    /// Permits used by the last turn, since the process began.
    used: u64,
    trouble: Option<String>,
}

impl<P: Permits, C: Clock> RouteKeeper<P, C> {
    fn new(
        route: &Route,
        state: Arc<RouteState>,
        (permits, clock): (P, C),
        (look, cell): (LastLook, RouteCell),
    ) -> Self {
        let reserved_permille = route.reserved.as_ref().map_or(0, |reserved| reserved.share_permille);
        Self {
            route: route.clone(),
            state,
            permits,
            clock,
            look,
            cell,
            controller: Controller::new(route.ahead_ms, reserved_permille),
            signals: DeliverySignals::default(),
            pace: None,
            sampled_at: None,
            grant: PermitGrant { members: 1, slow: 1.0, ..PermitGrant::default() },
            silent_since: None,
            used: 0,
            trouble: None,
        }
    }

    /// Takes turns until `stop`. The permits of the last one end with their lease.
    async fn run(mut self, stop: CancellationToken) {
        loop {
            let began_at = self.clock.passed();
            if stop.run_until_cancelled(self.turn()).await.is_none() {
                break;
            }
            let wait = (began_at + TURN_EVERY).saturating_sub(self.clock.passed());
            if stop.run_until_cancelled(self.clock.sleep(wait)).await.is_none() {
                break;
            }
        }
        self.state.withdraw_above(0, 0);
    }

    /// One turn: what Kafka says, what the route takes by that, and this instance's part of it.
    async fn turn(&mut self) {
        let now = self.clock.passed();
        // Until Kafka has been looked at nothing is known of the route.
        let Some(look) = self.look.load_full() else { return };
        let pace = self.paced(&look, now);
        let used = self.used_since();
        let unused = self.withdraw_most(used);
        let recent = self.state.held().saturating_add(self.state.spent().saturating_sub(look.spent));
        let room = self.route.consumer_group.as_ref().map(|_| pace.room);
        let want = self.wanted(room, (used, unused));
        let slow = self.signals(now);
        let turn = PermitTurn {
            route: &self.route.name,
            service: self.route.service.as_deref(),
            room,
            want,
            unused,
            recent,
            rate: self.route.rate,
            slow,
        };
        let answer = tokio::select! {
            answer = self.permits.turn(&turn) => answer,
            () = self.clock.sleep(ANSWER_WITHIN) => {
                Err(StoreError::Temporary(format!("no answer within {} ms", ANSWER_WITHIN.as_millis())))
            }
        };
        let granted = match answer {
            Ok(grant) => {
                if self.silent_since.take().is_some() {
                    tracing::info!(route = &*self.route.name, "the permits of the route are shared again");
                }
                self.grant = grant;
                grant.permits
            }
            Err(error) => self.alone(room, recent, (now, &error)),
        };
        let reserved = self.reserved_of(granted, &pace);
        self.state.grant(granted - reserved, reserved, now + LEASE);
        self.show(&look, pace, (granted, reserved));
    }

    /// What signals of overload that this instance sees leave of the drain rate.
    fn signals(&mut self, now: Duration) -> f64 {
        let (approved, failed) = (self.state.spent(), self.state.failed());
        self.signals.turn(now, &Deliveries { approved, failed, processing_ms: self.grant.processing_ms })
    }

    /// What the route takes, by the last look.
    fn paced(&mut self, look: &Looked, now: Duration) -> Pace {
        let is_old = now.saturating_sub(look.at) > LOOK_HOLDS;
        let lag = look.lag.as_ref().ok().copied().flatten().filter(|_| !is_old);
        let at = if is_old { now } else { look.at };
        if let Some(pace) = self.pace.filter(|_| self.sampled_at == Some(at)) {
            return pace;
        }
        let ceiling = self.ceiling();
        let pace = match (&self.route.consumer_group, ceiling) {
            (Some(_), _) => self.controller.turn(&Sample { at, lag, ceiling, slow: self.grant.slow }),
            // Nobody reports what is delivered: the ceiling is what is.
            (None, ceiling) => {
                let (drain_per_s, why) = by_ceiling(ceiling.unwrap_or(1), self.grant.slow);
                Pace { drain_per_s, room: MOST, reserved: 0, why }
            }
        };
        (self.pace, self.sampled_at) = (Some(pace), Some(at));
        pace
    }

    /// The most per second: the route's rate and what its service has registered, the smaller one.
    fn ceiling(&self) -> Option<u64> {
        let registered = self.grant.registered_per_s.map(|registered| registered.max(1));
        [self.route.rate, registered].into_iter().flatten().min()
    }

    /// Permits that lanes have taken since the last turn.
    fn used_since(&mut self) -> u64 {
        let left = [Pool::General, Pool::Reserved].map(|pool| self.state.left(pool, Duration::ZERO)).into_iter().sum();
        let used_by_now = (self.state.spent() + self.state.held()).saturating_sub(left);
        used_by_now.saturating_sub(std::mem::replace(&mut self.used, used_by_now))
    }

    /// Takes back what nobody took, but for what lanes may take until this turn has its answer: they are not to find nothing.
    fn withdraw_most(&self, used: u64) -> u64 {
        let keep = |pool, used: u64| (self.state.left(pool, Duration::ZERO) / KEPT_PART).max(used / KEPT_PART);
        self.state.withdraw_above(keep(Pool::General, used), keep(Pool::Reserved, 0))
    }

    /// How many permits this instance wants: any number where it used all that it had; else as many as it uses, with some for a
    /// burst.
    fn wanted(&self, room: Option<u64>, (used, unused): (u64, u64)) -> u64 {
        if unused == 0 {
            return MOST;
        }
        let most = [room, self.ceiling()].into_iter().flatten().min().unwrap_or(MOST);
        used.saturating_mul(2).max(most / (IDLE_PART * self.grant.members.max(1))).max(1)
    }

    /// What this instance takes while the store does not answer: its part of the room, halved again and again, and one permit per
    /// turn at the least.
    fn alone(&mut self, room: Option<u64>, recent: u64, (now, error): (Duration, &StoreError)) -> u64 {
        let since = *self.silent_since.get_or_insert_with(|| {
            tracing::warn!(route = &*self.route.name, "the permits of the route are not shared: {error}");
            now
        });
        let halvings = now.saturating_sub(since).as_millis() / HALVED_EVERY.as_millis();
        let per_turn = self.ceiling().map(|ceiling| ceiling * TURN_EVERY.as_millis() as u64 / 1_000);
        let room = room.map(|room| room.saturating_sub(recent));
        let most = [room, per_turn].into_iter().flatten().min().unwrap_or(0) / self.grant.members.max(1);
        let part = u32::try_from(halvings).ok().and_then(|halvings| most.checked_shr(halvings)).unwrap_or(0);
        part.max(u64::from(room != Some(0)))
    }

    /// What is kept of a grant for reserved intents.
    fn reserved_of(&self, granted: u64, pace: &Pace) -> u64 {
        let Some(reserved) = &self.route.reserved else { return 0 };
        let (part, whole) = match self.route.consumer_group {
            Some(_) => (pace.reserved, pace.room.max(1)),
            None => (u64::from(reserved.share_permille), 1_000),
        };
        let kept = u128::from(granted) * u128::from(part) / u128::from(whole);
        u64::try_from(kept).unwrap_or(granted).min(granted)
    }

    /// Shows what is known to lanes and people.
    fn show(&mut self, look: &Looked, pace: Pace, (permits, reserved): (u64, u64)) {
        let PermitGrant { held_by_others, members, registered_per_s, timeout_ms, processing_ms, .. } = self.grant;
        let troubles = [look.lag.as_ref().err(), look.waiting.as_ref().err()];
        let trouble = troubles.into_iter().flatten().next().cloned();
        if trouble != self.trouble {
            match &trouble {
                Some(reason) => {
                    tracing::warn!(route = &*self.route.name, "the route's offsets are not known: {reason}")
                }
                None => tracing::info!(route = &*self.route.name, "the route's offsets are known again"),
            }
            self.trouble.clone_from(&trouble);
        }
        let before = self.state.known();
        let waiting = match &look.waiting {
            Ok(waiting) => waiting.clone(),
            Err(_) => before.map(|known| known.waiting.clone()).unwrap_or_default(),
        };
        let known = RouteKnown {
            drain_per_s: pace.drain_per_s,
            lag: look.lag.as_ref().ok().copied().flatten().map(|lag| lag.undelivered()),
            waiting,
            queued_before: look.queued,
            registered_per_s,
            timeout_ms,
            processing_ms: processing_ms.unwrap_or(0),
            why: in_words(pace.why).map(str::to_owned),
        };
        self.state.learn(known.clone());
        self.cell.store(Some(Arc::new(RouteSeen {
            known,
            ceiling_per_s: self.ceiling(),
            permits,
            reserved,
            held_by_others,
            members,
            throttle: pace.why,
            trouble,
        })));
    }
}

/// Why a route takes less than its ceiling, for people.
const fn in_words(why: Throttle) -> Option<&'static str> {
    match why {
        Throttle::No => None,
        Throttle::Lag => Some("delivery takes no more"),
        Throttle::Stopped => Some("nothing is delivered: weir probes"),
        Throttle::Signal => Some("delivery reports that it is overloaded"),
        Throttle::LagUnknown => Some("the lag of the consumer group is not known"),
    }
}
