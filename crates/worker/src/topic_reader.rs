//! The reader of a topic beside the intents: reads it, hands its records to a [feed](Feed), and commits how far it is, with the
//! invalid records as dead letters.
//!
//! Records of a batch that is not committed are read again, so a feed takes a record that it has taken before without effect.
//!
//! invariant: a record is committed only when its feed has taken it. One that waits holds the committed offset of its partition back,
//! but not the records behind it; once the feed can take it, all is read again from there.

mod feed;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::{clocks::Append, origin::Topic, time::Time},
    batch::{
        letter::dead_letter,
        record::{Destination, Output, OutputValue, Records},
        sizes::OutputLimits,
        tally::TopicTally,
    },
    intent::dead_letter::DeadLetter,
    ports::{Clock, CommitTimes, Sink, Source, StoreError},
};

pub use self::feed::Feed;
use super::{
    backoff::backoff,
    group_loop::{
        Committed, Ends, GroupLoop, Interruption, Iteration, LagOf, LaneError, LoopState,
        serving::{Serving, Until},
    },
    observer::Observer,
    status::LaneStatus,
};

const BATCH: usize = 5_000;
/// How long a batch may wait to be filled: these topics are not urgent, and a commit costs the brokers.
const FILL: Duration = Duration::from_millis(200);
/// How often it is looked whether records that wait can be taken.
const LOOK_EVERY: Duration = Duration::from_secs(2);

pub struct TopicReader<S, K, F, C> {
    /// The topic; its id is the source's.
    pub topic: Topic,
    pub source: S,
    /// The producer of dead letters and offsets.
    pub sink: K,
    pub feed: F,
    pub clock: C,
    /// What the dead-letter topic takes.
    pub limits: Arc<OutputLimits>,
    /// How long a stop may take in all; the commit under way is given at least three quarters of it.
    pub drain: Duration,
    pub stop: CancellationToken,
    pub metrics: Arc<dyn Observer>,
    pub status: Arc<LaneStatus>,
}

#[derive(Default)]
pub(crate) struct TopicBatch {
    /// Up to where invalid records are written with it.
    letters: BTreeMap<i32, i64>,
    tally: TopicTally,
}

