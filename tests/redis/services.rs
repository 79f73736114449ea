//! Instances of services are registered until they do not renew.

use std::sync::Arc;

use weir_core::{limit::share::TurnNumber, ports::Share as _};
use weir_oracle::service::{ENDS_BYTES, End, MAX_INSTANCES, Registration, ServiceName, Services as _, ShareTurn};
use weir_redis::{Opened, RedisOptions, RedisServices, RedisStats};

use crate::redis_support::own_keyspace;

pub(crate) fn services(options: &RedisOptions, opened: &Opened, holder: &str) -> RedisServices {
    RedisServices::new(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), opened, holder)
}

pub(crate) fn name(text: &str) -> ServiceName {
    ServiceName::new(text).unwrap()
}

pub(crate) fn instance(capacity_per_s: u64, interval_ms: u64) -> Registration {
    Registration { capacity_per_s, concurrency: 20, timeout_ms: 1_000, network_ms: 50, interval_ms }
}

#[tokio::test]
async fn services_are_apart_and_what_nobody_renews_leaves_redis() {
    let (server, options, opened) = own_keyspace().await;
    let mut services = services(&options, &opened, "a");
    for (service, capacity_per_s) in [("email", 500), ("sms", 7)] {
        let one = Some(&instance(capacity_per_s, 60_000));
        let total = services.register(&name(service), &name("one"), one).await.unwrap().total;
        assert_eq!((total.instances, total.per_s), (1, capacity_per_s), "{service}");
    }
    let ends_in_ms = server.query::<i64>(&["PTTL", &opened.keyspace.service_key("email")]).unwrap();
    // Three times the interval, and a minute longer.
    assert!((180_001..=240_000).contains(&ends_in_ms), "{ends_in_ms}");
}

#[tokio::test]
async fn a_service_has_so_many_instances_and_a_holder_so_many_bytes_of_ends_at_most() {
    let (server, options, opened) = own_keyspace().await;
    let ([mut a, mut b], email) = (["a", "b"].map(|holder| services(&options, &opened, holder)), name("email"));
    let key = opened.keyspace.service_key("email");
    a.register(&email, &name("i0"), Some(&instance(1, 60_000))).await.unwrap();
    let value: String = server.query(&["HGET", &key, "i0"]).unwrap();
    let others: Vec<String> = (1..MAX_INSTANCES).map(|number| format!("i{number}")).collect();
    let fields = others.iter().flat_map(|other| [other.as_str(), value.as_str()]);
    let all: Vec<&str> = ["HSET", key.as_str()].into_iter().chain(fields).collect();
    server.query::<u64>(&all).unwrap();
    for (instance_name, taken) in [("one-more", false), ("i7", true)] {
        let registered = a.register(&email, &name(instance_name), Some(&instance(1, 60_000))).await.unwrap();
        assert_eq!((registered.taken, registered.total.instances), (taken, MAX_INSTANCES), "{instance_name}");
    }

    let numbered = |number| TurnNumber { run: 1, number };
    let tells = |ends: &[u64]| {
        let end = |number: &u64| ("b".into(), End { number: *number, took_ms: None });
        ShareTurn { ends: ends.iter().map(end).collect(), ..ShareTurn::default() }
    };
    b.turn(&email, numbered(1), &tells(&[])).await.unwrap();
    let waiting = "7 ".repeat(ENDS_BYTES / 2 - 1);
    server.query::<u64>(&["HSET", &format!("{key}:ends"), "b", &waiting]).unwrap();
    // The first is too long by a byte.
    for (number, ends) in [(1, 10), (2, 1)] {
        a.turn(&email, numbered(number), &tells(&[ends])).await.unwrap();
    }
    let ends = b.turn(&email, numbered(2), &tells(&[])).await.unwrap().ends;
    assert!(ends.len() == ENDS_BYTES && ends.ends_with("7 1 "), "{} bytes", ends.len());
}
