//! Instances share the permits of a route, and never hold more than its room and its rate allow.

use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use testkit::redis::RedisServer;
use weir_core::{
    limit::{
        route::{
            pace::KeptRates,
            permits::{LEASE, PermitGrant, PermitTurn, RouteKey, RoutePermits},
        },
        share::TurnNumber,
    },
    ports::Share,
};
use weir_redis::{Opened, RedisOptions, RedisShare, RedisStats};

use crate::redis_support::own_keyspace;

const DELIVERY: u64 = 0xfeed_0000_0000_beef;

pub(crate) fn permits(options: &RedisOptions, opened: &Opened, instance: &str) -> RedisShare<RoutePermits> {
    RedisShare::new(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), opened, instance)
}

/// A number above all before.
fn next() -> TurnNumber {
    static LAST: AtomicU64 = AtomicU64::new(0);
    TurnNumber { run: 1, number: LAST.fetch_add(1, Relaxed) + 1 }
}

pub(crate) fn route(name: &str, service: Option<&str>) -> RouteKey {
    RouteKey { route: name.into(), service: service.map(Into::into) }
}

/// Where the permits of a route are kept.
fn key_of(opened: &Opened, route: &RouteKey) -> String {
    opened.keyspace.place_of::<RoutePermits>(route).1.swap_remove(0)
}

/// A turn at a route with so much room, that wants so many permits.
pub(crate) fn turn(room: u64, want: u64) -> PermitTurn {
    let (lease, room, took, delivery, rates) = (LEASE, Some(room), (0, 0), DELIVERY, KeptRates::default());
    PermitTurn { lease, room, want, unused: 0, recent: 0, rate: None, slow: 1_000, took, delivery, rates }
}

async fn instances<const N: usize>(names: [&str; N]) -> (RedisServer, Opened, [RedisShare<RoutePermits>; N]) {
    let (server, options, opened) = own_keyspace().await;
    let instances = names.map(|name| permits(&options, &opened, name));
    (server, opened, instances)
}

async fn take(permits: &mut RedisShare<RoutePermits>, turn: PermitTurn) -> PermitGrant {
    permits.turn(&route("email", None), next(), &turn).await.unwrap()
}

#[tokio::test]
async fn a_rate_grants_one_second_of_it_at_a_time_and_takes_unused_permits_back() {
    let (_server, _, [mut a]) = instances(["a"]).await;
    let rated = |want, unused| PermitTurn { rate: Some(1_000), unused, ..turn(1_000_000, want) };
    take(&mut a, rated(1, 0)).await;
    share_a_rate(slice::from_mut(&mut a), &route("email", None), rated(10_000, 0), 1_000).await;
    assert_eq!(take(&mut a, rated(500, 500)).await.permits, 500, "what is returned can be had again");
}

/// A turn that wants all of a rate. Whatever the machine is busy with, who takes it remains a member.
fn wants_all(rate: Option<u64>) -> PermitTurn {
    PermitTurn { lease: Duration::from_secs(600), rate, ..turn(1_000_000, 100_000) }
}

