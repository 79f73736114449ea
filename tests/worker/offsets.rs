//! The promise: reading never goes back by itself, and skips nothing. Where offsets start, where they are lost, and what
//! happens where a topic is deleted and recreated with the old offsets.

use std::collections::BTreeMap;

use crate::group::commit_beginnings;
use crate::support::{
    DEADLINE, POLICY, Scene, contains_all, ends, http::wait_ready, outcome::intent, paragraph, stop, succeed,
};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer},
    producer::{BaseProducer, Producer},
};
use serde_json::json;
use testkit::{kafka::BoundedConsumer, wait_until, worker::Worker};

/// Of a segment without caps: each new id is approved.
const USER: u64 = 3_500;

/// Intents of these ids, in their order in each partition.
fn publish<'i>(scene: &Scene, ids: impl IntoIterator<Item = &'i str>) {
    let record = |(place, id): (usize, &str)| {
        intent(id, USER, json!({})).partition(i32::try_from(place).unwrap() % scene.partitions)
    };
    scene.publish(ids.into_iter().enumerate().map(record));
}

fn decided(scene: &Scene) {
    let mut worker = scene.drained("only");
    stop(&mut worker);
}

/// The worker refuses to read: what it says.
fn refused(scene: &Scene) -> String {
    paragraph(&ends(&mut scene.worker("only"), 1))
}

/// What became of each id, in alphabetical order of the reasons.
fn outcomes(scene: &Scene) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (id, decision) in scene.every_decision() {
        all.entry(id).or_default().push(decision.reason().to_owned());
    }
    all.values_mut().for_each(|reasons| reasons.sort());
    all
}

fn assert_all(scene: &Scene, ids: &[&str], expected: &[&str]) {
    let all = outcomes(scene);
    for id in ids {
        assert_eq!(all.get(*id).map(Vec::as_slice).unwrap_or_default(), expected, "{id}");
    }
}

const OLD: [&str; 6] = ["a-1", "a-2", "a-3", "a-4", "a-5", "a-6"];
const NEW: [&str; 4] = ["b-1", "b-2", "b-3", "b-4"];

#[test]
fn offsets_that_kafka_has_lost_are_not_read_again_until_somebody_says_where() {
    let mut scene = Scene::new("lost-offsets", 2, POLICY);
    publish(&scene, OLD);
    decided(&scene);
    assert_all(&scene, &OLD, &["approved"]);

    // As after a week without members.
    scene.kafka.delete_group(&scene.name).unwrap();
    publish(&scene, NEW);
    let topic = scene.topic("intents");
    for _ in 0..2 {
        let words = [&*scene.name, &*topic, "partitions 0 (", "1 (", "kafka-consumer-groups.sh", "--reset-offsets"];
        contains_all(&refused(&scene), &words);
    }
    assert_eq!(outcomes(&scene).len(), OLD.len(), "nothing is decided");

    // A person says where: behind what was decided, and one intent is left out.
    scene.kafka.reset_offsets(&scene.name, &topic, &["--to-offset", "4"]).unwrap();
    decided(&scene);
    assert_all(&scene, &OLD, &["approved"]);
    assert_all(&scene, &["b-3", "b-4"], &["approved"]);
    assert_all(&scene, &["b-1", "b-2"], &[]);

    // A partition that is new has no offset, and is read from its beginning.
    scene.kafka.grow_topic(&topic, 3).unwrap();
    scene.partitions = 3;
    scene.publish([intent("c", USER, json!({})).partition(2)]);
    decided(&scene);
    assert_all(&scene, &["c"], &["approved"]);
}

/// Deletes and recreates the intents topic; its offsets start again.
fn recreate(scene: &Scene) {
    let topic = scene.topic("intents");
    scene.kafka.delete_topic(&topic).unwrap();
    let made = || scene.kafka.create_topic(&topic, scene.partitions).is_ok();
    wait_until(DEADLINE, "the topic is gone and there again", made);
    // The controller has both; the broker may still take records for the topic before.
    let is_empty = || scene.kafka.end_offsets(&topic).is_ok_and(|ends| ends.iter().all(|end| *end == 0));
    wait_until(DEADLINE, "the broker has the topic that is new", is_empty);
}

