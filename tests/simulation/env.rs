//! The shared parts of a run: time, random numbers, the trace, and the rates of faults.

use std::{
    io,
    sync::{MutexGuard, PoisonError},
};

use tracing::subscriber::DefaultGuard;

use super::{prelude::*, time::Sleep};

#[derive(Debug, Clone)]
pub struct Env(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    seed: u64,
    time: Arc<Virtual>,
    dice: Mutex<fastrand::Rng>,
    trace: Option<Mutex<Vec<String>>>,
    calm: AtomicBool,
    /// The rates of faults per 1,000; drawn once per run, so that seeds differ.
    kafka_fails: u32,
    redis_fails: u32,
    sabotage: Sabotage,
    impatient: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracing {
    On,
    Off,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Env {
    pub fn new(seed: u64, time: Arc<Virtual>, sabotage: Sabotage, tracing: Tracing) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        // Jitter of the code under test comes from this seed.
        fastrand::seed(dice.u64(..));
        let kinds = [0, 5, 20, 60];
        let (kafka_fails, redis_fails) = (kinds[dice.usize(..4)], kinds[dice.usize(..4)]);
        let impatient = dice.u32(..6) == 0;
        let trace = (tracing == Tracing::On).then(Mutex::default);
        let (dice, calm) = (Mutex::new(dice), AtomicBool::new(false));
        Self(Arc::new(Inner { seed, time, dice, trace, calm, kafka_fails, redis_fails, sabotage, impatient }))
    }

    /// Dice for a part of a run, by its name and a number: what they show changes nothing else of a seed.
    pub fn dice(&self, part: &str, number: u64) -> fastrand::Rng {
        let salt = part.bytes().fold(0, |salt, byte| salt << 8 | u64::from(byte));
        fastrand::Rng::with_seed(self.0.seed ^ salt ^ number)
    }

    /// Whether a run has what bugs may be about: by chance without a planted one, and else where it is about that.
    pub fn has(&self, about: About, by_chance: bool) -> bool {
        let planted = self.sabotage();
        planted.is_about(about) || planted == Sabotage::None && by_chance
    }

    pub fn time(&self) -> &Arc<Virtual> {
        &self.0.time
    }

    pub fn passed(&self) -> Duration {
        self.0.time.passed()
    }

    pub fn sleep(&self, wait: Duration) -> Sleep {
        self.0.time.sleep(wait)
    }

    /// Whether a script call defers the rest after little work.
    pub fn is_impatient(&self) -> bool {
        self.0.impatient
    }

    pub fn sabotage(&self) -> Sabotage {
        self.0.sabotage
    }

    /// A number from 0 to `below`, exclusive.
    pub fn below(&self, below: u64) -> u64 {
        lock(&self.0.dice).u64(..below)
    }

    pub fn index(&self, below: usize) -> usize {
        lock(&self.0.dice).usize(..below)
    }

    /// True with this probability per 1,000.
    pub fn chance(&self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    pub fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_micros(1000 * from + self.below(1000 * (to - from) + 1))
    }

    pub fn kafka_fails(&self) -> bool {
        !self.is_calm() && self.chance(self.0.kafka_fails)
    }

    pub fn redis_fails(&self) -> bool {
        !self.is_calm() && self.chance(self.0.redis_fails)
    }

    /// Ends all faults.
    pub fn calm_down(&self) {
        self.note(|| "-- calm --".to_owned());
        self.0.calm.store(true, Relaxed);
    }

    /// Faults are possible again.
    pub fn brew(&self) {
        self.note(|| "-- storm --".to_owned());
        self.0.calm.store(false, Relaxed);
    }

    pub fn is_calm(&self) -> bool {
        self.0.calm.load(Relaxed)
    }

    pub fn note(&self, what: impl FnOnce() -> String) {
        if let Some(trace) = &self.0.trace {
            let line = format!("{:>10.3} s  {}", self.passed().as_secs_f64(), what());
            lock(trace).push(line);
        }
    }

    pub fn take_trace(&self) -> Vec<String> {
        self.0.trace.as_ref().map(|trace| std::mem::take(&mut *lock(trace))).unwrap_or_default()
    }
}

struct Lines(Env);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.note(|| format!("weir: {}", String::from_utf8_lossy(bytes).trim_end()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Notes what is logged on this thread until the guard is dropped; `None` where the run keeps no trace.
pub fn keep_log(env: &Env) -> Option<DefaultGuard> {
    let log = || tracing_subscriber::fmt().without_time().with_ansi(false).with_target(false);
    let lines = env.clone();
    env.0
        .trace
        .is_some()
        .then(|| tracing::subscriber::set_default(log().with_writer(move || Lines(lines.clone())).finish()))
}
