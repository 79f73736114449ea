//! The reader of a topic beside the intents: reads it, hands its records to a [feed](Feed), and commits how far it is, with the
//! invalid records as dead letters.
//!
//! An iteration is like a lane's: poll, take, wait for the commit before, hand over. Records of a batch that is not committed are read
//! again, so a feed takes a record that it has taken before without effect.
//!
//! invariant: a record is committed only when its feed has taken it. One that waits holds the committed offset of its partition back,
//! but not the records behind it; once the feed can take it, all is read again from there.

mod feed;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use weir_core::{
    clocks::Append,
    dead_letter::DeadLetter,
    letter::dead_letter,
    limits::OutputLimits,
    origin::Topic,
    ports::{Clock, CommitError, CommitTimes, Sink, Source, StoreError},
    record::{Destination, Job, Output, OutputValue, Progress, Records, next_offsets},
    tally::TopicTally,
    time::Time,
};

pub use self::feed::Feed;
use super::{
    backoff::backoff,
    ends,
    group_loop::{Ends, GroupLoop, Interruption, LaneError, LoopState},
    observer::Observer,
    status::LaneStatus,
};

/// Records taken together, at most.
const BATCH: usize = 5_000;
/// How long a batch may wait to be filled: these topics are not urgent, and a commit costs the brokers.
const FILL: Duration = Duration::from_millis(200);
/// How often it is looked whether records that wait can be taken.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The reader of a topic with its ends.
pub struct TopicReader<S, K, F, C> {
    /// The topic; its id is the source's.
    pub topic: Topic,
    /// The group member.
    pub source: S,
    /// The producer of dead letters and offsets.
    pub sink: K,
    /// What is done with the records.
    pub feed: F,
    /// The clock.
    pub clock: C,
    /// What the dead-letter topic takes.
    pub limits: Arc<OutputLimits>,
    /// How long a stop may take in all; the commit under way is given at least three quarters of it.
    pub drain: Duration,
    /// The shutdown signal.
    pub stop: CancellationToken,
    /// Figures.
    pub metrics: Arc<dyn Observer>,
    /// For the health endpoints.
    pub status: Arc<LaneStatus>,
}

/// What is being committed.
#[derive(Default)]
struct InFlight {
    progress: Vec<Progress>,
    /// Whether it is more than ends.
    has_records: bool,
    /// Up to where invalid records are written with it.
    letters: BTreeMap<i32, i64>,
    tally: TopicTally,
}

/// The state of the reader between iterations.
#[derive(Default)]
pub(crate) struct ReaderState {
    group: LoopState,
    in_flight: InFlight,
    committed: BTreeMap<i32, i64>,
    /// The first record of each partition that waits.
    held: BTreeMap<i32, i64>,
    /// Up to where invalid records have been written, for when they are read again.
    letters: BTreeMap<i32, i64>,
    /// When it was looked whether records that wait can be taken, by [`Clock::passed`].
    looked: Option<Duration>,
    /// From when on an idle reader commits ends, by the same.
    ends_due: Duration,
}

impl AsMut<LoopState> for ReaderState {
    fn as_mut(&mut self) -> &mut LoopState {
        &mut self.group
    }
}

