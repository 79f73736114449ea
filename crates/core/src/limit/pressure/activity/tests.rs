//! The array against a plain map of users and minutes: how exact it is, when users leave it, and what a clock that jumps does to it.

use std::{collections::HashMap, sync::Barrier, thread};

use proptest::prelude::*;

use super::*;
use crate::limit::pressure::tests::user;

const START: i64 = 29_880_000;

fn at(minute: i64) -> Minute {
    Minute(START + minute)
}

/// Users in the array at once, in per cent of the number that it is made for.
const FILLED: [u64; 9] = [1, 2, 5, 10, 25, 50, 95, 100, 200];

/// Fills an array step by step, and checks the estimate at each of them.
fn assert_estimates(max: u64, seed: u64) -> ActiveUsers {
    let active = ActiveUsers::new(max, 30);
    let mut noted = 0;
    for percent in FILLED {
        let users = max * percent / 100;
        for number in noted..users {
            active.note(user((seed << 32) + number), at(0), at(0));
        }
        noted = users;
        let estimate = active.estimate();
        assert!(estimate.abs_diff(users) * 50 <= users, "{estimate} for {users} users, made for {max}, seed {seed}");
    }
    active
}

#[test]
fn the_estimate_is_within_2_percent() {
    for (max, seeds) in [(1_000, 1..20), (10_000, 1..5)] {
        for seed in seeds {
            assert_estimates(max, seed);
        }
    }
}

#[test]
fn a_few_users_who_share_cells_are_not_taken_for_fewer() {
    for group in 0..2_000_u64 {
        let active = ActiveUsers::new(16, 30);
        for number in 1..=100_u64 {
            active.note(user(group * 100 + number), at(0), at(0));
            let estimate = active.estimate();
            assert!(estimate.abs_diff(number) * 50 <= number, "{estimate} of {number} in group {group}");
        }
    }
}

#[test]
fn few_others_are_taken_for_active_at_twice_the_maximum() {
    const ASKED: u64 = 200_000;
    for max in [5_000, 10_000, 100_000, 1_000_000] {
        let active = assert_estimates(max, 0);
        let wrong = (0..ASKED).filter(|number| active.is_active(user((1 << 40) + number), at(0))).count();
        // Of 6 cells that are set each at odds of 1 - e^(-1/2): 0.37%.
        assert!((1..ASKED * 41 / 10_000).contains(&(wrong as u64)), "{wrong} others, made for {max}");
        assert!((0..max * 2).step_by(7).all(|number| active.is_active(user(number), at(0))));
    }
}

#[test]
fn minutes_out_of_the_window_have_no_effect() {
    let active = ActiveUsers::new(1_000, 30);
    for minute in [i64::MIN, at(-30).0, at(2).0, i64::MAX] {
        assert_eq!(active.note(user(1), Minute(minute), at(0)), Noted::Known, "{minute}");
    }
    assert_eq!((active.is_active(user(1), at(0)), active.estimate()), (false, 0));
    assert_eq!(active.note(user(1), at(-29), at(0)), Noted::New);
    assert_eq!(active.note(user(1), at(-1), at(0)), Noted::Again);
    assert_eq!(active.note(user(1), at(-2), at(0)), Noted::Known, "an earlier minute does not end it sooner");
    assert!(active.is_active(user(1), at(28)) && !active.is_active(user(1), at(29)));
}

/// What happens to an array.
#[derive(Debug, Clone)]
enum Step {
    /// A user was active so many minutes ago.
    Note(u64, i64),
    Pass(i64),
    Jump(i64),
    Sweep,
}

fn steps(jumps: bool) -> impl Strategy<Value = Vec<Step>> {
    let jump = prop_oneof![-10..10_i64, -300..300_i64, -5_000..5_000_i64];
    let step = prop_oneof![
        8 => (0..40_u64, -2..35_i64).prop_map(|(user, age)| Step::Note(user, age)),
        2 => (0..4_i64).prop_map(Step::Pass),
        1 => (0..40_i64).prop_map(Step::Pass),
        2 => Just(Step::Sweep),
        u32::from(jumps) => jump.prop_map(Step::Jump),
    ];
    prop::collection::vec(step, 1..200)
}

