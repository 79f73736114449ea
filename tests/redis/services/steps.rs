//! The scripts and the reference answer alike: random calls of several holders and instances, each repeated on the reference at the time
//! that the server's clock showed.

use fastrand::Rng;
use testkit::redis::{RedisCluster, RedisServer};
use weir_core::{
    ports::{Services as _, StoreError},
    service::{Book, End, Holder, LEASE_MS, Registration, ServiceName, ShareReply, ShareTurn, Use},
    time::Time,
};
use weir_redis::{Keyspace, RedisServices};

use super::{name, services};
use crate::redis_support::{opened, options, server};

/// Longer than a lease and the time until shares grow, so that both pass.
const RUN_FOR_MS: i64 = 14_000;
/// How long the steps may take to reach everything.
const REACH_WITHIN_MS: i64 = 100_000;
/// How often they must reach each.
const LEAST: u32 = 3;
const HOLDERS: [&str; 6] = ["a", "b", "c1", "0d", "e", "zz"];
const INSTANCES: [&str; 5] = ["i", "hedwig-0", "hedwig-1", "A.b_c", "9"];

/// What was seen, to know that the steps reach everything.
#[derive(Debug, Default)]
struct Seen {
    registered: u32,
    removed: u32,
    granted: u32,
    denied: u32,
    starting: u32,
    started: u32,
    stale: u32,
    silent: u32,
    unregistered: u32,
    ends: u32,
    took: u32,
}

/// What a holder keeps between turns.
#[derive(Debug, Clone, Default)]
struct Kept {
    number: u64,
    last: ShareReply,
}

struct Run<'r> {
    server: &'r RedisServer,
    registry: String,
    service: ServiceName,
    rng: Rng,
    book: Book,
    seen: Seen,
    kept: [Kept; HOLDERS.len()],
}

