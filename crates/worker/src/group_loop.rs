//! The loop of a group member with a producer, which lanes and the readers of topics beside the intents have in common: batches until
//! something interrupts, then a change of partitions, the way back to the committed offsets, or the end.
//!
//! invariant: at most one batch is being committed and one taken.
//! invariant: a change of partitions is taken up only when nothing is being committed, and forgets all that is not.
//! invariant: after a failed commit nothing is read before sink and source are both back at the committed offsets.

mod batches;
mod committed;
mod interruption;
mod moves;
pub(crate) mod serving;

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_core::{
    batch::record::Output,
    ports::{Clock, CommitError, CommitTimes, GroupEvent, Settled, Sink, Source, SourceError},
};

pub use self::interruption::LaneError;
pub(crate) use self::{
    committed::{Committed, LagOf},
    interruption::Interruption,
    moves::AwaitedTurn,
};
use super::{
    backoff::{LONGEST_BACKOFF, SERVE_EVERY, backoff},
    observer::{Event, Observer},
    share::AskedTurns,
    status::LaneStatus,
};

/// What is kept of the time to end, at most: for leaving the group, and for the committed offsets that the member may be waiting
/// for when it is told to stop (4 s).
const LEAVING: Duration = Duration::from_secs(5);

/// What a group member works with.
pub(crate) struct Ends<'l, S, K, C> {
    pub(crate) source: &'l mut S,
    pub(crate) sink: &'l mut K,
    pub(crate) clock: &'l C,
    pub(crate) stop: &'l CancellationToken,
    pub(crate) metrics: &'l dyn Observer,
    pub(crate) status: &'l LaneStatus,
    /// How long it may take to end once it is told to stop.
    pub(crate) drain: Duration,
}

/// What the loop knows between iterations. Times are those of [`Clock::passed`].
#[derive(Default)]
pub(crate) struct LoopState<T> {
    /// Pauses between rewinds; they start over with each commit.
    pauses: Option<Box<dyn Iterator<Item = Duration>>>,
    /// When it gives up what it still waits for; known once it is told to stop.
    pub(crate) ends_by: Option<Duration>,
    /// From when on ends are committed, where nothing else is.
    ends_due: Duration,
    /// What the batch in flight came to; the default while there is none, or ends alone are committed.
    in_flight: T,
    pub(crate) committed: Committed,
    /// What the first batch of partitions that were assigned waits for.
    pub(crate) first_waits_for: Option<AwaitedTurn>,
}

pub(crate) enum Iteration<B, T> {
    /// It has rested, and read nothing.
    Rested,
    /// There was nothing to read.
    Idle,
    /// A batch is to be committed: its records, one output a record, and what else it came to.
    Took(B, Vec<Output>, T),
}

/// A group member with a producer. It says what it does with batches and commits; the rest is the same for all.
pub(crate) trait GroupLoop: Sized {
    type Source: Source;
    type Sink: Sink<<Self::Source as Source>::Batch, <Self::Source as Source>::Membership>;
    type Clock: Clock;
    /// What it knows between iterations.
    type State;
    /// What a batch comes to beside its outputs.
    type Taken: Default;

    fn ends(&mut self) -> Ends<'_, Self::Source, Self::Sink, Self::Clock>;

    fn group(state: &mut Self::State) -> &mut LoopState<Self::Taken>;

    /// By which turns instances tell each other what its decisions depend on; `None`: they depend on none.
    fn turns(&self) -> Option<&AskedTurns> {
        None
    }

    fn name(&self) -> &'static str;

    /// Reads a batch and takes its records, while the one before is being committed.
    async fn take(
        &mut self,
        state: &mut Self::State,
    ) -> Result<Iteration<<Self::Source as Source>::Batch, Self::Taken>, Interruption>;

    /// A batch is handed over at once. An interruption gives it up.
    fn handing_over(&mut self, _: &mut Self::State, _: &mut Self::Taken) -> Result<(), Interruption> {
        Ok(())
    }

    /// The batch in flight is committed, or ends alone are.
    fn committed(&mut self, state: &mut Self::State, taken: Self::Taken, times: &CommitTimes);

    /// The batch in flight is not committed, or perhaps it is; `None`: nobody knows why.
    fn failed(&mut self, _: &mut Self::State, _: Self::Taken, _: Option<&CommitError>) {}

    /// Sink or source are not back yet after a failure, at this time; again and again.
    fn waits(_: &mut Self::State, _now: Duration) {}

    /// How many records are not committed has changed, or a poll has found none.
    fn show_lag(&mut self, state: &mut Self::State, found_nothing: bool);

    /// The partitions are others from now on.
    fn forget(&mut self, state: &mut Self::State);

    /// Reading starts at the source's starts: what lies before was committed.
    fn start(&mut self, state: &mut Self::State);

    /// The last batch is committed or given up.
    async fn before_end(&mut self, _: &mut Self::State) -> Result<(), LaneError> {
        Ok(())
    }

