//! Permits of routes: `lua/permit.lua`.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use weir_core::{
    limit::share::TurnNumber,
    pace::KeptRates,
    permits::{PermitBook, Registered, Registry},
    ports::{PermitGrant, PermitTurn, Permits, StoreError},
    time::Time,
};
use weir_redis::RedisPermits;

use super::{Place, Reached, Scripted, next_turn, two::Shared, unless_overtaken};
use crate::permits::{permits, turn};

const INSTANCES: [&str; 5] = ["weir-0", "weir-1", "", "a:b\r\n c", "é\u{1}10:99"];
const LEASES: [Duration; 3] = [Duration::from_millis(5), Duration::from_millis(200), Duration::from_secs(10)];
const SERVICE: &str = "hedwig";

#[derive(Debug)]
pub(super) struct Turn {
    turn: PermitTurn<'static>,
    lease: usize,
}

pub(super) struct Routes {
    place: Arc<Place>,
    /// Of each instance, by its lease.
    permits: [[RedisPermits; LEASES.len()]; INSTANCES.len()],
    book: PermitBook,
    /// The last turn of each instance.
    last: [TurnNumber; INSTANCES.len()],
    /// The instances of the service.
    service: [Option<Registered>; 3],
    registry: Registry,
}

impl Routes {
    /// What is registered of the service changes, on the server and for the reference.
    fn register(&mut self, rng: &mut Rng) {
        let (field, value) = match rng.u8(..8) {
            0 => {
                self.registry.is_known = true;
                (":since".to_owned(), "1".to_owned())
            }
            1..3 => {
                self.registry.took_us = if rng.bool() { rng.u64(..50_000) } else { 0 };
                (":took".to_owned(), self.registry.took_us.to_string())
            }
            _ => {
                let (capacity_per_s, timeout_ms) = (rng.u64(..10_000), rng.u64(1..60_000));
                let ends = self.place.clock().plus(rng.i64(-1_000..20_000));
                let number = rng.usize(..self.service.len());
                self.service[number] = Some(Registered { capacity_per_s, timeout_ms, ends });
                self.registry.instances = self.service.iter().flatten().copied().collect();
                (number.to_string(), format!("{capacity_per_s}:5:{timeout_ms}:50:{}", ends.millis()))
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
        let of_lease = |name| LEASES.map(|lease| permits(&place.options, &place.opened, name, lease));
        let permits = INSTANCES.map(of_lease);
        let (book, last, service, registry) = Default::default();
        Self { place, permits, book, last, service, registry }
    }

    fn draw(&mut self, rng: &mut Rng, member: usize) -> Vec<Turn> {
        if rng.u8(..50) == 0 {
            self.register(rng);
        }
        let route = *rng.choice(&["email", "push"]).unwrap();
        let turn = PermitTurn {
            number: next_turn(rng, &mut self.last[member]),
            route,
            service: (route == "push").then_some(SERVICE),
            room: (rng.u8(..10) > 0).then(|| rng.u64(..2_000)),
            want: rng.u64(..2_000),
            unused: if rng.u8(..4) > 0 { 0 } else { rng.u64(..50) },
            recent: rng.u64(..200),
            rate: rng.bool().then(|| rng.u64(1..1_000_000)),
            slow: f64::from(rng.u32(1..=1_000)) / 1_000.0,
            took: if rng.bool() { (rng.u64(1..50), rng.u64(..100_000)) } else { (0, 0) },
            delivery: if rng.u8(..100) == 0 { rng.u64(..) } else { 7 },
            rates: KeptRates { drain_per_s: rate(rng), best_per_s: rate(rng) },
        };
        vec![Turn { turn, lease: rng.usize(..LEASES.len()) }]
    }

    async fn on_server(&mut self, member: usize, steps: &[Turn]) -> Result<Vec<(Self::Reply, Time)>, StoreError> {
        // One whose record a later turn has written counts still, so it counted before.
        let (Turn { turn, lease }, began) = (&steps[0], self.place.clock());
        let grant = unless_overtaken(self.permits[member][*lease].turn(turn).await)?;
        let now = if grant.is_some() { self.taken_at(member, &steps[0]) } else { began };
        Ok(vec![(grant, now)])
    }

    fn on_reference(&mut self, member: usize, Turn { turn, lease }: &Turn, now: Time) -> Self::Reply {
        self.book.turn(INSTANCES[member], turn, &mut self.registry, (now, LEASES[*lease]))
    }

    fn note(&mut self, _: usize, Turn { turn, .. }: &Turn, grant: &Self::Reply, _: bool) -> Reached {
        let Some(grant) = grant else { return vec![("stale", true)] };
        vec![
            ("stale", false),
            ("all", grant.permits > 0 && grant.permits == turn.want),
            ("share", grant.permits > 0 && grant.permits < turn.want && turn.rate.is_none()),
            ("none", grant.permits == 0 && turn.want > 0),
            ("rated", grant.permits > 0 && turn.rate.is_some()),
            ("registered", grant.registered_per_s > Some(0) && grant.permits > 0),
            ("kept", turn.rates == KeptRates::default() && grant.rates.best_per_s.is_some()),
            ("times", self.registry.is_known && turn.service.is_some() && turn.took.0 > 0),
        ]
    }

    fn records(&self) -> Vec<(u16, String)> {
        let keyspace = &self.place.opened.keyspace;
        let slot = |route, service| keyspace.slot(keyspace.route_shard(route, service));
        vec![
            (slot("email", None), keyspace.route_key("email", None)),
            (slot("push", Some(SERVICE)), keyspace.route_key("push", Some(SERVICE))),
            (slot("push", Some(SERVICE)), keyspace.service_key(SERVICE)),
        ]
    }

    fn forget(&mut self) {
        (self.book, self.service, self.registry) = Default::default();
    }
}

impl Shared for Routes {
    const ALL: u64 = 100;
    const READS: usize = 1;

    fn want_all(&mut self, member: usize) -> Turn {
        self.last[member].number += 1;
        let turn = PermitTurn { number: self.last[member], ..turn(Self::ALL, 1_000) };
        Turn { turn, lease: 2 }
    }

    fn held(grant: &Self::Reply) -> u64 {
        grant.map_or(0, |grant| grant.permits)
    }

    fn taken_at(&self, member: usize, Turn { turn, lease }: &Turn) -> Time {
        let key = self.place.opened.keyspace.route_key(turn.route, turn.service);
        let lease_ms = i64::try_from(LEASES[*lease].as_millis()).unwrap();
        self.place.turned_at(&key, &format!("i{}", INSTANCES[member]), lease_ms)
    }
}
