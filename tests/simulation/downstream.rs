//! What keepers see of the route: the offsets of its approved topic, partition by partition, as its consumers commit them, and the
//! intents that wait for it.

use weir_core::limit::route::{
    Waiting,
    pace::{Delivered, Lag, PartitionLag},
};
use weir_worker::routes::{AskingBack, Looking, LooksAtRoutes, Offsets, RouteOffsets};

use super::{permits::Standing, prelude::*};

pub const PARTITIONS: usize = 3;

pub fn partition_of(key: &str) -> usize {
    key.parse::<usize>().expect("users are numbers") % PARTITIONS
}

#[derive(Debug, Clone, Copy, Default)]
struct Partition {
    /// Records that were there before the run.
    before: u64,
    /// Offsets that the run has written, visible or not.
    written: u64,
    /// How many of them the committed offset has passed, and had passed when it was committed first; `None`: nothing is committed.
    passed: Option<(u64, u64)>,
}

/// What a look at the broker finds of the route.
#[derive(Debug, Default)]
pub struct Downstream {
    /// The topic that the consumers read; `None`: there is no route.
    topic: Option<ApprovedTopic>,
    partitions: [Partition; PARTITIONS],
    /// How many of all outputs are counted in these.
    counted: usize,
    /// Of each partition, the first offset that waits, and when those were written that do.
    waiting: Vec<(u64, Vec<Duration>)>,
    /// Rebalances of the groups that take permits.
    pub rebalances: u64,
    /// The policy has no route now.
    pub is_removed: bool,
}

impl Downstream {
    pub fn of(paced: Option<&Paced>) -> Self {
        let Some(paced) = paced else { return Self::default() };
        let partition = |place: usize| Partition {
            before: paced.before,
            written: 0,
            passed: paced.begins[place].is_zero().then_some((0, 0)),
        };
        Self { topic: Some(paced.topic()), partitions: std::array::from_fn(partition), ..Self::default() }
    }

    /// Offsets of the run that the group has not passed: approved records that are not delivered, and such without a record.
    pub fn undelivered(&self) -> u64 {
        let left = |partition: &Partition| partition.written - partition.passed.map_or(0, |(passed, _)| passed);
        self.partitions.iter().map(left).sum()
    }

    /// Offsets that the group has passed since it committed one of their partitions first.
    fn delivered(&self) -> u64 {
        self.partitions.iter().filter_map(|partition| partition.passed).map(|(passed, first)| passed - first).sum()
    }

    /// The group commits how many offsets of the run it has passed in each partition, `None` where it has not begun. Whether these are more.
    pub fn commit(&mut self, passed: &[Option<u64>; PARTITIONS]) -> bool {
        let mut is_more = false;
        for (partition, passed) in self.partitions.iter_mut().zip(passed) {
            let Some(passed) = *passed else { continue };
            let (before, first) = partition.passed.unwrap_or((passed, passed));
            is_more |= passed > before || partition.passed.is_none();
            partition.passed = Some((passed, first));
        }
        is_more
    }

    /// What Kafka tells of each partition. One of which nothing is committed counts from its first record.
    fn lags(&self) -> Vec<(usize, PartitionLag)> {
        let lag = |Partition { before, written, passed }: &Partition| PartitionLag {
            committed: passed.map(|(passed, _)| before + passed),
            undelivered: passed.map_or(before + written, |(passed, _)| written - passed),
        };
        self.partitions.iter().map(lag).enumerate().collect()
    }
}

pub type SharedDownstream = Arc<Mutex<Downstream>>;

