//! Commits decided batches on a thread of its own, so that the next batch is decided meanwhile, and so that a
//! call of librdkafka that never returns can be left behind.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc,
    time::{error::Elapsed, timeout},
};
use weir_core::{
    batch::record::Job,
    ports::{CommitError, CommitTimes, Settled, Sink},
};

use super::{
    client::{KafkaOptions, TRANSACTION_TIMEOUT},
    native::MessageBatch,
    producer::{INIT_TIMEOUT, LaneProducer},
    source::Membership,
};

/// A commit that takes longer hangs: librdkafka's send-offsets does not keep to its time-out while a coordinator moves. By
/// then the broker has aborted the transaction. Its thread is left behind and a new producer takes over.
pub const COMMIT_WATCHDOG: Duration = Duration::from_secs(TRANSACTION_TIMEOUT.as_secs() + 5);
/// The same of a recovery: its steps (abort 10 s, start 25 s) have had their time.
const RECOVERY_WATCHDOG: Duration = Duration::from_secs(3 * TRANSACTION_TIMEOUT.as_secs());
/// How long the end of a producer may take in a recovery, with 5 s to spare. A start that ends after the watchdog would fence the
/// producer of the thread that has taken over.
const END_TIMEOUT: Duration = Duration::from_secs(RECOVERY_WATCHDOG.as_secs() - INIT_TIMEOUT.as_secs() - 5);

/// How often a producer that has nothing to commit is polled: librdkafka may want its next token.
const IDLE_POLL: Duration = Duration::from_secs(1);

pub(super) type KafkaJob = Job<MessageBatch, Membership>;

enum CommitterCommand {
    Commit(Box<KafkaJob>),
    Recover,
}

/// How a command ended; of a recovery without times.
type CommitterReply = Result<CommitTimes, CommitError>;

/// The two ends of the channels to a committing thread.
struct Committer {
    commands: SyncSender<CommitterCommand>,
    replies: mpsc::Receiver<CommitterReply>,
}

/// What the committing thread is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Nothing,
    /// Since when.
    Commit(Instant),
    /// Since when.
    Recovery(Instant),
    /// A recovery that nobody has asked for: another producer takes the place of one whose files were replaced. Since when.
    Replacement(Instant),
}

/// A lane's transactional producer.
pub struct KafkaSink {
    options: Arc<KafkaOptions>,
    lane: usize,
    committer: Option<Committer>,
    task: Task,
    /// The edition of the files that the producer was created from at the least; `None`: none is usable.
    edition: Option<u64>,
    created_before: bool,
}

impl KafkaSink {
    /// A sink that has no producer yet: [`Sink::recover`] makes one.
    pub fn new(options: Arc<KafkaOptions>, lane: usize) -> Self {
        Self { options, lane, committer: None, task: Task::Nothing, edition: None, created_before: false }
    }

    fn spawn(&self) -> Result<Committer, CommitError> {
        let (options, lane, created_before) = (Arc::clone(&self.options), self.lane, self.created_before);
        // One command is in flight at a time; the room of one keeps a send from blocking.
        let (commands, inbox) = sync_channel(1);
        let (output_topics, replies) = mpsc::channel(1);
        thread::Builder::new()
            .name(format!("lane-{lane}-commit"))
            .spawn(move || {
                // Made here: a producer stays on its thread.
                serve(Producers { current: None, options, lane, created_before }, &inbox, &output_topics);
            })
            .map_err(|error| CommitError::Failed(format!("no thread for the producer: {error}")))?;
        Ok(Committer { commands, replies })
    }

    /// Has another producer take the place of one whose files were replaced. Only between two jobs: a job that waited for it would
    /// become visible later than [`COMMIT_WATCHDOG`] allows.
    fn replace_if_outdated(&mut self) {
        let edition = self.options.files.edition();
        if self.task == Task::Nothing
            && self.edition.is_some_and(|of_producer| of_producer != edition)
            && let Some(committer) = &self.committer
            && committer.commands.send(CommitterCommand::Recover).is_ok()
        {
            (self.task, self.edition) = (Task::Replacement(Instant::now()), Some(edition));
        }
    }

