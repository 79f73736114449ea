//! Services register, and instances of weir share what they have registered, whatever is lost, repeated or cut.

mod steps;

use std::{sync::Arc, time::Duration};

use testkit::{
    proxy::{Mode, Proxy},
    redis::RedisCluster,
};
use weir_core::{
    ports::{Services, StoreError},
    service::{End, Holder, Registration, ServiceName, ServiceSeen, ShareReply, ShareTurn, Use},
};
use weir_redis::{Opened, RedisOptions, RedisServices, RedisStats};

use crate::redis_support::{opened, options, own, server};

/// Shares grow once a service is known for so long.
const STARTS_AFTER: Duration = Duration::from_secs(4);

fn services(options: &RedisOptions, opened: &Opened, holder: &str) -> RedisServices {
    RedisServices::new(&Arc::new(options.clone()), &Arc::new(RedisStats::default()), opened, holder)
}

fn name(text: &str) -> ServiceName {
    ServiceName::new(text).unwrap()
}

fn instance(capacity_per_s: u64, interval_ms: u64) -> Registration {
    Registration { capacity_per_s, concurrency: 20, timeout_ms: 1_000, network_ms: 50, interval_ms }
}

/// A holder of shares of the service `email`.
struct Member {
    services: RedisServices,
    number: u64,
    held: u64,
}

impl Member {
    fn new(options: &RedisOptions, opened: &Opened, holder: &str) -> Self {
        Self { services: services(options, opened, holder), number: 0, held: 0 }
    }

    async fn try_turn(&mut self, ends: Vec<(Holder, End)>) -> Result<ShareReply, StoreError> {
        self.number += 1;
        let rate = Use { held: self.held, wanted: 1_000 };
        let turn = ShareTurn { number: self.number, rate, ends, ..ShareTurn::default() };
        let reply = self.services.share(&name("email"), &turn).await?;
        self.held = reply.per_s;
        Ok(reply)
    }

    async fn turn(&mut self) -> ShareReply {
        self.try_turn(Vec::new()).await.unwrap()
    }

    async fn look(&mut self) -> Option<ServiceSeen> {
        self.services.look(&name("email")).await.unwrap()
    }

    /// Registers an instance of the service, and waits until shares grow.
    async fn registered(&mut self, registration: Registration) {
        self.services.register(&name("email"), &name("i"), &registration).await.unwrap();
        tokio::time::sleep(STARTS_AFTER).await;
    }
}

#[tokio::test]
async fn an_instance_is_registered_until_it_is_removed_or_does_not_renew() {
    let server = server();
    let options = own(&server);
    let opened = opened(&options).await.unwrap();
    let mut member = Member::new(&options, &opened, "a");
    assert_eq!(member.look().await, None);
    for (instance_name, interval_ms) in [("one", 10_000), ("two", 10_000), ("short", 20)] {
        let registration = instance(500, interval_ms);
        let registered = member.services.register(&name("email"), &name(instance_name), &registration).await;
        assert!(registered.unwrap().taken);
    }
    let other = member.services.register(&name("sms"), &name("one"), &instance(7, 10_000)).await.unwrap();
    assert_eq!((other.total.instances, other.total.per_s), (1, 7), "services are apart");
    tokio::time::sleep(Duration::from_millis(70)).await;
    let seen = member.look().await.unwrap();
    assert_eq!((seen.total.instances, seen.total.per_s, seen.total.timeout_ms), (2, 1_000, 1_000));
    let names: Vec<&str> = seen.instances.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    // Three times the interval, from a moment ago on; twice would be 20 s.
    assert!((20_001..=30_000).contains(&seen.instances[0].lives_for_ms), "{seen:?}");
    for (instance_name, was) in [("two", true), ("two", false), ("short", false), ("one", true)] {
        let removed = member.services.deregister(&name("email"), &name(instance_name)).await.unwrap();
        assert_eq!(removed, was, "{instance_name}");
    }
    assert_eq!(member.look().await, None);
    let key = opened.keyspace.service_key("email");
    let ends_in_ms = server.query::<i64>(&["PTTL", &key]).unwrap();
    assert!((80_000..=90_000).contains(&ends_in_ms), "{ends_in_ms}");
}

