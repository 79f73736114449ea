//! What is registered of a service, as a route reads it: the reference for `lua/services/registry.lua`.

use crate::basis::time::Time;

/// The mean of processing times is as if it had been of so many before.
const MEAN_OF: u64 = 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registry {
    /// Its registered instances, including expired ones.
    pub instances: Vec<Registered>,
    /// Whether the service is known: an instance of it has registered lately.
    pub is_known: bool,
    /// The mean time of its admissions and deliveries, in microseconds; 0: none has ended yet.
    pub took_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    pub capacity_per_s: u64,
    /// After what its callers give up.
    pub timeout_ms: u64,
    pub ends: Time,
}

/// What the live instances of a service have registered together, and their shortest timeout.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Live {
    /// `None`: there is no service.
    pub(super) per_s: Option<u64>,
    pub(super) timeout_ms: Option<u64>,
}

impl Registry {
    pub(super) fn look(&self, now: Time) -> Live {
        let live = || self.instances.iter().filter(|registered| registered.ends > now);
        Live {
            per_s: Some(live().map(|registered| registered.capacity_per_s).sum()),
            timeout_ms: live().map(|registered| registered.timeout_ms).min(),
        }
    }

    /// Takes processing times of so many deliveries with this sum in milliseconds.
    pub(super) fn note_times(&mut self, took: (u64, u64)) {
        if self.is_known {
            self.took_us = mean_us(self.took_us, took);
        }
    }

    /// The mean time, in milliseconds; `None`: none has ended yet.
    pub(super) fn processing_ms(&self) -> Option<u64> {
        Some(self.took_us.div_ceil(1_000)).filter(|ms| *ms > 0)
    }
}

/// The mean of processing times in microseconds, with so many more whose sum is in milliseconds; 0: there was none yet.
#[must_use]
pub fn mean_us(before_us: u64, (count, sum_ms): (u64, u64)) -> u64 {
    let weight = if before_us == 0 { 0 } else { MEAN_OF };
    let sum_us = (before_us * weight).saturating_add(sum_ms.saturating_mul(1_000));
    if count == 0 { before_us } else { sum_us / (weight + count) }
}
