//! A worker process: it can be killed at any await, frozen, and its clock can be wrong.

use weir_worker::deferred_shards::DeferredShards;

use super::{prelude::*, time::MachineClock};

pub type Shared = Rc<RefCell<Broker>>;

/// When a process that freezes does the most harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A due lane commits.
    Release,
    /// A rebuild knows what is lost, and has not marked all of it.
    Mark,
}

pub struct Process {
    pub number: u64,
    /// Its place among the instances, which names its transactional ids.
    pub instance: usize,
    env: Env,
    /// Of the intents and of the refunds.
    brokers: [Shared; 2],
    pub began_at: Duration,
    /// Its shutdown signal, which each of its lanes gives when it ends, too.
    pub stop: CancellationToken,
    /// When it died; `None`: it lives.
    pub died_at: Cell<Option<Duration>>,
    pub frozen: Cell<bool>,
    awaits: Cell<u64>,
    /// The await at which it dies or freezes.
    dies_at: Cell<u64>,
    freezes_at: Cell<u64>,
    /// It freezes soon after it begins this.
    freezes_in: Cell<Option<Moment>>,
    wakers: RefCell<Vec<Waker>>,
    /// From when until when it was frozen.
    pub freezes: RefCell<Vec<(Duration, Duration)>>,
    frozen_at: Cell<Duration>,
    pub clock: WorkerClock,
    /// The shards with deferred writes of its lanes.
    pub deferred_shards: Arc<DeferredShards>,
}

impl Process {
    pub fn new(number: u64, instance: usize, env: &Env, brokers: [Shared; 2], off_ms: Arc<AtomicI64>) -> Rc<Self> {
        Rc::new(Self {
            number,
            instance,
            env: env.clone(),
            brokers,
            began_at: env.passed(),
            stop: CancellationToken::new(),
            died_at: Cell::default(),
            frozen: Cell::new(false),
            awaits: Cell::new(0),
            dies_at: Cell::new(u64::MAX),
            freezes_at: Cell::new(u64::MAX),
            freezes_in: Cell::default(),
            wakers: RefCell::default(),
            freezes: RefCell::default(),
            frozen_at: Cell::new(Duration::ZERO),
            clock: WorkerClock::new(MachineClock { time: Arc::clone(env.time()), off_ms }),
            deferred_shards: Arc::default(),
        })
    }

    pub fn is_dead(&self) -> bool {
        self.died_at.get().is_some()
    }

    /// Whether it has been told to stop, and has not ended yet.
    pub fn is_ending(&self) -> bool {
        self.stop.is_cancelled() && !self.is_dead()
    }

    /// Whether it was there at some moment from one to another.
    pub fn lives_within(&self, from: Duration, upto: Duration) -> bool {
        self.began_at <= upto && self.died_at.get().is_none_or(|at| at >= from)
    }

    /// Freezes at the n-th await from now.
    pub fn freeze_in(&self, awaits: u64) {
        self.freezes_at.set(self.awaits.get() + awaits);
    }

    /// Freezes in the middle of the next one of these.
    pub fn freeze_within(&self, moment: Moment) {
        self.freezes_in.set(Some(moment));
    }

    pub fn begins(&self, moment: Moment) {
        if self.freezes_in.get() == Some(moment) {
            self.freezes_in.set(None);
            let awaits = match moment {
                Moment::Release => 8,
                Moment::Mark => 40,
            };
            self.freeze_in(1 + self.env.below(awaits));
        }
    }

    fn silence(&self, since: Option<Duration>) {
        self.brokers.iter().for_each(|broker| broker.borrow_mut().silence(self.number, since));
    }

    /// Dies at the n-th await from now.
    pub fn kill_in(&self, awaits: u64) {
        self.dies_at.set(self.awaits.get() + awaits);
    }

    pub fn kill(&self) {
        if self.is_dead() {
            return;
        }
        self.died_at.set(Some(self.env.passed()));
        self.env.note(|| format!("process {} dies at await {}", self.number, self.awaits.get()));
        self.silence(Some(self.env.passed()));
        self.wake();
    }

    pub fn freeze(&self) {
        if !self.is_dead() && !self.frozen.replace(true) {
            self.env.note(|| format!("process {} is frozen", self.number));
            self.frozen_at.set(self.env.passed());
            self.silence(Some(self.env.passed()));
        }
    }

    pub fn thaw(&self) {
        self.freezes_at.set(u64::MAX);
        self.freezes_in.set(None);
        if !self.is_dead() && self.frozen.replace(false) {
            self.env.note(|| format!("process {} goes on", self.number));
            self.freezes.borrow_mut().push((self.frozen_at.get(), self.env.passed()));
            self.silence(None);
            self.wake();
        }
    }

    fn wake(&self) {
        self.wakers.take().into_iter().for_each(Waker::wake);
    }

    /// Runs something as a part of this process: `None` if the process died meanwhile.
    pub fn run<F: Future>(self: &Rc<Self>, work: F) -> Running<F> {
        Running { process: Rc::clone(self), work: Some(Box::pin(work)) }
    }
}

pub struct Running<F> {
    process: Rc<Process>,
    work: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Running<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let process = Rc::clone(&self.process);
        process.awaits.set(process.awaits.get() + 1);
        if process.awaits.get() >= process.dies_at.get() {
            process.kill();
        }
        if process.awaits.get() >= process.freezes_at.get() {
            process.freezes_at.set(u64::MAX);
            process.freeze();
        }
        if process.is_dead() {
            self.work = None;
            return Poll::Ready(None);
        }
        process.wakers.borrow_mut().retain(|waker| !waker.will_wake(context.waker()));
        process.wakers.borrow_mut().push(context.waker().clone());
        if process.frozen.get() {
            return Poll::Pending;
        }
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        match work.as_mut().poll(context) {
            Poll::Ready(done) => {
                self.work = None;
                Poll::Ready(Some(done))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
