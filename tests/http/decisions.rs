//! `POST /v1/decisions`: as the lanes decide, once an id, in one round trip.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testkit::{
    kafka::Record,
    proxy::{Mode, Proxy},
    redis::RedisServer,
    wait_until,
};

use crate::{
    client::{Client, answer},
    support::{DEADLINE, POLICY, Scene, http::metric},
};

/// What was asked since, but for what a worker asks to see how Redis is.
fn since(redis: &RedisServer, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let other = |name: &str| !["ping", "info", "get", "client|setinfo", "hello", "client|setname"].contains(&name);
    let more = redis.calls().unwrap().into_iter().map(|(name, count)| {
        let had = before.get(&name).copied().unwrap_or(0);
        (name, count - had)
    });
    more.filter(|(name, count)| *count > 0 && other(name)).collect()
}

fn writes(redis: &RedisServer) -> u64 {
    redis.figure("persistence", "rdb_changes_since_last_save").unwrap()
}

#[test]
fn a_decision_is_the_worker_s_own_once_an_id_and_takes_one_round_trip() {
    let redis = RedisServer::start::<&str>(&[]).unwrap();
    let mut scene = Scene::on_redis(vec![redis.url()], "decide", 1, POLICY);
    scene.extra = "[intent.fields]\nuser_id = \"/to/id\"\n".to_owned();
    let (worker, client) = Client::ready(&scene, "decide");
    let intent = |id: &str, user: u64| json!({"id": id, "to": {"id": user}, "channel": "push", "payload": [1.10, "é"]});

    let first = client.decide("", &intent("one", 7)).json();
    assert_eq!((&first["verdict"], &first["segment"]), (&json!("approved"), &json!("new")));
    assert_eq!((&first["schema"], &first["user_id"]), (&json!("weir.decision/2"), &json!("7")));
    assert_eq!(first["intent"], intent("one", 7));
    assert_eq!(client.decide("", &intent("one", 7)).json(), first, "the same id gets the same answer");

    // Its class is known now: one script call, and nothing but what the script does.
    let (before, written) = (redis.calls().unwrap(), writes(&redis));
    assert_eq!(client.decide("", &intent("two", 7)).json()["verdict"], "approved");
    let asked = since(&redis, &before);
    assert_eq!(asked.get("evalsha"), Some(&1), "{asked:?}");
    assert!(!asked.contains_key("script|load") && !asked.contains_key("hgetall"), "{asked:?}");
    assert!(writes(&redis) > written);

    let third = client.decide("", &intent("three", 7)).json();
    assert_eq!((&third["verdict"], &third["reason"]), (&json!("suppressed"), &json!("cap")));
    assert_eq!(third["cap"], json!({"name": "daily", "limit": 2, "window": "24h", "used": 2}));
    assert_eq!(client.decide("", &intent("one", 7)).json(), first, "also when the cap is reached");

    dry_run(&client, &redis, &intent);

    // A lane and HTTP see the same history, and an id that went out by HTTP does not by Kafka.
    scene.decide([Record::new("7", intent("four", 7).to_string()), Record::new("7", intent("one", 7).to_string())]);
    let decisions = scene.decisions();
    assert_eq!((decisions["four"].reason(), decisions["one"].reason()), ("cap", "duplicate"));

    // An event in structured mode.
    let event = json!({"specversion": "1.0", "id": "ce-1", "source": "/s", "type": "t", "subject": "1500", "data": {}});
    let headers = [("content-type", "application/cloudevents+json; charset=utf-8")];
    let decided = client.send("POST", "/v1/decisions", &headers, event.to_string().as_bytes()).json();
    assert_eq!((&decided["intent_id"], &decided["user_id"]), (&json!("ce-1"), &json!("1500")));
    assert_eq!(decided["segment"], "active");
    assert!(metric(&worker, "weir_http_requests_total", "/v1/decisions").unwrap() >= 8.0);
}

fn dry_run(client: &Client, redis: &RedisServer, intent: &impl Fn(&str, u64) -> Value) {
    let (before, written) = (redis.calls().unwrap(), writes(redis));
    let denied = client.decide("?dry_run=true", &intent("dry", 7)).json();
    assert_eq!((&denied["verdict"], &denied["cap"]["used"]), (&json!("suppressed"), &json!(2)));
    let free = client.decide("?dry_run=true", &intent("dry", 8)).json();
    assert_eq!(free["verdict"], "approved");
    assert_eq!(since(redis, &before).get("evalsha"), Some(&2), "one each");
    let new = json!({"id": "new", "to": {"id": 8}, "channel": "a new channel", "campaign": "a new name"});
    assert_eq!(client.decide("?dry_run=true", &new).json()["verdict"], "approved");
    assert_eq!(writes(redis), written, "nothing is written, and no new name");
    assert_eq!(client.get("/v1/users/8").json()["sends"], json!([]));
    assert_eq!(client.decide("?dry_run=false", &intent("dry", 8)).json()["verdict"], "approved");
    assert_eq!(client.get("/v1/users/8").json()["sends"].as_array().unwrap().len(), 1, "read after written");
}

#[test]
fn equal_lookups_at_the_same_time_ask_redis_once() {
    const LOOKUPS: usize = 20;
    let redis = RedisServer::start::<&str>(&[]).unwrap();
    let proxy = Proxy::start(redis.url().strip_prefix("redis://").unwrap()).unwrap();
    let mut scene = Scene::on_redis(vec![format!("redis://{}", proxy.address())], "flight", 1, POLICY);
    scene.set("WEIR__REDIS__TIMEOUT", "30s");
    scene.set("WEIR__HTTP__TIMEOUT", "1m");
    let (worker, client) = Client::ready(&scene, "flight");
    client.get("/v1/users/7").json();
    let before = redis.calls().unwrap();
    proxy.set(Mode::Stall);
    let mut streams: Vec<_> = (0..LOOKUPS).map(|_| client.begin("/v1/users/7")).collect();
    // One thread takes connections and requests in their order: when this answers, all of them are under way.
    wait_until(DEADLINE, "the lookups are under way", || {
        metric(&worker, "weir_http_connections", "").unwrap() >= LOOKUPS as f64
    });
    proxy.set(Mode::Pass);
    let replies: Vec<Value> = streams.iter_mut().map(|stream| answer(stream).unwrap().json()).collect();
    assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
    assert_eq!(since(&redis, &before).get("evalsha"), Some(&1));
    client.get("/v1/users/7").json();
    assert_eq!(since(&redis, &before).get("evalsha"), Some(&2), "a later one is a lookup of its own");
}
