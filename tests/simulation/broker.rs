//! A fake Kafka of one broker: the intents, the outputs with their transactions, the group and its offsets.

use weir_core::{
    decision::approved,
    deferral::HEADERS,
    intent::{decode, fields::FieldMap},
};

use super::{group::Group, prelude::*, retries, rings::Place};

/// The broker ends transactions that are open for longer.
pub const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(15);

/// A record in a batch, and when a lane read it.
#[derive(Debug, Clone)]
pub struct Fetched {
    pub intent: Arc<Intent>,
    pub at: Duration,
    /// What a planted bug says of its deferral.
    pub told: Option<Deferral>,
}

/// The lane that submitted a batch to be committed, and when.
#[derive(Debug, Clone, Copy)]
pub struct Submit {
    pub process: u64,
    pub instance: usize,
    pub lane: u64,
    pub at: Duration,
}

/// One output record, visible once its transaction is committed.
#[derive(Debug)]
pub struct Out {
    pub intent: Arc<Intent>,
    pub to: Destination,
    pub value: OutputValue,
    /// All of them, those that its record came with first.
    pub headers: Vec<Header>,
    /// When its intent was read by the lane that decided it.
    pub fetched: Duration,
    pub submit: Submit,
    /// Its place among all outputs.
    pub offset: usize,
    pub transaction: usize,
}

impl Out {
    /// Whether it is the approval of its intent: not another delivery of one that was approved before.
    pub fn is_approval(&self) -> bool {
        self.to.is_approved() && self.intent.retry.is_none()
    }

    /// Its headers, as weir reads them.
    pub fn weir_headers(&self) -> impl Iterator<Item = decode::Header<'_>> + Clone {
        self.headers.iter().map(|(key, value)| decode::Header { key: key.as_bytes(), value: Some(value.as_bytes()) })
    }

    /// What weir reads in an approved record of its own.
    pub fn approved(&self) -> ApprovedRecord {
        let read = approved::read(Some(self.intent.value.as_bytes()), self.weir_headers(), &FieldMap::default());
        read.unwrap_or_else(|error| panic!("an approved record of weir's: {error:?}"))
    }

    /// The deferral that it is written with, if it is deferred or waits for its route.
    pub fn deferral(&self) -> Option<Deferral> {
        let is_kept = matches!(self.to, Destination::Deferred(_) | Destination::Waiting { .. });
        is_kept.then(|| read(&self.headers)).flatten()
    }
}

/// The deferral in the last headers of a record.
fn read(headers: &[Header]) -> Option<Deferral> {
    let pairs = headers.iter().map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())));
    let last: Vec<_> = pairs.skip(headers.len().saturating_sub(HEADERS)).collect();
    Deferral::of(last.try_into().ok()?)
}

/// A committed transaction: which records of one topic it is done with.
#[derive(Debug)]
pub struct Commit {
    pub transaction: usize,
    pub log: Log,
    /// Of each partition, from which offset up to which, exclusive.
    pub done: Vec<(i32, i64, i64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Open(Duration),
    /// Decided, not visible before.
    Prepared(Duration),
    /// Visible since.
    Committed(Duration),
    Aborted,
}

pub struct Transaction {
    pub state: State,
    /// The topic whose offsets it commits.
    log: Log,
    offsets: Vec<Progress>,
}

#[derive(Default)]
pub struct Producer {
    epoch: u32,
    pub open: Option<usize>,
}

/// The topic that a member reads, the member, and its generation.
pub type Membership = (Log, u64, i32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Another epoch is in force.
    Fenced,
    /// The member is not of this generation.
    Generation,
    /// A transaction is being ended; retry later.
    Later,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Commit,
    Abort,
}

pub struct Broker {
    pub env: Env,
    /// The records that are read: those that others write, in all partitions that there will be, and weir's own.
    pub topics: BTreeMap<Place, Vec<Stored>>,
    pub outputs: Vec<Out>,
    pub transactions: Vec<Transaction>,
    pub producers: BTreeMap<String, Producer>,
    pub group: Group,
    /// The group of the lanes that read the rings.
    pub later: Group,
    /// The group of the lanes that read what waits.
    pub waiting: Group,
    /// The group of the lanes that read what failed.
    pub retrying: Group,
    /// What keepers see of the route.
    pub downstream: SharedDownstream,
    /// How many partitions of the intents, and of what waits, are not there yet.
    pub missing: i32,
    /// `auto.offset.reset` is `latest`.
    pub starts_at_ends: bool,
    /// Where the partitions of the intents began by that: what is before is not decided.
    pub skipped: BTreeMap<i32, i64>,
    pub committed: BTreeMap<Place, Progress>,
    pub commits: Vec<Commit>,
    /// Commits of deferred intents that were refused because the process had been frozen, and another was in its place.
    pub zombies: usize,
    pub down_until: Duration,
    /// How long it takes for each record, until when.
    pub slow: (Duration, Duration),
    /// Requests that arrived after their sender gave up: a late producer start fences its successor.
    pub late: usize,
    /// Violations: events that must never happen.
    pub broken: Vec<String>,
}

impl Broker {
    pub fn new(env: &Env, intents: Vec<Vec<Arc<Intent>>>) -> Self {
        let group = Group::new(env, vec![(Log::Input, i32::try_from(intents.len()).unwrap())]);
        let published = |record| Stored { record, transaction: None };
        let intents = intents.into_iter().map(|records| records.into_iter().map(published).collect());
        let mut topics: BTreeMap<Place, Vec<Stored>> = (0..).map(|number| (Log::Input, number)).zip(intents).collect();
        topics.extend((0..retries::PARTITIONS).map(|partition| ((Log::Retries, partition), Vec::new())));
        let partitions = |ring: Ring| i32::try_from(ring.buckets()).unwrap() * i32::from(SHARES);
        let later = Group::new(env, Ring::ALL.map(|ring| (Log::Ring(ring), partitions(ring))).into());
        Self {
            waiting: Group::new(env, vec![(Log::Waiting, WAITING)]),
            retrying: Group::new(env, vec![(Log::Retries, retries::PARTITIONS)]),
            downstream: SharedDownstream::default(),
            missing: 0,
            starts_at_ends: false,
            skipped: BTreeMap::new(),
            env: env.clone(),
            topics,
            outputs: Vec::new(),
            transactions: Vec::new(),
            producers: BTreeMap::new(),
            group,
            later,
            committed: BTreeMap::new(),
            commits: Vec::new(),
            zombies: 0,
            down_until: Duration::ZERO,
            slow: (Duration::ZERO, Duration::ZERO),
            late: 0,
            broken: Vec::new(),
        }
    }