    /// The thread's reply, `None` where it has ended; an error where none comes within so long.
    async fn reply(&mut self, wait: Duration) -> Result<Option<CommitterReply>, Elapsed> {
        match &mut self.committer {
            Some(committer) => timeout(wait, committer.replies.recv()).await,
            None => Ok(None),
        }
    }

    async fn wait_for_commit(&mut self, since: Instant, wait: Duration) -> Settled {
        let settled = match self.reply(wait).await {
            Ok(Some(Ok(times))) => Settled::Committed(times),
            Ok(Some(Err(error))) => Settled::Failed(error),
            Ok(None) => {
                self.committer = None;
                Settled::Failed(CommitError::Failed("the committing thread is gone".to_owned()))
            }
            Err(_) if since.elapsed() < COMMIT_WATCHDOG => return Settled::Busy,
            Err(_) => {
                // The thread keeps its producer; the next one has the same transactional id and fences it.
                self.committer = None;
                Settled::Failed(CommitError::TooSlow(format!(
                    "a commit did not return within {} s",
                    COMMIT_WATCHDOG.as_secs()
                )))
            }
        };
        self.task = Task::Nothing;
        settled
    }

    async fn wait_for_replacement(&mut self, since: Instant, wait: Duration) -> Settled {
        let reply = self.reply(wait).await;
        if reply.is_err() && since.elapsed() < RECOVERY_WATCHDOG {
            return Settled::Busy;
        }
        match self.end_recovery(reply.ok().flatten()) {
            Ok(()) => Settled::Idle,
            Err(error) => Settled::Failed(of_no_batch(error)),
        }
    }

    /// A recovery has ended; without a reply, its thread is left behind.
    fn end_recovery(&mut self, reply: Option<CommitterReply>) -> Result<(), CommitError> {
        self.task = Task::Nothing;
        let outcome = reply.unwrap_or_else(|| {
            self.committer = None;
            let within_s = RECOVERY_WATCHDOG.as_secs();
            Err(CommitError::Failed(format!("the producer did not recover within {within_s} s")))
        });
        match outcome {
            Ok(_) => self.created_before = true,
            Err(_) => self.edition = None,
        }
        outcome.map(drop)
    }
}

impl Sink<MessageBatch, Membership> for KafkaSink {
    fn submit(&mut self, job: KafkaJob) {
        // The reply to a recovery that nobody waits for any more would be taken for that to this commit.
        if self.task != Task::Nothing {
            self.committer = None;
        }
        self.task = Task::Commit(Instant::now());
        if let Some(committer) = &self.committer
            && committer.commands.send(CommitterCommand::Commit(Box::new(job))).is_err()
        {
            self.committer = None;
        }
    }

    async fn wait(&mut self, wait: Duration) -> Settled {
        self.replace_if_outdated();
        match self.task {
            Task::Nothing | Task::Recovery(_) => Settled::Idle,
            Task::Commit(since) => self.wait_for_commit(since, wait).await,
            Task::Replacement(since) => self.wait_for_replacement(since, wait).await,
        }
    }

    async fn recover(&mut self) -> Result<(), CommitError> {
        let (committer, since) = match (self.committer.take(), self.task) {
            // A call before this one was dropped half way, or the producer is being replaced.
            (Some(committer), Task::Recovery(since) | Task::Replacement(since)) => (committer, since),
            (committer, task) => {
                // The reply to a commit that nobody waits for any more would be taken for that to the recovery.
                let committer = committer.filter(|_| task == Task::Nothing).map_or_else(|| self.spawn(), Ok)?;
                self.edition = Some(self.options.files.edition());
                if committer.commands.send(CommitterCommand::Recover).is_err() {
                    return Err(CommitError::Failed("the committing thread is gone".to_owned()));
                }
                (committer, Instant::now())
            }
        };
        self.task = Task::Recovery(since);
        self.committer = Some(committer);
        let reply = self.reply(RECOVERY_WATCHDOG.saturating_sub(since.elapsed())).await;
        self.end_recovery(reply.ok().flatten())
    }
}

/// Why a producer was not replaced. No batch was too large for it: a lane that takes smaller ones would gain nothing.
fn of_no_batch(error: CommitError) -> CommitError {
    match error {
        CommitError::TooSlow(reason) => CommitError::Failed(reason),
        CommitError::Failed(_) | CommitError::Fenced(_) | CommitError::Fatal(_) => error,
    }
}

