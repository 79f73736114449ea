//! Virtual time: it stands still while anything can run, and then jumps to the next timer.

use std::{future::poll_fn, pin::pin};

use tokio::task::LocalSet;
use weir_core::{
    basis::clocks::{Append, WrongClock},
    ports::Clock,
};
use weir_worker::clock::ComparedClock;

use super::prelude::*;

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

/// Runs a future and the local tasks that it spawns, in one thread and in virtual time.
pub fn block_on<T>(time: &Arc<Virtual>, main: impl Future<Output = T>) -> T {
    let ticking = Arc::clone(time);
    let park = move || {
        if !ticking.advance() {
            ticking.stop();
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().on_thread_park(park).build().expect("a runtime");
    LocalSet::new().block_on(&runtime, main)
}

/// The one clock of a run.
#[derive(Debug, Default)]
pub struct Virtual {
    now_us: AtomicU64,
    numbers: AtomicU64,
    timers: Mutex<BTreeMap<(u64, u64), Waker>>,
    /// Wakes the bounded future.
    main: Mutex<Option<Waker>>,
    /// Nothing can run and there is no timer.
    is_still: AtomicBool,
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

    /// Jumps to the next timer; `false` where there is none. For when nothing can run.
    pub fn advance(&self) -> bool {
        let next = lock(&self.timers).pop_first();
        let Some(((at, _), waker)) = next else { return false };
        self.now_us.fetch_max(at, Relaxed);
        waker.wake();
        true
    }

    /// Ends [`Virtual::bounded`]: nothing can run any more.
    fn stop(&self) {
        self.is_still.store(true, Relaxed);
        lock(&self.main).as_ref().expect("no task can run and no timer is set").wake_by_ref();
    }

    /// Ends a future where it is stuck, and says why. [`block_on`] polls it after every few polls of other tasks: these are the steps.
    pub async fn bounded<T>(&self, most_steps: u64, main: impl Future<Output = T>) -> Result<T, String> {
        let mut main = pin!(main);
        let mut steps = 0;
        poll_fn(|context| {
            *lock(&self.main) = Some(context.waker().clone());
            steps += 1;
            if self.is_still.load(Relaxed) {
                return Poll::Ready(Err(format!("no task can run and no timer is set after {:?}", self.passed())));
            }
            if steps > most_steps {
                return Poll::Ready(Err(format!("{most_steps} steps are not enough: {:?} have passed", self.passed())));
            }
            main.as_mut().poll(context).map(Ok)
        })
        .await
    }
}

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
        lock(&self.time.timers).insert((self.at, self.number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        lock(&self.time.timers).remove(&(self.at, self.number));
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
        if let Some(held) = *lock(&self.held) {
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

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::{spawn_local, yield_now};

    use super::*;

    /// The end of a future that waits for ever, beside a task.
    fn stuck(beside: impl AsyncFnOnce(Arc<Virtual>) + 'static) -> String {
        let time = Arc::new(Virtual::default());
        let main = async {
            spawn_local(beside(Arc::clone(&time)));
            time.bounded(1_000, pending::<()>()).await
        };
        block_on(&time, main).unwrap_err()
    }

    #[test]
    fn a_run_that_is_stuck_ends() {
        let ended = stuck(async |time| time.sleep(Duration::from_secs(3)).await);
        assert_eq!(ended, "no task can run and no timer is set after 3s");
        let ended = stuck(async |_| {
            loop {
                yield_now().await
            }
        });
        assert_eq!(ended, "1000 steps are not enough: 0ns have passed");
        let ended = stuck(async |time| {
            loop {
                time.sleep(Duration::from_secs(1)).await
            }
        });
        assert_eq!(ended, "1000 steps are not enough: 1000s have passed");
    }
}
