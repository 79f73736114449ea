//! How many users came by intents that pressure does not apply to.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::limit::pressure::activity::{LONGEST_WINDOW_MINUTES, Minute};

/// One cell for each minute that may be in a window or as far ahead of its end: no two of them have the same.
const CELLS: usize = 2 * LONGEST_WINDOW_MINUTES as usize;

/// These users, by the minute in which they became active.
///
/// Whoever became active in the window is active, and at most once: a user who comes again has been away for a window. So the sum never
/// counts a user who is not active, nor one twice.
///
/// A cell holds its minute and how many there are in one value, and nothing else is read by it: so all that is done to it is relaxed.
#[derive(Debug)]
pub(super) struct Exempt([AtomicU64; CELLS]);

impl Default for Exempt {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Exempt {
    /// So many more. Those of another minute in the same cell are outside of every window that this one is in.
    pub(super) fn add(&self, users: u64, minute: Minute) {
        let mark = mark(minute);
        let cell = &self.0[usize::try_from(minute.0.rem_euclid(CELLS as i64)).unwrap_or(0)];
        cell.update(Ordering::Relaxed, Ordering::Relaxed, |found| {
            let before = if mark_of(found) == mark { users_of(found) } else { 0 };
            with(mark, before.saturating_add(users))
        });
    }

    /// Forgets the minutes outside of a window.
    pub(super) fn sweep(&self, now: Minute, window: u8) {
        for cell in &self.0 {
            let found = cell.load(Ordering::Relaxed);
            let ahead = mark_of(found).wrapping_sub(mark(now));
            let distance = ahead.min(ahead.wrapping_neg());
            if users_of(found) > 0 && distance >= u32::from(window) {
                // Where it fails, users have come meanwhile: of a later minute, or the next sweep finds them.
                let _ = cell.compare_exchange(found, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// How many there are since the window of the last sweep began.
    pub(super) fn users(&self) -> u64 {
        self.0.iter().map(|cell| users_of(cell.load(Ordering::Relaxed))).sum()
    }
}

/// What a cell holds of a minute: as much of it as differs for 8,000 years.
fn mark(minute: Minute) -> u32 {
    u32::try_from(minute.0.rem_euclid(1 << 32)).unwrap_or(0)
}

/// A cell with so many users of a minute; there are fewer than 2^32.
fn with(mark: u32, users: u64) -> u64 {
    (u64::from(mark) << 32) | users.min(u64::from(u32::MAX))
}

const fn mark_of(cell: u64) -> u32 {
    (cell >> 32) as u32
}

const fn users_of(cell: u64) -> u64 {
    cell & u32::MAX as u64
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn every_user_is_counted_while_threads_add_and_one_sweeps() {
        const EACH: u64 = 20_000;
        let exempt = Exempt::default();
        let now = Minute(29_880_000);
        thread::scope(|scope| {
            for thread in 0..3_i64 {
                let exempt = &exempt;
                // Two add to one minute, and one to the next.
                scope.spawn(move || (0..EACH).for_each(|_| exempt.add(2, Minute(now.0 + thread / 2))));
            }
            (0..1_000).for_each(|_| exempt.sweep(now, 30));
        });
        assert_eq!(exempt.users(), 3 * 2 * EACH);
        exempt.sweep(Minute(now.0 + 30), 30);
        assert_eq!(exempt.users(), 2 * EACH, "one minute has left the window");
    }

    #[test]
    fn a_cell_counts_the_minute_that_was_added_last() {
        let exempt = Exempt::default();
        let cells = i64::try_from(CELLS).unwrap();
        // Ahead, and back; before 1970, too.
        let last = 200 - cells;
        for minute in [0, cells, 10 * cells, -cells, last] {
            exempt.add(7, Minute(minute));
            exempt.sweep(Minute(minute), LONGEST_WINDOW_MINUTES);
            assert_eq!(exempt.users(), 7, "{minute}");
        }
        exempt.add(1, Minute(last + 119));
        exempt.add(1, Minute(last - 119));
        exempt.sweep(Minute(last), LONGEST_WINDOW_MINUTES);
        assert_eq!(exempt.users(), 9, "all that are in the window, or as far ahead of its end");
    }
}