/// An instance or two take turns for about two seconds, the same one first each time, both right behind each other: all of this rate is
/// granted and no more, and of two one half to each of them.
async fn share_a_rate(instances: &mut [RedisShare<RoutePermits>], route: &RouteKey, turn: PermitTurn, per_s: u64) {
    let (began, mut before, mut granted) = (Instant::now(), None, vec![0; instances.len()]);
    // What has certainly come in from their turns to the next ones: a second's worth at most, and a permit or two may be cut off of each.
    let (mut least, percent) = (Duration::ZERO, if instances.len() == 1 { 98 } else { 95 });
    for _ in 0..22 {
        least += before.map_or(Duration::ZERO, |before: Instant| before.elapsed().min(Duration::from_secs(1)));
        for (instance, granted) in instances.iter_mut().zip(&mut granted) {
            *granted += instance.turn(route, next(), &turn).await.unwrap().permits;
        }
        before = Some(Instant::now());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let of = |time: Duration| per_s * u64::try_from(time.as_millis()).unwrap() / 1_000;
    let sum: u64 = granted.iter().sum();
    let (least, most) = (of(least) * percent / 100, of(began.elapsed()) + per_s);
    assert!((least..=most).contains(&sum), "{granted:?} of {least} to {most}");
    assert!(granted.iter().all(|granted| granted * 10 >= sum * 4), "one has much less than half: {granted:?}");
}

#[tokio::test]
async fn two_instances_that_want_all_of_a_rate_have_half_of_it_each_and_no_more() {
    let (_server, _, mut both) = instances(["a", "b"]).await;
    share_a_rate(&mut both, &route("email", None), wants_all(Some(500)), 500).await;
}

/// Instances of a service register: name, `<capacity per second>:<concurrency>:<timeout>:<network>`, and for how long from now.
fn register(server: &RedisServer, opened: &Opened, service: &str, registered: &[(&str, &str, i64)]) {
    let (seconds, _): (i64, i64) = server.query(&["TIME"]).unwrap();
    for (name, numbers, seconds_ahead) in registered {
        let value = format!("{numbers}:{}", (seconds + seconds_ahead) * 1_000);
        server.query::<()>(&["HSET", &opened.keyspace.service_key(service), name, &value]).unwrap();
    }
}

#[tokio::test]
async fn two_instances_that_want_all_of_what_a_service_has_registered_have_half_of_it_each_and_no_more() {
    let (server, opened, mut both) = instances(["a", "b"]).await;
    register(&server, &opened, "hedwig", &[("one", "300:10:5000:50", 600), ("two", "200:10:5000:50", 600)]);
    for rate in [None, Some(800)] {
        let name = if rate.is_none() { "email" } else { "push" };
        share_a_rate(&mut both, &route(name, Some("hedwig")), wants_all(rate), 500).await;
    }
}

#[tokio::test]
async fn two_instances_that_want_all_have_one_permit_a_second_of_a_service_without_instances_and_take_turns_at_it() {
    let (_server, _, mut both) = instances(["a", "b"]).await;
    let (email, wants_all) = (route("email", Some("hedwig")), PermitTurn { lease: LEASE * 200, ..turn(1_000, 100) });
    let (began, mut granted) = (Instant::now(), [0_u64; 2]);
    while granted.contains(&0) || granted.iter().sum::<u64>() < 3 {
        assert!(began.elapsed() < Duration::from_secs(60), "one gets nothing: {granted:?}");
        for (instance, granted) in both.iter_mut().zip(&mut granted) {
            *granted += instance.turn(&email, next(), &wants_all).await.unwrap().permits;
        }
        let (sum, most) = (granted.iter().sum::<u64>(), began.elapsed().as_secs() + 1);
        assert!(sum <= most, "{granted:?} of {most}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn what_a_service_has_registered_is_told_without_instances_that_have_not_renewed() {
    let (server, opened, [mut a]) = instances(["a"]).await;
    let email = route("email", Some("hedwig"));
    let grant = a.turn(&email, next(), &turn(1_000_000, 100)).await.unwrap();
    assert_eq!((grant.registered_per_s, grant.timeout_ms), (Some(0), None));
    let live = [("a", "300:10:5000:50", 60), ("b", "200:10:4000:50", 60)];
    register(&server, &opened, "hedwig", &live);
    register(&server, &opened, "hedwig", &[("gone", "900:10:1000:50", -1)]);
    let grant = a.turn(&email, next(), &turn(1_000_000, 100)).await.unwrap();
    assert_eq!((grant.registered_per_s, grant.timeout_ms), (Some(500), Some(4_000)));
}

fn rates(drain: f64, best: f64) -> KeptRates {
    let rate = |rate| Some(rate).filter(|rate| *rate > 0.0);
    KeptRates { drain_per_s: rate(drain), best_per_s: rate(best) }
}

#[tokio::test]
async fn what_delivery_takes_is_kept_for_instances_that_start_later() {
    let (server, opened, [mut a, mut b]) = instances(["a", "b"]).await;
    assert_eq!(take(&mut a, turn(9, 1)).await.rates, KeptRates::default());
    let knows = |drain, best| PermitTurn { rates: rates(drain, best), ..turn(9, 1) };
    assert_eq!(take(&mut a, knows(480.125, 512.5)).await.rates, rates(480.125, 512.5));
    assert_eq!(take(&mut a, knows(300.0, 310.0)).await.rates, rates(300.0, 512.5), "the last one, and the highest one");
    let key = key_of(&opened, &route("email", None));
    let left_ms: i64 = server.query(&["PTTL", &key]).unwrap();
    assert!(left_ms > 6 * 86_400_000, "for days: {left_ms}");
    // All that ran have ended, and another one starts.
    server.query::<()>(&["HDEL", &key, "ia", "b"]).unwrap();
    let grant = take(&mut b, turn(9, 1)).await;
    assert_eq!((grant.rates, grant.members), (rates(300.0, 512.5), 1));
    let other = PermitTurn { delivery: DELIVERY + 1, ..turn(9, 1) };
    assert_eq!(take(&mut b, other).await.rates, KeptRates::default(), "the route has another group");
    assert_eq!(take(&mut b, turn(9, 1)).await.rates, KeptRates::default(), "and what was before is gone");
}

#[tokio::test]
async fn the_highest_rate_is_kept_for_an_hour() {
    let (server, opened, [mut a]) = instances(["a"]).await;
    let key = key_of(&opened, &route("email", None));
    let hours: f64 = server.query::<(i64, i64)>(&["TIME"]).unwrap().0 as f64 / 3_600.0;
    // In units of 6 minutes.
    let before = |minutes: f64| ((hours * 10.0) as i64) - (minutes / 6.0) as i64;
    let kept = format!("{DELIVERY:x}:250000:{}=900000,{}=700000,{}=400000", before(120.0), before(54.0), before(12.0));
    server.query::<()>(&["HSET", &key, "d", &kept]).unwrap();
    assert_eq!(take(&mut a, turn(9, 1)).await.rates, rates(250.0, 700.0), "900 was two hours ago");
    server.query::<()>(&["HSET", &key, "d", "no rates"]).unwrap();
    assert_eq!(take(&mut a, turn(9, 1)).await.rates, KeptRates::default());
}

#[tokio::test]
async fn all_members_take_the_least_factor_s_part_of_the_rate() {
    let (_server, _, [mut a, mut b]) = instances(["a", "b"]).await;
    let rated = |slow| PermitTurn { room: None, want: 10_000, slow, ..wants_all(Some(1_000)) };
    take(&mut a, PermitTurn { want: 0, ..rated(490) }).await;
    take(&mut b, rated(1_000)).await;
    share_a_rate(slice::from_mut(&mut b), &route("email", None), rated(1_000), 490).await;
}
