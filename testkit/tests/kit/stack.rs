//! What the tests of weir rely on when they share servers.

use std::time::Duration;

use testkit::{kafka::Record, redis::connect, stack::Stack, unique};

#[test]
fn every_shared_server_is_there() {
    let stack = Stack::shared();
    let topic = unique("shared");
    stack.kafka().create_topic(&topic, 1).unwrap();
    stack.kafka().publish(&topic, [Record::new("k", "v")]).unwrap();
    assert_eq!(stack.kafka().read_committed(&topic).unwrap().len(), 1);

    let nodes = stack.redis_cluster();
    assert_eq!(nodes.len(), 6);
    for url in nodes.iter().map(String::as_str).chain([stack.redis()]) {
        let mut connection = connect(Duration::from_secs(30), &redis::Client::open(url).unwrap()).unwrap();
        assert_eq!(redis::cmd("PING").query::<String>(&mut connection).unwrap(), "PONG");
    }

    let key = unique("k");
    stack.s3().put(&key, "v").unwrap();
    assert_eq!(stack.s3().get(&key).unwrap(), b"v");
}

#[test]
fn names_are_unique() {
    assert_ne!(unique("a"), unique("a"));
    assert!(unique("a").starts_with("a-"));
}