#[derive(Default)]
pub(crate) struct ReaderState {
    group: LoopState<TopicBatch>,
    /// Up to where invalid records have been written, for when they are read again.
    letters: BTreeMap<i32, i64>,
    /// When to look whether records that wait can be taken, by [`Clock::passed`].
    look_due: Duration,
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
    ) -> Result<(Vec<Output>, TopicBatch), Interruption> {
        let now = self.time(state, batch.appends()).await?;
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
                    tally.dead_letters.one_more(reason.as_str());
                    output
                }
            });
        }
        let mut outcomes = vec![None; items.len()];
        if !items.is_empty() {
            self.take_all(state, &items, &mut outcomes).await?;
        }
        // Neither the clock nor the feed is waited for any more.
        self.status.set_trouble(None);
        for ((partition, offset), outcome) in places.into_iter().zip(outcomes.into_iter().flatten()) {
            match F::label(outcome) {
                Some(label) => tally.outcomes.one_more(label),
                None => state.group.committed.hold(partition, offset),
            }
        }
        Ok((outputs, TopicBatch { letters, tally }))
    }

    /// The time to read a batch by; a clock that is wrong is waited for.
    async fn time(&mut self, state: &mut ReaderState, appends: &[Append]) -> Result<Time, Interruption> {
        for pause in backoff() {
            match self.clock.time_to_decide(appends) {
                Ok(now) => return Ok(now),
                Err(wrong) => self.wait(state, wrong.to_string(), pause).await?,
            }
        }
        Err(Interruption::Stop)
    }

    fn feed_and_serving<'l>(&'l mut self, committed: &'l Committed) -> (&'l mut F, &'l Topic, Serving<'l, S, C>) {
        let Self { topic, source, feed, clock, stop, metrics, status, .. } = self;
        let (metrics, done, until) = (&**metrics, Some((LagOf::Beside(F::TOPIC), committed)), Until::Interrupted);
        (feed, &*topic, Serving { source, clock, stop, metrics, status, done, until })
    }

    /// Asks the feed until it has everything, serving the group meanwhile. An interruption drops the question half way.
    async fn take_all(
        &mut self,
        state: &mut ReaderState,
        items: &[F::Item],
        outcomes: &mut [Option<F::Outcome>],
    ) -> Result<(), Interruption> {
        for pause in backoff() {
            let (feed, topic, mut serving) = self.feed_and_serving(&state.group.committed);
            match serving.during(feed.take(topic, items, outcomes)).await? {
                Ok(()) => break,
                Err(StoreError::Fatal(message)) => return Err(Interruption::Fatal(message)),
                Err(
                    error @ (StoreError::Temporary(_)
                    | StoreError::NotRecorded(_)
                    | StoreError::TooSlow(_)
                    | StoreError::LostHistory { .. }),
                ) => {
                    tracing::warn!("{} are not all taken: {error}; trying again", F::TOPIC.as_str());
                    self.wait(state, error.to_string(), pause).await?;
                }
            }
        }
        Ok(())
    }

    /// Shows why nothing is taken, and how much is not, and pauses.
    async fn wait(&mut self, state: &mut ReaderState, why: String, pause: Duration) -> Result<(), Interruption> {
        self.status.set_trouble(Some(why));
        self.show_lag(state, false);
        self.serve().await?;
        self.pause_or_stop(pause).await
    }

    /// Goes back to the records that wait, once one of them can be taken.
    async fn look_for_waiting(&mut self, state: &mut ReaderState) -> Result<(), Interruption> {
        let passed = self.clock.passed();
        if passed < state.look_due || !state.group.committed.holds_any() {
            return Ok(());
        }
        state.look_due = passed + LOOK_EVERY;
        let (feed, _, mut serving) = self.feed_and_serving(&state.group.committed);
        if serving.during(feed.any_back()).await? {
            return Err(Interruption::Rewind("a shard has its history again".to_owned()));
        }
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
    type Taken = TopicBatch;

    fn ends(&mut self) -> Ends<'_, S, K, C> {
        let Self { source, sink, clock, stop, metrics, status, drain, .. } = self;
        Ends { source, sink, clock, stop, metrics: &**metrics, status, drain: *drain }
    }

    fn group(state: &mut ReaderState) -> &mut LoopState<TopicBatch> {
        &mut state.group
    }

    fn name(&self) -> &'static str {
        F::TOPIC.as_str()
    }

    async fn take(&mut self, state: &mut ReaderState) -> Result<Iteration<S::Batch, TopicBatch>, Interruption> {
        let mut batch = self.source.batch();
        if self.source.poll(&mut batch, BATCH, FILL).await?.is_some() {
            return Err(Interruption::Group);
        }
        self.look_for_waiting(state).await?;
        if batch.is_empty() {
            return Ok(Iteration::Idle);
        }
        self.show_lag(state, false);
        let (outputs, taken) = self.take_batch(state, &batch).await?;
        Ok(Iteration::Took(batch, outputs, taken))
    }

    fn committed(&mut self, state: &mut ReaderState, taken: TopicBatch, _: &CommitTimes) {
        self.metrics.topic_committed(F::TOPIC, &taken.tally);
        state.letters.extend(taken.letters);
    }

    fn show_lag(&mut self, state: &mut ReaderState, found_nothing: bool) {
        self.metrics.set_topic_lag(F::TOPIC, state.group.committed.lag_of_all(&self.source, found_nothing));
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
    }
}

/// No record goes out for a valid record.
fn nothing() -> Output {
    Output { to: Destination::Nowhere, value: OutputValue::AsItCame, headers: Arc::new([]) }
}
