//! The reader against fake ends: how far it commits, and when it ends.

use std::{cell::RefCell, rc::Rc};

use tokio::time::timeout;
use weir_core::{
    batch::record::{Job, Progress, ReadBefore, RecordView},
    ports::{CommitError, GroupEvent, Settled, SourceError},
};

use super::*;
use crate::{
    clock::tests::VirtualClock,
    observer::{BesideTopic, tests::TestObserver},
    tests::{Row, Rows},
};

const RECORDS: i64 = 10;
const DEADLINE: Duration = Duration::from_secs(60);

/// Kafka, as far as a reader sees it: one partition, and what is committed.
#[derive(Default)]
struct World {
    position: i64,
    is_assigned: bool,
    polls: usize,
    /// After so many polls the reader is told to stop; else once all is committed.
    stops_after: Option<usize>,
    commits: Vec<i64>,
    /// A poll reads one record.
    reads_one: bool,
    /// No commit comes to its end.
    commits_hang: bool,
    /// Another one has the producer's id, and no broker answers the consumer.
    is_fenced: bool,
    observer: Arc<TestObserver>,
}

impl World {
    fn committed(&self) -> i64 {
        self.commits.last().copied().unwrap_or_default()
    }
}

type Shared = Rc<RefCell<World>>;

struct FakeSource {
    world: Shared,
    starts: Vec<Progress>,
    clock: VirtualClock,
    stop: CancellationToken,
}

impl Source for FakeSource {
    type Batch = Rows;
    type Membership = ();

    fn batch(&self) -> Rows {
        Rows::default()
    }

    async fn poll(&mut self, batch: &mut Rows, max: usize, wait: Duration) -> Result<Option<GroupEvent>, SourceError> {
        if self.world.borrow().position >= RECORDS {
            self.clock.sleep(wait).await;
        }
        let mut world = self.world.borrow_mut();
        world.polls += 1;
        if world.is_fenced {
            return Err(SourceError::Temporary("no broker answers".to_owned()));
        }
        let is_over = match world.stops_after {
            Some(polls) => world.polls > polls,
            None => world.committed() == RECORDS,
        };
        if is_over {
            self.stop.cancel();
        }
        if !world.is_assigned {
            return Ok(Some(GroupEvent::Assigned));
        }
        let most = if world.reads_one { max.min(1) } else { max };
        while batch.len() < most && world.position < RECORDS {
            batch.0.push(Row { offset: world.position, ..Row::default() });
            world.position += 1;
        }
        Ok(None)
    }

    async fn settle(&mut self) -> Result<(), SourceError> {
        self.world.borrow_mut().is_assigned = true;
        self.rewind().await
    }

    async fn rewind(&mut self) -> Result<(), SourceError> {
        let committed = self.world.borrow().committed();
        self.world.borrow_mut().position = committed;
        self.starts = vec![Progress { partition: 0, next_offset: committed }];
        Ok(())
    }

    async fn put_back(&mut self, _: &mut Rows, _: &[(i32, i64)]) -> Result<(), SourceError> {
        unreachable!("a reader puts nothing back")
    }

    async fn resume(&mut self, _: &[i32]) -> Result<(), SourceError> {
        unreachable!("a reader puts nothing back")
    }

    fn membership(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn partitions(&self) -> usize {
        1
    }

    fn starts(&self) -> &[Progress] {
        &self.starts
    }

    fn ends_read(&self) -> Vec<Progress> {
        let is_at_end = self.world.borrow().position >= RECORDS;
        if is_at_end { vec![Progress { partition: 0, next_offset: RECORDS }] } else { Vec::new() }
    }

    fn read_before(&self) -> ReadBefore {
        ReadBefore::none()
    }

    /// Another record is published with each poll.
    fn lag(&self, done: &BTreeMap<i32, i64>) -> Vec<(i32, i64)> {
        let published = RECORDS + i64::try_from(self.world.borrow().polls).unwrap();
        done.iter().map(|(&partition, next)| (partition, published - next)).collect()
    }
}

struct FakeSink(Shared, Option<Job<Rows, ()>>, VirtualClock);

impl Sink<Rows, ()> for FakeSink {
    fn submit(&mut self, job: Job<Rows, ()>) {
        self.1 = Some(job);
    }

