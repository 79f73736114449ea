//! Which users are active: a Bloom filter over one array of cells, each of which holds the minute in which it was last set.
//!
//! A user is active who was [noted](ActiveUsers::note) in the current minute or in one of the `window - 1` minutes before it. To a
//! question it says "active" of every active user, and wrongly of under 0.5% of the others at twice the number of users that it was
//! made for. Lanes ask and note without locks; a [sweep](ActiveUsers::sweep) a minute clears what has left the window.

use std::{
    array,
    sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering},
    thread,
};

use xxhash_rust::xxh3::xxh3_64;

use crate::basis::shard::UserHash;
pub use crate::basis::time::Minute;

/// Cells for each user that an array is made for.
pub const CELLS_PER_USER: u64 = 24;
/// Cells that a user is noted in. 24 cells a user would be best asked by 17; 6 set fewer, so that twice the users still fit.
const HASHES: usize = 6;
/// The most users that an array is made for: 2.4 GB.
pub const MAX_ACTIVE_USERS: u64 = 100_000_000;
/// The longest window, in minutes: half of what a cell tells apart.
pub const LONGEST_WINDOW_MINUTES: u8 = 120;
/// Minutes that a cell tells apart; 0 is an empty cell.
const MINUTES: i64 = 255;
/// How far a cell may be ahead of this array's minute: it was noted by an instance whose clock is ahead.
pub const AHEAD_MINUTES: i64 = 1;
/// Stands for the latest minute while nobody has been noted.
const NEVER: i64 = i64::MIN;
/// Stands for the latest minute while a thread clears all cells. Like [`NEVER`], it is before every minute.
const CLEARING: i64 = NEVER + 1;
/// How far, beyond the window, a clock is behind the latest minute that was put back, and does not only differ from others.
const PUT_BACK_MINUTES: i64 = 5;

/// A user, as instances tell each other who is active. Two users are taken for one at odds of 2^-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActivityHash(pub u64);

impl From<UserHash> for ActivityHash {
    #[inline]
    fn from(user: UserHash) -> Self {
        Self(xxh3_64(&user.0.to_le_bytes()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// The user was not active.
    New,
    /// The user was active, and is now for longer.
    Again,
    /// The user was noted in this minute already.
    Known,
}

/// How a user stands in a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    No,
    Active,
    /// Active, and noted in this very minute: to be noted in it again changes nothing.
    InMinute,
}

/// Who is active in a minute. What has changed since it was asked for may be missing.
#[derive(Debug, Clone, Copy)]
pub struct ActiveAt<'u> {
    users: &'u ActiveUsers,
    /// What a cell holds of the minute, or of a later one that somebody was noted in.
    code: u8,
    /// Whether nobody was noted in a later one.
    is_latest: bool,
    /// Whether everybody has left the window.
    is_over: bool,
}

impl ActiveAt<'_> {
    #[inline]
    pub fn seen(self, user: ActivityHash) -> Seen {
        if self.is_over {
            return Seen::No;
        }
        let mut all_now = self.is_latest;
        for place in self.users.places(user) {
            let found = self.users.cells[place].load(Ordering::Relaxed);
            if found != self.code {
                if !self.users.is_in_window(found, self.code) {
                    return Seen::No;
                }
                all_now = false;
            }
        }
        if all_now { Seen::InMinute } else { Seen::Active }
    }
}

#[derive(Debug)]
pub struct ActiveUsers {
    cells: Box<[AtomicU8]>,
    window: u8,
    /// Cells that are not empty.
    set: AtomicU64,
    /// The latest minute that somebody was noted in, or that was swept in; [`NEVER`] or [`CLEARING`].
    ///
    /// Cells are relaxed: each is a value of its own. What clears them all comes between two minutes, and is ordered by this one: a
    /// minute is stored with release after everything was cleared, and loaded with acquire. So whoever has loaded it sees all cleared,
    /// and what they set is not cleared. Who had loaded a minute before may still set cells of it: their user was active just then.
    latest: AtomicI64,
}

