//! Permits of routes: `lua/permit.lua`.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use weir_core::{
    basis::time::Time,
    limit::{
        route::{
            pace::KeptRates,
            permits::{PermitGrant, PermitTurn, RegisteredInstance, RouteBook, RouteKey, RoutePermits},
        },
        share::{Reference as _, TurnNumber},
    },
    ports::{Share as _, StoreError},
};
use weir_redis::RedisShare;

use super::{INSTANCES, Place, Reached, Scripted, next_turn, two::Shared, unless_overtaken};
use crate::permits::{permits, route, turn};

const LEASES: [Duration; 3] = [Duration::from_millis(5), Duration::from_millis(200), Duration::from_secs(10)];
const SERVICE: &str = "hedwig";
/// Permits per second: so few that hardly any come in while a test runs.
pub(super) const RATE: u64 = 10;

#[derive(Debug)]
pub(super) struct Turn {
    /// Whether it is at the route that has the service.
    of_service: bool,
    number: TurnNumber,
    turn: PermitTurn,
}

pub(super) struct Routes {
    place: Arc<Place>,
    permits: [RedisShare<RoutePermits>; INSTANCES.len()],
    /// Of the route without a service, and of the other one.
    books: [RouteBook; 2],
    last: [TurnNumber; INSTANCES.len()],
}

fn key(of_service: bool) -> RouteKey {
    if of_service { route("push", Some(SERVICE)) } else { route("email", None) }
}

fn books() -> [RouteBook; 2] {
    [false, true].map(|of_service| RouteBook::new(&key(of_service)))
}

impl Routes {
    /// A turn of a member at [`RATE`].
    pub(super) fn at_a_rate(&mut self, member: usize, want: u64, unused: u64) -> Turn {
        let Turn { of_service, number, turn } = self.want_all(member);
        Turn { of_service, number, turn: PermitTurn { want, unused, rate: Some(RATE), ..turn } }
    }

    /// What is registered of the service changes, on the server and for the reference.
    fn register(&mut self, rng: &mut Rng) {
        let registry = self.books[1].service.get_or_insert_default();
        let (field, value) = match rng.u8(..8) {
            0 => {
                registry.since = Some(Time::default());
                (":since".to_owned(), "1".to_owned())
            }
            1..3 => {
                registry.took_us = if rng.bool() { rng.u64(..50_000) } else { 0 };
                (":took".to_owned(), registry.took_us.to_string())
            }
            _ => {
                let (capacity_per_s, timeout_ms) = (rng.u64(..10_000), rng.u64(1..60_000));
                let (concurrency, network_ms) = (5, 50);
                let ends = self.place.clock().plus(rng.i64(-1_000..20_000));
                let one = RegisteredInstance { capacity_per_s, concurrency, timeout_ms, network_ms, ends };
                let name = rng.u8(..3).to_string();
                registry.instances.insert(name.clone(), one);
                let numbers = format!("{capacity_per_s}:{concurrency}:{timeout_ms}:{network_ms}");
                (name, format!("{numbers}:{}", ends.millis()))
            }
        };
        let key = self.place.opened.keyspace.service_key(SERVICE);
        self.place.query::<()>(&["HSET", &key, &field, &value]);
    }
}

fn rate(rng: &mut Rng) -> Option<f64> {
    match rng.u8(..4) {
        0 => Some(rng.f64() / 500.0),
        1 => Some(rng.f64() * 5_000.0),
        _ => None,
    }
}

impl Scripted for Routes {
    type Step = Turn;
    /// `None`: a later turn was before it.
    type Reply = Option<PermitGrant>;
    const MEMBERS: usize = INSTANCES.len();

    async fn new(place: Arc<Place>) -> Self {
        let permits = INSTANCES.map(|name| permits(&place.options, &place.opened, name));
        Self { place, permits, books: books(), last: Default::default() }
    }

