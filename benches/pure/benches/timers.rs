//! Timeouts of admissions: the timer wheel beside a binary heap, with so many outstanding. `cargo bench -p weir-pure --bench timers`.
//!
//! A round is what an admission costs: it begins, another one ends before its time (19 of 20 do), and time passes. A heap cannot remove
//! an element from its middle: an ended one stays in it, and is passed over once its time comes.
#![allow(clippy::unwrap_used, reason = "a case that cannot be set up should say so and end")]

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
};

use divan::{Bencher, counter::ItemsCount};
use weir_core::timer_wheel::{TimerKey, TimerWheel};

const OUTSTANDING: [usize; 3] = [1_000, 10_000, 100_000];
/// Timeouts are up to this many ticks.
const TIMEOUT: u64 = 10_000;
const ROUNDS: usize = 10_000;

fn main() {
    divan::main();
}

/// What both are asked to do.
trait Timers {
    type Key;
    fn new(most: usize) -> Self;
    fn insert(&mut self, deadline: u64, value: u32) -> Self::Key;
    fn cancel(&mut self, key: Self::Key);
    fn advance(&mut self, to: u64) -> usize;
}

impl Timers for TimerWheel<u32> {
    type Key = TimerKey;

    fn new(most: usize) -> Self {
        Self::new(0, 2 * most)
    }

    fn insert(&mut self, deadline: u64, value: u32) -> TimerKey {
        self.insert(deadline, value).unwrap()
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

#[derive(Default)]
struct Heap {
    entries: BinaryHeap<Reverse<(u64, u64, u32)>>,
    ended: HashSet<u64>,
    next: u64,
}

impl Timers for Heap {
    type Key = u64;

    fn new(most: usize) -> Self {
        Self { entries: BinaryHeap::with_capacity(2 * most), ..Self::default() }
    }

    fn insert(&mut self, deadline: u64, value: u32) -> u64 {
        self.next += 1;
        self.entries.push(Reverse((deadline, self.next, value)));
        self.next
    }

    fn cancel(&mut self, key: u64) {
        self.ended.insert(key);
    }

    fn advance(&mut self, to: u64) -> usize {
        let mut expired = 0;
        while self.entries.peek().is_some_and(|Reverse((deadline, ..))| *deadline <= to) {
            let Some(Reverse((_, key, _))) = self.entries.pop() else { break };
            expired += usize::from(!self.ended.remove(&key));
        }
        expired
    }
}

/// Rounds with about so many outstanding.
fn rounds<T: Timers>(outstanding: usize) -> usize {
    let (mut timers, mut rng) = (T::new(outstanding), fastrand::Rng::with_seed(7));
    let (mut open, mut expired) = (Vec::with_capacity(outstanding), 0);
    for value in 0..outstanding as u32 {
        open.push(timers.insert(TIMEOUT + rng.u64(..TIMEOUT), value));
    }
    for now in 0..ROUNDS as u64 {
        let key = timers.insert(now + 1 + rng.u64(..TIMEOUT), 0);
        let place = rng.usize(..open.len());
        let ends = std::mem::replace(&mut open[place], key);
        if rng.u8(..20) > 0 {
            timers.cancel(ends);
        }
        expired += timers.advance(now);
    }
    expired
}

#[divan::bench(args = OUTSTANDING)]
fn wheel(bencher: Bencher<'_, '_>, outstanding: usize) {
    bencher.counter(ItemsCount::new(ROUNDS + outstanding)).bench_local(|| rounds::<TimerWheel<u32>>(outstanding));
}

#[divan::bench(args = OUTSTANDING)]
fn heap(bencher: Bencher<'_, '_>, outstanding: usize) {
    bencher.counter(ItemsCount::new(ROUNDS + outstanding)).bench_local(|| rounds::<Heap>(outstanding));
}