    /// Works until it is told to stop.
    async fn work(&mut self, state: &mut Self::State) -> Result<(), LaneError> {
        let mut end = self.recover_sink(state).await;
        loop {
            end = match end {
                Ok(()) => batches::run(self, state).await,
                Err(Interruption::Stop) => return self.leave(state, None).await,
                Err(Interruption::Fatal(message)) => return self.leave(state, Some(message)).await,
                Err(Interruption::Group) => self.take_up_change(state).await,
                Err(Interruption::Rewind(reason)) => self.rewind(state, reason).await,
            }
        }
    }

    /// Ends in order, or for this reason. Others are told in any case whom it brought in; the turn is taken meanwhile, and waited for with the
    /// time that is left at last.
    async fn leave(&mut self, state: &mut Self::State, fatal: Option<String>) -> Result<(), LaneError> {
        let told = moves::ask(self);
        let end = match fatal {
            Some(message) => Err(LaneError::Fatal(message)),
            None => self.drain(state).await,
        };
        moves::before_end(self, told, Self::group(state).ends_by).await;
        end
    }

    /// Serves the group, whose change interrupts. Reads nothing.
    async fn serve(&mut self) -> Result<(), Interruption> {
        match self.serve_group().await? {
            Some(_) => Err(Interruption::Group),
            None => Ok(()),
        }
    }

    /// Lets the group have its say, reads nothing.
    async fn serve_group(&mut self) -> Result<Option<GroupEvent>, SourceError> {
        let Ends { source, clock, status, .. } = self.ends();
        let mut nothing = source.batch();
        status.progressed(clock.passed());
        source.poll(&mut nothing, 0, Duration::ZERO).await
    }

    /// Waits until nothing is in flight, serving the group meanwhile.
    async fn await_commit(&mut self, state: &mut Self::State) -> Result<(), Interruption> {
        while !self.poll_commit(state, SERVE_EVERY).await? {
            self.show_lag(state, false);
            self.serve_group().await?;
            if self.out_of_time(state) {
                return Err(Interruption::Stop);
            }
        }
        Ok(())
    }

    /// Waits for the batch in flight; `true` when none is any more.
    async fn poll_commit(&mut self, state: &mut Self::State, wait: Duration) -> Result<bool, Interruption> {
        match self.ends().sink.wait(wait).await {
            Settled::Idle => Ok(true),
            Settled::Busy => Ok(false),
            Settled::Committed(times) => {
                let ends_due = self.ends().clock.passed() + batches::COMMIT_ENDS_AFTER;
                let group = Self::group(state);
                (group.pauses, group.ends_due) = (None, ends_due);
                let taken = std::mem::take(&mut group.in_flight);
                self.committed(state, taken, &times);
                Self::group(state).committed.committed();
                self.show_lag(state, false);
                Ok(true)
            }
            Settled::Failed(error) => {
                self.ends().metrics.happened(Event::CommitFailed);
                let taken = std::mem::take(&mut Self::group(state).in_flight);
                self.failed(state, taken, Some(&error));
                Err(error.into())
            }
        }
    }

    /// Takes up a change of partitions, when nothing is in flight any more.
    async fn take_up_change(&mut self, state: &mut Self::State) -> Result<(), Interruption> {
        self.ends().status.revoked();
        let told = moves::ask(self);
        self.await_commit(state).await?;
        moves::before_change(self, told).await?;
        self.forget(state);
        Self::group(state).committed = Committed::default();
        for pause in backoff() {
            // Serving the group replaces a change that is out of date by now.
            let Some(event) = self.serve_group().await? else {
                return Err(self.change_taken_back());
            };
            let settled = self.ends().source.settle().await.map_err(Interruption::from);
            if self.has_worked(state, ("taking up a change of partitions", settled), pause).await? {
                self.begin(state);
                self.note_settled(event);
                Self::group(state).first_waits_for = moves::ask(self);
                break;
            }
        }
        self.ends().status.set_trouble(None);
        Ok(())
    }

    fn begin(&mut self, state: &mut Self::State) {
        Self::group(state).committed.starts(self.ends().source.starts());
        self.start(state);
    }

    /// The partitions are those of before. What was read and is not committed is forgotten, so it has to be read again.
    fn change_taken_back(&mut self) -> Interruption {
        let Ends { source, status, .. } = self.ends();
        if source.partitions() > 0 {
            status.assigned();
        }
        Interruption::Rewind("the group has taken a change of partitions back".to_owned())
    }

    fn note_settled(&mut self, event: GroupEvent) {
        let name = self.name();
        let Ends { source, status, .. } = self.ends();
        match event {
            GroupEvent::Revoked => tracing::info!("{name}: the group has taken the partitions"),
            GroupEvent::Assigned => {
                status.assigned();
                tracing::info!(partitions = source.partitions(), "{name}: the group has given the partitions");
            }
        }
    }

