//! A transactional producer on the fake broker, as a lane's sink: it fails in the ways of `crates/kafka/src/producer.rs`.

use tokio::sync::oneshot;
use weir_core::{
    batch::record::Job,
    ports::{CommitError, CommitTimes, Settled, Sink},
};

use super::{
    broker::{End, Refusal},
    prelude::*,
    source::Batch,
};

/// How long one step of a commit may take.
const STEP: Duration = Duration::from_secs(10);
/// How long a producer waits for its predecessor's transaction to end.
const INIT: Duration = Duration::from_secs(25);
/// How long writing a batch may take: the constant WRITE_TIMEOUT in crates/kafka/src/producer.rs.
const WRITE: Duration = Duration::from_secs(TRANSACTION_TIMEOUT.as_secs() - 3);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Open,
    Spent,
}

struct Producer {
    env: Env,
    broker: Shared,
    id: String,
    epoch: u32,
    state: State,
    opened: Duration,
}

type Done = (Producer, Result<CommitTimes, CommitError>);

pub struct SimSink {
    env: Env,
    broker: Shared,
    process: Rc<Process>,
    /// Unique among the lanes of the run.
    lane: u64,
    id: String,
    /// Which commits failed.
    book: SharedBook,
    producer: Option<Producer>,
    in_flight: Option<(oneshot::Receiver<Done>, Duration)>,
}

/// One request and its reply; `None` if the client got no reply and the outcome is unknown.
async fn ask<T: 'static>(env: &Env, broker: &Shared, request: impl FnOnce(&mut Broker) -> T + 'static) -> Option<T> {
    let away = broker.borrow().down_until.saturating_sub(env.passed());
    if away >= STEP {
        env.sleep(STEP).await;
        return None;
    }
    env.sleep(away + env.millis(1, 15)).await;
    if !env.kafka_fails() {
        let reply = request(&mut broker.borrow_mut());
        env.sleep(env.millis(1, 15)).await;
        return Some(reply);
    }
    match env.index(3) {
        0 => env.note(|| "kafka: a request is lost".to_owned()),
        1 => {
            env.note(|| "kafka: a reply is lost".to_owned());
            request(&mut broker.borrow_mut());
        }
        _ => {
            env.note(|| "kafka: a request is late".to_owned());
            let (network, broker) = (env.clone(), Rc::clone(broker));
            spawn_local(async move {
                network.sleep(network.millis(5_000, 30_000)).await;
                let mut broker = broker.borrow_mut();
                broker.late += 1;
                request(&mut broker);
            });
        }
    }
    env.sleep(STEP).await;
    None
}

impl Producer {
    async fn begin(env: &Env, broker: &Shared, id: &str) -> Result<Self, CommitError> {
        let began = env.passed();
        while env.passed() < began + INIT {
            let name = id.to_owned();
            match ask(env, broker, move |broker| broker.init(&name)).await {
                Some(Ok(epoch)) => {
                    let (env, broker, id) = (env.clone(), Rc::clone(broker), id.to_owned());
                    return Ok(Self { env, broker, id, epoch, state: State::Ready, opened: Duration::ZERO });
                }
                Some(Err(_)) => env.sleep(Duration::from_millis(50)).await,
                None => break,
            }
        }
        Err(CommitError::Failed(format!("could not start {id}: no reply (simulated)")))
    }

    /// A step of a transaction, retried while the broker still ends the previous one.
    async fn step(
        &mut self,
        what: &'static str,
        request: impl Fn(&mut Broker, &str, u32) -> Result<(), Refusal> + Clone + 'static,
    ) -> Result<(), CommitError> {
        let began = self.env.passed();
        loop {
            let (id, epoch, request) = (self.id.clone(), self.epoch, request.clone());
            match ask(&self.env, &self.broker, move |broker| request(broker, &id, epoch)).await {
                Some(Ok(())) => return Ok(()),
                Some(Err(Refusal::Later)) if self.env.passed() < began + STEP => {
                    self.env.sleep(Duration::from_millis(5)).await;
                }
                Some(Err(Refusal::Fenced)) => return Err(self.fenced()),
                Some(Err(Refusal::Generation)) => {
                    return Err(CommitError::Failed(format!("could not {what}: the member is of another generation")));
                }
                Some(Err(Refusal::Later)) | None => {
                    return Err(CommitError::TooSlow(format!("could not {what} in time")));
                }
            }
        }
    }

    fn fenced(&mut self) -> CommitError {
        self.state = State::Spent;
        if self.env.passed() - self.opened >= TRANSACTION_TIMEOUT - Duration::from_secs(1) {
            CommitError::TooSlow(format!("the transaction of {} timed out on the broker", self.id))
        } else {
            CommitError::Fenced(format!("another instance took over {}", self.id))
        }
    }

    async fn produce(&mut self, submit: Submit, outputs: Rc<Vec<(Fetched, Output)>>) -> Result<(), CommitError> {
        let deadline = self.opened + WRITE;
        let mut next = 0;
        while next < outputs.len() {
            let each = self.broker.borrow().takes();
            let (from, mut upto) = (next, outputs.len());
            // A slow broker takes one after the other.
            if !each.is_zero() {
                let (left, waiting) = (deadline.saturating_sub(self.env.passed()), outputs.len() - next);
                self.env.sleep(each.min(left)).await;
                if left < each {
                    let after = WRITE.as_secs();
                    return Err(CommitError::TooSlow(format!(
                        "{waiting} records are not acknowledged after {after} s"
                    )));
                }
                upto = next + 1;
            }
            let outputs = Rc::clone(&outputs);
            let produce =
                move |broker: &mut Broker, id: &str, epoch| broker.produce((id, epoch), submit, &outputs[from..upto]);
            self.step("produce", produce).await?;
            next = upto;
        }
        Ok(())
    }

