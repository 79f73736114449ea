//! Lanes note users while another thread sweeps: the core has no threads, so it is tested here.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use weir_core::limit::pressure::activity::{ActiveUsers, ActivityHash, Minute};

const USERS: u64 = 500;
const THREADS: usize = 4;
const MINUTES: i64 = 40;
const WINDOW: u8 = 5;

/// Hashes that are spread, and the same for each run.
fn user(number: u64) -> ActivityHash {
    ActivityHash((number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23).wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

/// Cells that these users are noted in, as an array of one thread counts them.
fn alone(users: impl Iterator<Item = u64>) -> u64 {
    let active = ActiveUsers::new(1_000, WINDOW);
    let now = Minute(1_000);
    for number in users {
        active.note(user(number), now, now);
    }
    active.estimate()
}

#[test]
fn notes_and_sweeps_at_once_lose_nobody_and_count_exactly() {
    let (active, lost) = (ActiveUsers::new(1_000, WINDOW), AtomicU64::new(0));
    for minute in 0..MINUTES {
        // All begin a minute together, and none waits for one that has panicked.
        let minute_begins = Barrier::new(THREADS + 1);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (active, lost, minute_begins) = (&active, &lost, &minute_begins);
                scope.spawn(move || {
                    minute_begins.wait();
                    for number in 0..USERS {
                        // All threads share users, and each is a minute behind with some of them.
                        let is_behind = number % 4 == thread as u64;
                        let now = Minute(minute - i64::from(is_behind));
                        active.note(user(number), now, now);
                        lost.fetch_add(u64::from(!active.is_active(user(number), now)), Ordering::Relaxed);
                    }
                });
            }
            minute_begins.wait();
            (0..10).for_each(|_| active.sweep(Minute(minute)));
        });
    }
    assert_eq!(lost.into_inner(), 0);
    let end = Minute(MINUTES - 1);
    assert!((0..USERS).all(|number| active.is_active(user(number), end)));
    assert_eq!(active.estimate(), alone(0..USERS), "cells set are counted once");
    // All of them leave, and nothing is left of the count.
    active.sweep(Minute(MINUTES + i64::from(WINDOW)));
    assert_eq!(active.estimate(), 0);
    assert!((0..USERS).all(|number| !active.is_active(user(number), end)));
}

#[test]
fn a_later_minute_wins_whoever_writes_last() {
    for round in 0..300 {
        let active = ActiveUsers::new(1, WINDOW);
        let now = Minute(10_000);
        thread::scope(|scope| {
            for age in [0, 1, 2] {
                let active = &active;
                scope.spawn(move || active.note(user(round), Minute(now.0 - age), now));
            }
        });
        assert!(active.is_active(user(round), Minute(now.0 + i64::from(WINDOW) - 1)), "round {round}");
    }
}