/// The same, plainly: each user's last minute.
struct Plain {
    window: i64,
    latest: i64,
    last: HashMap<u64, i64>,
}

impl Plain {
    fn active(&self, now: i64) -> impl Iterator<Item = u64> {
        let now = self.latest.max(now);
        self.last.iter().filter(move |(_, last)| now - **last < self.window).map(|(user, _)| *user)
    }

    fn note(&mut self, user: u64, age: i64, now: i64) {
        if (-AHEAD_MINUTES..self.window).contains(&age) {
            self.latest = self.latest.max(now);
            let last = (now - age).max(self.latest - self.window + 1);
            self.last.entry(user).and_modify(|before| *before = last.max(*before)).or_insert(last);
        }
    }

    /// A clock that was put back: time goes on from there.
    fn sweep(&mut self, now: i64) {
        self.latest = self.latest.max(now);
        let is_put_back = self.latest - now > self.window + PUT_BACK_MINUTES;
        let active: Vec<u64> = self.active(now).collect();
        // Of a minute that comes again, a cell does not tell whether it is from the first time.
        let is_again = |last: i64| is_put_back && (last - now) % MINUTES == 0;
        self.last.retain(|user, last| active.contains(user) || is_again(*last));
        if is_put_back {
            self.latest = now;
            self.last.values_mut().for_each(|last| *last = now);
        }
    }
}

fn assert_equals_a_plain_map(window: u8, steps: Vec<Step>) {
    let active = ActiveUsers::new(1_000, window);
    let mut plain = Plain { window: window.into(), latest: i64::MIN / 2, last: HashMap::new() };
    let (mut now, mut swept) = (0, 0);
    for (place, step) in steps.into_iter().enumerate() {
        match step {
            Step::Note(number, age) => {
                let seen = active.seen(user(number), at(now - age));
                let noted = active.note(user(number), at(now - age), at(now));
                assert!(age != 0 || seen != Seen::InMinute || noted == Noted::Known, "step {place}: {noted:?}");
                plain.note(number, age, now);
                // Where nobody is noted a minute ahead: in a cell that they share, the later minute stands.
                let is_latest = plain.latest == now && plain.last.values().all(|last| *last <= now);
                if is_latest && plain.last.get(&number) == Some(&now) {
                    assert_eq!(active.seen(user(number), at(now)), Seen::InMinute, "step {place}");
                }
            }
            Step::Pass(minutes) | Step::Jump(minutes) => now += minutes,
            Step::Sweep => {
                active.sweep(at(now));
                plain.sweep(now);
                assert_eq!(active.estimate(), plain.active(now).count() as u64, "step {place}");
                swept = now;
            }
        }
        // As the one who sweeps promises.
        if (now - swept).abs() > 60 {
            active.sweep(at(now));
            plain.sweep(now);
            swept = now;
        }
        let found: Vec<u64> = (0..40).filter(|number| active.is_active(user(*number), at(now))).collect();
        let mut expected: Vec<u64> = plain.active(now).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "step {place}, minute {now}, window {window}");
    }
}

proptest! {
    // 40 users in so many cells are never taken for another.
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_equals_a_plain_map_also_where_the_clock_jumps(
        (window, smooth, jumping) in (1..=LONGEST_WINDOW_MINUTES, steps(false), steps(true))
    ) {
        assert_equals_a_plain_map(window, smooth);
        assert_equals_a_plain_map(window, jumping);
    }
}

