//! The promise: a member that answers the group late loses none of its partitions.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::support::{DEADLINE, POLICY, Scene};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer},
};
use testkit::{
    kafka::{Api, BoundedConsumer, Fate, Kafka, Moment, Record, Trap},
    wait_until,
};
use weir::cli::assemble;
use weir_core::{
    batch::record::Records,
    deferral::wheel::Ring,
    ports::{GroupEvent, Source, SourceError},
};
use weir_kafka::{
    client::{KafkaOptions, WheelTopics},
    source::KafkaSource,
};

const PARTITIONS: i32 = 4;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A member's options, which looks for new partitions twice a second.
fn options(scene: &Scene) -> Arc<KafkaOptions> {
    let file = scene.path("weir.toml");
    std::fs::write(&file, scene.config("late")).unwrap();
    let mut options = assemble::kafka(&assemble::settings(&file).unwrap().kafka);
    options.properties.insert("topic.metadata.refresh.interval.ms".to_owned(), "500".to_owned());
    Arc::new(options)
}

/// Polls a member once; gives the partitions of what it read.
fn poll(member: &mut KafkaSource) -> (Option<GroupEvent>, BTreeSet<i32>) {
    let mut batch = member.batch();
    let event = block_on(member.poll(&mut batch, 1_000, Duration::from_millis(50))).unwrap();
    (event, (0..batch.len()).map(|index| batch.get(index).partition).collect())
}

/// Polls one member, whose event stays as it is, until it has this one.
fn until_event(member: &mut KafkaSource, wanted: GroupEvent) {
    let start = Instant::now();
    while poll(member).0 != Some(wanted) {
        assert!(start.elapsed() < DEADLINE, "{wanted:?} is not there in time");
    }
}

/// Polls two members, whose events stay as they are, until they have these.
fn until_events(members: [&mut KafkaSource; 2], wanted: [GroupEvent; 2]) {
    let start = Instant::now();
    let [one, two] = members;
    while [poll(one).0, poll(two).0] != wanted.map(Some) {
        assert!(start.elapsed() < DEADLINE, "{wanted:?} are not there in time");
    }
}

/// Polls two members, and takes up what they are given, until this is so of how many partitions they have.
fn until_they_have(members: [&mut KafkaSource; 2], is_so: impl Fn([usize; 2]) -> bool) {
    let start = Instant::now();
    let [one, two] = members;
    while !is_so([one.partitions(), two.partitions()]) {
        for member in [&mut *one, &mut *two] {
            if poll(member).0.is_some()
                && let Err(SourceError::Fatal(reason)) = block_on(member.settle())
            {
                panic!("{reason}");
            }
        }
        assert!(start.elapsed() < DEADLINE, "{} and {} partitions", one.partitions(), two.partitions());
    }
}

/// Takes up what a member was given last: the group may have given its partitions again meanwhile.
fn settle(member: &mut KafkaSource) {
    let start = Instant::now();
    while let Err(error) = block_on(member.settle()) {
        assert!(matches!(error, SourceError::Temporary(_)) && start.elapsed() < DEADLINE, "{error:?}");
        poll(member);
    }
}

/// The group has committed the beginning of all partitions, so that no start is committed by a generation that is over: that
/// would be refused, and no answer be given.
pub(super) fn commit_beginnings(scene: &Scene) {
    let somebody: BoundedConsumer = scene.kafka.config().set("group.id", &scene.name).create().unwrap();
    let mut offsets = TopicPartitionList::new();
    for partition in 0..scene.partitions {
        offsets.add_partition_offset(&scene.topic("intents"), partition, Offset::Offset(0)).unwrap();
    }
    somebody.commit(&offsets, CommitMode::Sync).unwrap();
}

/// A member that has answered its revocation, and another one that has just joined. One joins behind the other, so that the second
/// generation is the only one that has both.
fn two_members(scene: &Scene) -> [KafkaSource; 2] {
    let options = options(scene);
    commit_beginnings(scene);
    let mut late = KafkaSource::join(&options).unwrap();
    until_event(&mut late, GroupEvent::Assigned);
    block_on(late.settle()).unwrap();
    let other = KafkaSource::join(&options).unwrap();
    until_event(&mut late, GroupEvent::Revoked);
    block_on(late.settle()).unwrap();
    [late, other]
}

