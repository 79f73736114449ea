//! A lane: one group member and one producer, from poll to commit.
//!
//! The steps of a turn, in order:
//! 1. poll a batch, for at most what is left of the commit interval;
//! 2. decide it (decode, gate, admit, encode) while the batch before is being committed;
//! 3. wait until that one is committed;
//! 4. look whether the group has changed; if so, forget the batch;
//! 5. hand the batch over to be committed.
//!
//! invariant: at most one batch is being committed and one decided.
//! invariant: a change of partitions is taken up only when nothing is being committed, and forgets all that is not:
//! its next reader decides it again, and the store answers what it answered before.
//! invariant: after a failed commit nothing is read before sink and source are both back at the committed offsets.

mod interruption;
#[cfg(test)]
mod tests;
mod waiting;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, time::timeout};
use tokio_util::sync::CancellationToken;

use self::{
    interruption::Interruption,
    waiting::{admit, backoff},
};
use super::{
    desk::Desk,
    ports::{Clock, CommitError, GroupEvent, Settled, Sink, Source, SourceError, Store},
    record::{Job, Output, Progress, Records},
    status::LaneStatus,
};
use crate::metrics::{Metrics, Stage, Tally};

/// How long the lane waits for a commit before it serves the group again.
const SERVE_EVERY: Duration = Duration::from_millis(250);
/// How long an answer of the store holds until its batch is handed over to be committed; then all are asked for again.
/// A rebuild of lost histories relies on it: by when what was recorded before is either visible or void.
pub const ANSWERS_HOLD: Duration = Duration::from_secs(20);
/// The longest pause between two attempts at something that is away.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// What a lane is told.
#[derive(Debug, Clone)]
pub struct LaneSettings {
    /// Intents decided together, at most.
    pub batch: usize,
    /// The time between two commits, at least, where a batch is not full.
    pub commit_interval: Duration,
}

/// Why a lane ended.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// It cannot do its work; the message says what and what to do.
    #[error("{0}")]
    Fatal(String),
}

/// A lane with its ends.
pub struct Lane<S, K, D, C> {
    /// The group member.
    pub source: S,
    /// The producer.
    pub sink: K,
    /// The histories.
    pub store: D,
    /// The clock.
    pub clock: C,
    /// What turns records into outputs.
    pub desk: Desk,
    /// How large and how often.
    pub settings: LaneSettings,
    /// Where the store's futures run.
    pub runtime: Handle,
    /// The word to stop.
    pub stop: CancellationToken,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// For the health endpoints.
    pub status: Arc<LaneStatus>,
}

/// What a lane remembers between turns.
struct Turn {
    submitted_at: Instant,
    /// Pauses between rewinds; starts over with each commit.
    pauses: Box<dyn Iterator<Item = Duration>>,
    in_flight: Vec<Progress>,
    in_flight_tally: Tally,
    committed: BTreeMap<i32, i64>,
}

