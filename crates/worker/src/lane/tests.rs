//! The lane against fake ends: what it promises whatever fails, and in which order it does things. Readers of topics have the same ends.

mod again;
mod clock;
mod pressure;
mod routes;
mod tokens;
mod traces;
mod unavailable;
mod versions;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    sync::{RwLock, atomic::AtomicBool},
    time::Instant,
};

use weir_core::{
    basis::{
        clocks::{Append, WrongClock},
        current::Current,
        time::Time,
    },
    batch::record::{Destination, Job, NoHeaders, Progress, ReadBefore, RecordView},
    deferral::wheel::Wheel,
    history::{
        admit::AdmitBatch,
        decide::{AdmitVerdict, Answer},
        deferred_send::DeferredSend,
    },
    limit::{
        HeldLimits,
        budget::{BudgetId, ledger::EmbeddedLedger},
        pressure::Pressure,
        route::routes::Routes,
    },
    policy::Policy,
    ports::{CommitError, CommitTimes, GroupEvent, Settled, SourceError, StoreError},
    segment::{SegmentSet, UserIdKind, UserIds},
};

use self::tokens::Tokens;
use super::*;
use crate::{
    budgets::BudgetKeeper,
    clock::{
        SystemClock,
        tests::{Noon, VirtualClock, noon},
    },
    observer::tests::TestObserver,
    tests::parsed_policy,
};

pub(crate) const RECORDS: i64 = 200;
const BATCH: usize = 7;

/// Kafka, as far as a lane sees it: one partition, and what is committed.
#[derive(Default)]
pub(crate) struct World {
    position: i64,
    committed: i64,
    /// The same of each commit.
    pub(crate) progress: Vec<i64>,
    in_flight: bool,
    assigned: bool,
    pending: Option<GroupEvent>,
    /// The partition was put back, and is not read.
    is_asleep: bool,
    /// The offsets whose outputs are visible.
    visible: Vec<i64>,
    pub(crate) polls: usize,
    /// Every so many polls all partitions are revoked, and given back with the next one.
    revoke_every: Option<usize>,
    /// What becomes of the next commits; when empty they succeed.
    commits: VecDeque<Fate>,
    /// Recovery never comes to an end.
    recovery_hangs: bool,
    /// It fails until then, but for the first one.
    recovers_at: Option<Duration>,
    trace: Vec<&'static str>,
    /// Each poll finds one record, and a commit is waited for this often until it is done.
    pub(crate) trickle: Option<usize>,
    /// How often the commit in flight has been waited for.
    waits: usize,
    /// How large the committed batches are.
    sizes: Vec<usize>,
    commit_interval: Duration,
    /// What each commit says that it took.
    times: CommitTimes,
    /// How long each batch was to be filled, at most.
    fills: Vec<Duration>,
    /// When brokers have stamped the records.
    appends: Vec<Append>,
    /// What the group changes, it takes back at once.
    takes_back: bool,
    /// What happens at polls of these numbers, from 1.
    pub(crate) at_polls: BTreeMap<usize, Happens>,
    /// Where the partition ends, behind offsets without a record: it shows once all records are committed; of a topic beside the intents, once
    /// they are read.
    end: Option<i64>,
    /// It is one of a topic beside the intents, on which another record is published with each poll.
    is_topic: bool,
    /// Another one has the producer's id, and no broker answers the consumer.
    pub(crate) is_fenced: bool,
    /// What the policy says beside its cap.
    rules: String,
    /// From when on it says what becomes of intents of shards that are away.
    unavailable_after: Option<Duration>,
    deferred_bytes: usize,
    deferred_shards: Arc<DeferredShards>,
    /// Whether some shard had deferred writes when a commit was waited for last: after a batch is decided, before it is handed over.
    had_deferred: bool,
    /// Where intents are deferred to.
    wheel: Option<Wheel>,
    /// What may have been read before.
    read_before: Option<i64>,
    expires_at: Option<&'static str>,
    ledger: Arc<RwLock<unavailable::Ledger>>,
    /// Who grants the tokens of budgets; `None`: anyone.
    tokens: Option<EmbeddedLedger>,
    /// Whether they do not answer.
    tokens_away: Arc<AtomicBool>,
    permits: Option<Arc<Routes>>,
    /// From which offset read on the policy has other rules, and these.
    edit: Option<(i64, String)>,
    /// The policy and the segments in force, where a test brings its own.
    policy: Option<Arc<Current<Policy>>>,
    segments: Option<Arc<Current<SegmentSet>>>,
    /// Who is active, where the policy says how many may be.
    pressed: Option<Arc<Pressure>>,
    /// Where turns are asked for, and whether nobody takes them.
    turns: AskedTurns,
    no_turns: bool,
    /// Each change of partitions that was taken up, and how many turns were asked for and taken by then.
    settled: Vec<(Option<GroupEvent>, u64, u64)>,
    /// What the lane reads; `None`: the intents.
    task: Option<Task>,
    pub(crate) stop: CancellationToken,
    tracer: Option<Arc<dyn Tracer>>,
    pub(crate) observer: Arc<TestObserver>,
    /// For how long the process is suspended when its lane has read its first records.
    suspended: Option<Duration>,
    /// What other tasks of the process do when it wakes, before its lane goes on.
    others_wake: Option<Box<dyn FnOnce()>>,
    /// For lanes whose waits take no time.
    pub(crate) clock: VirtualClock,
    /// The system's time moves on by waits alone, and how long the lane has taken by it.
    is_paused: bool,
    took: Duration,
}