    async fn wait(&mut self, wait: Duration) -> Settled {
        let hangs = self.1.is_some() && self.0.borrow().commits_hang;
        if hangs {
            self.2.sleep(wait).await;
            return Settled::Busy;
        }
        let Some(job) = self.1.take() else { return Settled::Idle };
        self.0.borrow_mut().commits.push(job.progress[0].next_offset);
        Settled::Committed(CommitTimes::default())
    }

    async fn recover(&mut self) -> Result<(), CommitError> {
        if self.0.borrow().is_fenced { Err(CommitError::Fenced("fenced".to_owned())) } else { Ok(()) }
    }
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
fn run(feed: TestFeed, world: World) -> (TestFeed, World, Duration) {
    let (end, feed, world, passed) = end_of(feed, world);
    end.unwrap();
    (feed, world, passed)
}

fn end_of(feed: TestFeed, world: World) -> (Result<(), LaneError>, TestFeed, World, Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (world, clock, stop) = (Rc::new(RefCell::new(world)), VirtualClock::default(), CancellationToken::new());
    let metrics = Arc::<TestObserver>::clone(&world.borrow().observer);
    let (source_world, source_clock, source_stop) = (Rc::clone(&world), clock.clone(), stop.clone());
    let mut reader = TopicReader {
        topic: "refunds".into(),
        source: FakeSource { world: source_world, starts: Vec::new(), clock: source_clock, stop: source_stop },
        sink: FakeSink(Rc::clone(&world), None, clock.clone()),
        feed,
        clock: clock.clone(),
        limits: Arc::default(),
        drain: Duration::from_secs(2),
        stop,
        metrics,
        status: Arc::default(),
    };
    let end = runtime.block_on(async { timeout(DEADLINE, reader.run()).await });
    let end = end.expect("the reader ends");
    let TopicReader { feed, source, sink, .. } = reader;
    drop((source, sink));
    (end, feed, Rc::into_inner(world).unwrap().into_inner(), clock.passed())
}

#[test]
fn a_record_that_waits_holds_its_partition_back_and_all_is_read_again_from_it_on() {
    let (feed, world, passed) = run(TestFeed { waits: Some(4), ..TestFeed::default() }, World::default());
    assert_eq!(world.commits, [4, RECORDS], "neither what is behind it nor the end is committed before it");
    assert_eq!(feed.taken, [0, 1, 2, 3, 5, 6, 7, 8, 9, 4, 5, 6, 7, 8, 9]);
    assert!(passed >= LOOK_EVERY, "there was one look before, after {passed:?}");
}

#[test]
fn the_group_is_served_and_a_stop_is_heard_while_a_feed_does_not_answer() {
    let feed = TestFeed { hangs: true, ..TestFeed::default() };
    let (_, world, _) = run(feed, World { stops_after: Some(20), ..World::default() });
    assert!(world.polls > 20 && world.commits.is_empty(), "{} polls", world.polls);
}

#[test]
fn the_lag_is_shown_while_a_feed_or_a_commit_fails_or_hangs() {
    let fails = (TestFeed { fails: true, ..TestFeed::default() }, World::default());
    let hangs = (TestFeed { hangs: true, ..TestFeed::default() }, World::default());
    let commit = (TestFeed::default(), World { reads_one: true, commits_hang: true, ..World::default() });
    for (place, (feed, world)) in [fails, hangs, commit].into_iter().enumerate() {
        let (_, world, _) = run(feed, World { stops_after: Some(20), ..world });
        let lags = world.observer.lags.read().unwrap();
        assert!(world.commits.is_empty() && lags.iter().all(|(topic, _)| *topic == BesideTopic::Refunds));
        let (first, last) = (lags.first().unwrap().1, lags.last().unwrap().1);
        assert!(first >= RECORDS && last > first + 5, "it grows, {place}: {lags:?}");
    }
}

#[test]
fn a_reader_that_is_fenced_ends_though_no_broker_answers() {
    let (end, _, world, _) = end_of(TestFeed::default(), World { is_fenced: true, ..World::default() });
    let LaneError::Fatal(message) = end.unwrap_err();
    assert!(message.ends_with("fenced"), "{message}");
    assert_eq!(world.polls, 0);
}