#[test]
fn in_a_recreated_topic_old_ids_are_duplicates_at_the_same_offsets_and_new_ones_are_decided() {
    for (name, survives) in [("recreated", false), ("survives", true)] {
        let scene = Scene::new(name, 2, POLICY);
        publish(&scene, OLD);
        decided(&scene);
        let member: BoundedConsumer = scene.kafka.config().set("group.id", &scene.name).create().unwrap();
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_range(&scene.topic("intents"), 0, scene.partitions - 1);
        let committed = member.committed_offsets(partitions, DEADLINE).unwrap();
        recreate(&scene);
        publish(&scene, OLD.into_iter().chain(NEW));
        if survives {
            // As where a transaction of a worker ends after the topic was deleted: it is not taken for an offset of the recreated topic.
            member.commit(&committed, CommitMode::Sync).unwrap();
            assert_eq!(scene.done(), 6);
        }
        drop(member);
        decided(&scene);
        assert_all(&scene, &OLD, &["approved", "duplicate"]);
        assert_all(&scene, &NEW, &["approved"]);
    }
}

#[test]
fn a_start_at_the_end_is_committed_before_anything_is_read_and_a_crash_skips_nothing() {
    let scene = scene_from_latest("latest", 2);
    publish(&scene, OLD);
    let mut worker = scene.ready("only");
    let ends: Vec<Option<i64>> = vec![Some(3), Some(3)];
    let committed = scene.kafka.committed(&scene.name, &scene.topic("intents")).unwrap();
    worker.kill();
    assert_eq!(committed, ends, "nothing was read, and its start is committed");
    publish(&scene, NEW);
    decided(&scene);
    assert_all(&scene, &OLD, &[]);
    assert_all(&scene, &NEW, &["approved"]);

    // Where retention has deleted the committed offset, what is left is decided.
    publish(&scene, ADDED);
    scene.kafka.delete_records(&scene.topic("intents"), 0, 7).unwrap();
    decided(&scene);
    let (deleted, left): (Vec<&str>, Vec<&str>) = ADDED.iter().partition(|id| ["n-1", "n-3"].contains(id));
    assert_all(&scene, &deleted, &[]);
    assert_all(&scene, &left, &["approved"]);
}

fn scene_from_latest(name: &str, partitions: i32) -> Scene {
    let mut scene = Scene::new(name, partitions, POLICY);
    scene.set("WEIR__KAFKA__PROPERTIES__AUTO_OFFSET_RESET", "latest");
    scene
}

fn started(scene: &Scene) -> Worker {
    let worker = scene.ready("only");
    scene.wait_at_end(&scene.name, &scene.topic("intents"));
    worker
}

/// Gives the intents topic more partitions, and publishes intents of these ids to those that are new, by turns.
fn add_partitions(scene: &mut Scene, count: i32, ids: &[&str]) {
    let before = scene.partitions;
    scene.kafka.grow_topic(&scene.topic("intents"), count).unwrap();
    scene.partitions = count;
    let record = |(place, id): (usize, &&str)| {
        intent(id, USER, json!({})).partition(before + i32::try_from(place).unwrap() % (count - before))
    };
    scene.publish(ids.iter().enumerate().map(record));
}

const ADDED: [&str; 10] = ["n-1", "n-2", "n-3", "n-4", "n-5", "n-6", "n-7", "n-8", "n-9", "n-10"];

#[test]
fn partitions_that_are_added_start_at_their_beginning_though_the_group_started_at_the_end() {
    let mut scene = scene_from_latest("latest-added", 6);
    publish(&scene, OLD);
    let mut worker = started(&scene);
    // Published before the worker sees the partitions.
    add_partitions(&mut scene, 8, &ADDED);
    scene.drain(&mut worker);
    stop(&mut worker);
    assert_all(&scene, &ADDED, &["approved"]);
    // The same while no instance runs, and of two partitions one is empty.
    add_partitions(&mut scene, 10, &NEW[..1]);
    decided(&scene);
    assert_all(&scene, &NEW[..1], &["approved"]);
    assert_all(&scene, &OLD, &[]);
}

#[test]
fn at_a_first_start_of_many_lanes_none_takes_a_partition_for_an_added_one() {
    let mut scene = scene_from_latest("latest-many", 6);
    scene.set("WEIR__WORKER__LANES", "3");
    publish(&scene, OLD);
    let mut workers = scene.all_ready(["one", "other"]);
    scene.wait_at_end(&scene.name, &scene.topic("intents"));
    publish(&scene, NEW);
    scene.wait_until_drained();
    workers.iter_mut().for_each(|worker| drop(stop(worker)));
    assert_all(&scene, &NEW, &["approved"]);
    assert_all(&scene, &OLD, &[]);
}

