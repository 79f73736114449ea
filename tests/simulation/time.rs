//! Virtual time: it stands still while anything can run, and then jumps to the next timer.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use weir_core::{
    clocks::{Append, MAX_SKEW_MS, WrongClock},
    ports::Clock,
    time::Time,
};
use weir_worker::clock::ComparedClock;

/// When the simulation begins, in milliseconds since 1970: 20 s before a day ends in UTC.
const BEGIN_MS: i64 = 1_795_046_380_000;

/// What a clock that is right shows, in milliseconds since 1970, so long after the begin.
pub fn wall_ms(passed: Duration) -> i64 {
    BEGIN_MS + i64::try_from(passed.as_millis()).unwrap()
}

/// The same as weir has it.
pub fn wall(passed: Duration) -> Time {
    Time::default().plus(wall_ms(passed))
}

/// The one clock of a run.
#[derive(Debug, Default)]
pub struct Virtual {
    now_us: AtomicU64,
    numbers: AtomicU64,
    timers: Mutex<BTreeMap<(u64, u64), Waker>>,
    /// How often a worker whose clock was wrong did not decide.
    pub refused: AtomicU64,
    /// How often one did.
    pub trusted: AtomicU64,
}

impl Virtual {
    pub fn passed(&self) -> Duration {
        Duration::from_micros(self.now_us.load(Relaxed))
    }

    /// Milliseconds since 1970, on a clock that is right.
    pub fn wall_ms(&self) -> i64 {
        wall_ms(self.passed())
    }

    pub fn sleep(self: &Arc<Self>, wait: Duration) -> Sleep {
        let at = self.now_us.load(Relaxed).saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
        Sleep { time: Arc::clone(self), at, number: self.numbers.fetch_add(1, Relaxed) }
    }

    /// Lets so much time pass at once: all timers until then are due.
    pub fn jump(&self, over: Duration) {
        self.now_us.fetch_add(u64::try_from(over.as_micros()).unwrap(), Relaxed);
    }

    /// Jumps to the next timer. For when nothing can run.
    pub fn advance(&self) {
        let next = self.timers.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
        if let Some(((at, _), waker)) = next {
            self.now_us.fetch_max(at, Relaxed);
            waker.wake();
        }
    }
}

/// Done at its time.
pub struct Sleep {
    time: Arc<Virtual>,
    at: u64,
    number: u64,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.time.now_us.load(Relaxed) >= self.at {
            return Poll::Ready(());
        }
        if self.at == u64::MAX {
            return Poll::Pending;
        }
        let mut timers = self.time.timers.lock().unwrap_or_else(PoisonError::into_inner);
        timers.insert((self.at, self.number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.time.timers.lock().unwrap_or_else(PoisonError::into_inner).remove(&(self.at, self.number));
    }
}

/// The clock of one machine, which may be wrong.
#[derive(Clone)]
pub struct MachineClock {
    pub time: Arc<Virtual>,
    /// How far it is off, in milliseconds.
    pub off_ms: Arc<std::sync::atomic::AtomicI64>,
}

impl Clock for MachineClock {
    fn now(&self) -> Time {
        Time::default().plus(self.time.wall_ms() + self.off_ms.load(Relaxed))
    }

    fn passed(&self) -> Duration {
        self.time.passed()
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        self.time.sleep(wait)
    }
}

/// The clock of a worker, which decides nothing while others contradict it.
#[derive(Clone)]
pub struct WorkerClock {
    pub machine: MachineClock,
    pub compared: ComparedClock<MachineClock>,
    /// The planted bug of the clock at the start of an outage: the time at which it stopped.
    pub held: Arc<Mutex<Option<Time>>>,
}

impl WorkerClock {
    pub fn new(machine: MachineClock) -> Self {
        let compared = ComparedClock::new(machine.clone());
        Self { machine, compared, held: Arc::default() }
    }
}

impl Clock for WorkerClock {
    fn now(&self) -> Time {
        self.machine.now()
    }

    fn passed(&self) -> Duration {
        self.machine.passed()
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        self.machine.sleep(wait)
    }

    fn time_to_decide(&self, appends: &[Append]) -> Result<Time, WrongClock> {
        if let Some(held) = *self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(held);
        }
        let decided = self.compared.time_to_decide(appends);
        let is_wrong = self.machine.off_ms.load(Relaxed).abs() > MAX_SKEW_MS;
        let Virtual { refused, trusted, .. } = &*self.machine.time;
        refused.fetch_add(u64::from(decided.is_err() && is_wrong), Relaxed);
        trusted.fetch_add(u64::from(decided.is_ok() && is_wrong), Relaxed);
        decided
    }
}
