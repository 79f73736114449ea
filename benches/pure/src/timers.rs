//! Timeouts of admissions: the timer wheel beside an ordered map and a binary heap.
//!
//! A round is what an admission costs: it begins, another one ends before its time (19 of 20 do), and a tick passes. About as many stay
//! outstanding. A heap cannot remove an element from its middle: an ended one stays in it, and is passed over once its time comes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashSet},
};

use weir_oracle::timer_wheel::{TimerKey, TimerWheel};

/// Rounds of [`Rounds::run`]. A slot of the wheel's highest level opens every 262,144 rounds only, so one run may see none.
pub const ROUNDS: usize = 10_000;
/// Timeouts are up to so many rounds for each that is outstanding: most have ended by then.
const TIMEOUT: usize = 10;

/// What each is asked to do.
pub trait Timers {
    type Key;
    fn new(outstanding: usize) -> Self;
    fn insert(&mut self, deadline: u64, value: u32) -> Self::Key;
    fn cancel(&mut self, key: Self::Key);
    /// Time passes; how many expired.
    fn advance(&mut self, to: u64) -> usize;
}

impl Timers for TimerWheel<u32> {
    type Key = TimerKey;

    fn new(outstanding: usize) -> Self {
        Self::new(0, 2 * outstanding)
    }

    fn insert(&mut self, deadline: u64, value: u32) -> TimerKey {
        self.insert(deadline, value).expect("there is room for twice as many")
    }

    fn cancel(&mut self, key: TimerKey) {
        self.cancel(key);
    }

    fn advance(&mut self, to: u64) -> usize {
        let mut expired = 0;
        self.advance(to, |_, _| expired += 1);
        expired
    }
}

/// Values in the order of their deadlines; the number tells those of one deadline apart.
#[derive(Debug, Default)]
pub struct OrderedMap {
    entries: BTreeMap<(u64, u64), u32>,
    next: u64,
}

impl Timers for OrderedMap {
    type Key = (u64, u64);

    fn new(_: usize) -> Self {
        Self::default()
    }

    fn insert(&mut self, deadline: u64, value: u32) -> (u64, u64) {
        self.next += 1;
        self.entries.insert((deadline, self.next), value);
        (deadline, self.next)
    }

    fn cancel(&mut self, key: (u64, u64)) {
        self.entries.remove(&key);
    }

    fn advance(&mut self, to: u64) -> usize {
        let mut expired = 0;
        while let Some(first) = self.entries.first_entry().filter(|first| first.key().0 <= to) {
            first.remove();
            expired += 1;
        }
        expired
    }
}

/// A heap of deadlines, and which of its values have not ended.
#[derive(Debug, Default)]
pub struct Heap {
    entries: BinaryHeap<Reverse<(u64, u64, u32)>>,
    open: HashSet<u64>,
    next: u64,
}

impl Timers for Heap {
    type Key = u64;

    fn new(_: usize) -> Self {
        Self::default()
    }

    fn insert(&mut self, deadline: u64, value: u32) -> u64 {
        self.next += 1;
        self.entries.push(Reverse((deadline, self.next, value)));
        self.open.insert(self.next);
        self.next
    }

    fn cancel(&mut self, key: u64) {
        self.open.remove(&key);
    }

    fn advance(&mut self, to: u64) -> usize {
        let mut expired = 0;
        while self.entries.peek().is_some_and(|Reverse((deadline, ..))| *deadline <= to) {
            let Some(Reverse((_, key, _))) = self.entries.pop() else { break };
            expired += usize::from(self.open.remove(&key));
        }
        expired
    }
}

/// Timers with about so many outstanding, round after round.
pub struct Rounds<T: Timers> {
    timers: T,
    open: Vec<T::Key>,
    rng: fastrand::Rng,
    now: u64,
}

impl<T: Timers> Rounds<T> {
    /// So many have begun, and what began first has ended or expired.
    pub fn new(outstanding: usize) -> Self {
        let timers = T::new(outstanding);
        let (open, rng) = (Vec::with_capacity(outstanding), fastrand::Rng::with_seed(7));
        let mut rounds = Self { timers, open, rng, now: 0 };
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

    fn begin(&mut self, outstanding: usize) -> T::Key {
        let deadline = self.now + 1 + self.rng.u64(..(TIMEOUT * outstanding) as u64);
        self.timers.insert(deadline, 0)
    }

    fn round(&mut self) -> usize {
        let key = self.begin(self.open.len());
        let place = self.rng.usize(..self.open.len());
        let ends = std::mem::replace(&mut self.open[place], key);
        if self.rng.u8(..20) > 0 {
            self.timers.cancel(ends);
        }
        self.now += 1;
        self.timers.advance(self.now)
    }
}