    async fn offsets(&mut self, offsets: Vec<Progress>, member: Membership) -> Result<(), CommitError> {
        let send = move |broker: &mut Broker, id: &str, epoch| broker.send_offsets((id, epoch), member, &offsets);
        self.step("send the offsets", send).await
    }

    async fn end(&mut self) -> Result<(), CommitError> {
        let ended = self.step("commit", |broker, id, epoch| broker.end(id, epoch, End::Commit)).await;
        self.state = if ended.is_ok() { State::Ready } else { State::Spent };
        ended
    }

    async fn commit(&mut self, submit: Submit, job: Job<Batch, Membership>) -> Result<CommitTimes, CommitError> {
        self.opened = submit.at;
        self.state = State::Open;
        let Job { records, outputs, progress, membership } = job;
        let outputs = Rc::new(records.0.into_iter().zip(outputs).collect());
        let moves = membership.0 == Log::Ring(Ring::Hours);
        let mut written = self.opened;
        if self.env.sabotage() == Sabotage::CommitBeforeProduce {
            self.offsets(progress, membership).await?;
            self.end().await?;
            self.state = State::Open;
            self.produce(submit, outputs).await?;
        } else {
            self.produce(submit, outputs).await?;
            written = self.env.passed();
            if moves && self.env.sabotage() == Sabotage::MovedTwice {
                self.end().await?;
                self.state = State::Open;
            }
            self.offsets(progress, membership).await?;
        }
        self.end().await?;
        let (flush, commit) = (written - self.opened, self.env.passed() - written);
        Ok(CommitTimes { produce: Duration::ZERO, flush, commit })
    }

    async fn abort(mut self) -> Option<Self> {
        match self.state {
            State::Ready => return Some(self),
            State::Spent => return None,
            State::Open => {}
        }
        let aborted = self.step("abort", |broker, id, epoch| broker.end(id, epoch, End::Abort)).await;
        self.state = State::Ready;
        self.epoch += 1;
        aborted.is_ok().then_some(self)
    }
}

impl SimSink {
    /// A sink of a process for the lane of this place in it, which is `lane` among all of the run.
    pub fn new(
        env: &Env,
        (broker, book): (&Shared, &SharedBook),
        process: &Rc<Process>,
        (place, lane): (usize, u64),
    ) -> Self {
        let id = format!("weir-{}-{place}", process.instance);
        let (env, broker, process) = (env.clone(), Rc::clone(broker), Rc::clone(process));
        Self { env, broker, process, lane, id, book: Arc::clone(book), producer: None, in_flight: None }
    }
}

impl Sink<Batch, Membership> for SimSink {
    fn submit(&mut self, job: Job<Batch, Membership>) {
        assert!(self.in_flight.is_none(), "one batch at a time");
        if job.membership.0 == Log::Ring(Ring::Minutes) && !job.records.0.is_empty() {
            self.process.begins(Moment::Release);
        }
        let (told, done) = oneshot::channel();
        let Process { number: process, instance, .. } = *self.process;
        let submit = Submit { process, instance, lane: self.lane, at: self.env.passed() };
        self.in_flight = Some((done, submit.at));
        // Without a producer nobody tells, and `wait` says so.
        let Some(mut producer) = self.producer.take() else { return };
        let committing = self.process.run(async move {
            let outcome = producer.commit(submit, job).await;
            let _ = told.send((producer, outcome));
        });
        spawn_local(committing);
    }

    async fn wait(&mut self, wait: Duration) -> Settled {
        let Some((done, since)) = &mut self.in_flight else { return Settled::Idle };
        let since = *since;
        let outcome = tokio::select! {
            biased;
            outcome = done => outcome,
            () = self.env.sleep(wait) => {
                if self.env.passed() - since < COMMIT_WATCHDOG {
                    return Settled::Busy;
                }
                lock(&self.book).unclear.push((self.lane, since));
                self.in_flight = None;
                return Settled::Failed(CommitError::TooSlow("a commit did not return in time".to_owned()));
            }
        };
        self.in_flight = None;
        let failed = match outcome {
            Ok((producer, outcome)) => {
                self.producer = Some(producer);
                match outcome {
                    Ok(times) => return Settled::Committed(times),
                    Err(error) => error,
                }
            }
            Err(_) => CommitError::Failed("the committing thread is gone".to_owned()),
        };
        lock(&self.book).unclear.push((self.lane, since));
        self.env.note(|| format!("{} of process {}: {failed}", self.id, self.process.number));
        let is_retried = matches!(failed, CommitError::Failed(_) | CommitError::TooSlow(_));
        if is_retried && self.env.sabotage() == Sabotage::SkipCommitRetry {
            return Settled::Committed(CommitTimes::default());
        }
        Settled::Failed(failed)
    }

    async fn recover(&mut self) -> Result<(), CommitError> {
        if let Some((_, since)) = self.in_flight.take() {
            lock(&self.book).unclear.push((self.lane, since));
        }
        let usable = match self.producer.take() {
            Some(producer) => producer.abort().await,
            None => None,
        };
        self.producer = Some(match usable {
            Some(producer) => producer,
            None => Producer::begin(&self.env, &self.broker, &self.id).await?,
        });
        Ok(())
    }
}