/// The committing thread: answers each command once, ends when the sink is dropped.
fn serve(mut producers: Producers, commands: &Receiver<CommitterCommand>, replies: &mpsc::Sender<CommitterReply>) {
    loop {
        let command = match commands.recv_timeout(IDLE_POLL) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // Also before a command: a lane that commits offsets alone, and often, polls at no other place.
        if let Some(producer) = &producers.current {
            producer.serve_events();
        }
        let reply = match command {
            None => continue,
            Some(CommitterCommand::Commit(job)) => match &mut producers.current {
                Some(producer) => producer.commit(&job),
                None => Err(CommitError::Failed("there is no producer yet".to_owned())),
            },
            Some(CommitterCommand::Recover) => producers.recover().map(|()| CommitTimes::default()),
        };
        if replies.blocking_send(reply).is_err() {
            return;
        }
    }
}

/// The producers of a lane, one after another: all have the same transactional id.
struct Producers {
    // Dropped before the options: whoever sees that these are free knows that the client has ended.
    current: Option<LaneProducer>,
    options: Arc<KafkaOptions>,
    lane: usize,
    /// Whether one was created before: then the settings are right, and a file that cannot be used is not complete yet.
    created_before: bool,
}

impl Producers {
    /// Aborts what is open. Another producer takes the place of one that is of no more use or outdated.
    fn recover(&mut self) -> Result<(), CommitError> {
        let began = Instant::now();
        let mut usable = self.current.take().and_then(LaneProducer::abort);
        if usable.as_ref().is_some_and(LaneProducer::is_outdated) {
            tracing::info!(lane = self.lane, "a new producer takes over: files of its properties were replaced");
            usable = None;
        }
        self.current = Some(usable.map_or_else(|| self.create(began), Ok)?);
        Ok(())
    }

    /// Creates a producer. `since`: when the one before it began to end.
    fn create(&mut self, since: Instant) -> Result<LaneProducer, CommitError> {
        if since.elapsed() >= END_TIMEOUT {
            return Err(CommitError::Failed("the producer before took too long to end".to_owned()));
        }
        let failed = if self.created_before { CommitError::Failed } else { CommitError::Fatal };
        let created = LaneProducer::make(&self.options, self.lane).map_err(failed)?;
        self.created_before = true;
        created.start()
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::{consumer::Consumer as _, mocking::MockCluster};
    use weir_core::basis::origin::TopicId;

    use super::*;
    use crate::{client::Reads, tests::options, topics::asking};

    #[test]
    fn a_thread_that_owes_the_reply_to_a_recovery_is_given_no_commit() {
        let cluster = MockCluster::new(1).unwrap();
        let options = KafkaOptions { brokers: cluster.bootstrap_servers(), ..options("weir", "0") };
        let consumer = Arc::new(asking(&options, &options.consumer()).unwrap());
        let metadata = Arc::new(consumer.group_metadata().unwrap());
        let records = MessageBatch::new(Arc::clone(&consumer), Reads::Published);
        let membership = Membership { consumer, metadata, topic: TopicId::UNKNOWN };
        let (commands, inbox) = sync_channel(1);
        let (_replies_to, replies) = mpsc::channel(1);
        let mut sink = KafkaSink::new(Arc::new(options), 0);
        (sink.committer, sink.task) = (Some(Committer { commands, replies }), Task::Recovery(Instant::now()));
        sink.submit(Job { records, outputs: Vec::new(), progress: Vec::new(), membership });
        assert!(sink.committer.is_none() && inbox.try_recv().is_err());
    }

    #[test]
    fn a_producer_that_is_not_replaced_in_time_makes_no_batch_smaller() {
        let of = |error: fn(String) -> CommitError| of_no_batch(error("the coordinator moves".to_owned()));
        let failed = CommitError::Failed("the coordinator moves".to_owned());
        assert_eq!([of(CommitError::TooSlow), of(CommitError::Failed)], [failed.clone(), failed]);
        assert!(matches!(of(CommitError::Fenced), CommitError::Fenced(_)));
        assert!(matches!(of(CommitError::Fatal), CommitError::Fatal(_)));
    }
}
