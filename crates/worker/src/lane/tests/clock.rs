//! Nothing is decided by a clock that most other clocks contradict.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

use weir_core::basis::clocks::{Append, ClockAnswers, OtherClock};

use super::*;
use crate::{clock::ComparedClock, observer::BesideTopic};

const HOUR_MS: i64 = 3_600_000;

/// How often the lane waits until the clock is right again.
const WAITS: usize = 4;

/// Noon, for ever, on a machine whose clock is so far ahead. Waits take no time.
#[derive(Clone, Default)]
struct Moved {
    ahead_ms: Arc<AtomicI64>,
    waits: Arc<AtomicUsize>,
}

impl Moved {
    fn by(&self, ahead_ms: i64) {
        self.ahead_ms.store(ahead_ms, Relaxed);
    }

    /// This clock, compared with those of some machines where it is noon.
    fn compared(&self, machines: usize) -> ComparedClock<Self> {
        let clock = ComparedClock::new(self.clone());
        let machines: Vec<String> = (0..machines).map(|machine| format!("redis-{machine}")).collect();
        let noon = |machine: &String| OtherClock::new(machine.clone(), (Duration::ZERO, Duration::ZERO), Noon.now());
        clock.note(ClockAnswers { answered: machines.iter().map(noon).collect(), machines });
        clock
    }
}

impl Clock for Moved {
    fn now(&self) -> Time {
        Noon.now().plus(self.ahead_ms.load(Relaxed))
    }

    fn passed(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _: Duration) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_lane_whose_clock_is_wrong_decides_nothing_until_it_is_right() {
    let mut jumps_ms = vec![HOUR_MS, -HOUR_MS, 8 * 24 * HOUR_MS, 301_000, -301_000];
    let (clock, times) = (Moved::default(), jumps_ms.len());
    // From the start, and then again and again while it works: every few calls, when they are answered.
    clock.by(HOUR_MS);
    let (jumps, mut calls) = (clock.clone(), 0_usize);
    let store = by(move |batch, answers| {
        assert_eq!(batch.now, Noon.now(), "decided by a wrong clock");
        fill(answers, batch.now);
        calls += 1;
        if calls.is_multiple_of(5)
            && let Some(jump_ms) = jumps_ms.pop()
        {
            jumps.by(jump_ms);
        }
        Ok(())
    });
    let moved = clock.clone();
    let put_right = move || {
        if moved.ahead_ms.load(Relaxed) != 0 && moved.waits.fetch_add(1, Relaxed) % WAITS == WAITS - 1 {
            moved.by(0);
        }
    };
    let (end, world) = run_by(OnWait(clock.compared(3), put_right), store, World::default());
    end.unwrap();
    each_once(&world);
    assert_eq!(clock.waits.load(Relaxed), (times + 1) * WAITS, "it has waited each time");
}

#[test]
fn records_that_most_brokers_stamped_in_the_future_are_decided_when_the_clock_is_there() {
    let hour_ahead = |broker| Append { broker, at: Noon.now().plus(HOUR_MS) };
    for (brokers, waits) in [(&[1, 2][..], WAITS), (&[1], 0)] {
        // An hour behind, and so is the only Redis node: no clock but the brokers' contradicts.
        let clock = Moved::default();
        let compared = clock.compared(1);
        let (machine, moved) = (compared.clone(), clock.clone());
        let put_right = move || {
            if moved.waits.fetch_add(1, Relaxed) == WAITS - 1 {
                moved.by(HOUR_MS);
                let at = (Duration::ZERO, Duration::ZERO);
                let answered = vec![OtherClock::new("redis-0".to_owned(), at, Noon.now().plus(HOUR_MS))];
                machine.note(ClockAnswers { machines: vec!["redis-0".to_owned()], answered });
            }
        };
        let appends = brokers.iter().copied().map(hour_ahead).collect();
        let store = by(move |batch, answers| {
            assert!(clock.waits.load(Relaxed) >= waits, "decided while most clocks contradict");
            fill(answers, batch.now);
            Ok(())
        });
        let (end, world) = run_by(OnWait(compared, put_right), store, World { appends, ..World::default() });
        end.unwrap();
        each_once(&world);
    }
}

#[test]
fn a_stop_is_heard_while_the_clock_is_wrong() {
    let (world, clock) = (World::default(), Moved::default());
    let stop = world.stop.clone();
    let (end, world) = run_by(OnWait(ComparedClock::new(clock), move || stop.cancel()), store(0), world);
    end.unwrap();
    assert!(world.visible.is_empty(), "no other clock is known: nothing is decided");
}

#[test]
fn how_many_retries_are_not_taken_is_shown_while_the_clock_is_wrong() {
    let world = World { task: Some(Task::Retry(Wheel { shares: 1 })), ..World::default() };
    let (stop, clock) = (world.stop.clone(), Moved::default());
    let (end, world) = run_by(OnWait(ComparedClock::new(clock), move || stop.cancel()), store(0), world);
    end.unwrap();
    assert!(world.visible.is_empty());
    assert_eq!(world.observer.lags.read().unwrap().last(), Some(&(BesideTopic::Retries, RECORDS)));
}