#[test]
fn minute_by_minute_nobody_active_is_missed_and_few_others_are_found() {
    const MAX: u64 = 2_000;
    const WINDOW: i64 = 10;
    let active = ActiveUsers::new(MAX, 10);
    let mut last: HashMap<u64, i64> = HashMap::new();
    let (mut asked, mut wrong, mut next) = (0_u64, 0_u64, 0);
    for minute in 0..300 {
        // Twice the maximum at once; a quarter of them come again.
        for _ in 0..MAX * 2 / WINDOW as u64 {
            let number = if next % 4 == 0 { next / 2 } else { next };
            active.note(user(number), at(minute), at(minute));
            last.insert(number, minute);
            next += 1;
        }
        active.sweep(at(minute));
        let users = last.values().filter(|last| minute - **last < WINDOW).count() as u64;
        let estimate = active.estimate();
        assert!(estimate.abs_diff(users) * 50 <= users, "{estimate} for {users} users in minute {minute}");
        for (number, last) in &last {
            let (found, expected) = (active.is_active(user(*number), at(minute)), minute - last < WINDOW);
            assert!(found || !expected, "user {number} is active in minute {minute}");
            asked += u64::from(!expected);
            wrong += u64::from(found && !expected);
        }
    }
    assert!(wrong * 200 < asked, "{wrong} of {asked} who have left are taken for active");
}

#[test]
fn a_jump_ahead_ends_the_window_however_long_it_is() {
    for jump in [30, 31, 225, 254, 255, 256, 285, 510, 60 * 24, 60 * 24 * 400] {
        let active = ActiveUsers::new(1_000, 30);
        for minute in 0..30_i64 {
            active.note(user(minute.unsigned_abs()), at(minute), at(minute));
        }
        let after = at(29 + jump);
        assert!((0..30).all(|number| !active.is_active(user(number), after)), "{jump} minutes");
        assert_eq!(active.note(user(99), after, after), Noted::New);
        active.sweep(after);
        assert!(active.is_active(user(99), after), "noted after the jump of {jump} minutes");
        assert_eq!(active.estimate(), 1, "{jump} minutes");
    }
}

#[test]
fn of_threads_that_find_a_jump_at_once_one_clears_and_nobody_whom_they_note_is_lost() {
    const THREADS: u64 = 4;
    const NOTED: u64 = 20;
    // A minute of the same code: whoever is not cleared is taken for active.
    let after = at(4 * MINUTES);
    for round in 0..200 {
        let active = ActiveUsers::new(1_000, 30);
        (1_000..2_000).for_each(|number| _ = active.note(user(number), at(0), at(0)));
        let begin = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (active, begin) = (&active, &begin);
                scope.spawn(move || {
                    begin.wait();
                    (0..NOTED).for_each(|number| _ = active.note(user(thread * NOTED + number), after, after));
                });
            }
        });
        let noted = (0..THREADS * NOTED).filter(|number| active.seen(user(*number), after) == Seen::InMinute).count();
        assert_eq!(noted as u64, THREADS * NOTED, "round {round}");
        let mut of_before = 1_000..2_000;
        assert!(!of_before.any(|number| active.is_active(user(number), after)), "round {round}: not all is cleared");
        let set = active.cells.iter().filter(|cell| cell.load(Ordering::Relaxed) != 0).count();
        assert_eq!(active.set.load(Ordering::Relaxed), set as u64, "round {round}: what was cleared counts once");
    }
}

#[test]
fn after_a_clock_is_put_back_nobody_is_forgotten_and_users_leave_again() {
    const WINDOW: i64 = 30;
    for back in [1, 5, 29, 30, 34, 36, 119, 200, 255, 256, 60 * 24, 60 * 24 * 7] {
        let active = ActiveUsers::new(1_000, 30);
        let now = |minute: i64| at(minute - back);
        active.note(user(1), at(0), at(0));
        active.note(user(2), now(0), now(0));
        for minute in 0..3 * WINDOW {
            for number in [1, 2] {
                let is_in = minute >= WINDOW || active.is_active(user(number), now(minute));
                assert!(is_in, "{number} at {minute}, {back} back");
            }
            // Whether it only stood still, or was put back.
            let longest = 2 * WINDOW + PUT_BACK_MINUTES;
            let left = [1, 2].iter().all(|number| !active.is_active(user(*number), now(minute)));
            assert!(minute < longest || left, "{minute} minutes later, {back} back");
            active.sweep(now(minute));
        }
        assert_eq!(active.estimate(), 0);
    }
}