#[derive(Clone, Copy)]
pub(crate) enum Happens {
    /// This change of partitions is pending from now on; `None`: none is.
    Change(Option<GroupEvent>),
    /// The lane is told to stop.
    Stop,
}

#[derive(Clone, Copy)]
enum Fate {
    /// Refused, nothing is visible.
    Refused,
    /// All is visible, but the answer was lost.
    Unclear,
    /// Somebody else has the transactional id.
    Fenced,
    /// It never ends; the lane is told to stop.
    Hangs,
}

pub(crate) type Shared = Rc<RefCell<World>>;

#[derive(Default)]
pub(crate) struct Batch(Vec<(i64, String)>, Vec<Append>);

impl Records for Batch {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> RecordView<'_> {
        let (offset, value) = &self.0[index];
        let value = Some(value.as_bytes());
        let (offset, headers) = (*offset, &NoHeaders);
        RecordView { key: None, value, partition: 0, offset, timestamp: None, headers, deferral: None }
    }

    fn appends(&self) -> &[Append] {
        &self.1
    }
}

pub(crate) struct FakeSource(Shared, Vec<Progress>, Instant);

/// How long a lane may run.
const LANE_DEADLINE: Duration = Duration::from_secs(150);

impl FakeSource {
    fn start(&mut self) {
        let mut world = self.0.borrow_mut();
        assert!(!world.in_flight, "reading starts anew while a batch is being committed");
        let committed = Progress { partition: 0, next_offset: world.committed };
        (world.position, world.is_asleep) = (world.committed, false);
        self.1 = vec![committed];
    }
}

impl Source for FakeSource {
    type Batch = Batch;
    type Membership = ();

    fn batch(&self) -> Batch {
        Batch::default()
    }

