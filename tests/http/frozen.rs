//! A Redis node that does not answer: users on other nodes are answered, and their intents decided, as ever.

use std::{
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{redis::RedisCluster, wait_until};
use tokio_util::sync::CancellationToken;
use weir_core::basis::shard::{UserHash, slot_of_shard};

use crate::{
    client::{Client, answer},
    support::{
        DEADLINE, POLICY, Scene,
        http::{degraded, get, wait_degraded, wait_whole},
    },
};

const SHARDS: u16 = 64;
/// More than a third of `http.concurrency`, and several times the connections to a node.
const ASKING: usize = 48;
/// The first node that the configuration names.
const VICTIM: usize = 0;

/// The others are answered while requests for users of the node wait: those wait for it for a minute at least.
#[test]
fn a_node_that_hangs_keeps_no_user_of_another_node_waiting() {
    let mut cluster = RedisCluster::start_with(3, 0, &["--cluster-require-full-coverage", "no"]).unwrap();
    let scene = scene(&cluster, "hangs", ["60s", "5m"]);
    let (worker, client) = Client::ready(&scene, "one");
    let (on_it, elsewhere) = on_it_and_elsewhere(&cluster.slots_of(VICTIM).unwrap(), 1_000);
    cluster.freeze(VICTIM);
    let begin = |user: &u64| client.begin(&format!("/v1/users/{user}"));
    let mut hanging: Vec<TcpStream> = on_it.iter().take(ASKING).map(begin).collect();
    assert_eq!(hanging.len(), ASKING);
    for user in elsewhere.iter().take(2 * ASKING) {
        client.get(&format!("/v1/users/{user}")).json();
    }
    // Some may have been refused: half of the places are for one node, at most.
    let waiting = hanging.iter().filter(|stream| !is_answered(stream)).count();
    assert!(waiting > ASKING / 2, "{waiting} still wait for the node");
    cluster.thaw(VICTIM);
    for stream in &mut hanging {
        let reply = answer(stream).expect("an answer");
        assert!([200, 503].contains(&reply.status), "{reply:?}");
    }
    wait_whole(&worker);
    client.get(&format!("/v1/users/{}", on_it[0])).json();
}

#[test]
fn a_node_that_hangs_is_found_out_and_its_users_are_told_when_to_ask_again_while_others_are_answered() {
    // However slow this machine is.
    hang("hangs-known", 10, Duration::MAX);
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn users_of_other_nodes_are_answered_within_two_seconds_while_a_node_hangs() {
    hang("hangs-prompt", 4, Duration::from_secs(2));
}

/// A scene on a cluster, with these timeouts of Redis and of HTTP.
fn scene(cluster: &RedisCluster, name: &str, [redis, http]: [&str; 2]) -> Scene {
    let mut scene = Scene::on_redis(cluster.nodes(), name, 2, POLICY);
    scene.set("WEIR__REDIS__TIMEOUT", redis);
    scene.set("WEIR__HTTP__TIMEOUT", http);
    scene.set("WEIR__HTTP__CONCURRENCY", "96");
    scene.set("WEIR__HTTP__RATE", "0");
    scene
}

fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let has_come = stream.peek(&mut [0]).is_ok();
    stream.set_nonblocking(false).unwrap();
    has_come
}

/// Users whose shards are among these slots, and the others.
fn on_it_and_elsewhere(slots: &[u16], users: u64) -> (Vec<u64>, Vec<u64>) {
    (0..users).partition(|user| slots.contains(&slot_of_shard(UserHash::of(&user.to_string()).shard(SHARDS), SHARDS)))
}

/// No request ends before the lane has decided: each waits for the node for a minute at least. A lane that shared a connection or a thread
/// with one would wait, too.
#[test]
fn requests_that_hang_in_every_place_of_http_hold_up_no_lane() {
    const INTENTS: usize = 2_000;
    let mut cluster = RedisCluster::start_with(3, 0, &["--cluster-require-full-coverage", "no"]).unwrap();
    let mut scene = scene(&cluster, "http-full", ["60s", "5m"]);
    scene.set("WEIR__HTTP__CONCURRENCY", "8");
    let (mut worker, client) = Client::ready(&scene, "one");
    // All need the node with the tables of names.
    let tables = cluster.owner_of_key(&scene.name).unwrap();
    let victim = cluster.primaries().unwrap().into_iter().find(|node| *node != tables).unwrap();
    let (on_it, elsewhere) = on_it_and_elsewhere(&cluster.slots_of(victim).unwrap(), 10_000);
    let publish = |wave: &str, count: usize| scene.publish_wave(wave, &elsewhere[..count], &json!({}));
    publish("before", 100);
    scene.drain(&mut worker);

    cluster.freeze(victim);
    let (mut hanging, mut users) = (Vec::new(), on_it.iter());
    wait_until(DEADLINE, "every place is taken", || {
        let is_full = client.get("/v1/segments").status == 503;
        if !is_full {
            let user = users.next().expect("there are more users than places");
            hanging.push(client.begin(&format!("/v1/users/{user}")));
        }
        is_full
    });
    publish("meanwhile", INTENTS);
    scene.drain(&mut worker);
    client.get("/v1/segments").problem(503, "busy");
    cluster.thaw(victim);
    assert_eq!(scene.decisions().len(), 100 + INTENTS);
}

/// Asks for users of all nodes while one of them hangs. Where `prompt_within` is below `redis.timeout`, whoever waits for the node that hangs,
/// even once, is slower.
fn hang(name: &str, redis_timeout_s: u32, prompt_within: Duration) {
    let mut cluster = RedisCluster::start_with(3, 0, &["--cluster-require-full-coverage", "no"]).unwrap();
    let [of_redis, of_http] = [redis_timeout_s, redis_timeout_s + 1].map(|seconds| format!("{seconds}s"));
    let scene = scene(&cluster, name, [&of_redis, &of_http]);
    let (worker, client) = Client::ready(&scene, "one");

    let owned = cluster.slots_of(VICTIM).unwrap();
    let (on_it, elsewhere) = on_it_and_elsewhere(&owned, 1_000);
    assert!(on_it.len() > ASKING && elsewhere.len() > ASKING);

    cluster.freeze(VICTIM);
    let over = CancellationToken::new();
    let prompt = |user: &u64| {
        let began = Instant::now();
        let reply = client.get(&format!("/v1/users/{user}"));
        let took = began.elapsed();
        assert!(reply.status == 200 && took < prompt_within, "user {user} after {took:?}: {reply:?}");
    };
    std::thread::scope(|scope| {
        for asker in 0..ASKING {
            let (client, on_it, over) = (client.clone(), &on_it, &over);
            scope.spawn(move || {
                for user in on_it.iter().cycle().skip(asker * 7) {
                    if over.is_cancelled() {
                        return;
                    }
                    let reply = client.get(&format!("/v1/users/{user}"));
                    assert!([503, 504].contains(&reply.status), "{reply:?}");
                }
            });
        }
        // Also where an assertion fails.
        let _ends = over.clone().drop_guard();
        // From the first moment on, while nobody knows yet that the node hangs, and after that.
        let mut users = elsewhere.iter().cycle();
        let mut ask_some = || users.by_ref().take(10).for_each(prompt);
        ask_some();
        wait_until(DEADLINE, "it is found out", || {
            ask_some();
            degraded(&worker).iter().any(|(what, _)| what == "shards_unavailable")
        });
        ask_some();
        let intent = json!({"id": "i", "user_id": elsewhere[0]});
        assert_eq!(client.decide("", &intent).json()["verdict"], "approved");
    });

    // Those of the node are told at once, and when to ask again; the instance stays ready.
    let began = Instant::now();
    let reply = client.get(&format!("/v1/users/{}", on_it[0]));
    reply.problem(503, "store_away");
    assert!(reply.headers["retry-after"] == "1" && began.elapsed() < prompt_within, "{:?}: {reply:?}", began.elapsed());
    let entry = wait_degraded(&worker, "shards_unavailable");
    let shards: Vec<u16> =
        entry["shards"].as_array().unwrap().iter().map(|shard| shard.as_u64().unwrap().try_into().unwrap()).collect();
    let expected: Vec<u16> = (0..SHARDS).filter(|shard| owned.contains(&slot_of_shard(*shard, SHARDS))).collect();
    assert_eq!(shards, expected, "{entry}");
    assert!(entry["since"].is_string());

    cluster.thaw(VICTIM);
    wait_whole(&worker);
    prompt(&on_it[0]);
    let (status, body) = get(&worker, "/v1/status");
    let said: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, said), (200, json!({"ready": true, "waiting": [], "degraded": []})));
}