impl Run<'_> {
    fn clock(&self) -> i64 {
        let (seconds, micros): (i64, i64) = self.server.query(&["TIME"]).unwrap();
        seconds * 1_000 + micros / 1_000
    }

    /// The same call on the reference, at the moments at which the server may have made it.
    #[track_caller]
    fn repeat<T: PartialEq + std::fmt::Debug>(
        &mut self,
        moments: impl Iterator<Item = i64>,
        reply: &T,
        call: impl Fn(&mut Book, Time) -> T,
    ) {
        let mut expected = None;
        for moment in moments {
            let mut book = self.book.clone();
            let found = call(&mut book, Time::from_millis(moment).unwrap());
            if found == *reply {
                self.book = book;
                return;
            }
            expected = Some(found);
        }
        panic!("the server's reply {reply:?} is not {expected:?}");
    }

    /// The moment of a call that wrote an end so far ahead into a field.
    fn moment(&self, key: &str, field: &str, ahead_ms: i64) -> i64 {
        let text: String = self.server.query(&["HGET", key, field]).unwrap();
        text.rsplit(':').next().unwrap().parse::<i64>().unwrap() - ahead_ms
    }

    async fn register(&mut self, services: &mut RedisServices) {
        let instance = name(INSTANCES[self.rng.usize(..INSTANCES.len())]);
        let registration = Registration {
            capacity_per_s: self.rng.u64(1..200),
            concurrency: self.rng.u64(1..40),
            timeout_ms: *self.rng.choice(&[5, 500, 3_000]).unwrap(),
            network_ms: self.rng.u64(..100),
            interval_ms: *self.rng.choice(&[5, 100, 3_000]).unwrap(),
        };
        let registered = services.register(&self.service, &instance, &registration).await.unwrap();
        let moment = self.moment(&self.registry, instance.as_str(), 3 * registration.interval_ms as i64);
        self.repeat([moment].into_iter(), &registered, |book, now| book.register(&instance, &registration, now));
        self.seen.registered += 1;
    }

    async fn deregister(&mut self, services: &mut RedisServices) {
        let instance = name(INSTANCES[self.rng.usize(..INSTANCES.len())]);
        let began = self.clock();
        let removed = services.deregister(&self.service, &instance).await.unwrap();
        self.repeat(began..=self.clock(), &removed, |book, now| book.deregister(&instance, now));
        self.seen.removed += u32::from(removed);
    }

    async fn look(&mut self, services: &mut RedisServices) {
        let began = self.clock();
        let seen = services.look(&self.service).await.unwrap();
        self.repeat(began..=self.clock(), &seen, |book, now| book.look(now));
        self.seen.unregistered += u32::from(seen.is_none());
    }

    fn draw(&mut self, place: usize) -> ShareTurn {
        let Kept { number, last } = self.kept[place].clone();
        let rng = &mut self.rng;
        let held = |rng: &mut Rng, given: u64| if rng.u8(..30) == 0 { rng.u64(..300) } else { rng.u64(..=given) };
        let ends = (0..rng.usize(..4)).map(|_| {
            let took_ms = rng.bool().then(|| rng.u64(..5_000));
            (Holder::from(*rng.choice(&HOLDERS).unwrap()), End { number: rng.u64(..), took_ms })
        });
        let ends = ends.collect();
        let number =
            if rng.u8(..15) == 0 { number.saturating_sub(rng.u64(..3)).max(1) } else { number + rng.u64(1..3) };
        ShareTurn {
            number,
            rate: Use { held: held(rng, last.per_s), wanted: rng.u64(..150) },
            concurrency: Use { held: held(rng, last.concurrency), wanted: rng.u64(..30) },
            took: if rng.bool() { (0, 0) } else { (rng.u64(1..50), rng.u64(..100_000)) },
            taken_bytes: if rng.u8(..5) == 0 { rng.u64(..40) } else { last.ends.len() as u64 },
            ends,
        }
    }

    async fn turn(&mut self, services: &mut RedisServices, place: usize) {
        let (turn, holder, began) = (self.draw(place), Holder::from(HOLDERS[place]), self.clock());
        match services.share(&self.service, &turn).await {
            Ok(reply) => {
                let moment = self.moment(&format!("{}:members", self.registry), HOLDERS[place], LEASE_MS);
                let some = Some(reply.clone());
                self.repeat([moment].into_iter(), &some, |book, now| book.turn(&holder, &turn, now));
                self.seen.note(&reply);
                // Now and then the reply is lost.
                if self.rng.u8(..10) > 0 {
                    self.kept[place] = Kept { number: turn.number, last: reply };
                }
            }
            Err(StoreError::Temporary(why)) if why.contains("a later turn") => {
                self.repeat(began..=self.clock(), &None, |book, now| book.turn(&holder, &turn, now));
                self.kept[place].number = self.kept[place].number.max(turn.number);
                self.seen.stale += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl Seen {
    fn least(&self) -> u32 {
        let Self { registered, removed, granted, denied, starting, started, stale, silent, unregistered, ends, took } =
            *self;
        let all = [registered, removed, granted, denied, starting, started, stale, silent, unregistered, ends, took];
        all.into_iter().min().unwrap_or(0)
    }

    fn note(&mut self, reply: &ShareReply) {
        self.granted += u32::from(reply.per_s > 0 && reply.concurrency > 0);
        self.denied += u32::from(reply.per_s == 0 && reply.total.per_s > 0);
        self.starting += u32::from(reply.starts_in_ms > 0);
        self.started += u32::from(reply.starts_in_ms == 0 && reply.per_s > 0);
        self.ends += u32::from(!reply.ends.is_empty());
        self.took += u32::from(reply.processing_us > 0);
        self.silent += u32::from(reply.members == 1);
    }
}

async fn run(server: &RedisServer, keyspace: &Keyspace, mut all: [RedisServices; HOLDERS.len()], seed: u64) -> Seen {
    let service = name("email");
    let registry = keyspace.service_key(service.as_str());
    let (rng, book, seen) = (Rng::with_seed(seed), Book::default(), Seen::default());
    let mut run = Run { server, registry, service, rng, book, seen, kept: Default::default() };
    let began = run.clock();
    let has_time = |run: &Run<'_>| match run.clock() - began {
        ..RUN_FOR_MS => true,
        // A slow machine needs longer.
        passed => passed < REACH_WITHIN_MS && run.seen.least() < LEAST,
    };
    while has_time(&run) {
        // Some holders are silent for longer than their lease.
        let phase = usize::try_from((run.clock() - began) / 3_500).unwrap();
        let place = (phase + run.rng.usize(..1 + phase % 3)) % HOLDERS.len();
        let services = &mut all[place];
        match run.rng.u8(..20) {
            0..3 => run.register(services).await,
            3..5 => run.deregister(services).await,
            5 => run.look(services).await,
            6..9 => tokio::time::sleep(std::time::Duration::from_millis(run.rng.u64(..8))).await,
            _ => run.turn(services, place).await,
        }
    }
    run.seen
}

#[tokio::test(flavor = "multi_thread")]
async fn random_calls_are_those_of_the_reference() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let (one, cluster) = (server(), RedisCluster::start(3, 0).unwrap());
    let on_one = async {
        let options = options(&[one.url()]);
        let opened = opened(&options).await.unwrap();
        run(&one, &opened.keyspace, HOLDERS.map(|holder| services(&options, &opened, holder)), seed).await
    };
    let on_cluster = async {
        let options = options(&cluster.nodes());
        let opened = opened(&options).await.unwrap();
        let slot = opened.keyspace.slot(opened.keyspace.service_shard("email"));
        let owner = cluster.node(cluster.owner_of(slot).unwrap());
        run(owner, &opened.keyspace, HOLDERS.map(|holder| services(&options, &opened, holder)), seed).await
    };
    let (on_one, on_cluster) = tokio::join!(on_one, on_cluster);
    for seen in [on_one, on_cluster] {
        eprintln!("{seen:?}");
        assert!(seen.least() >= LEAST, "the steps reach too little: {seen:?}");
    }
}
