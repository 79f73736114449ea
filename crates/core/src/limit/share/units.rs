//! Limits that give one unit per intent, such as the permits of routes, and the units that a batch holds.

use std::{fmt::Debug, mem, ptr, sync::Arc, time::Duration};

use super::UnitPool;
use crate::{
    basis::time::Time,
    intent::{Intent, reason::GateDenial},
};

/// The units that an intent may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// Any intent's.
    General,
    Reserved,
}

/// What a process holds of one rule.
///
/// Invariant: a unit counts as held from when it is granted until its intent is committed, or it is withdrawn, or lapses.
pub trait Units: Debug + Send + Sync + 'static {
    /// The general pool, and behind it the reserved one, where the rule has one.
    fn pools(&self) -> &[UnitPool];

    /// Intents that have taken so many units are committed. The units are held until it returns.
    fn spend(&self, units: u64);
}

/// Whether intents wait for a rule, and whether the intents of this batch are among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    Nobody,
    /// Others wait, so an intent takes a unit of the reserved pool or none.
    Others,
    /// These have waited.
    These,
}

/// A rule, as it is applied to the intents of one batch.
pub trait UnitRule {
    /// Why an intent is denied that gets no unit, and when it may be approved. `is_expired`: whether it has expired by then.
    fn denial(&self, intent: &Intent<'_>, now: Time, is_expired: &dyn Fn(Time) -> bool) -> GateDenial;

    fn waits(&self) -> Waits {
        Waits::Nobody
    }

    /// Why an intent gets none that has waited, however many there are; `None`: it may get one. `timestamp`: its record's.
    fn overdue(&self, _timestamp: Option<Time>, _now: Time) -> Option<GateDenial> {
        None
    }
}

/// The units that a batch has taken of a rule. Dropping it returns those that are not spent, unless their lease has ended.
#[derive(Debug)]
pub struct Taken {
    of: Arc<dyn Units>,
    /// Of the general pool, and of the reserved one.
    units: [u64; 2],
    /// See [`Taken::until`].
    until: Duration,
}

impl Taken {
    #[must_use]
    pub fn none(of: Arc<impl Units>) -> Self {
        Self { of, units: [0; 2], until: Duration::MAX }
    }

    #[must_use]
    pub fn general(of: Arc<impl Units>, most: u64, passed: Duration) -> Self {
        let mut taken = Self::none(of);
        taken.take(Pool::General, most, passed);
        taken
    }

    pub fn is_of(&self, units: &Arc<impl Units>) -> bool {
        ptr::addr_eq(Arc::as_ptr(&self.of), Arc::as_ptr(units))
    }

    /// Until when all of them are this process's, by the monotonic clock, as far as was known when they were taken.
    pub const fn until(&self) -> Duration {
        self.until
    }

    pub const fn units(&self) -> u64 {
        self.units[0] + self.units[1]
    }

    pub(crate) const fn units_of(&self, pool: Pool) -> u64 {
        self.units[pool as usize]
    }

    /// How many more of a pool there are to be taken.
    pub(crate) fn left(&self, pool: Pool, passed: Duration) -> u64 {
        self.of.pools().get(pool as usize).map_or(0, |pool| pool.free(passed))
    }

    /// Takes at most so many more of a pool; gives how many.
    pub fn take(&mut self, pool: Pool, most: u64, passed: Duration) -> u64 {
        let Some(units) = self.of.pools().get(pool as usize).filter(|_| most > 0) else { return 0 };
        // Read before the take: a grant in between only lasts longer.
        let until = units.until();
        let taken = units.take(most, passed);
        if taken > 0 {
            self.until = self.until.min(until);
        }
        self.units[pool as usize] += taken;
        taken
    }

    /// Keeps units for at most so many intents of the reserved share, and so many others; puts the rest back.
    pub fn keep(&mut self, reserved: u64, others: u64) {
        let ([general_held, reserved_held], all) = (self.units, reserved + others);
        // Those of the reserved share are for its intents, and for others only where there are no more of the general pool.
        let general = general_held.min(all - reserved_held.min(reserved));
        let kept = [general, reserved_held.min(all - general)];
        for (pool, (held, kept)) in self.of.pools().iter().zip(self.units.into_iter().zip(kept)) {
            pool.put_back(held - kept, self.until);
        }
        self.units = kept;
    }

    /// The intents are committed.
    pub fn spend(mut self) {
        self.of.spend(self.units());
        let units = mem::take(&mut self.units);
        self.of.pools().iter().zip(units).for_each(|(pool, units)| pool.used(units));
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.keep(0, 0);
    }
}
