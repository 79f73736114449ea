//! Waiting for a condition with a deadline, and names that no other test uses.

use std::{
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// How long [`wait_until`] rests between two looks, but for the first ones and in long waits.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The same for looks that take a server's time, when nothing depends on finding out early; and in waits of seconds.
pub const SLOW_INTERVAL: Duration = Duration::from_millis(100);
/// It rests for so many times what the look took, so that those who wait leave the machine to those who work,
const RESTS: u32 = 4;
/// but no longer than this: a look may wait for something itself.
const LONGEST_REST: Duration = Duration::from_millis(250);
/// What takes long is found late by this part of it.
const LATE_BY: u32 = 20;

#[track_caller]
pub fn wait_until(deadline: Duration, what: &str, condition: impl FnMut() -> bool) {
    wait_until_every(POLL_INTERVAL, deadline, what, condition);
}

#[track_caller]
pub fn wait_until_every(interval: Duration, deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let found = wait_for_every(interval, deadline, || condition().then_some(()));
    assert!(found.is_some(), "waited {deadline:?} in vain until {what}");
}

/// Waits until `look` finds something; `None` when it has found nothing by the deadline.
/// It looks at least once.
pub fn wait_for<T>(deadline: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
    wait_for_every(POLL_INTERVAL, deadline, look)
}

pub(crate) fn wait_for_every<T>(
    interval: Duration,
    deadline: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let looked = Instant::now();
        if let Some(found) = look() {
            return Some(found);
        }
        let waited = start.elapsed();
        if waited >= deadline {
            return None;
        }
        rest(pause.max((RESTS * looked.elapsed()).min(LONGEST_REST)));
        pause = (2 * pause).min(interval.max((waited / LATE_BY).min(SLOW_INTERVAL)));
    }
}

/// The one pause between two looks; everything that waits goes through it.
#[expect(clippy::disallowed_methods, reason = "this is the wait for a condition with a deadline")]
fn rest(pause: Duration) {
    std::thread::sleep(pause);
}

/// `name` with a suffix that no other call, in this or another process, gives: for topics, groups, key prefixes.
pub fn unique(name: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // A pid alone comes back sooner or later on servers that outlive the test process.
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
    format!("{name}-{:08x}-{}", *PROCESS & 0xFFFF_FFFF, COUNT.fetch_add(1, Ordering::Relaxed))
}