impl<S, K, D, C> Lane<S, K, D, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    D: Store,
    C: Clock,
{
    /// Works until it is told to stop; what is decided by then is committed.
    ///
    /// # Errors
    /// Something that only a person can put right.
    pub fn run(&mut self) -> Result<(), LaneError> {
        let mut turn = Turn {
            submitted_at: Instant::now(),
            pauses: Box::new(backoff()),
            in_flight: Vec::new(),
            in_flight_tally: Tally::default(),
            committed: BTreeMap::new(),
        };
        let mut end = self.recover_sink();
        loop {
            end = match end {
                Ok(()) => self.turns(&mut turn),
                Err(Interruption::Stop) => return self.drain(&mut turn),
                Err(Interruption::Fatal(message)) => return Err(LaneError::Fatal(message)),
                Err(Interruption::Group) => self.take_up_change(&mut turn),
                Err(Interruption::Rewind(reason)) => self.rewind(&mut turn, &reason),
            }
        }
    }

    /// Turns until something interrupts.
    fn turns(&mut self, turn: &mut Turn) -> Result<(), Interruption> {
        loop {
            if self.stop.is_cancelled() {
                return Err(Interruption::Stop);
            }
            self.status.turn(self.clock.now());
            let mut batch = self.source.batch();
            let pause = self.settings.commit_interval.saturating_sub(turn.submitted_at.elapsed());
            let began = Instant::now();
            let event = self.source.poll(&mut batch, self.settings.batch, pause.max(Duration::from_millis(1)))?;
            if event.is_some() {
                return Err(Interruption::Group);
            }
            if batch.is_empty() {
                self.collect(turn, Duration::ZERO)?;
                self.note_lag(turn);
                // An idle lane starts a new interval, so that its first record is not committed all alone.
                turn.submitted_at = Instant::now();
                continue;
            }
            self.metrics.stage(Stage::Poll, began.elapsed());
            self.one_batch(turn, batch)?;
        }
    }

    /// Decides a batch and hands it over.
    fn one_batch(&mut self, turn: &mut Turn, batch: S::Batch) -> Result<(), Interruption> {
        let (outputs, tally, asked_at) = self.decide(&batch, &turn.committed)?;
        while !self.collect(turn, SERVE_EVERY)? {
            self.serve_group()?;
        }
        if self.serve_group()?.is_some() {
            return Err(Interruption::Group);
        }
        if asked_at.elapsed() > ANSWERS_HOLD {
            return Err(Interruption::Rewind("the store's answers have become too old".to_owned()));
        }
        let progress = progress_of(&batch);
        let membership = self.source.membership()?;
        turn.in_flight.clone_from(&progress);
        turn.in_flight_tally = tally;
        turn.submitted_at = Instant::now();
        self.sink.submit(Job { records: batch, outputs, progress, membership });
        Ok(())
    }

    /// Lets the group have its say, reads nothing.
    fn serve_group(&mut self) -> Result<Option<GroupEvent>, SourceError> {
        let mut nothing = self.source.batch();
        self.status.turn(self.clock.now());
        self.source.poll(&mut nothing, 0, Duration::ZERO)
    }

    /// Waits for the batch in flight; `true` when none is any more.
    fn collect(&mut self, turn: &mut Turn, wait: Duration) -> Result<bool, Interruption> {
        match self.sink.wait(wait) {
            Settled::Idle => Ok(true),
            Settled::Busy => Ok(false),
            Settled::Committed(times) => {
                self.metrics.committed(&turn.in_flight_tally, &times);
                for done in turn.in_flight.drain(..) {
                    turn.committed.insert(done.partition, done.next_offset);
                }
                turn.pauses = Box::new(backoff());
                self.note_lag(turn);
                Ok(true)
            }
            Settled::Failed(error) => {
                turn.in_flight.clear();
                self.metrics.commit_failures.inc();
                Err(error.into())
            }
        }
    }

    fn note_lag(&self, turn: &Turn) {
        for (partition, records) in self.source.lag(&turn.committed) {
            self.metrics.set_lag(partition, records);
        }
    }

    /// Turns records into outputs; waits for the store as long as it takes, but not beyond a change of the group.
    /// Also gives the moment since when the answers hold.
    fn decide(
        &mut self,
        batch: &S::Batch,
        done: &BTreeMap<i32, i64>,
    ) -> Result<(Vec<Output>, Tally, Instant), Interruption> {
        let began = Instant::now();
        let now = self.clock.now();
        let mut sitting = self.desk.sit(now);
        let decoded = sitting.decode(batch);
        let (drafts, asks) = sitting.gate(batch, &decoded, &self.metrics);
        self.metrics.stage(Stage::Decode, began.elapsed());

        let began = Instant::now();
        let mut answers = vec![None; asks.asks.len()];
        let asked_at = if answers.is_empty() { began } else { admit(self, &asks, &mut answers, done)? };
        self.metrics.stage(Stage::Admit, began.elapsed());

        let began = Instant::now();
        let (outputs, tally) = sitting.outputs(batch, &decoded, &drafts, &answers);
        self.metrics.stage(Stage::Encode, began.elapsed());
        Ok((outputs, tally, asked_at))
    }

    /// Takes up a change of partitions, when nothing is in flight any more.
    fn take_up_change(&mut self, turn: &mut Turn) -> Result<(), Interruption> {
        self.status.revoked();
        while !self.collect(turn, SERVE_EVERY)? {
            self.serve_group()?;
        }
        for (partition, _) in self.source.lag(&turn.committed) {
            self.metrics.forget_lag(partition);
        }
        turn.committed.clear();
        self.metrics.rebalances.inc();
        for pause in backoff() {
            // Serving the group replaces a change that is out of date by now.
            let Some(event) = self.serve_group()? else { break };
            match self.source.settle() {
                Ok(()) => {
                    self.settled(turn, event);
                    break;
                }
                Err(SourceError::Temporary(reason)) => {
                    tracing::warn!("taking up a change of partitions: {reason}; trying again");
                    self.status.set_trouble(Some(reason));
                    self.pause_or_stop(pause)?;
                }
                Err(SourceError::Fatal(reason)) => return Err(Interruption::Fatal(reason)),
            }
        }
        self.status.set_trouble(None);
        Ok(())
    }

    /// Notes what the group has given or taken.
    fn settled(&self, turn: &mut Turn, event: GroupEvent) {
        turn.committed = self.source.starts().iter().map(|start| (start.partition, start.next_offset)).collect();
        match event {
            GroupEvent::Revoked => tracing::info!("the group has taken this lane's partitions"),
            GroupEvent::Assigned => {
                self.status.assigned();
                tracing::info!(partitions = self.source.partitions(), "the group has given this lane its partitions");
            }
        }
    }

    /// Brings sink and source back to the committed offsets.
    fn rewind(&mut self, turn: &mut Turn, reason: &str) -> Result<(), Interruption> {
        tracing::warn!("back to the committed offsets: {reason}");
        self.status.set_trouble(Some(reason.to_owned()));
        // Where reading failed, a commit may still be under way; one that fails says no more than is known.
        loop {
            match self.collect(turn, SERVE_EVERY) {
                Ok(false) => self.status.turn(self.clock.now()),
                Err(Interruption::Fatal(message)) => return Err(Interruption::Fatal(message)),
                Ok(true) | Err(Interruption::Stop | Interruption::Group | Interruption::Rewind(_)) => break,
            }
        }
        turn.in_flight.clear();
        let pause = turn.pauses.next().unwrap_or(LONGEST_BACKOFF);
        self.pause_or_stop(pause)?;
        self.recover_sink()?;
        for pause in backoff() {
            // A change of partitions starts at the committed offsets by itself; and what is revoked must not be assigned again.
            if self.serve_group()?.is_some() {
                return Err(Interruption::Group);
            }
            match self.source.rewind() {
                Ok(()) => break,
                Err(SourceError::Temporary(reason)) => {
                    tracing::warn!("going back to the committed offsets: {reason}; trying again");
                    self.status.set_trouble(Some(reason));
                    self.pause_or_stop(pause)?;
                }
                Err(SourceError::Fatal(reason)) => return Err(Interruption::Fatal(reason)),
            }
        }
        self.status.set_trouble(None);
        turn.committed = self.source.starts().iter().map(|start| (start.partition, start.next_offset)).collect();
        Ok(())
    }

    /// Makes the sink usable, however long it takes.
    fn recover_sink(&mut self) -> Result<(), Interruption> {
        for pause in backoff() {
            match self.sink.recover() {
                Ok(()) => break,
                Err(CommitError::Failed(reason)) => {
                    tracing::warn!("the producer is not ready: {reason}; trying again");
                    self.status.set_trouble(Some(reason));
                    self.serve_group()?;
                    self.pause_or_stop(pause)?;
                }
                Err(CommitError::Fenced(reason) | CommitError::Fatal(reason)) => {
                    return Err(Interruption::Fatal(reason));
                }
            }
        }
        self.status.set_trouble(None);
        Ok(())
    }

    fn pause_or_stop(&mut self, pause: Duration) -> Result<(), Interruption> {
        self.status.turn(self.clock.now());
        let stopped = self.runtime.block_on(async { timeout(pause, self.stop.cancelled()).await });
        if stopped.is_ok() { Err(Interruption::Stop) } else { Ok(()) }
    }

    /// Lets the batch in flight come to its end. A failure loses nothing: it is read again by its next owner.
    fn drain(&mut self, turn: &mut Turn) -> Result<(), LaneError> {
        loop {
            match self.collect(turn, SERVE_EVERY) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Interruption::Fatal(message)) => return Err(LaneError::Fatal(message)),
                Err(Interruption::Rewind(reason)) => {
                    tracing::warn!("the last batch was not committed, and will be decided again: {reason}");
                    return Ok(());
                }
                Err(Interruption::Stop | Interruption::Group) => return Ok(()),
            }
        }
    }
}

/// How far a batch brings each of its partitions.
fn progress_of(records: &impl Records) -> Vec<Progress> {
    let mut next: BTreeMap<i32, i64> = BTreeMap::new();
    for index in 0..records.len() {
        let record = records.get(index);
        next.insert(record.partition, record.offset + 1);
    }
    next.into_iter().map(|(partition, next_offset)| Progress { partition, next_offset }).collect()
}