impl ActiveUsers {
    /// Nobody is active. `max_users`: for how many the promises hold, 1 to [`MAX_ACTIVE_USERS`]; `window`: in minutes, 1 to
    /// [`LONGEST_WINDOW_MINUTES`]. Takes [`CELLS_PER_USER`] bytes a user.
    pub fn new(max_users: u64, window: u8) -> Self {
        // With fewer, small numbers of users are off by one or two now and then: more than 2% of them.
        const FEWEST: u64 = 96 * 1024;
        let cells = (max_users.clamp(1, MAX_ACTIVE_USERS) * CELLS_PER_USER).max(FEWEST);
        let cells = usize::try_from(cells).unwrap_or(usize::MAX);
        let cells = std::iter::repeat_with(AtomicU8::default).take(cells).collect();
        let window = window.clamp(1, LONGEST_WINDOW_MINUTES);
        Self { cells, window, set: AtomicU64::new(0), latest: AtomicI64::new(NEVER) }
    }

    /// The window in minutes.
    pub const fn window(&self) -> u8 {
        self.window
    }

    #[inline]
    pub fn is_active(&self, user: ActivityHash, now: Minute) -> bool {
        self.seen(user, now) != Seen::No
    }

    #[inline]
    pub fn seen(&self, user: ActivityHash, now: Minute) -> Seen {
        self.at(now).seen(user)
    }

