//! Commits decided batches on a thread of its own, so that the next batch is decided meanwhile, and so that a
//! call of librdkafka that never returns can be left behind.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc,
    time::{timeout, timeout_at},
};
use weir_core::{
    ports::{CommitError, CommitTimes, Settled, Sink},
    record::Job,
};

use super::{
    client::{KafkaOptions, TRANSACTION_TIMEOUT},
    lane_context::LaneContext,
    native::MessageBatch,
    producer::LaneProducer,
    source::Membership,
};

/// A commit that takes longer hangs: librdkafka's send-offsets does not keep to its time-out while a coordinator moves. By
/// then the broker has aborted the transaction. Its thread is left behind and a new producer takes over.
pub const COMMIT_WATCHDOG: Duration = Duration::from_secs(TRANSACTION_TIMEOUT.as_secs() + 5);
/// The same of a recovery: its steps (abort 10 s, start 25 s) have had their time.
const RECOVERY_WATCHDOG: Duration = Duration::from_secs(3 * TRANSACTION_TIMEOUT.as_secs());

/// A decided batch of Kafka's.
pub(super) type KafkaJob = Job<MessageBatch<LaneContext>, Membership>;

enum Command {
    Commit(Box<KafkaJob>),
    Recover,
}

enum Reply {
    Done(Result<CommitTimes, CommitError>),
    Recovered(Result<(), CommitError>),
}

/// The two ends of the channels to a committing thread.
struct Committer {
    commands: SyncSender<Command>,
    replies: mpsc::Receiver<Reply>,
}

/// What the committing thread is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Nothing,
    /// Since when.
    Commit(Instant),
    /// Since when.
    Recovery(Instant),
}

/// A lane's transactional producer.
pub struct KafkaSink {
    options: Arc<KafkaOptions>,
    lane: usize,
    committer: Option<Committer>,
    task: Task,
}

impl KafkaSink {
    /// A sink that has no producer yet: [`Sink::recover`] makes one.
    #[must_use]
    pub fn new(options: Arc<KafkaOptions>, lane: usize) -> Self {
        Self { options, lane, committer: None, task: Task::Nothing }
    }

    fn spawn(&self) -> Result<Committer, CommitError> {
        let (options, lane) = (Arc::clone(&self.options), self.lane);
        // One command is in flight at a time; the room of one keeps a send from blocking.
        let (commands, inbox) = sync_channel(1);
        let (output_topics, replies) = mpsc::channel(1);
        thread::Builder::new()
            .name(format!("lane-{lane}-commit"))
            .spawn(move || serve(&options, lane, &inbox, &output_topics))
            .map_err(|error| CommitError::Failed(format!("no thread for the producer: {error}")))?;
        Ok(Committer { commands, replies })
    }
}

impl Sink<MessageBatch<LaneContext>, Membership> for KafkaSink {
    fn submit(&mut self, job: KafkaJob) {
        self.task = Task::Commit(Instant::now());
        if let Some(committer) = &self.committer
            && committer.commands.send(Command::Commit(Box::new(job))).is_err()
        {
            self.committer = None;
        }
    }

    async fn wait(&mut self, wait: Duration) -> Settled {
        let Task::Commit(since) = self.task else { return Settled::Idle };
        let Some(committer) = &mut self.committer else {
            self.task = Task::Nothing;
            return Settled::Failed(CommitError::Failed("the committing thread is gone".to_owned()));
        };
        let settled = match timeout(wait, committer.replies.recv()).await {
            Ok(Some(Reply::Done(Ok(times)))) => Settled::Committed(times),
            Ok(Some(Reply::Done(Err(error)))) => Settled::Failed(error),
            Ok(Some(Reply::Recovered(_)) | None) => {
                self.committer = None;
                Settled::Failed(CommitError::Failed("the committing thread ended".to_owned()))
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

    async fn recover(&mut self) -> Result<(), CommitError> {
        let (committer, since) = match (self.committer.take(), self.task) {
            // A call before this one was dropped half way.
            (Some(committer), Task::Recovery(since)) => (committer, since),
            (committer, Task::Nothing | Task::Commit(_) | Task::Recovery(_)) => {
                let committer = committer.map_or_else(|| self.spawn(), Ok)?;
                if committer.commands.send(Command::Recover).is_err() {
                    return Err(CommitError::Failed("the committing thread is gone".to_owned()));
                }
                (committer, Instant::now())
            }
        };
        self.task = Task::Recovery(since);
        let committer = self.committer.insert(committer);
        let reply = timeout_at((since + RECOVERY_WATCHDOG).into(), committer.replies.recv()).await;
        self.task = Task::Nothing;
        match reply {
            Ok(Some(Reply::Recovered(outcome))) => outcome,
            Ok(Some(Reply::Done(_)) | None) | Err(_) => {
                self.committer = None;
                Err(CommitError::Failed(format!(
                    "the producer did not recover within {} s",
                    RECOVERY_WATCHDOG.as_secs()
                )))
            }
        }
    }
}

/// The committing thread: answers each command once, ends when the sink is dropped.
fn serve(options: &KafkaOptions, lane: usize, commands: &Receiver<Command>, replies: &mpsc::Sender<Reply>) {
    let mut producer: Option<LaneProducer> = None;
    for command in commands {
        let reply = match command {
            Command::Commit(job) => Reply::Done(match &mut producer {
                Some(producer) => producer.commit(&job),
                None => Err(CommitError::Failed("there is no producer yet".to_owned())),
            }),
            Command::Recover => {
                let usable = producer.take().and_then(LaneProducer::abort);
                let made = usable.map_or_else(|| LaneProducer::new(options, lane), Ok);
                Reply::Recovered(made.map(|made| producer = Some(made)))
            }
        };
        if replies.blocking_send(reply).is_err() {
            return;
        }
    }
}
