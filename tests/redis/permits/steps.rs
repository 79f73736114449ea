//! The script and the reference take turns alike: random turns of several instances, each repeated on the reference at the time
//! that the server's clock showed.

use std::time::Duration;

use fastrand::Rng;
use testkit::redis::{RedisCluster, RedisServer};
use weir_core::{
    pace::KeptRates,
    permits::{PermitBook, Registered, Registry},
    ports::{PermitGrant, PermitTurn, Permits},
    time::Time,
};
use weir_redis::Keyspace;

use super::permits;
use crate::redis_support::{opened, options};

const STEPS: usize = 3_000;
const INSTANCES: [&str; 5] = ["weir-0", "weir-1", "", "a:b\r\n c", "é\u{1}10:99"];
const LEASES: [Duration; 3] = [Duration::from_millis(5), Duration::from_millis(200), Duration::from_secs(10)];
const SERVICE: &str = "hedwig";

/// What was seen, to know that the steps reach everything.
#[derive(Debug, Default)]
struct Seen {
    all: u32,
    share: u32,
    none: u32,
    rated: u32,
    registered: u32,
    kept: u32,
}

fn draw(rng: &mut Rng) -> PermitTurn<'static> {
    let route = *rng.choice(&["email", "push"]).unwrap();
    PermitTurn {
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
        rates: KeptRates { drain_per_s: draw_rate(rng), best_per_s: draw_rate(rng) },
    }
}

fn draw_rate(rng: &mut Rng) -> Option<f64> {
    match rng.u8(..4) {
        0 => Some(rng.f64() / 500.0),
        1 => Some(rng.f64() * 5_000.0),
        _ => None,
    }
}

/// Registers an instance of the service, in Redis and for the reference.
fn register(server: &RedisServer, keyspace: &Keyspace, service: &mut (u64, [Option<Registered>; 3]), rng: &mut Rng) {
    if rng.u8(..4) == 0 {
        let took_us = if rng.bool() { rng.u64(..50_000) } else { 0 };
        server.query::<()>(&["HSET", &keyspace.service_key(SERVICE), ":took", &took_us.to_string()]).unwrap();
        service.0 = took_us;
        return;
    }
    let service = &mut service.1;
    let (seconds, _): (i64, i64) = server.query(&["TIME"]).unwrap();
    let ends_ms = seconds * 1_000 + rng.i64(-1_000..20_000);
    let registered = Registered {
        capacity_per_s: rng.u64(..10_000),
        timeout_ms: rng.u64(1..60_000),
        ends: Time::from_millis(ends_ms).unwrap(),
    };
    let place = rng.usize(..service.len());
    let value = format!("{}:5:{}:50:{ends_ms}", registered.capacity_per_s, registered.timeout_ms);
    server.query::<()>(&["HSET", &keyspace.service_key(SERVICE), &place.to_string(), &value]).unwrap();
    service[place] = Some(registered);
}

async fn run_on(server: &RedisServer, keyspace: &Keyspace, mut instances: Vec<Vec<impl Permits>>, seed: u64) -> Seen {
    let (mut rng, mut book, mut seen) = (Rng::with_seed(seed), PermitBook::default(), Seen::default());
    let (mut service, mut is_known) = ((0, [None; 3]), false);
    for number in 0..STEPS {
        if rng.u8(..50) == 0 {
            register(server, keyspace, &mut service, &mut rng);
        }
        if !is_known && number > STEPS / 4 {
            server.query::<()>(&["HSET", &keyspace.service_key(SERVICE), ":since", "1"]).unwrap();
            is_known = true;
        }
        let (place, lease, turn) = (rng.usize(..INSTANCES.len()), rng.usize(..LEASES.len()), draw(&mut rng));
        let grant = instances[place][lease].turn(&turn).await.unwrap();
        let key = keyspace.route_key(turn.route, turn.service);
        let field = format!("i{}", INSTANCES[place]);
        let member: String = server.query(&["HGET", &key, &field]).unwrap();
        let ends_ms: i64 = member.rsplit_once(':').unwrap().1.parse().unwrap();
        let now = Time::from_millis(ends_ms - i64::try_from(LEASES[lease].as_millis()).unwrap()).unwrap();
        let instances = service.1.iter().flatten().copied().collect();
        let mut registry = Registry { instances, is_known, took_us: service.0 };
        let expected = book.turn(INSTANCES[place], &turn, &mut registry, (now, LEASES[lease]));
        service.0 = registry.took_us;
        assert_eq!(grant, expected, "step {number}, {:?}: {turn:?}", INSTANCES[place]);
        seen.note(&turn, &grant);
    }
    seen
}

impl Seen {
    fn note(&mut self, turn: &PermitTurn<'_>, grant: &PermitGrant) {
        self.all += u32::from(grant.permits > 0 && grant.permits == turn.want);
        self.share += u32::from(grant.permits > 0 && grant.permits < turn.want && turn.rate.is_none());
        self.none += u32::from(grant.permits == 0 && turn.want > 0);
        self.rated += u32::from(grant.permits > 0 && turn.rate.is_some());
        self.registered += u32::from(grant.registered_per_s > Some(0) && grant.permits > 0);
        self.kept += u32::from(turn.rates == KeptRates::default() && grant.rates.best_per_s.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_turns_are_those_of_the_reference() {
    let server = crate::redis_support::server();
    let cluster = RedisCluster::start(3, 0).unwrap();
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    for urls in [vec![server.url()], cluster.nodes()] {
        let options = options(&urls);
        let opened = opened(&options).await.unwrap();
        let instance = |name| LEASES.map(|lease| permits(&options, &opened, name, lease)).into_iter().collect();
        let instances = INSTANCES.into_iter().map(instance).collect();
        // Both routes are looked at where they are: in a cluster, on the owner of each slot.
        let seen = if urls.len() == 1 {
            run_on(&server, &opened.keyspace, instances, seed).await
        } else {
            let slots = [("email", None), ("push", Some(SERVICE))];
            let slots = slots.map(|(route, service)| opened.keyspace.slot(opened.keyspace.route_shard(route, service)));
            let owner = cluster.owner_of(slots[0]).unwrap();
            if cluster.owner_of(slots[1]).unwrap() != owner {
                cluster.move_slots([slots[1]], cluster.owner_of(slots[1]).unwrap(), owner).unwrap();
            }
            run_on(cluster.node(owner), &opened.keyspace, instances, seed).await
        };
        eprintln!("{seen:?}");
        let Seen { all, share, none, rated, registered, kept } = seen;
        let fewest = [all, share, none, rated, registered, kept].into_iter().min();
        assert!(fewest >= Some(10), "the steps reach too little: {seen:?}");
    }
}
