//! A fake Kafka of one broker: the intents, the outputs with their transactions, the group and its offsets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use weir_core::record::{Destination, Output, OutputValue, Progress};

use super::{env::Env, group::Group, sabotage::Sabotage};

/// The broker ends transactions that are open for longer.
pub const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(15);

/// A record of an input topic: an intent or a refund.
#[derive(Debug)]
pub struct Intent {
    pub partition: i32,
    pub offset: i64,
    pub key: String,
    pub value: String,
    /// When it becomes readable.
    pub at: Duration,
}

/// A record in a batch, and when a lane read it.
#[derive(Debug, Clone)]
pub struct Fetched {
    pub intent: Arc<Intent>,
    pub at: Duration,
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
    pub headers: Vec<(&'static str, String)>,
    /// When its intent was read by the lane that decided it.
    pub fetched: Duration,
    pub submit: Submit,
    /// Its place among all outputs.
    pub offset: usize,
    transaction: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open(Duration),
    /// Decided, not visible before.
    Prepared(Duration),
    /// Visible since.
    Committed(Duration),
    Aborted,
}

struct Transaction {
    state: State,
    offsets: Vec<Progress>,
}

#[derive(Default)]
struct Producer {
    epoch: u32,
    open: Option<usize>,
}

/// Why the broker rejects a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Another epoch is in force.
    Fenced,
    /// The member is not of this generation.
    Generation,
    /// A transaction is being ended; retry later.
    Later,
}

/// How a transaction is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Commit,
    Abort,
}

pub struct Broker {
    env: Env,
    pub intents: Vec<Vec<Arc<Intent>>>,
    outputs: Vec<Out>,
    transactions: Vec<Transaction>,
    producers: BTreeMap<String, Producer>,
    pub group: Group,
    pub committed: BTreeMap<i32, Progress>,
    pub down_until: Duration,
    /// Requests that arrived after their sender gave up: a late producer start fences its successor.
    pub late: usize,
    /// Violations: events that must never happen.
    pub broken: Vec<String>,
}

impl Broker {
    pub fn new(env: &Env, intents: Vec<Vec<Arc<Intent>>>) -> Self {
        let group = Group::new(env, i32::try_from(intents.len()).unwrap());
        Self {
            env: env.clone(),
            intents,
            outputs: Vec::new(),
            transactions: Vec::new(),
            producers: BTreeMap::new(),
            group,
            committed: BTreeMap::new(),
            down_until: Duration::ZERO,
            late: 0,
            broken: Vec::new(),
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
            self.transactions.push(Transaction { state: State::Open(now), offsets: Vec::new() });
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
        let first = self.outputs.len();
        self.outputs.extend(written.zip(first..).map(|((fetched, output), offset)| Out {
            intent: Arc::clone(&fetched.intent),
            to: output.to,
            value: output.value.clone(),
            headers: output.headers.to_vec(),
            fetched: fetched.at,
            submit,
            offset,
            transaction,
        }));
        Ok(())
    }

    pub fn send_offsets(
        &mut self,
        (id, epoch): (&str, u32),
        (member, generation): (u64, i32),
        offsets: &[Progress],
    ) -> Result<(), Refusal> {
        let transaction = self.open(id, epoch)?;
        let accepted = self.group.accepts(member, generation);
        if !accepted && self.env.sabotage() != Sabotage::IgnoreMembership {
            return Err(Refusal::Generation);
        }
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
    pub fn committed_offsets(&mut self, partitions: &[i32]) -> Result<Vec<(i32, Option<Progress>)>, Refusal> {
        self.pass_time();
        let open = self.producers.values().filter_map(|producer| producer.open);
        let mut waiting = open.flat_map(|open| &self.transactions[open].offsets);
        let pending = waiting.any(|offset| partitions.contains(&offset.partition));
        if pending {
            return Err(Refusal::Later);
        }
        Ok(partitions.iter().map(|partition| (*partition, self.committed.get(partition).copied())).collect())
    }

    /// The outputs that a read_committed reader sees, in order.
    pub fn visible(&self) -> impl Iterator<Item = &Out> {
        self.outputs.iter().filter(|out| self.visible_at(out).is_some())
    }

    /// When an output became visible at read_committed.
    pub fn visible_at(&self, out: &Out) -> Option<Duration> {
        match self.transactions[out.transaction].state {
            State::Committed(at) => Some(at),
            State::Open(_) | State::Prepared(_) | State::Aborted => None,
        }
    }

    /// The records that a read_committed reader gets from an offset, up to the first open transaction; and the offset
    /// after them.
    pub fn stable(&mut self, from: usize) -> (Vec<&Out>, usize) {
        self.pass_time();
        let is_open =
            |out: &Out| matches!(self.transactions[out.transaction].state, State::Open(_) | State::Prepared(_));
        let end = self.outputs.iter().position(is_open).unwrap_or(self.outputs.len()).max(from);
        (self.outputs[from..end].iter().filter(|out| self.visible_at(out).is_some()).collect(), end)
    }

    /// Adds a record to a partition, now.
    pub fn append(&mut self, partition: i32, key: String, value: String) {
        let log = &mut self.intents[usize::try_from(partition).unwrap()];
        let offset = i64::try_from(log.len()).unwrap();
        log.push(Arc::new(Intent { partition, offset, key, value, at: self.env.passed() }));
    }

    /// Visible approved records that an aborted transaction had written before.
    pub fn replays(&self) -> usize {
        let place = |out: &&Out| (out.intent.partition, out.intent.offset);
        let approved = || self.outputs.iter().filter(|out| out.to == Destination::Approved);
        let aborted = approved().filter(|out| self.transactions[out.transaction].state == State::Aborted);
        let aborted: BTreeSet<(i32, i64)> = aborted.map(|out| place(&out)).collect();
        self.visible().filter(|out| out.to == Destination::Approved && aborted.contains(&place(out))).count()
    }

    /// Whether all intents are done and no transaction is open.
    pub fn is_drained(&mut self) -> bool {
        self.pass_time();
        let open = self.producers.values().any(|producer| producer.open.is_some());
        !open
            && self.intents.iter().zip(0..).all(|(log, partition)| {
                let end = log.last().map_or(0, |intent| intent.offset + 1);
                self.committed.get(&partition).map_or(0, |committed| committed.next_offset) >= end
            })
    }

    fn pass_time(&mut self) {
        let now = self.env.passed();
        for (id, producer) in &mut self.producers {
            let Some(open) = producer.open else { continue };
            let transaction = &mut self.transactions[open];
            match transaction.state {
                State::Prepared(at) if now >= at => {
                    transaction.state = State::Committed(at);
                    producer.open = None;
                    for offset in &transaction.offsets {
                        let before = self.committed.insert(offset.partition, *offset);
                        if before.as_ref().is_some_and(|before| before.next_offset > offset.next_offset) {
                            self.broken.push(format!("{id} committed {offset:?} when {before:?} was committed"));
                        }
                    }
                    self.env.note(|| format!("{id} has committed {:?}", transaction.offsets));
                }
                State::Open(since) if now >= since + TRANSACTION_TIMEOUT => {
                    transaction.state = State::Aborted;
                    producer.open = None;
                    producer.epoch += 1;
                    self.env.note(|| format!("the transaction of {id} timed out"));
                }
                State::Open(_) | State::Prepared(_) | State::Committed(_) | State::Aborted => {}
            }
        }
    }
}
