//! The permits of the route as a process takes turns at them: the embedded book as it is, requests and replies that are lost, what
//! the checker remembers, and a planted bug that needs a place here.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use weir_core::{
    pace::Lag,
    permits::EmbeddedPermits,
    ports::{PermitGrant, PermitTurn, Permits, StoreError},
};

use super::{
    cluster::NAMES,
    delivery::SharedDownstream,
    env::{Env, lock},
    link::SharedCluster,
    sabotage::Sabotage,
};

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
    /// The lag that the process knew, or the true one, whichever is more.
    pub lag: u64,
    /// The members of its last answer.
    pub members: u64,
    /// When the book was asked, and what it has granted.
    pub granted: Option<(Duration, u64)>,
    /// The process has its answer.
    pub answered: bool,
}

/// All that passed between processes and the book, and what was delivered.
#[derive(Debug, Default)]
pub struct Book {
    pub turns: Vec<Turn>,
    /// The lag that each process saw last.
    seen: BTreeMap<u64, u64>,
    /// When each process saw the committed offsets, and their sum then.
    looks: BTreeMap<u64, Vec<(Duration, u64)>>,
    /// How many records were delivered by when.
    pub delivered: Vec<(Duration, u64)>,
    /// Batches whose commits failed, as far as their lanes know: lane, and when it was submitted.
    pub unclear: Vec<(u64, Duration)>,
}

pub type SharedBook = Arc<Mutex<Book>>;

impl Book {
    /// A process has seen the offsets.
    pub fn looked(&mut self, process: u64, at: Duration, lag: Lag) {
        self.seen.insert(process, lag.undelivered());
        self.looks.entry(process).or_default().push((at, lag.committed));
    }

    /// How often one process had seen by then that more was committed, at the most: what it has learnt is kept for the others.
    pub fn commits_seen(&self, by: Duration) -> usize {
        let seen = |looks: &Vec<(Duration, u64)>| {
            let looks = &looks[..looks.partition_point(|(at, _)| *at <= by)];
            looks.windows(2).filter(|pair| pair[1].1 > pair[0].1).count()
        };
        self.looks.values().map(seen).max().unwrap_or_default()
    }
}

/// The permits as a process takes turns at them.
#[derive(Clone)]
pub struct SimPermits {
    pub env: Env,
    pub process: u64,
    pub permits: EmbeddedPermits,
    pub cluster: SharedCluster,
    pub downstream: SharedDownstream,
    pub book: SharedBook,
    members: u64,
    /// What the last turn was answered, and the rebalances by then.
    before: (u64, u64),
}

impl SimPermits {
    pub fn new(
        env: &Env,
        process: u64,
        permits: EmbeddedPermits,
        (cluster, downstream, book): (SharedCluster, SharedDownstream, SharedBook),
    ) -> Self {
        Self { env: env.clone(), process, permits, cluster, downstream, book, members: 1, before: (0, 0) }
    }

    fn begin(&self, turn: &PermitTurn<'_>) -> usize {
        let (undelivered, mut book) = (lock(&self.downstream).undelivered(), lock(&self.book));
        let lag = book.seen.get(&self.process).copied().unwrap_or(0).max(undelivered);
        book.turns.push(Turn {
            process: self.process,
            at: self.env.passed(),
            room: turn.room_or_most(),
            recent: turn.recent,
            unused: turn.unused,
            lag,
            members: self.members,
            granted: None,
            answered: false,
        });
        book.turns.len() - 1
    }

    /// The book has its turn.
    async fn ask(&mut self, turn: &PermitTurn<'_>, number: usize) -> Result<PermitGrant, StoreError> {
        let grant = self.permits.turn(turn).await?;
        lock(&self.book).turns[number].granted = Some((self.env.passed(), grant.permits));
        Ok(grant)
    }

    /// The planted bug: after a rebalance, what the last turn gave is counted again.
    fn counted_twice(&mut self, grant: PermitGrant) -> PermitGrant {
        let rebalances = lock(&self.downstream).rebalances;
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
            let cluster = lock(&self.cluster);
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
        lock(&self.book).turns[number].answered = true;
        self.members = grant.members;
        Ok(self.counted_twice(grant))
    }
}
