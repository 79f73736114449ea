//! The permits of the route as a process takes turns at them: the embedded book as it is, requests and replies that are lost, what
//! the checker remembers, and a planted bug that needs a place here.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use weir_core::{
    permits::EmbeddedPermits,
    ports::{PermitGrant, PermitTurn, Permits, StoreError},
    routes::{Pool, RouteState},
};
use weir_worker::routes::RoutesStatus;

use super::{
    cluster::NAMES,
    downstream::SharedDownstream,
    env::{Env, lock},
    link::SharedCluster,
    sabotage::Sabotage,
};

/// A look at the offsets says nothing any more after so long: the constant `LOOK_HOLDS` of the route's keeper.
const LOOK_HOLDS: Duration = Duration::from_secs(3);
/// A rate is measured over so long at the least.
const MEASURED_OVER: Duration = Duration::from_secs(1);

/// One turn of a process.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub process: u64,
    /// When it was asked for.
    pub at: Duration,
    pub room: u64,
    pub recent: u64,
    /// Permits that the process took back for it.
    pub unused: u64,
    /// How many of them may be of the reserved share, at the most.
    pub unused_reserved: u64,
    /// Of those that it came to, how many are kept for the reserved share.
    pub reserved: u64,
    /// The lag that the process knew, or the true one, whichever is more.
    pub lag: u64,
    /// The process has seen the offsets just now.
    pub is_known: bool,
    /// The members of its last answer.
    pub members: u64,
    /// When the book was asked, and what it has granted.
    pub granted: Option<(Duration, u64)>,
    /// The process has its answer.
    pub answered: bool,
}

/// How the route's consumers truly stand.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    pub undelivered: u64,
    /// Offsets that they have passed, without those before their first commits.
    pub delivered: u64,
}

/// All that passed between processes and the book, and what was delivered.
#[derive(Debug, Default)]
pub struct Book {
    pub turns: Vec<Turn>,
    /// What was undelivered when each process saw the offsets last.
    seen: BTreeMap<u64, u64>,
    /// When that was, unless it could not see them then.
    seen_at: BTreeMap<u64, Duration>,
    /// When each process saw the offsets first and then more of them passed, and how many.
    looks: BTreeMap<u64, Vec<(Duration, u64)>>,
    /// How many records were delivered by when.
    pub delivered: Vec<(Duration, u64)>,
    /// Batches whose commits failed, as far as their lanes know: lane, and when it was submitted.
    pub unclear: Vec<(u64, Duration)>,
}

pub type SharedBook = Arc<Mutex<Book>>;

impl Book {
    /// A process has looked at the offsets; `None`: it could not see them.
    pub fn looked(&mut self, process: u64, at: Duration, found: Option<Standing>) {
        let Some(Standing { undelivered, delivered }) = found else {
            self.seen_at.remove(&process);
            return;
        };
        self.seen.insert(process, undelivered);
        self.seen_at.insert(process, at);
        let looks = self.looks.entry(process).or_default();
        if looks.last().is_none_or(|(_, before)| delivered > *before) {
            looks.push((at, delivered));
        }
    }

    /// How often one process had seen by then that more was committed, at the most: what it has learnt is kept for the others.
    pub fn commits_seen(&self, by: Duration) -> usize {
        let seen = |looks: &Vec<(Duration, u64)>| looks.partition_point(|(at, _)| *at <= by).saturating_sub(1);
        self.looks.values().map(seen).max().unwrap_or_default()
    }

    /// The highest rate, per second, that any process can have measured by when: from one look that has found more to a later one.
    pub fn rates(&self) -> Vec<(Duration, f64)> {
        let mut rates = Vec::new();
        for looks in self.looks.values() {
            // What the first one has found was done in nobody knows how long a time.
            let looks = looks.get(1..).unwrap_or_default();
            for (place, (at, delivered)) in looks.iter().enumerate() {
                let earlier = looks[..place].iter().filter(|(before, _)| *before + MEASURED_OVER <= *at);
                let rate = |(before, less): &(Duration, u64)| (delivered - less) as f64 / (*at - *before).as_secs_f64();
                rates.extend(earlier.map(rate).reduce(f64::max).map(|rate| (*at, rate)));
            }
        }
        rates.sort_by_key(|(at, _)| *at);
        let mut highest = 0.0;
        for (_, rate) in &mut rates {
            highest = f64::max(highest, *rate);
            *rate = highest;
        }
        rates
    }
}

