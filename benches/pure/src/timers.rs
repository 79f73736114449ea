//! Timeouts of admissions in the timer wheel.
//!
//! A round is what an admission costs: it begins, another one ends before its time (19 of 20 do), and a tick passes. About as many stay
//! outstanding.

use weir_oracle::timer_wheel::{TimerKey, TimerWheel};

/// Rounds of [`Rounds::run`]. A slot of the wheel's highest level opens every 262,144 rounds only, so one run may see none.
pub const ROUNDS: usize = 10_000;
/// Timeouts are up to so many rounds for each that is outstanding: most have ended by then.
const TIMEOUT: usize = 10;

/// A wheel with about so many outstanding, round after round.
pub struct Rounds {
    wheel: TimerWheel<u32>,
    open: Vec<TimerKey>,
    rng: fastrand::Rng,
    now: u64,
}

impl Rounds {
    /// So many have begun, and what began first has ended or expired.
    pub fn new(outstanding: usize) -> Self {
        let wheel = TimerWheel::new(0, 2 * outstanding);
        let (open, rng) = (Vec::with_capacity(outstanding), fastrand::Rng::with_seed(7));
        let mut rounds = Self { wheel, open, rng, now: 0 };
        for _ in 0..outstanding {
            let key = rounds.begin(outstanding);
            rounds.open.push(key);
        }
        for _ in 0..TIMEOUT * outstanding {
            rounds.round();
        }
        rounds
    }

    /// [`ROUNDS`] more; how many expired.
    pub fn run(&mut self) -> usize {
        (0..ROUNDS).map(|_| self.round()).sum()
    }

    fn begin(&mut self, outstanding: usize) -> TimerKey {
        let deadline = self.now + 1 + self.rng.u64(..(TIMEOUT * outstanding) as u64);
        self.wheel.insert(deadline, 0).expect("there is room for twice as many")
    }

    fn round(&mut self) -> usize {
        let key = self.begin(self.open.len());
        let place = self.rng.usize(..self.open.len());
        let ends = std::mem::replace(&mut self.open[place], key);
        if self.rng.u8(..20) > 0 {
            self.wheel.cancel(ends);
        }
        self.now += 1;
        let mut expired = 0;
        self.wheel.advance(self.now, |_, _| expired += 1);
        expired
    }
}