#[tokio::test]
async fn a_turn_whose_reply_is_lost_is_taken_again_and_gives_nothing_twice() {
    let server = server();
    let target = server.url().trim_start_matches("redis://").to_owned();
    let proxy = tokio::task::spawn_blocking(move || Proxy::start(&target).unwrap()).await.unwrap();
    let options = RedisOptions { tries: 1, ..options(&[format!("redis://{}", proxy.address())]) };
    let opened = opened(&options).await.unwrap();
    let [mut a, mut b] = ["a", "b"].map(|holder| Member::new(&options, &opened, holder));
    a.registered(instance(500, 10_000)).await;
    assert_eq!((a.turn().await.per_s, b.turn().await.per_s), (500, 0));
    proxy.set(Mode::LoseReply);
    let end = End { number: 7, took_ms: None };
    let lost = b.try_turn(vec![("a".into(), end)]).await;
    assert!(matches!(lost, Err(StoreError::Temporary(_))), "{lost:?}");
    let reply = a.turn().await;
    assert_eq!((reply.per_s, reply.members, &*reply.ends), (250, 2, "7 "), "the lost turn was taken");
    a.turn().await;
    let reply = b.turn().await;
    assert_eq!((a.held, b.held, reply.members), (250, 250, 2));
    // It is sent again by nobody; if it were, it had no effect.
    b.number -= 1;
    let stale = b.try_turn(Vec::new()).await;
    assert!(matches!(&stale, Err(StoreError::Temporary(why)) if why.contains("a later turn")), "{stale:?}");
}

#[tokio::test]
async fn after_a_loss_nobody_gets_more_until_all_shares_in_force_are_known() {
    let server = server();
    let options = own(&server);
    let opened = opened(&options).await.unwrap();
    let [mut a, mut b] = ["a", "b"].map(|holder| Member::new(&options, &opened, holder));
    a.registered(instance(500, 10_000)).await;
    a.turn().await;
    assert_eq!(a.held, 500);
    server.query::<()>(&["FLUSHALL"]).unwrap();
    let reply = b.turn().await;
    assert_eq!((reply.per_s, reply.total.instances), (0, 0));
    b.services.register(&name("email"), &name("i"), &instance(500, 10_000)).await.unwrap();
    let reply = b.turn().await;
    assert_eq!(reply.per_s, 0, "a holds 500, which nobody knows");
    assert!((1..=4_000).contains(&reply.starts_in_ms), "{reply:?}");
    a.turn().await;
    a.turn().await;
    assert_eq!((a.held, b.turn().await.per_s), (250, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_turns_go_on_after_the_slot_has_moved() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let options = options(&cluster.nodes());
    let opened = opened(&options).await.unwrap();
    let [mut a, mut b] = ["a", "b"].map(|holder| Member::new(&options, &opened, holder));
    a.registered(instance(500, 10_000)).await;
    assert_eq!((a.turn().await.per_s, b.turn().await.per_s), (500, 0));
    let slot = opened.keyspace.slot(opened.keyspace.service_shard("email"));
    let from = cluster.owner_of(slot).unwrap();
    cluster.move_slots([slot], from, (from + 1) % 3).unwrap();
    a.turn().await;
    a.turn().await;
    assert_eq!((a.held, b.turn().await.per_s), (250, 250));
}

#[tokio::test]
async fn a_key_of_another_kind_is_reported_and_left_alone() {
    let server = server();
    let options = own(&server);
    let opened = opened(&options).await.unwrap();
    let key = format!("{}:members", opened.keyspace.service_key("email"));
    server.query::<()>(&["SET", &key, "mine"]).unwrap();
    let refused = Member::new(&options, &opened, "a").try_turn(Vec::new()).await;
    assert!(matches!(&refused, Err(StoreError::Fatal(why)) if why.contains("WRONGTYPE")), "{refused:?}");
    assert_eq!(server.query::<String>(&["GET", &key]).unwrap(), "mine");
}
