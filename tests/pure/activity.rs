//! Lanes note users while another thread sweeps: the core has no threads, so it is tested here.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use weir_core::activity::{ActiveUsers, ActivityHash, Minute};

const USERS: u64 = 500;
const THREADS: u64 = 4;
const MINUTES: i64 = 120;
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
    let (active, minute) = (ActiveUsers::new(1_000, WINDOW), AtomicU64::new(0));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                active.sweep(Minute(minute.load(Ordering::Acquire).cast_signed()));
            }
        });
        let noters: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (active, minute) = (&active, &minute);
                scope.spawn(move || {
                    for turn in 0..MINUTES {
                        minute.fetch_max(turn.unsigned_abs(), Ordering::AcqRel);
                        for number in 0..USERS {
                            // All threads share users, and each is behind in some of them.
                            let now = Minute(turn - i64::from(number % THREADS == thread));
                            active.note(user(number), now, now);
                            // Others may be some minutes ahead, but within the window nobody is forgotten.
                            let latest = minute.load(Ordering::Acquire).cast_signed();
                            let is_in_window = latest - now.0 < i64::from(WINDOW) - 1;
                            assert!(
                                !is_in_window || active.is_active(user(number), now) || {
                                    minute.load(Ordering::Acquire).cast_signed() != latest
                                }
                            );
                        }
                    }
                })
            })
            .collect();
        noters.into_iter().for_each(|noter| noter.join().unwrap());
        is_done.store(true, Ordering::Release);
        sweeper.join().unwrap();
    });
    let end = Minute(MINUTES - 1);
    assert!((0..USERS).all(|number| active.is_active(user(number), end)));
    assert_eq!(active.estimate(), alone(0..USERS), "cells set are counted once");
    // All of them leave, and nothing is left of the count.
    active.sweep(Minute(MINUTES + i64::from(WINDOW)));
    assert_eq!(active.estimate(), 0);
    let found: BTreeSet<u64> = (0..USERS).filter(|number| active.is_active(user(*number), end)).collect();
    assert_eq!(found, BTreeSet::new());
}

#[test]
fn a_later_minute_wins_whoever_writes_last() {
    for round in 0..2_000 {
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