/// A member does not look for its assignment. The topic grows: its client rejoins without a revocation, and commits by the new
/// generation, whose partitions are others.
#[test]
fn an_assignment_that_is_noticed_when_the_group_has_moved_on_is_not_taken_up() {
    let scene = Scene::new("unnoticed", PARTITIONS, POLICY);
    let [mut late, mut other] = two_members(&scene);
    until_event(&mut other, GroupEvent::Assigned);
    settle(&mut other);
    assert_eq!(other.partitions(), PARTITIONS as usize / 2);

    // Half of the new partitions are the other's, so both get others than before.
    let grown = 3 * PARTITIONS;
    scene.kafka.grow_topic(&scene.topic("intents"), grown).unwrap();
    // The leader may hear of the new partitions in parts: the first generation after that need not have all of them.
    let start = Instant::now();
    while other.partitions() != grown as usize / 2 {
        if poll(&mut other).0.is_some() {
            settle(&mut other);
        }
        assert!(start.elapsed() < DEADLINE, "{} partitions", other.partitions());
    }

    // One event at a time: the first assignment is answered before the second one is seen.
    let (mut refused, start) = (0, Instant::now());
    while late.partitions() < grown as usize / 2 {
        let mut batch = late.batch();
        if block_on(late.poll(&mut batch, 1, Duration::ZERO)).unwrap().is_some() {
            match block_on(late.settle()) {
                Ok(()) => assert!([0, grown as usize / 2].contains(&late.partitions()), "{}", late.partitions()),
                Err(SourceError::Temporary(_)) => refused += 1,
                Err(SourceError::Fatal(reason)) => panic!("{reason}"),
            }
        }
        assert!(start.elapsed() < DEADLINE, "no assignment holds");
    }
    assert!(refused > 0, "the first assignment was not refused");
}

/// A member gets partitions and does not answer yet. Its heartbeats stop until its group has dropped it: the client that is told so
/// waits for the answer to that assignment before it joins again.
#[test]
fn a_member_that_is_dropped_before_it_answers_joins_again() {
    let kafka = Kafka::start_tapped(1).unwrap();
    // The member reaches the broker through its tap, the test does not.
    let nowhere = vec!["redis://127.0.0.1:1".to_owned()];
    let scene = Scene::on(kafka.tapped_client(), nowhere, "dropped", PARTITIONS, POLICY);
    let observer: BoundedConsumer = kafka.client().config().create().unwrap();
    let members = || observer.fetch_group_list(Some(&scene.name), DEADLINE).unwrap().groups()[0].members().len();
    let mut member = KafkaSource::join(&options(&scene)).unwrap();
    until_event(&mut member, GroupEvent::Assigned);
    assert_eq!(members(), 1);

    kafka.tap(0).arm(Trap { api: Api::Heartbeat, moment: Moment::Request, fate: Fate::Hold });
    wait_until(DEADLINE, "the group drops its silent member", || members() == 0);
    assert!(kafka.tap(0).is_sprung());
    kafka.tap(0).disarm();

    settle(&mut member);
    kafka
        .client()
        .publish(&scene.topic("intents"), (0..PARTITIONS).map(|at| Record::new("user", "{}").partition(at)))
        .unwrap();
    let (mut read, start) = (BTreeSet::new(), Instant::now());
    while read.len() < PARTITIONS as usize {
        let (event, more) = poll(&mut member);
        read.extend(more);
        if event.is_some() {
            settle(&mut member);
        }
        assert!(start.elapsed() < DEADLINE, "not in its group any more: only {read:?} were read");
    }
    assert_eq!(members(), 1);
}

/// A member gets partitions and does not answer yet. The topic grows: its client rejoins at once, without a revocation, and
/// gets some of the partitions again.
#[test]
fn an_answer_to_a_generation_that_is_over_loses_no_partition() {
    let scene = Scene::new("late", PARTITIONS, POLICY);
    let [mut late, mut other] = two_members(&scene);
    until_events([&mut late, &mut other], [GroupEvent::Assigned; 2]);
    block_on(other.settle()).unwrap();

    scene.kafka.grow_topic(&scene.topic("intents"), PARTITIONS + 1).unwrap();
    until_events([&mut late, &mut other], [GroupEvent::Assigned, GroupEvent::Revoked]);
    // The late one is told its committed offsets only with the next generation, for which the other one must answer.
    let settled: Result<(), SourceError> = thread::scope(|scope| {
        let settling = scope.spawn(|| block_on(late.settle()));
        block_on(other.settle()).unwrap();
        settling.join().unwrap()
    });
    assert!(!matches!(settled, Err(SourceError::Fatal(_))), "{settled:?}");

    until_they_have([&mut late, &mut other], |[late, other]| late + other == PARTITIONS as usize + 1);
    let all: BTreeSet<i32> = (0..=PARTITIONS).collect();
    scene.publish(all.iter().map(|partition| Record::new("user", "{}").partition(*partition)));
    let (mut read, start) = (BTreeSet::new(), Instant::now());
    while read != all {
        for member in [&mut late, &mut other] {
            read.extend(poll(member).1);
        }
        assert!(start.elapsed() < DEADLINE, "partitions that nobody reads: only {read:?} were read");
    }
}

#[test]
fn the_two_shares_of_each_bucket_go_to_two_lanes() {
    let scene = Scene::new("shares", 1, POLICY);
    let wheel = WheelTopics::of(&scene.create_wheel("deferred", 2));
    let options = options(&scene).for_ring(&wheel, Ring::Minutes);
    let [mut one, mut other] = [0, 1].map(|_| KafkaSource::join(&options).unwrap());
    until_they_have([&mut one, &mut other], |found| found == [120; 2]);
    for member in [one, other] {
        let shares: BTreeSet<i32> = member.starts().iter().map(|start| start.partition % 2).collect();
        assert_eq!(shares.len(), 1, "a lane has both shares of a minute: {:?}", member.starts());
    }
}
