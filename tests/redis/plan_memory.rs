//! `weir plan` estimates the memory that a real Redis takes, filled through the worker's own store.

use std::time::Duration;

use crate::redis_support::{DAY_MS, at, cap, opened, server, store};
use testkit::redis::RedisServer;
use weir::cli::plan::measured;
use weir_core::{
    basis::shard::UserHash,
    history::admit::{AdmitBatch, AdmitRequest},
    intent::class::ClassNames,
};
use weir_redis::{RedisOptions, RedisStore, Tuning};

/// Users of a fill: enough for what a server needs by itself not to show.
const USERS: u32 = 20_000;
/// Sends a batch.
const BATCH: usize = 5000;
/// How far the plan may be off. A server alone has no table of slots, which the measured cluster has.
const TOLERANCE: f64 = 0.15;

fn used_memory(redis: &RedisServer) -> f64 {
    redis.figure("memory", "used_memory").unwrap() as f64
}

async fn fill(store: &mut RedisStore, sends: u32) {
    let caps = [cap(1000, DAY_MS), cap(1000, 7 * DAY_MS)];
    let users: Vec<u32> = (0..USERS).collect();
    for number in 0..sends {
        for some in users.chunks(BATCH) {
            let request = |user: &u32| AdmitRequest {
                user: UserHash::of(&user.to_string()),
                class: ClassNames { channel: Some("push"), category: Some("promo"), campaign: Some("spring") },
                ..crate::redis_support::request("", user * 100 + number)
            };
            let requests = some.iter().map(request).collect();
            let batch = AdmitBatch { now: at(3_600_000 * i64::from(number)), cap_sets: vec![caps.to_vec()], requests };
            let answers = crate::redis_support::admit_all(store, &batch).await;
            assert_eq!(crate::redis_support::sent(&answers), some.len());
        }
    }
}

/// Bytes of `used_memory` that a user of so many sends takes.
async fn taken(sends: u32) -> f64 {
    let redis = server();
    let mut options = RedisOptions::for_urls(&[redis.url()]).unwrap();
    // The shape of a large keyspace: 24 users a key, and names as long as they are there.
    (options.users, options.shards, options.tuning) = (u64::from(USERS), 64, Tuning::Set);
    let keyspace = opened(&options).await.unwrap();
    let empty = used_memory(&redis);
    let mut store: RedisStore = store(&options, &keyspace);
    fill(&mut store, sends).await;
    drop(store);
    // Its connection's buffers go with it.
    testkit::wait_until(Duration::from_secs(10), "only this question is connected", || {
        redis.figure("clients", "connected_clients").unwrap() == 1
    });
    (used_memory(&redis) - empty) / f64::from(USERS)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_redis_takes_what_the_plan_says() {
    let measured = measured().unwrap();
    let mut wrong = Vec::new();
    // Measured are others: these lie between them, but for the first.
    for sends in [2, 5, 10, 18] {
        let (planned, taken) = (measured.user_bytes.at(f64::from(sends)), taken(sends).await);
        if (planned / taken - 1.0).abs() > TOLERANCE {
            wrong.push(format!("{sends} sends: planned {planned:.0} B a user, taken {taken:.0} B"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