    /// The same for many users: what depends on the minute is found once.
    pub fn at(&self, now: Minute) -> ActiveAt<'_> {
        let latest = self.latest.load(Ordering::Acquire);
        let is_latest = latest <= now.0;
        let now = Minute(now.0.max(latest));
        // Beyond the window everybody has left it, and a cell's minute could not be told.
        let is_over = now.0.saturating_sub(latest) > i64::from(self.window);
        ActiveAt { users: self, code: code(now), is_latest, is_over }
    }

    /// A user was active in `minute`: the current one, or another as instances tell it. One that has left the window, or is more
    /// than [`AHEAD_MINUTES`] ahead, has no effect.
    #[inline]
    pub fn note(&self, user: ActivityHash, minute: Minute, now: Minute) -> Noted {
        let window = i64::from(self.window);
        if !(-AHEAD_MINUTES..window).contains(&now.0.saturating_sub(minute.0)) {
            return Noted::Known;
        }
        let now = self.advanced(now);
        // A clock that was put back by the window or more: the user is active until it has caught up.
        let minute = Minute(minute.0.max(now.0 - window + 1));
        let (code, now, new_age) = (code(minute), code(now), now.0 - minute.0);
        if self.places(user).all(|place| self.cells[place].load(Ordering::Relaxed) == code) {
            return Noted::Known;
        }
        let (mut was_active, mut changed, mut set) = (true, false, 0);
        for place in self.places(user) {
            let cell = &self.cells[place];
            let mut before = cell.load(Ordering::Relaxed);
            was_active &= self.is_in_window(before, now);
            while !(self.is_in_window(before, now) && age(before, now) <= new_age) {
                match cell.compare_exchange_weak(before, code, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => {
                        (changed, set) = (true, set + u64::from(before == 0));
                        break;
                    }
                    Err(found) => before = found,
                }
            }
        }
        if set > 0 {
            self.set.fetch_add(set, Ordering::Relaxed);
        }
        match (was_active, changed) {
            (false, _) => Noted::New,
            (true, true) => Noted::Again,
            (true, false) => Noted::Known,
        }
    }

    /// How many users are active, estimated: within 2% up to twice the number that it was made for. What has left the window counts
    /// until the next sweep.
    pub fn estimate(&self) -> u64 {
        let cells = self.cells.len() as f64;
        let set = (self.set.load(Ordering::Relaxed) as f64).min(cells - 1.0);
        let users = -(cells / HASHES as f64) * (-set / cells).ln_1p();
        // Nobody has set more cells than these: a few users who share more of them than is likely are not taken for fewer.
        users.round().max((set / HASHES as f64).ceil()) as u64
    }

    /// Clears what has left the window: once a minute, and at least once an hour. Where the clock was put back by more than the
    /// window, time goes on from there, and whoever is active stays so for a window more.
    pub fn sweep(&self, now: Minute) {
        let latest = self.advanced(now);
        let is_behind = latest.0 - now.0 > i64::from(self.window) + PUT_BACK_MINUTES;
        // Where another thread has gone on meanwhile, the clock is not behind, or the next sweep finds it so.
        let is_put_back =
            is_behind && self.latest.compare_exchange(latest.0, now.0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let put_back = is_put_back.then(|| code(now));
        let latest = code(latest);
        let kept: [u8; 256] = array::from_fn(|found| {
            let found = u8::try_from(found).unwrap_or(0);
            // Noted since the clock was put back just now.
            let is_noted_now = put_back == Some(found);
            if is_noted_now || self.is_in_window(found, latest) { put_back.unwrap_or(found) } else { 0 }
        });
        let mut cleared = 0;
        for cell in &self.cells {
            let found = cell.load(Ordering::Relaxed);
            let kept = kept[usize::from(found)];
            if found != kept && cell.compare_exchange(found, kept, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                cleared += u64::from(kept == 0);
            }
        }
        self.set.fetch_sub(cleared, Ordering::Relaxed);
    }

    /// The latest minute seen, with this one. While a clock is behind it, time stands still.
    #[inline]
    fn advanced(&self, minute: Minute) -> Minute {
        let latest = self.latest.load(Ordering::Acquire);
        if minute.0 <= latest { Minute(latest) } else { self.advance(minute) }
    }

    /// A later minute has begun. If the clock jumped so far ahead that everybody has left the window, one thread clears all, before the
    /// minutes of cells cannot be told; others wait for it, so that what they note stays.
    #[cold]
    fn advance(&self, minute: Minute) -> Minute {
        loop {
            let latest = self.latest.load(Ordering::Acquire);
            if minute.0 <= latest {
                return Minute(latest);
            }
            if latest == CLEARING {
                // Once in a jump of two hours, for a pass over the array: the one who clears may need this core.
                thread::yield_now();
                continue;
            }
            let is_far = latest != NEVER && minute.0.saturating_sub(latest) > i64::from(LONGEST_WINDOW_MINUTES);
            let next = if is_far { CLEARING } else { minute.0 };
            // Release hands on what was loaded: that all was cleared before the minute that this one follows.
            if self.latest.compare_exchange(latest, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            if is_far {
                self.clear();
                self.latest.store(minute.0, Ordering::Release);
            }
            return minute;
        }
    }

    /// Empties all cells. Only the thread that has stored [`CLEARING`] as the latest minute may call it.
    fn clear(&self) {
        let is_cleared = |cell: &&AtomicU8| cell.load(Ordering::Relaxed) != 0 && cell.swap(0, Ordering::Relaxed) != 0;
        let cleared = self.cells.iter().filter(is_cleared).count();
        self.set.fetch_sub(u64::try_from(cleared).unwrap_or(0), Ordering::Relaxed);
    }

    #[inline]
    fn is_in_window(&self, found: u8, now: u8) -> bool {
        let (behind, is_later) = now.overflowing_sub(found);
        // Of 255 minutes; one ahead is 254 behind.
        let behind = behind.wrapping_sub(u8::from(is_later));
        found != 0 && (behind < self.window || i64::from(behind) >= MINUTES - AHEAD_MINUTES)
    }

    /// Computes each place when it is asked for: for most users the first one shows that they are not active.
    #[inline]
    fn places(&self, user: ActivityHash) -> impl Iterator<Item = usize> + use<> {
        let cells = self.cells.len() as u128;
        // Double hashing: the step is odd, so that no two of the six are the same.
        let (mut at, step) = (user.0, user.0.rotate_left(32) | 1);
        (0..HASHES).map(move |_| {
            let place = ((u128::from(at) * cells) >> 64) as usize;
            at = at.wrapping_add(step);
            place
        })
    }
}

/// What a cell holds of a minute: 1 to 255.
fn code(minute: Minute) -> u8 {
    u8::try_from(minute.0.rem_euclid(MINUTES) + 1).unwrap_or(1)
}

/// How many minutes before `now` a cell was set, -[`AHEAD_MINUTES`] to what cells tell apart.
fn age(found: u8, now: u8) -> i64 {
    let age = i64::from(now) - i64::from(found);
    let age = if age < 0 { age + MINUTES } else { age };
    if age >= MINUTES - AHEAD_MINUTES { age - MINUTES } else { age }
}

#[cfg(test)]
mod tests;