impl<S, K, F, C> TopicReader<S, K, F, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    F: Feed,
    C: Clock,
{
    /// Works until it is told to stop; what is taken by then is committed.
    ///
    /// # Errors
    /// Something that only a person can put right.
    pub async fn run(&mut self) -> Result<(), LaneError> {
        let end = self.work(&mut ReaderState::default()).await;
        end.map_err(|LaneError::Fatal(message)| LaneError::Fatal(format!("{}: {message}", F::TOPIC.as_str())))
    }

    /// Takes the valid records of a batch, and writes the dead letters of the others.
    async fn take_batch(
        &mut self,
        state: &mut ReaderState,
        batch: &S::Batch,
    ) -> Result<(Vec<Output>, InFlight), Interruption> {
        let now = self.time(batch.appends()).await?;
        let (mut tally, mut outputs, mut items) = (TopicTally::default(), Vec::new(), Vec::new());
        let (mut letters, mut places) = (BTreeMap::new(), Vec::new());
        for index in 0..batch.len() {
            let record = batch.get(index);
            let read = match batch.not_inflated(index) {
                Some(limit_bytes) => Err(DeadLetter::not_inflated(limit_bytes)),
                None => self.feed.read(&record, now),
            };
            outputs.push(match read {
                Ok(item) => {
                    items.push(item);
                    places.push((record.partition, record.offset));
                    nothing()
                }
                Err(_) if state.letters.get(&record.partition).is_some_and(|upto| record.offset < *upto) => nothing(),
                Err(letter) => {
                    letters.insert(record.partition, record.offset + 1);
                    let what = (&*self.topic.name, batch.bytes_beside_value(index));
                    let (output, reason) = dead_letter(&letter, &record, what, &self.limits);
                    tally.dead_letter(reason.as_str());
                    output
                }
            });
        }
        let mut outcomes = vec![None; items.len()];
        if !items.is_empty() {
            self.take(&items, &mut outcomes).await?;
        }
        for ((partition, offset), outcome) in places.into_iter().zip(outcomes.into_iter().flatten()) {
            match F::label(outcome) {
                Some(label) => tally.outcome(label),
                None => drop(state.held.entry(partition).or_insert(offset)),
            }
        }
        Ok((outputs, InFlight { letters, tally, ..InFlight::default() }))
    }

    /// The time to read a batch by; a clock that is wrong is waited for.
    async fn time(&mut self, appends: &[Append]) -> Result<Time, Interruption> {
        for pause in backoff() {
            match self.clock.time_to_decide(appends) {
                Ok(now) => return Ok(now),
                Err(wrong) => self.wait(wrong.to_string(), pause).await?,
            }
        }
        Err(Interruption::Stop)
    }

    /// Asks the feed until it has everything, serving the group meanwhile.
    async fn take(&mut self, items: &[F::Item], outcomes: &mut [Option<F::Outcome>]) -> Result<(), Interruption> {
        for pause in backoff() {
            match self.feed.take(&self.topic, items, outcomes).await {
                Ok(()) => {
                    self.status.set_trouble(None);
                    return Ok(());
                }
                Err(StoreError::Fatal(message)) => return Err(Interruption::Fatal(message)),
                Err(error @ (StoreError::Temporary(_) | StoreError::TooSlow(_) | StoreError::LostHistory { .. })) => {
                    tracing::warn!("{} are not all taken: {error}; trying again", F::TOPIC.as_str());
                    self.wait(error.to_string(), pause).await?;
                }
            }
        }
        Ok(())
    }

    /// Shows why nothing is taken, and pauses.
    async fn wait(&mut self, why: String, pause: Duration) -> Result<(), Interruption> {
        self.status.set_trouble(Some(why));
        if self.serve_group().await?.is_some() {
            return Err(Interruption::Group);
        }
        self.pause_or_stop(pause).await
    }

    /// Goes back to the records that wait, once one of them can be taken.
    async fn look_for_waiting(&mut self, state: &mut ReaderState) -> Result<(), Interruption> {
        let passed = self.clock.passed();
        let due = state.looked.is_none_or(|looked| passed.saturating_sub(looked) >= LOOK_EVERY);
        if state.held.is_empty() || !due {
            return Ok(());
        }
        state.looked = Some(passed);
        if self.feed.any_back().await {
            return Err(Interruption::Rewind("a shard has its history again".to_owned()));
        }
        Ok(())
    }

    /// Ends of partitions that were read, where no record waits before them.
    fn ends_read(&self, state: &ReaderState) -> Vec<Progress> {
        let mut ends = self.source.ends_read();
        ends.retain(|end| !state.held.contains_key(&end.partition));
        ends
    }

    fn note_lag(&self, state: &ReaderState, batch: &S::Batch) {
        let is_all_committed = batch.is_empty() && !state.in_flight.has_records;
        let ends = if is_all_committed { self.ends_read(state) } else { Vec::new() };
        let lag = self.source.lag(&ends::reached(&state.committed, ends));
        self.metrics.set_topic_lag(F::TOPIC, lag.into_iter().map(|(_, records)| records).sum());
    }

    /// Commits ends behind which nothing but offsets without a record is left to read. To be called when all that was read is committed.
    async fn commit_ends(&mut self, state: &mut ReaderState) -> Result<(), Interruption> {
        if self.clock.passed() < state.ends_due {
            return Ok(());
        }
        let progress = ends::not_committed(&state.committed, self.ends_read(state));
        if progress.is_empty() {
            return Ok(());
        }
        if self.serve_group().await?.is_some() {
            return Err(Interruption::Group);
        }
        let (records, membership) = (self.source.batch(), self.source.membership()?);
        state.in_flight = InFlight { progress: progress.clone(), ..InFlight::default() };
        self.sink.submit(Job { records, outputs: Vec::new(), progress, membership });
        Ok(())
    }
}

