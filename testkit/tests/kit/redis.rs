//! What the tests of weir rely on when they break Redis.

use std::time::{Duration, Instant};

use testkit::{
    redis::{RedisCluster, RedisServer, connect},
    wait_until,
};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_single_server_freezes_thaws_and_comes_back_empty() {
    let mut server = RedisServer::start(&["--maxmemory", "50mb"]).unwrap();
    let () = server.query(&["SET", "k", "v"]).unwrap();
    server.freeze();
    assert!(server.query::<String>(&["GET", "k"]).is_err());
    server.thaw();
    assert_eq!(server.query::<String>(&["GET", "k"]).unwrap(), "v");
    server.kill();
    assert!(server.cli(&["ping"]).is_err());
    server.restart().unwrap();
    assert_eq!(server.query::<Option<String>>(&["GET", "k"]).unwrap(), None);
}

#[test]
fn tls_and_acl_users_are_those_of_a_real_server() {
    let users = ["--user", "weir", "on", ">secret", "~*", "+@all", "--user", "default", "off"];
    let server = RedisServer::start_tls(&users).unwrap();
    assert!(server.url().starts_with("rediss://"));
    assert!(server.cli(&["get", "k"]).unwrap().contains("NOAUTH"));
    let said = server.cli(&["--user", "weir", "--pass", "secret", "--no-auth-warning", "set", "k", "v"]).unwrap();
    assert_eq!(said.trim(), "OK");

    let ca = std::fs::read(server.ca_file().unwrap()).unwrap();
    let trust = redis::TlsCertificates { client_tls: None, root_cert: Some(ca) };
    let url = server.url().replace("rediss://", "rediss://weir:secret@");
    let client = redis::Client::build_with_tls(url, trust).unwrap();
    let got: String = redis::cmd("GET").arg("k").query(&mut connect(SOON, &client).unwrap()).unwrap();
    assert_eq!(got, "v");
}

#[test]
fn a_cluster_of_six_moves_slots_and_fails_over() {
    let start = Instant::now();
    let mut cluster = RedisCluster::start(3, 1).unwrap();
    println!("the cluster was whole after {:?}", start.elapsed());
    assert_eq!(cluster.primaries().unwrap(), [0, 1, 2]);

    // {a} is in slot 15495, on the last primary.
    let slot = 15_495;
    let (from, to) = (2, 0);
    assert_eq!(cluster.owner_of(slot).unwrap(), from);
    for key in ["{a}1", "{a}2", "{a}3"] {
        let () = cluster.node(from).query(&["SET", key, key]).unwrap();
    }
    let moving = cluster.begin_move(slot, from, to).unwrap();
    moving.move_key("{a}1").unwrap();
    for (command, answer) in [
        (&["get", "{a}1"][..], format!("ASK 15495 127.0.0.1:{}", cluster.node(to).port())),
        (&["get", "{a}2"], "{a}2".to_owned()),
        (&["mget", "{a}1", "{a}2"], "TRYAGAIN".to_owned()),
    ] {
        let said = cluster.cli(from, command).unwrap();
        assert!(said.contains(&answer), "{command:?}: {said}");
    }
    assert_eq!(moving.move_keys(10).unwrap(), 2);
    moving.finish().unwrap();
    assert!(cluster.cli(from, &["get", "{a}1"]).unwrap().contains("MOVED 15495"));
    assert_eq!(cluster.node(to).query::<Vec<String>>(&["MGET", "{a}1", "{a}3"]).unwrap(), ["{a}1", "{a}3"]);

    cluster.move_slots(slot + 1..slot + 4, from, to).unwrap();
    assert_eq!(cluster.owner_of(slot + 3).unwrap(), to);
    cluster.move_slots(slot..slot + 4, to, from).unwrap();
    assert_eq!(cluster.owner_of(slot).unwrap(), from);

    let replica = cluster.replicas_of(from).unwrap()[0];
    cluster.failover(replica).unwrap();
    assert_eq!(cluster.primaries().unwrap().len(), 3);
    assert_eq!(cluster.owner_of(slot).unwrap(), replica);

    // The old primary is the new one's replica and takes over when that dies.
    cluster.wait_whole().unwrap();
    cluster.kill(replica);
    wait_until(SOON, "the other took over", || cluster.owner_of(slot).is_ok_and(|owner| owner == from));
    assert_eq!(cluster.node(from).query::<String>(&["GET", "{a}2"]).unwrap(), "{a}2");
    cluster.restart(replica).unwrap();
    cluster.wait_whole().unwrap();
}
