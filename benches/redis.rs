//! The store beside the published way, on one Redis of its own: `cargo bench --bench redis` (`-- COUNT` for another number of
//! decisions; the last one given counts).
//!
//! CPU of the server and redis.calls per decision, what asking costs the worker, and bytes per user.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot be set up should say so and end; it prints figures"
)]

#[path = "system/keyspace.rs"]
mod keyspace;

use std::{collections::HashSet, fs};

use testkit::redis::{LONGEST_REPLY, RedisServer, connect};
use weir_core::{
    basis::{
        shard::{IdHash, OriginMark},
        time::Time,
    },
    history::admit::AdmitRequest,
};

use crate::keyspace::{Opened, START_MS, request, sliding};

const DECISIONS: u32 = 300_000;
/// Intents per user, in the mean: with the caps below a quarter is suppressed.
const INTENTS_A_USER: u32 = 5;
const BATCH: usize = 10_000;
/// Calls of the published way that are sent together.
const PIPELINE: usize = 200;
/// Caps in 24 hours and in 7 days, by the user's number modulo 4.
const CAPS: [(u32, u32); 4] = [(3, 10), (4, 12), (5, 14), (6, 16)];
const DAY_MS: i64 = 86_400_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let decisions = std::env::args().rev().find_map(|arg| arg.parse().ok()).unwrap_or(DECISIONS);
    let users = decisions / INTENTS_A_USER;
    let mut random = fastrand::Rng::with_seed(1);
    let any: Vec<u32> = (0..decisions).map(|_| random.u32(..users)).collect();
    let ordered: Vec<u32> = (0..decisions).map(|number| number % users).collect();
    println!("{decisions} decisions, {users} users, batches of {BATCH}");
    let baseline = Spent::of("a ZSET per user, in no order", &any, published_way);
    for shards in [1024, 256, 128, 64] {
        for (order, picked) in [("in no order", &any), ("in the order of ids", &ordered)] {
            let name = format!("weir, {shards} shards, {order}");
            let spent = Spent::of(&name, picked, |server, picked| runtime.block_on(weir(server, picked, shards)));
            println!("    {:.2} of its CPU, {:.2} of its bytes", spent.0 / baseline.0, spent.1 / baseline.1);
        }
    }
}

fn server() -> RedisServer {
    RedisServer::start(&["--hash-max-listpack-value", "1024"]).unwrap()
}

/// CPU in microseconds per decision, and bytes per user.
struct Spent(f64, f64);

impl Spent {
    /// `decide` says what CPU it took to ask, in microseconds.
    fn of(name: &str, picked: &[u32], decide: impl FnOnce(&RedisServer, &[u32]) -> f64) -> Self {
        let server = server();
        let before = figures(&server);
        let worker_us = decide(&server, picked);
        let after = figures(&server);
        let users = picked.iter().collect::<HashSet<_>>().len() as f64;
        let decided = picked.len() as f64;
        let spent = Self((after.cpu_us - before.cpu_us) / decided, (after.bytes - before.bytes) / users);
        let (calls, scripts) = (after.calls - before.calls, after.scripts - before.scripts);
        println!(
            "{name}: {:.2} us of Redis CPU, {:.2} of the worker's, {:.3} script calls, {:.3} redis.calls per decision; {:.0} bytes per user",
            spent.0,
            worker_us / decided,
            scripts / decided,
            calls / decided,
            spent.1
        );
        spent
    }
}

/// CPU time of this thread so far, in microseconds.
fn own_cpu_us() -> f64 {
    let times = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e3
}

struct Figures {
    cpu_us: f64,
    bytes: f64,
    calls: f64,
    scripts: f64,
}

fn figures(server: &RedisServer) -> Figures {
    let info: String = server.query(&["INFO", "everything"]).unwrap();
    let number = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0.0, |line| line.split([',', '\r']).next().unwrap().trim().parse().unwrap())
    };
    let called = ["get", "hmget", "hset", "pexpire", "zadd", "zcount", "zremrangebyscore"];
    Figures {
        cpu_us: (number("used_cpu_user:") + number("used_cpu_sys:")) * 1e6,
        bytes: number("used_memory:"),
        calls: called.iter().map(|name| number(&format!("cmdstat_{name}:calls="))).sum(),
        scripts: number("cmdstat_evalsha:calls="),
    }
}

/// The published way, pipelined.
fn published_way(server: &RedisServer, picked: &[u32]) -> f64 {
    let mut connection = connect(LONGEST_REPLY, &redis::Client::open(server.url()).unwrap()).unwrap();
    let load = |connection: &mut redis::Connection| {
        redis::cmd("SCRIPT").arg("LOAD").arg(include_str!("zset_baseline.lua")).query::<String>(connection)
    };
    let sha = load(&mut connection).unwrap();
    let before = own_cpu_us();
    for (some, first) in picked.chunks(PIPELINE).zip((0..).step_by(PIPELINE)) {
        let mut pipeline = redis::Pipeline::with_capacity(PIPELINE);
        for (&user, number) in some.iter().zip(first..) {
            let (daily, weekly) = CAPS[user as usize % CAPS.len()];
            let now = START_MS + i64::try_from(number / BATCH).unwrap();
            pipeline.cmd("EVALSHA").arg(&sha).arg(1).arg(format!("z:{user}")).arg(now).arg(uuid(number));
            pipeline.arg(DAY_MS).arg(daily).arg(7 * DAY_MS).arg(weekly);
        }
        pipeline.exec(&mut connection).unwrap();
    }
    own_cpu_us() - before
}

fn uuid(number: usize) -> String {
    format!("0195c0de-0000-7000-8000-{number:012}")
}

async fn weir(server: &RedisServer, picked: &[u32], shards: u16) -> f64 {
    let users = picked.iter().max().map_or(1, |most| u64::from(*most) + 1);
    let began = Time::default().plus(START_MS);
    let mut store = Opened::new(&[server.url()], "weir", (users, shards), began).await.unwrap();
    let sets = CAPS.map(|(daily, weekly)| vec![sliding(daily, DAY_MS), sliding(weekly, 7 * DAY_MS)]);
    let batch = |(some, first): (&[u32], usize)| -> Vec<AdmitRequest<'static>> {
        let send = |(&user, number): (&u32, usize)| AdmitRequest {
            id: IdHash::of(&uuid(number)),
            origin: OriginMark(u32::try_from(number).unwrap()),
            cap_set: user as usize % CAPS.len(),
            ..request(user, 0, "push")
        };
        some.iter().zip(first..).map(send).collect()
    };
    let batches: Vec<_> = picked.chunks(BATCH).zip((0..).step_by(BATCH)).map(batch).collect();
    let before = own_cpu_us();
    for (requests, now) in batches.into_iter().zip(0..) {
        store.decide(now, &sets, requests).await.unwrap();
    }
    own_cpu_us() - before
}