    pub fn group(&mut self, log: Log) -> &mut Group {
        match log {
            Log::Input => &mut self.group,
            Log::Ring(_) => &mut self.later,
            Log::Waiting => &mut self.waiting,
            Log::Retries => &mut self.retrying,
        }
    }

    /// How long it takes for a record now.
    pub fn takes(&self) -> Duration {
        let (each, until) = self.slow;
        if self.env.passed() < until { each } else { Duration::ZERO }
    }

    /// A process is frozen or dead, or awake again.
    pub fn silence(&mut self, process: u64, since: Option<Duration>) {
        for group in [&mut self.group, &mut self.later, &mut self.waiting, &mut self.retrying] {
            group.silence(process, since);
        }
    }

    /// A producer takes over its id, which ends the open transaction.
    pub fn init(&mut self, id: &str) -> Result<u32, Refusal> {
        self.pass_time();
        let producer = self.producers.entry(id.to_owned()).or_default();
        if let Some(open) = producer.open.take() {
            if let State::Prepared(_) = self.transactions[open].state {
                producer.open = Some(open);
                return Err(Refusal::Later);
            }
            self.transactions[open].state = State::Aborted;
        }
        producer.epoch += 1;
        let epoch = producer.epoch;
        self.env.note(|| format!("{id} begins epoch {epoch}"));
        Ok(epoch)
    }

    /// The open transaction of a producer; begins one if there is none.
    fn open(&mut self, id: &str, epoch: u32) -> Result<usize, Refusal> {
        self.pass_time();
        let now = self.env.passed();
        let producer = self.producers.entry(id.to_owned()).or_default();
        if producer.epoch != epoch {
            return Err(Refusal::Fenced);
        }
        let open = *producer.open.get_or_insert(self.transactions.len());
        if open == self.transactions.len() {
            self.transactions.push(Transaction { state: State::Open(now), log: Log::Input, offsets: Vec::new() });
        }
        match self.transactions[open].state {
            State::Open(_) => Ok(open),
            State::Prepared(_) => Err(Refusal::Later),
            State::Committed(_) | State::Aborted => unreachable!("an ended transaction is not open"),
        }
    }

    pub fn produce(
        &mut self,
        (id, epoch): (&str, u32),
        submit: Submit,
        outputs: &[(Fetched, Output)],
    ) -> Result<(), Refusal> {
        let transaction = self.open(id, epoch)?;
        let written = outputs.iter().filter(|(_, output)| output.to != Destination::Nowhere);
        for (Fetched { intent, at, .. }, output) in written {
            let (offset, headers) = (self.outputs.len(), intent.headers_of(output));
            let (intent, to, value) = (Arc::clone(intent), output.to, output.value.clone());
            self.keep(transaction, &intent, to, &headers);
            self.outputs.push(Out { intent, to, value, headers, fetched: *at, submit, offset, transaction });
        }
        self.show();
        Ok(())
    }