    fn draw(&mut self, rng: &mut Rng, member: usize) -> Vec<Turn> {
        if rng.u8(..50) == 0 {
            self.register(rng);
        }
        let (of_service, number) = (rng.bool(), next_turn(rng, &mut self.last[member]));
        let turn = PermitTurn {
            lease: *rng.choice(&LEASES).unwrap(),
            room: (rng.u8(..10) > 0).then(|| rng.u64(..2_000)),
            want: rng.u64(..2_000),
            unused: if rng.u8(..4) > 0 { 0 } else { rng.u64(..50) },
            recent: rng.u64(..200),
            rate: rng.bool().then(|| rng.u64(1..1_000_000)),
            slow: rng.u64(1..=1_000),
            took: if rng.bool() { (rng.u64(1..50), rng.u64(..100_000)) } else { (0, 0) },
            delivery: if rng.u8(..100) == 0 { rng.u64(..) } else { 7 },
            rates: KeptRates { drain_per_s: rate(rng), best_per_s: rate(rng) },
        };
        vec![Turn { of_service, number, turn }]
    }

    async fn on_server(&mut self, member: usize, steps: &[Turn]) -> Result<Vec<(Self::Reply, Time)>, StoreError> {
        // One whose record a later turn has written counts still, so it counted before.
        let (Turn { of_service, number, turn }, began) = (&steps[0], self.place.clock());
        let grant = unless_overtaken(self.permits[member].turn(&key(*of_service), *number, turn).await)?;
        let now = if grant.is_some() { self.taken_at(member, &steps[0]) } else { began };
        Ok(vec![(grant, now)])
    }

    fn on_reference(&mut self, member: usize, step: &Turn, now: Time) -> Self::Reply {
        self.books[usize::from(step.of_service)].turn(INSTANCES[member], step.number, &step.turn, now)
    }

    fn note(&mut self, _: usize, Turn { of_service, turn, .. }: &Turn, grant: &Self::Reply, _: bool) -> Reached {
        let Some(grant) = grant else { return vec![("stale", true)] };
        vec![
            ("stale", false),
            ("all", grant.permits > 0 && grant.permits == turn.want),
            ("share", grant.permits > 0 && grant.permits < turn.want && turn.rate.is_none()),
            ("none", grant.permits == 0 && turn.want > 0),
            ("rated", grant.permits > 0 && turn.rate.is_some()),
            ("registered", grant.registered_per_s > Some(0) && grant.permits > 0),
            ("kept", turn.rates == KeptRates::default() && grant.rates.best_per_s.is_some()),
            ("times", *of_service && grant.processing_ms.is_some() && turn.took.0 > 0),
        ]
    }

    fn records(&self) -> Vec<(u16, String)> {
        // Those of a route without a service, and of the other one: the route and the registry.
        let keys = [false, true].map(|service| self.place.opened.keyspace.place_of::<RoutePermits>(&key(service)));
        keys.into_iter().flat_map(|(slot, keys)| keys.into_iter().map(move |key| (slot, key))).collect()
    }

    fn forget(&mut self) {
        self.books = books();
    }
}

impl Shared for Routes {
    const ALL: u64 = 100;
    const READS: usize = 1;

    fn want_all(&mut self, member: usize) -> Turn {
        self.last[member].number += 1;
        let turn = PermitTurn { lease: LEASES[2], ..turn(Self::ALL, 1_000) };
        Turn { of_service: false, number: self.last[member], turn }
    }

    fn held(grant: &Self::Reply) -> u64 {
        grant.map_or(0, |grant| grant.permits)
    }

    fn taken_at(&self, member: usize, Turn { of_service, turn, .. }: &Turn) -> Time {
        let (_, keys) = self.place.opened.keyspace.place_of::<RoutePermits>(&key(*of_service));
        let lease_ms = i64::try_from(turn.lease.as_millis()).unwrap();
        self.place.turned_at(&keys[0], &format!("i{}", INSTANCES[member]), lease_ms)
    }
}