/// What a process's turns reach.
#[derive(Clone)]
pub struct Reached {
    pub permits: EmbeddedPermits,
    pub cluster: SharedCluster,
    pub downstream: SharedDownstream,
    pub book: SharedBook,
    /// The permits that the process holds, and how its keeper says that the route stands.
    pub state: Arc<RouteState>,
    pub status: RoutesStatus,
}

/// The permits as a process takes turns at them.
#[derive(Clone)]
pub struct SimPermits {
    env: Env,
    process: u64,
    reached: Reached,
    members: u64,
    /// What the last turn was answered, and the rebalances by then.
    before: (u64, u64),
    /// The last turn, and the permits of the reserved share that it left, or that lanes had then, at the most.
    last: Option<(usize, u64)>,
}

impl SimPermits {
    pub fn new(env: &Env, process: u64, reached: Reached) -> Self {
        Self { env: env.clone(), process, reached, members: 1, before: (0, 0), last: None }
    }

    fn begin(&mut self, turn: &PermitTurn<'_>) -> usize {
        let Reached { downstream, book, state, status, .. } = &self.reached;
        let (now, undelivered, mut book) = (self.env.passed(), lock(downstream).undelivered(), lock(book));
        // The keeper has shown what the last turn came to.
        let kept = status.seen().first().map_or(0, |(_, seen)| seen.reserved);
        let unused_reserved = self.last.map_or(turn.unused, |(number, left)| {
            book.turns[number].reserved = kept;
            (left + kept).min(turn.unused)
        });
        let left = |pool| state.left(pool, Duration::ZERO);
        let lag = book.seen.get(&self.process).copied().unwrap_or(0).max(undelivered);
        let is_known = book.seen_at.get(&self.process).is_some_and(|at| *at + LOOK_HOLDS >= now);
        let number = book.turns.len();
        book.turns.push(Turn {
            process: self.process,
            at: now,
            room: turn.room_or_most(),
            recent: turn.recent,
            unused: turn.unused,
            unused_reserved,
            reserved: 0,
            lag,
            is_known,
            members: self.members,
            granted: None,
            answered: false,
        });
        self.last = Some((number, state.held().saturating_sub(left(Pool::General))));
        number
    }

    /// The book has its turn.
    async fn ask(&mut self, turn: &PermitTurn<'_>, number: usize) -> Result<PermitGrant, StoreError> {
        let grant = self.reached.permits.turn(turn).await?;
        lock(&self.reached.book).turns[number].granted = Some((self.env.passed(), grant.permits));
        Ok(grant)
    }

    /// The planted bug: after a rebalance, what the last turn gave is counted again.
    fn counted_twice(&mut self, grant: PermitGrant) -> PermitGrant {
        let rebalances = lock(&self.reached.downstream).rebalances;
        let (permits, known) = std::mem::replace(&mut self.before, (grant.permits, rebalances));
        let again = self.env.sabotage() == Sabotage::PermitsCountedTwice && known != rebalances;
        PermitGrant { permits: grant.permits + if again { permits } else { 0 }, ..grant }
    }
}

impl Permits for SimPermits {
    async fn turn(&mut self, turn: &PermitTurn<'_>) -> Result<PermitGrant, StoreError> {
        let number = self.begin(turn);
        let env = self.env.clone();
        env.sleep(env.millis(0, 3)).await;
        let lost = || StoreError::Temporary("no reply (simulated)".to_owned());
        let stalled = {
            let cluster = lock(&self.reached.cluster);
            cluster.nodes[cluster.groups[cluster.owner(NAMES)].primary].stalled_until.saturating_sub(env.passed())
        };
        env.sleep(stalled).await;
        if env.redis_fails() {
            if env.chance(500) {
                env.note(|| format!("process {}: the reply of a turn at the permits is lost", self.process));
                self.ask(turn, number).await?;
            }
            env.sleep(env.millis(0, 1_500)).await;
            return Err(lost());
        }
        let grant = self.ask(turn, number).await?;
        env.sleep(env.millis(0, 3)).await;
        lock(&self.reached.book).turns[number].answered = true;
        self.members = grant.members;
        Ok(self.counted_twice(grant))
    }
}
