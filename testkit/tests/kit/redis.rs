//! What the tests of weir rely on when they break Redis.

use std::time::Duration;

use testkit::{
    redis::{RedisCluster, RedisServer},
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
fn a_cluster_of_six_moves_slots_and_fails_over() {
    let mut cluster = RedisCluster::start(3, 1).unwrap();
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