    /// Writes a deferred intent into its bucket, and one that waits into its partition.
    fn keep(&mut self, transaction: usize, intent: &Intent, to: Destination, headers: &[Header]) {
        let (log, partition) = match to {
            Destination::Deferred(bucket) => (Log::Ring(bucket.ring), bucket.partition),
            // By the key, where the lane does not know of the partitions.
            Destination::Waiting { partition: ..0, .. } => {
                (Log::Waiting, i32::try_from(intent.key.len()).unwrap() % self.partitions(Log::Waiting))
            }
            Destination::Waiting { partition, .. } => (Log::Waiting, partition),
            Destination::Approved(_)
            | Destination::Suppressed
            | Destination::DeadLetters
            | Destination::Undelivered
            | Destination::Nowhere => return,
        };
        let at = self.env.passed();
        let (key, value, deferral) = (intent.key.clone(), intent.value.clone(), read(headers));
        let (first, retry) = (intent.first, intent.retry);
        let headers = headers[..headers.len().saturating_sub(HEADERS)].to_vec();
        let record = |offset| Intent { log, partition, offset, key, value, at, headers, deferral, first, retry };
        self.write((log, partition), Some(transaction), record);
    }

    pub fn send_offsets(
        &mut self,
        (id, epoch): (&str, u32),
        (log, member, generation): Membership,
        offsets: &[Progress],
    ) -> Result<(), Refusal> {
        let transaction = self.open(id, epoch)?;
        let accepted = self.group(log).accepts(member, generation);
        let is_zombie = log == Log::Ring(Ring::Minutes) && !self.group(log).has(member);
        if is_zombie && self.outputs.iter().any(|out| out.transaction == transaction) {
            self.zombies += 1;
        }
        if !accepted && self.env.sabotage() != Sabotage::IgnoreMembership {
            return Err(Refusal::Generation);
        }
        self.transactions[transaction].log = log;
        self.transactions[transaction].offsets = offsets.to_vec();
        Ok(())
    }

    pub fn end(&mut self, id: &str, epoch: u32, end: End) -> Result<(), Refusal> {
        self.pass_time();
        let now = self.env.passed();
        let producer = self.producers.entry(id.to_owned()).or_default();
        if producer.epoch != epoch {
            return Err(Refusal::Fenced);
        }
        if end == End::Abort {
            // As since KIP-890: late requests of the aborted transaction are rejected.
            producer.epoch += 1;
        }
        let Some(open) = producer.open else { return Ok(()) };
        match (self.transactions[open].state, end) {
            (State::Open(_), End::Commit) => {
                self.transactions[open].state = State::Prepared(now + self.env.millis(0, 30));
            }
            (State::Open(_), End::Abort) => {
                self.transactions[open].state = State::Aborted;
                producer.open = None;
            }
            (State::Prepared(_) | State::Committed(_) | State::Aborted, End::Commit | End::Abort) => {}
        }
        Ok(())
    }

    /// The committed offsets, if any; an error while a transaction is about to change one.
    pub fn committed_offsets(&mut self, log: Log, partitions: &[i32]) -> Result<Vec<(i32, Option<Progress>)>, Refusal> {
        self.pass_time();
        let open = self.producers.values().filter_map(|producer| producer.open);
        let of_log = open.map(|open| &self.transactions[open]).filter(|transaction| transaction.log == log);
        let mut waiting = of_log.flat_map(|transaction| &transaction.offsets);
        let pending = waiting.any(|offset| partitions.contains(&offset.partition));
        if pending {
            return Err(Refusal::Later);
        }
        Ok(partitions.iter().map(|partition| (*partition, self.committed.get(&(log, *partition)).copied())).collect())
    }

    /// Ends the transactions whose time has come.
    pub fn pass_time(&mut self) {
        let now = self.env.passed();
        let mut ended = false;
        for (id, producer) in &mut self.producers {
            let Some(open) = producer.open else { continue };
            let transaction = &mut self.transactions[open];
            match transaction.state {
                State::Prepared(at) if now >= at => {
                    ended = true;
                    transaction.state = State::Committed(at);
                    producer.open = None;
                    let mut done = Vec::new();
                    for offset in &transaction.offsets {
                        let before = self.committed.insert((transaction.log, offset.partition), *offset);
                        let from = before.map_or(0, |before| before.next_offset);
                        done.push((offset.partition, from, offset.next_offset));
                        if before.as_ref().is_some_and(|before| before.next_offset > offset.next_offset) {
                            self.broken.push(format!("{id} committed {offset:?} when {before:?} was committed"));
                        }
                    }
                    self.commits.push(Commit { transaction: open, log: transaction.log, done });
                    self.env.note(|| format!("{id} has committed {:?}", transaction.offsets));
                }
                State::Open(since) if now >= since + TRANSACTION_TIMEOUT => {
                    ended = true;
                    transaction.state = State::Aborted;
                    producer.open = None;
                    producer.epoch += 1;
                    self.env.note(|| format!("the transaction of {id} timed out"));
                }
                State::Open(_) | State::Prepared(_) | State::Committed(_) | State::Aborted => {}
            }
        }
        if ended {
            self.show();
        }
    }
}