#[test]
fn an_added_partition_starts_while_an_open_transaction_has_the_offset_of_another() {
    let mut scene = scene_from_latest("latest-pending", 2);
    publish(&scene, OLD);
    stop(&mut started(&scene));
    // As of a member that commits all the time: until it ends, Kafka does not say what is committed of partition 1.
    let topic = scene.topic("intents");
    let member: BoundedConsumer = scene.kafka.config().set("group.id", &scene.name).create().unwrap();
    let mut config = scene.kafka.config();
    config.set("transactional.id", &scene.name).set("transaction.timeout.ms", "600000");
    let producer: BaseProducer = config.create().unwrap();
    producer.init_transactions(DEADLINE).unwrap();
    producer.begin_transaction().unwrap();
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(&topic, 1, Offset::Offset(3)).unwrap();
    producer.send_offsets_to_transaction(&offsets, &member.group_metadata().unwrap(), DEADLINE).unwrap();
    add_partitions(&mut scene, 3, &NEW);
    // One has partitions 0 and 1, which it cannot start, and the other one the added one.
    let mut workers = ["one", "other"].map(|instance| scene.worker(instance));
    wait_until(DEADLINE, "what was added is decided", || outcomes(&scene).len() >= NEW.len());
    producer.abort_transaction(DEADLINE).unwrap();
    workers.iter().for_each(wait_ready);
    workers.iter_mut().for_each(|worker| drop(stop(worker)));
    assert_all(&scene, &NEW, &["approved"]);
    assert_all(&scene, &OLD, &[]);
}

#[test]
fn a_topic_that_is_recreated_is_no_first_start_whether_a_worker_runs_or_not() {
    for (name, runs) in [("latest-recreated", true), ("latest-remade", false)] {
        let scene = scene_from_latest(name, 2);
        publish(&scene, OLD);
        let mut worker = started(&scene);
        if !runs {
            stop(&mut worker);
        }
        recreate(&scene);
        let topic = scene.topic("intents");
        let is_deleted = || scene.kafka.committed(&scene.name, &topic).is_ok_and(|committed| committed == [None, None]);
        wait_until(DEADLINE, "Kafka has deleted the offsets with their topic", || runs || is_deleted());
        publish(&scene, NEW);
        if !runs {
            worker = scene.worker("only");
        }
        // Not by what is committed: that may be the old topic's for a while.
        wait_until(DEADLINE, "all are decided", || outcomes(&scene).len() >= NEW.len());
        stop(&mut worker);
        assert_all(&scene, &NEW, &["approved"]);
        assert_all(&scene, &OLD, &[]);
    }
}

#[test]
fn where_the_user_wants_an_error_a_group_without_offsets_does_not_start() {
    let mut scene = Scene::new("error-reset", 1, POLICY);
    scene.set("WEIR__KAFKA__PROPERTIES__AUTO_OFFSET_RESET", "error");
    publish(&scene, OLD);
    let said = refused(&scene);
    assert!(said.contains("auto.offset.reset is error") && said.contains(&scene.topic("intents")), "{said}");
    // As Kafka's own tool does it.
    commit_beginnings(&scene);
    decided(&scene);
    assert_all(&scene, &OLD, &["approved"]);
}

fn rebuild(scene: &Scene) {
    succeed(&mut scene.command(&["rebuild", "--all", "--settle", "0s"]));
}

#[test]
fn a_rebuild_restores_what_the_group_has_committed() {
    let (redis, mut scene) = Scene::with_redis("rebuilt-offsets", 2, POLICY);
    publish(&scene, OLD);
    decided(&scene);
    redis.query::<()>(&["FLUSHALL"]).unwrap();
    // Of this partition nothing was committed, and nothing is lost.
    add_partitions(&mut scene, 3, &ADDED);
    rebuild(&scene);
    // Its offsets are there, so it goes on.
    publish(&scene, NEW);
    decided(&scene);
    assert_all(&scene, &OLD, &["approved"]);
    assert_all(&scene, &ADDED, &["approved"]);
    assert_all(&scene, &NEW, &["approved"]);

    redis.query::<()>(&["FLUSHALL"]).unwrap();
    scene.kafka.delete_group(&scene.name).unwrap();
    rebuild(&scene);
    let said = refused(&scene);
    assert!(said.contains("noted by weir rebuild"), "{said}");
    assert_eq!(outcomes(&scene).len(), OLD.len() + ADDED.len() + NEW.len());
}
