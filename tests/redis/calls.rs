//! What a decision costs Redis in calls does not grow by itself: `benches/redis-calls.json` says what it was.
//!
//! Calls do not depend on the machine or its load. A change that needs more of them, or fewer, changes the file with it:
//! `UPDATE=1 cargo xtask test -- --test redis calls`.

use std::{collections::BTreeMap, path::Path};

use crate::redis_support::{self, DAY_MS, admit_all, at, batch, cap, fresh_store, own, server};
use testkit::redis::RedisServer;
use weir_core::{history::admit::AdmitRequest, intent::class::ClassNames};
use weir_redis::RedisOptions;

const USERS: u32 = 6_000;
const DECISIONS: u32 = 30_000;
const BATCH: u32 = 2_000;
/// A batch is a fifth of the usual one, so shards are, too.
const SHARDS: u16 = 26;
/// What the figures may grow or fall by.
const TOLERANCE: f64 = 0.05;

/// Commands that scripts call, and the script calls themselves.
const COUNTED: [&str; 5] = ["evalsha", "get", "hmget", "hset", "pexpire"];

fn calls(server: &RedisServer) -> BTreeMap<String, f64> {
    let calls = server.calls().unwrap();
    COUNTED.iter().map(|name| ((*name).to_owned(), calls.get(*name).map_or(0.0, |count| *count as f64))).collect()
}

fn request(number: u32, user: u32) -> AdmitRequest<'static> {
    let class = ClassNames { channel: Some("push"), category: Some("promo"), campaign: None };
    AdmitRequest { class, ..redis_support::request(&user.to_string(), number) }
}

/// Calls a decision for users that are picked in this order.
async fn measure(mut user: impl FnMut(u32) -> u32) -> BTreeMap<String, f64> {
    let server = server();
    let options = RedisOptions { shards: SHARDS, users: USERS.into(), ..own(&server) };
    let mut store = fresh_store(&options).await;
    let before = calls(&server);
    for first in (0..DECISIONS).step_by(BATCH as usize) {
        let requests = (first..first + BATCH).map(|number| request(number, user(number))).collect();
        admit_all(&mut store, &batch(at(first.into()), &[cap(4, DAY_MS), cap(12, 7 * DAY_MS)], requests)).await;
    }
    let each = |(name, count): (String, f64)| {
        let spent = (count - before[&name]) / f64::from(DECISIONS);
        (name, (spent * 10_000.0).round() / 10_000.0)
    };
    calls(&server).into_iter().map(each).collect()
}

#[tokio::test]
async fn redis_calls_a_decision_stay_what_they_were() {
    let mut random = fastrand::Rng::with_seed(1);
    let found = BTreeMap::from([
        ("in no order", measure(|_| random.u32(..USERS)).await),
        ("in the order of ids", measure(|number| number % USERS).await),
    ]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/redis-calls.json");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
    }
    let known: BTreeMap<String, BTreeMap<String, f64>> =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    for (order, found) in found {
        for (name, found) in found {
            let known = known[order][&name];
            let near = (found - known).abs() <= known * TOLERANCE;
            assert!(near, "{name} a decision, users {order}: {found}, it was {known}. If that is meant, UPDATE=1");
        }
    }
}