    async fn poll(&mut self, batch: &mut Batch, max: usize, wait: Duration) -> Result<Option<GroupEvent>, SourceError> {
        assert!(self.2.elapsed() < LANE_DEADLINE, "the lane does not end");
        // Until an end is committed, or the partition is read again, time has to pass.
        let waits = {
            let world = self.0.borrow();
            let is_at_end = world.end.is_some() && world.position >= RECORDS;
            (is_at_end || world.is_asleep).then(|| world.clock.clone())
        };
        if let Some(clock) = waits {
            clock.sleep(wait).await;
        }
        let mut world = self.0.borrow_mut();
        if max > 0 && batch.is_empty() {
            world.fills.push(wait);
        }
        if world.pending.is_none() && !world.assigned {
            world.pending = Some(GroupEvent::Assigned);
        }
        world.polls += 1;
        if world.is_fenced {
            return Err(SourceError::Temporary("no broker answers".to_owned()));
        }
        let polls = world.polls;
        match world.at_polls.remove(&polls) {
            Some(Happens::Change(event)) => world.pending = event,
            Some(Happens::Stop) => world.stop.cancel(),
            None => {}
        }
        if world.recovery_hangs && world.polls > 1 {
            world.stop.cancel();
        }
        if world.assigned && world.revoke_every.is_some_and(|every| world.polls.is_multiple_of(every)) {
            if world.takes_back {
                return Ok(Some(GroupEvent::Revoked));
            }
            world.pending = Some(GroupEvent::Revoked);
        }
        if world.pending.is_some() {
            return Ok(world.pending);
        }
        let max = if world.trickle.is_some() { max.min(batch.len() + 1) } else { max };
        while !world.is_asleep && batch.len() < max && world.position < RECORDS {
            let offset = world.position;
            let channel = offset % 3;
            let expires_at = world.expires_at.map(|at| format!(r#","expires_at":"{at}""#)).unwrap_or_default();
            let intent = format!(r#"{{"id":"i-{offset}","user_id":"u{offset}","channel":"c{channel}"{expires_at}}}"#);
            batch.0.push((offset, intent));
            world.position += 1;
        }
        if !batch.is_empty()
            && let Some(suspended) = world.suspended.take()
        {
            world.clock.advance(suspended);
            if let Some(others_wake) = world.others_wake.take() {
                others_wake();
            }
        }
        let position = world.position;
        if let Some((_, rules)) = world.edit.take_if(|(at, _)| position >= *at) {
            world.policy.as_ref().unwrap().replace(policy_with(&rules));
        }
        batch.1.clone_from(&world.appends);
        if world.committed == world.end.unwrap_or(RECORDS) {
            world.stop.cancel();
        }
        Ok(None)
    }

    async fn settle(&mut self) -> Result<(), SourceError> {
        {
            let mut world = self.0.borrow_mut();
            let event = world.pending.take();
            world.assigned = event == Some(GroupEvent::Assigned);
            let (asked, taken) = (world.turns.count(), world.turns.count_taken());
            world.settled.push((event, asked, taken));
        }
        self.start();
        Ok(())
    }

    async fn rewind(&mut self) -> Result<(), SourceError> {
        assert!(self.0.borrow().pending.is_none(), "what is revoked must not be assigned again");
        self.0.borrow_mut().trace.push("rewind");
        self.start();
        Ok(())
    }

    async fn put_back(&mut self, batch: &mut Batch, from: &[(i32, i64)]) -> Result<(), SourceError> {
        let [(0, from)] = from else { unreachable!("there is one partition") };
        batch.0.retain(|(offset, _)| offset < from);
        let mut world = self.0.borrow_mut();
        (world.position, world.is_asleep) = (*from, true);
        Ok(())
    }

    async fn resume(&mut self, _: &[i32]) -> Result<(), SourceError> {
        self.0.borrow_mut().is_asleep = false;
        Ok(())
    }

    fn membership(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn partitions(&self) -> usize {
        usize::from(self.0.borrow().assigned)
    }

    fn starts(&self) -> &[Progress] {
        &self.1
    }

    fn ends_read(&self) -> Vec<Progress> {
        let world = self.0.borrow();
        let shows_from = if world.is_topic { world.position } else { world.committed };
        let end = world.end.filter(|_| shows_from >= RECORDS);
        end.into_iter().map(|next_offset| Progress { partition: 0, next_offset }).collect()
    }

    fn read_before(&self) -> ReadBefore {
        match self.0.borrow().read_before {
            None => ReadBefore::none(),
            Some(end) => ReadBefore::Below(Arc::new([(0, end)].into())),
        }
    }

    fn lag(&self, done: &BTreeMap<i32, i64>) -> Vec<(i32, i64)> {
        let world = self.0.borrow();
        let published = if world.is_topic { RECORDS + i64::try_from(world.polls).unwrap() } else { RECORDS };
        done.iter().map(|(&partition, next)| (partition, published - next)).collect()
    }
}

pub(crate) struct FakeSink(Shared, Option<Job<Batch, ()>>, bool);

impl Sink<Batch, ()> for FakeSink {
    fn submit(&mut self, job: Job<Batch, ()>) {
        let mut world = self.0.borrow_mut();
        assert!(self.2, "nothing is committed before the sink has recovered");
        assert!(!world.in_flight, "one batch at a time");
        assert!(world.assigned && world.pending.is_none(), "nothing is committed for partitions that are given up");
        assert_eq!(job.outputs.len(), job.records.len());
        assert!(world.had_deferred || !job.outputs.iter().any(unavailable::is_recorded_later), "others may ask");
        world.in_flight = true;
        self.1 = Some(job);
    }

    async fn wait(&mut self, wait: Duration) -> Settled {
        if self.1.is_some() && matches!(self.0.borrow().commits.front(), Some(Fate::Hangs)) {
            let clock = self.0.borrow().clock.clone();
            self.0.borrow().stop.cancel();
            clock.sleep(wait.min(Duration::from_millis(10))).await;
            return Settled::Busy;
        }
        let is_busy = {
            let mut world = self.0.borrow_mut();
            world.had_deferred = !world.deferred_shards.is_empty();
            let is_busy = self.1.is_some() && world.trickle.is_some_and(|waits| world.waits < waits);
            world.waits = if is_busy { world.waits + 1 } else { 0 };
            is_busy
        };
        if is_busy {
            let clock = self.0.borrow().clock.clone();
            clock.sleep(wait).await;
            return Settled::Busy;
        }
        let mut world = self.0.borrow_mut();
        let Some(job) = self.1.take() else { return Settled::Idle };
        world.in_flight = false;
        world.sizes.push(job.records.len());
        let fate = world.commits.pop_front();
        if !matches!(fate, Some(Fate::Refused | Fate::Fenced)) {
            let away = world.unavailable_after.is_some();
            let follows = job.records.0.first().is_none_or(|(offset, _)| *offset == world.committed);
            assert!(follows, "batches follow each other without a gap");
            let (expires, pressed) = (world.expires_at.is_some(), world.pressed.is_some());
            let is_any = away || expires || pressed || world.is_topic;
            assert!(is_any || job.outputs.iter().all(|output| output.to == Destination::APPROVED));
            world.ledger.write().unwrap().note(&job);
            let done = job.outputs.iter().zip(&job.records.0).filter(|(output, _)| output.to != Destination::Nowhere);
            world.visible.extend(done.map(|(_, (offset, _))| *offset));
            let next_offset = job.progress[0].next_offset;
            world.committed = next_offset;
            world.progress.push(next_offset);
        }
        match fate {
            None => Settled::Committed(world.times),
            Some(Fate::Refused | Fate::Unclear) => {
                self.2 = false;
                Settled::Failed(CommitError::Failed("by the test".to_owned()))
            }
            Some(Fate::Hangs) => unreachable!("seen above"),
            Some(Fate::Fenced) => Settled::Failed(CommitError::Fenced("another took over".to_owned())),
        }
    }

    async fn recover(&mut self) -> Result<(), CommitError> {
        if self.0.borrow().is_fenced {
            return Err(CommitError::Fenced("fenced".to_owned()));
        }
        let is_first = !self.0.borrow().trace.contains(&"recover");
        self.0.borrow_mut().trace.push("recover");
        let (passed, recovers_at) = (self.0.borrow().clock.passed(), self.0.borrow().recovers_at);
        if !is_first && recovers_at.is_some_and(|at| passed < at) {
            return Err(CommitError::Failed("by the test".to_owned()));
        }
        if self.0.borrow().recovery_hangs {
            std::future::pending::<()>().await;
        }
        self.2 = true;
        Ok(())
    }
}

/// The ends in this world.
pub(crate) fn ends(world: World) -> (Shared, FakeSource, FakeSink) {
    let world = Rc::new(RefCell::new(world));
    let source = FakeSource(Rc::clone(&world), Vec::new(), Instant::now());
    let sink = FakeSink(Rc::clone(&world), None, false);
    (world, source, sink)
}

/// A topic beside the intents.
pub(crate) fn of_topic() -> World {
    World { end: Some(RECORDS), is_topic: true, ..World::default() }
}

/// A store of so many shards that answers so, and says so which of them are back. It is told of no send after the fact.
struct TestStore<A, W> {
    shards: u16,
    answer: A,
    watch: W,
}

impl<A, W> Store for TestStore<A, W>
where
    A: FnMut(&AdmitBatch<'_>, &mut [Option<Answer>]) -> Result<(), StoreError> + Send,
    W: FnMut(&BTreeSet<u16>) -> Vec<u16> + Send,
{
    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        (self.answer)(batch, answers)
    }

    fn shards(&self) -> u16 {
        self.shards
    }

    fn watch(&mut self, away: &BTreeSet<u16>) -> Vec<u16> {
        (self.watch)(away)
    }

    async fn record(&mut self, _: &[DeferredSend], _: Time) -> Result<(), StoreError> {
        unreachable!("nothing is owed")
    }
}

/// A store that is asked until it answers. `answer` is what it does when it is asked.
fn store(answer: impl FnMut(&AdmitBatch<'_>, &mut [Option<Answer>]) -> Result<(), StoreError> + Send) -> impl Store {
    watched(1, answer, |away| {
        assert!(away.is_empty(), "everything waits");
        Vec::new()
    })
}

/// The same, of so many shards, which may be given up and says so which of them are back.
fn watched(
    shards: u16,
    answer: impl FnMut(&AdmitBatch<'_>, &mut [Option<Answer>]) -> Result<(), StoreError> + Send,
    watch: impl FnMut(&BTreeSet<u16>) -> Vec<u16> + Send,
) -> impl Store {
    TestStore { shards, answer, watch }
}

/// Does not answer so many calls before each one that it answers.
fn after(times: usize) -> impl FnMut(&AdmitBatch<'_>, &mut [Option<Answer>]) -> Result<(), StoreError> + Send {
    let mut calls = 0;
    move |batch, answers| {
        calls = (calls + 1) % (times + 1);
        if calls > 0 {
            // Half of the answers come, the rest has to be asked for again.
            fill(&mut answers[..batch.requests.len() / 2], batch.now);
            return Err(is_silent());
        }
        fill(answers, batch.now);
        Ok(())
    }
}

/// A store that answers at once.
fn answers() -> impl Store {
    store(after(0))
}

fn is_silent() -> StoreError {
    StoreError::Temporary("by the test".to_owned())
}

fn refuses() -> StoreError {
    StoreError::NotRecorded("by the test".to_owned())
}

fn has_lost_its_history() -> StoreError {
    StoreError::LostHistory { shards: vec![0], message: "by the test".to_owned() }
}

fn fill(answers: &mut [Option<Answer>], at: Time) {
    answers.fill(Some(Answer { verdict: AdmitVerdict::Allowed, at, ahead: false }));
}

/// The answer of a store that records an intent now, if it has not before.
fn record(recorded: &mut BTreeMap<u64, Time>, id: u64, now: Time) -> Answer {
    let (verdict, at) = match recorded.get(&id) {
        Some(at) => (AdmitVerdict::Replayed, *at),
        None => (AdmitVerdict::Allowed, now),
    };
    recorded.insert(id, at);
    Answer { verdict, at, ahead: false }
}

/// A clock, and what happens when it has been waited for.
struct AfterWait<C, F>(C, F);

impl<C: Clock, F: Fn() + Send + Sync> Clock for AfterWait<C, F> {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn passed(&self) -> Duration {
        self.0.passed()
    }

    async fn sleep(&self, wait: Duration) {
        self.0.sleep(wait).await;
        (self.1)();
    }

    fn time_to_decide(&self, appends: &[Append]) -> Result<Time, WrongClock> {
        self.0.time_to_decide(appends)
    }
}

/// A policy of one a day, with these rules.
fn policy_with(rules: &str) -> Arc<Policy> {
    let caps = "[{ name = \"daily\", limit = 1, window = \"24h\" }]";
    let policy = parsed_policy(&format!("version = \"test\"\ndefault = {{ caps = {caps} }}\n{rules}"));
    Arc::new(Policy { defer_max_ms: 0, ..policy })
}

fn decider(world: &World) -> Decider {
    let World { rules, wheel, permits, pressed, .. } = world;
    let set = SegmentSet::new("test".to_owned(), UserIds::new(UserIdKind::U32, ""), Vec::new());
    let segments = world.segments.clone().unwrap_or_else(|| Current::new(Arc::new(set)));
    let policy = world.policy.clone().unwrap_or_else(|| Current::new(policy_with(rules)));
    let held = HeldLimits { pressure: pressed.clone(), routes: permits.clone(), ..HeldLimits::default() };
    Decider { wheel: *wheel, held, ..Decider::new("intents", segments, policy) }
}

/// How a lane has ended, and the world then.
type Ended = (Result<(), LaneError>, World);

/// Runs a lane in this world until all is committed, or it ends by itself.
fn run(world: World) -> Ended {
    run_with(answers(), world)
}

/// The same, on this store.
fn run_with(store: impl Store, world: World) -> Ended {
    run_by(Noon::default(), store, world)
}

/// The same, by the world's clock: no wait takes time.
fn run_at_once(store: impl Store, world: World) -> Ended {
    run_by(world.clock.clone(), store, world)
}

/// The same, by this clock.
fn run_by(clock: impl Clock, store: impl Store, world: World) -> Ended {
    // What is paused may be ahead of the moment from which the clock of the process counts.
    SystemClock.passed();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(world.is_paused).build();
    let (runtime, stop) = (runtime.unwrap(), world.stop.clone());
    let (decider, tracer) = (decider(&world), world.tracer.clone());
    let metrics = Arc::<TestObserver>::clone(&world.observer);
    let world = World { policy: Some(Arc::clone(&decider.policy)), ..world };
    let (unavailable_after, deferred_bytes) = (world.unavailable_after, world.deferred_bytes);
    let (commit_interval, deferred_shards) = (world.commit_interval, Arc::clone(&world.deferred_shards));
    let (batch, drain) = (BATCH, Duration::from_secs(2));
    let settings = LaneSettings { batch, commit_interval, drain, unavailable_after, deferred_bytes, deferred_shards };
    let task = world.task.unwrap_or(Task::Intents);
    let (world, source, sink) = ends(world);
    let ledger = world.borrow().tokens.clone().unwrap_or_else(|| EmbeddedLedger::new("only", || SystemClock.now()));
    let tokens = Tokens { ledger, are_away: Arc::clone(&world.borrow().tokens_away) };
    let (keeper, budgets) = BudgetKeeper::new(move || tokens.clone(), SystemClock, Arc::new(TestObserver::default()));
    let _keeper = runtime.spawn(keeper.run());
    let (turns, no_turns) = (world.borrow().turns.clone(), world.borrow().no_turns);
    if !no_turns {
        runtime.spawn(take_turns(turns.clone()));
    }
    let mut lane = Lane {
        source,
        sink,
        store,
        clock,
        task,
        decider,
        budgets: budgets.claimant(),
        turns,
        settings,
        stop,
        metrics,
        tracer,
        status: Arc::default(),
    };
    let (end, took) = runtime.block_on(async {
        let began_at = SystemClock.passed();
        (lane.run().await, SystemClock.passed() - began_at)
    });
    drop(lane);
    runtime.block_on(budgets.close());
    (end, World { took, ..Rc::into_inner(world).unwrap().into_inner() })
}

async fn take_turns(turns: AskedTurns) {
    loop {
        let count = turns.count();
        turns.taken(count);
        turns.more_than(count).await;
    }
}

#[track_caller]
fn each_once(world: &World) {
    assert_eq!(world.visible, (0..RECORDS).collect::<Vec<_>>(), "each record's output is visible once, in order");
}

/// The world of a lane that has ended in order, once all was done.
#[track_caller]
fn done((end, world): Ended) -> World {
    end.unwrap();
    each_once(&world);
    world
}

#[test]
fn a_batch_that_the_store_needs_too_long_for_is_decided_in_smaller_ones() {
    for most in [1, 2, 5] {
        // At most so many requests of a batch are answered before it has taken too long.
        let slow = store(move |batch, answers| {
            let most = answers.len().min(most);
            fill(&mut answers[..most], batch.now);
            if most < batch.requests.len() { Err(StoreError::TooSlow("by the test".to_owned())) } else { Ok(()) }
        });
        let world = done(run_at_once(slow, World::default()));
        assert!(world.trace.contains(&"rewind"), "{:?}", world.trace);
    }
}

#[test]
fn each_record_is_committed_once_whatever_becomes_of_commits() {
    let fates = [Fate::Refused, Fate::Unclear, Fate::Unclear, Fate::Refused, Fate::Refused, Fate::Unclear];
    let world = done(run(World { commits: fates.into(), ..World::default() }));
    let recoveries = world.trace.iter().filter(|step| **step == "recover").count();
    assert_eq!(recoveries, fates.len() + 1, "one at the start, one after each failure");
    let rewinds = world.trace.windows(2).filter(|steps| steps == &["recover", "rewind"]).count();
    assert_eq!(rewinds, fates.len(), "the sink recovers first, then the source goes back");
}

#[test]
fn each_record_is_committed_once_whenever_partitions_are_given_up() {
    // A batch takes two polls; what comes more often than every sixth could take every batch away.
    for revoke_every in [6, 7, 8, 9, 11, 17, 23] {
        done(run(World { revoke_every: Some(revoke_every), ..World::default() }));
    }
}

#[test]
fn a_change_of_partitions_that_the_group_takes_back_loses_no_record() {
    // Every eighth poll is one after a batch was decided: that is forgotten.
    let world = done(run_at_once(answers(), World { revoke_every: Some(8), takes_back: true, ..World::default() }));
    assert!(world.trace.contains(&"rewind"), "{:?}", world.trace);
}

#[test]
fn the_end_of_a_partition_is_committed_where_nothing_but_offsets_without_a_record_is_left() {
    let world = done(run_at_once(answers(), World { end: Some(RECORDS + 3), ..World::default() }));
    assert_eq!(world.committed, RECORDS + 3);
    assert_eq!(world.sizes.last(), Some(&0), "by a batch without records");
}

#[test]
fn a_batch_that_is_not_full_grows_until_the_one_before_is_committed() {
    let world = done(run(World { trickle: Some(3), ..World::default() }));
    // Nothing is being committed before the first, and nothing is left for the last.
    let [_, grown @ .., _] = world.sizes.as_slice() else { unreachable!("many batches") };
    assert!(grown.iter().all(|size| *size > 1), "{grown:?}");
}

#[test]
fn a_fenced_lane_ends_with_the_reason_and_commits_nothing_more() {
    let (end, world) = run(World { commits: [Fate::Fenced].into(), ..World::default() });
    let LaneError::Fatal(message) = end.unwrap_err();
    assert_eq!(message, "another took over");
    assert!(world.visible.is_empty());
}

#[test]
fn a_stop_is_heard_while_a_commit_or_the_recovery_of_the_producer_hangs() {
    let hung_commit = World { commits: [Fate::Hangs].into(), ..World::default() };
    let hung_recovery = World { recovery_hangs: true, ..World::default() };
    for world in [hung_commit, hung_recovery] {
        let (end, world) = run_at_once(answers(), world);
        end.unwrap();
        assert!(world.clock.passed() < Duration::from_secs(2), "within the time to drain");
        assert!(world.polls > 1, "the group was served meanwhile");
        assert!(world.visible.is_empty());
    }
}

#[test]
fn a_batch_is_open_for_what_its_commit_is_expected_to_leave_of_the_interval() {
    let times = CommitTimes { flush: Duration::from_secs(3), commit: Duration::from_secs(1), ..CommitTimes::default() };
    let world = done(run(World { commit_interval: Duration::from_secs(10), times, ..World::default() }));
    let (first, last) = (world.fills[0], world.fills[world.fills.len() - 1]);
    assert!(first > Duration::from_secs(9), "nothing is known of commits yet: {first:?}");
    assert!((5..=6).contains(&last.as_secs()), "four seconds of ten are expected to be taken: {last:?}");
}

/// All is asked again.
#[test]
fn answers_of_before_a_loss_are_void() {
    let (mut losses, mut asked_anew) = (3, 0);
    // Answers half and says that the rest lost its history; then wants to be asked for everything.
    let lossy = store(|batch, answers| {
        assert!(answers.iter().all(Option::is_none), "an answer of before the loss is kept");
        if losses > 0 {
            losses -= 1;
            fill(&mut answers[..batch.requests.len() / 2], batch.now);
            return Err(has_lost_its_history());
        }
        asked_anew += 1;
        fill(answers, batch.now);
        Ok(())
    });
    done(run_with(lossy, World::default()));
    assert!(asked_anew > 0);
}
