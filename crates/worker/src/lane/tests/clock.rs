//! Nothing is decided by a clock that most other clocks contradict.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

use weir_core::basis::clocks::{ClockAnswers, OtherClock};

use super::*;
use crate::{clock::ComparedClock, observer::BesideTopic};

const HOUR_MS: i64 = 3_600_000;

/// How often the lane waits until the clock is right again.
const WAITS: usize = 4;

/// Noon, for ever, on a machine whose clock is so many milliseconds ahead.
#[derive(Clone, Default)]
struct Moved(Arc<AtomicI64>);

impl Moved {
    fn by(&self, ahead_ms: i64) {
        self.0.store(ahead_ms, Relaxed);
    }

    /// This clock, compared with those of some machines where it is noon.
    fn compared(&self, machines: usize) -> ComparedClock<Self> {
        let clock = ComparedClock::new(self.clone());
        let machines: Vec<String> = (0..machines).map(|machine| format!("redis-{machine}")).collect();
        let at_noon = |machine: &String| OtherClock::new(machine.clone(), (Duration::ZERO, Duration::ZERO), noon());
        clock.note(ClockAnswers { answered: machines.iter().map(at_noon).collect(), machines });
        clock
    }
}

impl Clock for Moved {
    fn now(&self) -> Time {
        noon().plus(self.0.load(Relaxed))
    }

    fn passed(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _: Duration) {
        tokio::task::yield_now().await;
    }
}

/// A store that moves the clock when it has answered, every few calls.
fn jumpy(clock: &Moved, mut jumps_ms: Vec<i64>) -> impl Store {
    let mut calls = 0_usize;
    store(move |batch, answers| {
        assert_eq!(batch.now, noon(), "decided by a wrong clock");
        fill(answers, batch.now);
        calls += 1;
        if calls.is_multiple_of(5)
            && let Some(jump_ms) = jumps_ms.pop()
        {
            clock.by(jump_ms);
        }
        Ok(())
    })
}

#[test]
fn a_lane_whose_clock_is_wrong_decides_nothing_until_it_is_right() {
    let jumps_ms = vec![HOUR_MS, -HOUR_MS, 8 * 24 * HOUR_MS, 301_000, -301_000];
    let (clock, waits, times) = (Moved::default(), AtomicUsize::new(0), jumps_ms.len());
    // From the start, and then again and again while it works.
    clock.by(HOUR_MS);
    let put_right = || {
        if clock.0.load(Relaxed) != 0 && waits.fetch_add(1, Relaxed) % WAITS == WAITS - 1 {
            clock.by(0);
        }
    };
    done(run_by(AfterWait(clock.compared(3), put_right), jumpy(&clock, jumps_ms), World::default()));
    assert_eq!(waits.load(Relaxed), (times + 1) * WAITS, "it has waited each time");
}

#[test]
fn records_that_most_brokers_stamped_in_the_future_are_decided_when_the_clock_is_there() {
    let hour_ahead = |broker| Append { broker, at: noon().plus(HOUR_MS) };
    for (brokers, least) in [(&[1, 2][..], WAITS), (&[1], 0)] {
        // An hour behind, and so is the only Redis node: no clock but the brokers' contradicts.
        let (clock, waits) = (Moved::default(), AtomicUsize::new(0));
        let compared = clock.compared(1);
        let put_right = || {
            if waits.fetch_add(1, Relaxed) == WAITS - 1 {
                clock.by(HOUR_MS);
                let at = (Duration::ZERO, Duration::ZERO);
                let answered = vec![OtherClock::new("redis-0".to_owned(), at, noon().plus(HOUR_MS))];
                compared.note(ClockAnswers { machines: vec!["redis-0".to_owned()], answered });
            }
        };
        let appends = brokers.iter().copied().map(hour_ahead).collect();
        let patient = store(|batch, answers| {
            assert!(waits.load(Relaxed) >= least, "decided while most clocks contradict");
            fill(answers, batch.now);
            Ok(())
        });
        done(run_by(AfterWait(compared.clone(), put_right), patient, World { appends, ..World::default() }));
    }
}

/// A lane without another clock than its own that is told to stop when it waits.
fn stopped_while_the_clock_is_wrong(world: World) -> World {
    let (stop, clock) = (world.stop.clone(), Moved::default());
    let clock_of_lane = AfterWait(ComparedClock::new(clock.clone()), move || stop.cancel());
    let (end, world) = run_by(clock_of_lane, jumpy(&clock, Vec::new()), world);
    end.unwrap();
    world
}

#[test]
fn a_stop_is_heard_while_the_clock_is_wrong() {
    let world = stopped_while_the_clock_is_wrong(World::default());
    assert!(world.visible.is_empty(), "no other clock is known: nothing is decided");
}

#[test]
fn how_many_retries_are_not_taken_is_shown_while_the_clock_is_wrong() {
    let task = Some(Task::Retry(Wheel { shares: 1 }));
    let world = stopped_while_the_clock_is_wrong(World { task, ..World::default() });
    assert!(world.visible.is_empty());
    assert_eq!(world.observer.lags.read().unwrap().last(), Some(&(BesideTopic::Retries, RECORDS)));
}
