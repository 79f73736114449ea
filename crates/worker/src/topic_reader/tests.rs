//! The reader against fake ends: how far it commits, and when it ends.

use std::rc::Rc;

use tokio::time::timeout;
use weir_core::batch::record::RecordView;

use super::*;
use crate::{
    lane::tests::{Happens, RECORDS, World, ends, of_topic},
    observer::{BesideTopic, tests::TestObserver},
};

const DEADLINE: Duration = Duration::from_secs(60);

/// The reader is told to stop at the 21st poll; else once all is committed.
fn stopped(mut world: World) -> World {
    world.at_polls = [(21, Happens::Stop)].into();
    world
}

/// Takes all records but one, which waits until the second look.
#[derive(Default)]
struct TestFeed {
    waits: Option<i64>,
    looks: usize,
    hangs: bool,
    /// Whether nothing can be taken.
    fails: bool,
    taken: Vec<i64>,
}

impl Feed for TestFeed {
    const TOPIC: BesideTopic = BesideTopic::Refunds;
    type Item = i64;
    /// Whether it is taken.
    type Outcome = bool;

    fn read(&self, record: &RecordView<'_>, _: Time) -> Result<i64, DeadLetter> {
        Ok(record.offset)
    }

    async fn take(&mut self, _: &Topic, items: &[i64], outcomes: &mut [Option<bool>]) -> Result<(), StoreError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        if self.fails {
            return Err(StoreError::Temporary("by the test".to_owned()));
        }
        for (item, outcome) in items.iter().zip(outcomes) {
            let is_taken = self.waits != Some(*item);
            self.taken.extend(is_taken.then_some(*item));
            *outcome = Some(is_taken);
        }
        Ok(())
    }

    fn label(outcome: bool) -> Option<&'static str> {
        outcome.then_some("taken")
    }

    async fn any_back(&mut self) -> bool {
        self.looks += 1;
        self.waits = self.waits.filter(|_| self.looks < 2);
        self.waits.is_none()
    }
}

/// Runs a reader until it ends in order.
fn run(feed: TestFeed, world: World) -> (TestFeed, World) {
    let (end, feed, world) = end_of(feed, world);
    end.unwrap();
    (feed, world)
}

fn end_of(feed: TestFeed, world: World) -> (Result<(), LaneError>, TestFeed, World) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (clock, stop, metrics) = (world.clock.clone(), world.stop.clone(), Arc::<TestObserver>::clone(&world.observer));
    let (world, source, sink) = ends(world);
    let (topic, drain) = ("refunds".into(), Duration::from_secs(2));
    let (limits, status) = (Arc::default(), Arc::default());
    let mut reader = TopicReader { topic, source, sink, feed, clock, limits, drain, stop, metrics, status };
    let end = runtime.block_on(async { timeout(DEADLINE, reader.run()).await });
    let end = end.expect("the reader ends");
    let TopicReader { feed, source, sink, .. } = reader;
    drop((source, sink));
    (end, feed, Rc::into_inner(world).unwrap().into_inner())
}

#[test]
fn a_record_that_waits_holds_its_partition_back_and_all_is_read_again_from_it_on() {
    let (feed, world) = run(TestFeed { waits: Some(4), ..TestFeed::default() }, of_topic());
    assert_eq!(world.progress, [4, RECORDS], "neither what is behind it nor the end is committed before it");
    let taken: Vec<i64> = (0..RECORDS).filter(|offset| *offset != 4).chain(4..RECORDS).collect();
    assert_eq!(feed.taken, taken);
    let passed = world.clock.passed();
    assert!(passed >= LOOK_EVERY, "there was one look before, after {passed:?}");
}

#[test]
fn the_group_is_served_and_a_stop_is_heard_while_a_feed_does_not_answer() {
    let (_, world) = run(TestFeed { hangs: true, ..TestFeed::default() }, stopped(of_topic()));
    assert!(world.polls > 20 && world.progress.is_empty(), "{} polls", world.polls);
}

#[test]
fn the_lag_is_shown_while_a_feed_or_a_commit_fails_or_hangs() {
    let fails = TestFeed { fails: true, ..TestFeed::default() };
    let hangs = TestFeed { hangs: true, ..TestFeed::default() };
    let mut hung_commit = of_topic();
    hung_commit.trickle = Some(usize::MAX);
    let cases = [(fails, of_topic()), (hangs, of_topic()), (TestFeed::default(), hung_commit)];
    for (place, (feed, world)) in cases.into_iter().enumerate() {
        let (_, world) = run(feed, stopped(world));
        let lags = world.observer.lags.read().unwrap();
        assert!(world.progress.is_empty() && lags.iter().all(|(topic, _)| *topic == BesideTopic::Refunds));
        let (first, last) = (lags.first().unwrap().1, lags.last().unwrap().1);
        assert!(first >= RECORDS && last > first + 5, "it grows, {place}: {lags:?}");
    }
}

#[test]
fn a_reader_that_is_fenced_ends_though_no_broker_answers() {
    let mut world = of_topic();
    world.is_fenced = true;
    let (end, _, world) = end_of(TestFeed::default(), world);
    let LaneError::Fatal(message) = end.unwrap_err();
    assert!(message.ends_with("fenced"), "{message}");
    assert_eq!(world.polls, 0);
}