    /// Brings sink and source back to the committed offsets.
    async fn rewind(&mut self, state: &mut Self::State, reason: String) -> Result<(), Interruption> {
        tracing::warn!("{}: back to the committed offsets: {reason}", self.name());
        self.ends().status.set_trouble(Some(reason));
        match self.settle_commit(state).await {
            Err(interruption @ (Interruption::Stop | Interruption::Fatal(_))) => return Err(interruption),
            // One that fails says no more than is known.
            Ok(()) | Err(Interruption::Group | Interruption::Rewind(_)) => {}
        }
        let taken = std::mem::take(&mut Self::group(state).in_flight);
        self.failed(state, taken, None);
        let pauses = Self::group(state).pauses.get_or_insert_with(|| Box::new(backoff()));
        let pause = pauses.next().unwrap_or(LONGEST_BACKOFF);
        self.pause_or_stop(pause).await?;
        self.recover_sink(state).await?;
        for pause in backoff() {
            // A change of partitions starts at the committed offsets by itself; and what is revoked must not be assigned again.
            self.serve().await?;
            let rewound = self.ends().source.rewind().await.map_err(Interruption::from);
            if self.has_worked(state, ("going back to the committed offsets", rewound), pause).await? {
                break;
            }
        }
        self.ends().status.set_trouble(None);
        self.begin(state);
        Ok(())
    }

    /// Waits for the commit that may be under way, without a look at the group.
    async fn settle_commit(&mut self, state: &mut Self::State) -> Result<(), Interruption> {
        loop {
            let Ends { clock, status, .. } = self.ends();
            status.progressed(clock.passed());
            if self.out_of_time(state) {
                return Err(Interruption::Stop);
            }
            if self.poll_commit(state, SERVE_EVERY).await? {
                return Ok(());
            }
        }
    }

    /// Makes the sink usable, however long it takes.
    async fn recover_sink(&mut self, state: &mut Self::State) -> Result<(), Interruption> {
        for pause in backoff() {
            let recovered = self.try_recover_sink(state).await?.map_err(Interruption::from);
            // One that never will be ends the member, whatever the group says.
            if matches!(recovered, Err(Interruption::Rewind(_))) {
                self.show_lag(state, false);
                self.serve_group().await?;
            }
            if self.has_worked(state, ("the producer is not ready", recovered), pause).await? {
                break;
            }
        }
        self.ends().status.set_trouble(None);
        Ok(())
    }

    /// One try, which may take long. It serves the group meanwhile and ends on the shutdown signal.
    async fn try_recover_sink(&mut self, state: &mut Self::State) -> Result<Result<(), CommitError>, Interruption> {
        let Ends { source, sink, clock, stop, status, .. } = self.ends();
        let mut recovering = std::pin::pin!(sink.recover());
        loop {
            status.progressed(clock.passed());
            Self::waits(state, clock.passed());
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Interruption::Stop),
                outcome = &mut recovering => return Ok(outcome),
                () = clock.sleep(SERVE_EVERY) => {}
            }
            // What the group wants is taken up when the sink is usable.
            let _ = source.poll(&mut source.batch(), 0, Duration::ZERO).await?;
        }
    }

    /// Whether something has worked. Shows why not, and pauses before the next attempt.
    async fn has_worked(
        &mut self,
        state: &mut Self::State,
        (what, outcome): (&str, Result<(), Interruption>),
        pause: Duration,
    ) -> Result<bool, Interruption> {
        match outcome {
            Ok(()) => Ok(true),
            Err(Interruption::Rewind(reason)) => {
                tracing::warn!("{}: {what}: {reason}; trying again", self.name());
                let Ends { clock, status, .. } = self.ends();
                status.set_trouble(Some(reason));
                Self::waits(state, clock.passed());
                self.pause_or_stop(pause).await.map(|()| false)
            }
            Err(interruption) => Err(interruption),
        }
    }

    async fn pause_or_stop(&mut self, pause: Duration) -> Result<(), Interruption> {
        let Ends { clock, stop, status, .. } = self.ends();
        status.progressed(clock.passed());
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Interruption::Stop),
            () = clock.sleep(pause) => Ok(()),
        }
    }

    /// Whether it was told to stop so long ago that it must not wait any more.
    fn out_of_time(&mut self, state: &mut Self::State) -> bool {
        let Ends { clock, stop, drain, .. } = self.ends();
        if !stop.is_cancelled() {
            return false;
        }
        let passed = clock.passed();
        passed >= *Self::group(state).ends_by.get_or_insert(passed + drain.saturating_sub(LEAVING.min(drain / 4)))
    }

    /// Lets the batch in flight come to its end, and does what is to be done then. A failure loses nothing: it is read again by its next
    /// owner.
    async fn drain(&mut self, state: &mut Self::State) -> Result<(), LaneError> {
        let settled = self.settle_commit(state).await;
        let name = self.name();
        match settled {
            Ok(()) | Err(Interruption::Group) => {}
            Err(Interruption::Fatal(message)) => return Err(LaneError::Fatal(message)),
            Err(Interruption::Stop) => tracing::warn!(
                "{name}: the last batch was not committed in time: what became of it is settled by whoever takes over"
            ),
            Err(Interruption::Rewind(reason)) => {
                tracing::warn!("{name}: the last batch was not committed, and will be decided again: {reason}");
            }
        }
        self.before_end(state).await
    }
}
