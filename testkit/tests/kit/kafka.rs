//! What the tests of weir rely on when they publish and read.

use std::time::Duration;

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer},
    producer::{BaseProducer, BaseRecord, Producer},
};
use testkit::{
    kafka::{BoundedConsumer, Record},
    stack::Stack,
    unique, wait_for, wait_until,
};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn what_is_published_is_read_as_it_was_and_aborted_records_are_not_seen() {
    let client = Stack::shared().kafka();
    let topic = unique("round-trip");
    // Retention would delete a record of 2023.
    client.create_topic_with(&topic, 3, &[("retention.ms", "-1")]).unwrap();

    let records = [
        Record::new("k", "v").partition(0).header("h", "1").header("h", "2").timestamp_ms(1_700_000_000_123),
        Record::keyless("no key").partition(1),
        Record::tombstone("gone").partition(1),
    ];
    client.publish(&topic, records.clone()).unwrap();
    let mut reader = client.reader(&topic).unwrap();
    let read = reader.read_to_end().unwrap();
    assert_eq!(read.len(), 3);
    let all = client.read_committed(&topic).unwrap();
    for (record, read) in records.iter().zip(&all) {
        assert_eq!((&record.key, &record.value, &record.headers), (&read.key, &read.value, &read.headers));
        assert_eq!(record.partition, Some(read.partition));
    }
    assert_eq!((all[0].timestamp_ms, all[0].header("h")), (Some(1_700_000_000_123), Some("2")));

    let mut config = client.config();
    let producer: BaseProducer = config.set("transactional.id", &topic).create().unwrap();
    producer.init_transactions(SOON).unwrap();
    for (value, commits) in [("aborted", false), ("committed", true)] {
        producer.begin_transaction().unwrap();
        producer.send(BaseRecord::to(&topic).key("t").payload(value).partition(2)).unwrap();
        producer.flush(SOON).unwrap();
        // Neither is seen while the transaction is open.
        assert_eq!(reader.read_to_end().unwrap(), []);
        let [stable, end] = [client.stable_offsets(&topic), client.end_offsets(&topic)].map(|all| all.unwrap()[2]);
        assert_eq!(end, stable + 1);
        if commits {
            producer.commit_transaction(SOON).unwrap();
        } else {
            producer.abort_transaction(SOON).unwrap();
        }
    }
    let read = wait_for(SOON, || Some(reader.read_to_end().unwrap()).filter(|read| !read.is_empty())).unwrap();
    assert_eq!((read.len(), read[0].value_text()), (1, "committed".to_owned()));
    assert_eq!(reader.read_to_end().unwrap(), []);
    assert_eq!(client.read_committed(&topic).unwrap().len(), 4);
    // Two records and their two markers.
    for ends in [client.end_offsets(&topic), client.stable_offsets(&topic)] {
        assert_eq!(ends.unwrap(), [1, 2, 4]);
    }
}

#[test]
fn a_client_that_is_kept_knows_topics_as_they_are_now() {
    let client = Stack::shared().kafka().apart();
    let name = unique("kept");
    let [grows, recreated] = ["grows", "recreated"].map(|which| format!("{name}-{which}"));
    client.create_topics(&[(&grows, 1), (&recreated, 2)], &[("retention.ms", "-1")]).unwrap();
    client.publish(&recreated, [Record::keyless("x").partition(1)]).unwrap();
    assert_eq!((client.partitions(&grows).unwrap(), client.end_offsets(&recreated).unwrap()), (1, vec![0, 1]));
    client.grow_topic(&grows, 3).unwrap();
    // A new partition may have no leader yet.
    let has_ends = |topic: &str, ends: &[i64]| client.end_offsets(topic).is_ok_and(|found| found == ends);
    wait_until(SOON, "the new partitions are known", || has_ends(&grows, &[0; 3]));
    client.delete_topic(&recreated).unwrap();
    wait_until(SOON, "the topic is gone", || client.partitions(&recreated).is_err());
    wait_until(SOON, "it is there again", || client.create_topic(&recreated, 1).is_ok());
    wait_until(SOON, "the new topic's partition is known", || has_ends(&recreated, &[0]));
    let member: BoundedConsumer = client.config().set("group.id", &name).create().unwrap();
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(&grows, 2, Offset::Offset(7)).unwrap();
    member.commit(&offsets, CommitMode::Sync).unwrap();
    assert_eq!(client.committed(&name, &grows).unwrap(), [None, None, Some(7)]);
    client.delete_topics_of(&name, SOON).unwrap();
    wait_until(SOON, "both are gone", || client.partitions(&grows).is_err() && client.partitions(&recreated).is_err());
}
