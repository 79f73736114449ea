//! Redis is called as often at 50,000 users a second as at 1,000.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use testkit::redis::RedisServer;
use tokio_util::sync::CancellationToken;
use weir::metrics::Metrics;
use weir_core::{
    basis::{current::Current, document::Format, shard::UserHash},
    limit::pressure::{Pressure, activity::Minute},
    policy::file::parse_policy,
    ports::Clock as _,
};
use weir_worker::{clock::SystemClock, pressure::PressureKeeper};

use super::log;
use crate::redis_support::own_keyspace;

const POLICY: &str = "version = \"1\"\n[default]\ncaps = \"unlimited\"\n[pressure]\nmax_active_users = 1_000_000\n";
const SECONDS: u32 = 5;

fn calls(server: &RedisServer) -> u64 {
    server.calls().unwrap().get("evalsha").copied().unwrap_or(0)
}

/// Users become active at this rate; gives the calls meanwhile, and how many whole seconds that took.
async fn measured(server: &RedisServer, pressure: &Pressure, users: std::ops::Range<u64>) -> (u64, u64) {
    let (before, began) = (calls(server), Instant::now());
    let a_second = (users.end - users.start) / u64::from(SECONDS);
    for second in 0..SECONDS {
        for tenth in 0..10 {
            let from = users.start + a_second * u64::from(second) + a_second / 10 * tenth;
            let minute = Minute::from(SystemClock.now());
            pressure.note(
                (from..from + a_second / 10).map(|user| UserHash::of(&user.to_string()).into()),
                minute,
                minute,
            );
            let next = began + Duration::from_millis(1_000 * u64::from(second) + 100 * (tenth + 1));
            tokio::time::sleep_until(next.into()).await;
        }
    }
    (calls(server) - before, began.elapsed().as_secs())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_users_a_second_take_as_many_calls_as_a_thousand() {
    for (calls, seconds) in calls_under_load().await {
        // One per second, and one more where the seconds do not begin together; fewer where the machine is slow.
        assert!((1..=seconds + 1).contains(&calls), "{calls} calls in {seconds} s");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
async fn a_call_is_made_each_second_or_two_under_either_load() {
    for (calls, seconds) in calls_under_load().await {
        assert!((seconds / 2..=seconds + 1).contains(&calls), "{calls} calls in {seconds} s");
    }
}

/// The calls, and the whole seconds that they took, while few and while many users become active; all are counted in the end.
async fn calls_under_load() -> [(u64, u64); 2] {
    let (server, options, opened) = own_keyspace().await;
    let policy = Current::new(Arc::new(parse_policy("policy.toml", POLICY, Format::Toml, 86_400_000).unwrap()));
    let (mut keeper, pressure, status) =
        PressureKeeper::new(log(&options, &opened, "weir-0"), SystemClock, policy, Arc::<Metrics>::default());
    keeper.load(Duration::from_secs(10)).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(keeper.run(stop.clone()));
    let few = measured(&server, &pressure, 0..1_000 * u64::from(SECONDS)).await;
    let many = measured(&server, &pressure, 1_000_000..1_000_000 + 50_000 * u64::from(SECONDS)).await;
    let active = || status.seen().as_ref().as_ref().unwrap().active_users;
    // 255,000; those of the last second are counted with the next turn.
    let all = async {
        while active() < 250_000 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("all are counted");
    assert!(active() <= 262_000, "{}", active());
    stop.cancel();
    running.await.unwrap();
    [few, many]
}