impl<S, K, F, C> GroupLoop for TopicReader<S, K, F, C>
where
    S: Source,
    K: Sink<S::Batch, S::Membership>,
    F: Feed,
    C: Clock,
{
    type Source = S;
    type Sink = K;
    type Clock = C;
    type State = ReaderState;

    fn ends(&mut self) -> Ends<'_, S, K, C> {
        let Self { source, sink, clock, stop, metrics, status, drain, .. } = self;
        Ends { source, sink, clock, stop, metrics: &**metrics, status, drain: *drain }
    }

    fn name(&self) -> &'static str {
        F::TOPIC.as_str()
    }

    async fn run_batches(&mut self, state: &mut ReaderState) -> Result<(), Interruption> {
        loop {
            if self.stop.is_cancelled() {
                return Err(Interruption::Stop);
            }
            self.status.progressed(self.clock.passed());
            let mut batch = self.source.batch();
            if self.source.poll(&mut batch, BATCH, FILL).await?.is_some() {
                return Err(Interruption::Group);
            }
            self.look_for_waiting(state).await?;
            self.note_lag(state, &batch);
            if batch.is_empty() {
                if self.poll_commit(state, Duration::ZERO).await? {
                    self.commit_ends(state).await?;
                }
                continue;
            }
            let (outputs, in_flight) = self.take_batch(state, &batch).await?;
            self.await_commit(state).await?;
            if self.serve_group().await?.is_some() {
                return Err(Interruption::Group);
            }
            let ends = ends::not_committed(&state.committed, self.ends_read(state));
            let progress = ends::with_batch(progress_of(&batch, &state.held, &state.committed), ends);
            let membership = self.source.membership()?;
            state.in_flight = InFlight { progress: progress.clone(), has_records: true, ..in_flight };
            self.sink.submit(Job { records: batch, outputs, progress, membership });
        }
    }

    fn committed(&mut self, state: &mut ReaderState, _: &CommitTimes) {
        let InFlight { progress, letters, tally, .. } = std::mem::take(&mut state.in_flight);
        state.ends_due = self.clock.passed() + ends::COMMIT_AFTER;
        self.metrics.topic_committed(F::TOPIC, &tally);
        state.committed.extend(progress.iter().map(|done| (done.partition, done.next_offset)));
        state.letters.extend(letters);
    }

    fn failed(&mut self, state: &mut ReaderState, _: Option<&CommitError>) {
        state.in_flight = InFlight::default();
    }

    fn forget(&mut self, state: &mut ReaderState) {
        *state = ReaderState { group: std::mem::take(&mut state.group), ..ReaderState::default() };
    }

    fn start(&mut self, state: &mut ReaderState) {
        let id = self.source.topic_id();
        if id != self.topic.id {
            // The topic was recreated: what was written for its predecessor's offsets says nothing about its own.
            state.letters.clear();
            self.topic.id = id;
        }
        state.held.clear();
        state.committed = self.source.starts().iter().map(|start| (start.partition, start.next_offset)).collect();
    }

    async fn before_end(&mut self, _: &mut ReaderState) -> Result<(), LaneError> {
        Ok(())
    }
}

/// No record goes out for a valid record.
fn nothing() -> Output {
    Output { to: Destination::Nowhere, value: OutputValue::AsItCame, headers: Arc::new([]) }
}

/// How far a batch brings each of its partitions: not beyond what is held, and never back.
fn progress_of(records: &impl Records, held: &BTreeMap<i32, i64>, committed: &BTreeMap<i32, i64>) -> Vec<Progress> {
    let kept = next_offsets(records).into_iter().map(|(partition, next)| {
        let next = held.get(&partition).map_or(next, |held| next.min(*held));
        let next_offset = committed.get(&partition).map_or(next, |before| next.max(*before));
        Progress { partition, next_offset }
    });
    kept.collect()
}