impl Broker {
    /// Shows the keepers what is in the topics now.
    pub fn show(&self) {
        let mut downstream = lock(&self.downstream);
        let Some(topic) = downstream.topic else { return };
        for out in &self.outputs[downstream.counted..] {
            if out.to == Destination::Approved(topic) {
                downstream.partitions[partition_of(&out.intent.key)].written += 1;
            }
        }
        downstream.counted = self.outputs.len();
        downstream.rebalances = self.group.rebalances + self.waiting.rebalances;
        let waits = |partition| {
            let next = self.next((Log::Waiting, partition));
            let is_aborted = |transaction| !self.is_open(transaction) && !self.is_committed(transaction);
            let is_there = |stored: &&Stored| !stored.transaction.is_some_and(is_aborted);
            let left = self.records_from((Log::Waiting, partition), next).iter().filter(is_there);
            (u64::try_from(next).unwrap(), left.map(|stored| stored.record.at).collect())
        };
        downstream.waiting = (0..self.partitions(Log::Waiting)).map(waits).collect();
    }
}

/// The offsets of the route as a process sees them: weir's own count of what is delivered, on what Kafka tells.
#[derive(Clone)]
pub struct SimOffsets {
    env: Env,
    downstream: SharedDownstream,
    book: SharedBook,
    process: u64,
    delivered: Delivered<usize>,
    /// What was committed in all at the first look: a planted bug counts from there.
    began: Option<u64>,
}

impl SimOffsets {
    pub fn new(env: &Env, process: u64, (downstream, book): (SharedDownstream, SharedBook)) -> Self {
        Self { env: env.clone(), downstream, book, process, delivered: Delivered::default(), began: None }
    }

    fn lag(&mut self, lags: Vec<(usize, PartitionLag)>) -> Lag {
        let committed = lags.iter().filter_map(|(_, lag)| lag.committed).sum();
        let began = *self.began.get_or_insert(committed);
        let lag = self.delivered.look(lags).lag;
        let began = if self.env.sabotage() == Sabotage::OffsetsCountedAnew { began } else { 0 };
        Lag { end: lag.end + began, committed: lag.committed + began, ..lag }
    }
}

impl LooksAtRoutes for SimOffsets {
    fn of(&self, _: &Route) -> Result<Box<dyn RouteOffsets>, String> {
        // Nobody has looked by this one.
        Ok(Box::new(self.clone()))
    }
}

impl RouteOffsets for SimOffsets {
    fn look(&mut self) -> Looking<'_> {
        Box::pin(async move {
            let env = self.env.clone();
            let began_at = env.passed();
            env.sleep(env.millis(1, 40)).await;
            if env.kafka_fails() {
                env.sleep(env.millis(10, 4_000)).await;
                lock(&self.book).looked(self.process, began_at, env.passed(), None);
                let reason = "no reply (simulated)".to_owned();
                return Offsets { lag: Err(reason.clone()), behind: Vec::new(), waiting: Err(reason) };
            }
            let (lags, standing, waiting) = {
                let seen = lock(&self.downstream);
                let standing = Standing { undelivered: seen.undelivered(), delivered: seen.delivered() };
                let waiting =
                    seen.waiting.iter().map(|(from, at)| Waiting { from: *from, end: from + at.len() as u64 });
                (seen.lags(), standing, waiting.collect())
            };
            // The answer may be on its way for long.
            let slow = if env.kafka_fails() { env.millis(0, 2_500) } else { env.millis(1, 40) };
            env.sleep(slow).await;
            lock(&self.book).looked(self.process, began_at, env.passed(), Some(standing));
            Offsets { lag: Ok(Some(self.lag(lags))), behind: Vec::new(), waiting: Ok(waiting) }
        })
    }

    fn waiting_since(&mut self, time: Time) -> AskingBack {
        let passed = self.env.passed();
        // By a clock that is ahead, nothing was written before.
        let ago_ms = u64::try_from(wall(passed).millis() - time.millis()).unwrap_or(u64::MAX);
        let since = passed.saturating_sub(Duration::from_millis(ago_ms));
        let first = |(from, written): &(u64, Vec<Duration>)| {
            let before = written.partition_point(|at| *at < since);
            (before < written.len()).then(|| from + before as u64)
        };
        let firsts = lock(&self.downstream).waiting.iter().map(first).collect();
        Box::pin(async move { Ok(firsts) })
    }
}
