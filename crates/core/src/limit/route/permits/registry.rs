//! What is registered of a service: the reference for `lua/services/registry.lua`.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::basis::time::Time;

/// The mean of processing times is as if it had been of so many before.
const MEAN_OF: u64 = 20;
/// The longest name of a service, in bytes.
const MAX_NAME_BYTES: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registry {
    /// Its instances by their names, those that have not renewed included.
    pub instances: BTreeMap<String, RegisteredInstance>,
    /// When the service became known; `None`: it is not, no instance of it has registered lately.
    pub since: Option<Time>,
    /// The mean time of its admissions and deliveries, in microseconds; 0: none has ended yet.
    pub took_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisteredInstance {
    pub capacity_per_s: u64,
    pub concurrency: u64,
    /// After what its callers give up.
    pub timeout_ms: u64,
    pub network_ms: u64,
    pub ends: Time,
}

/// What the live instances of a service have registered together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Total {
    pub instances: u64,
    /// Admissions per second.
    pub per_s: u64,
    /// Admissions that have not ended.
    pub concurrency: u64,
    /// The longest timeout, in milliseconds.
    pub timeout_ms: u64,
}

impl Registry {
    /// Those that are registered, by their names.
    pub fn live(&self, now: Time) -> impl Iterator<Item = (&String, &RegisteredInstance)> {
        self.instances.iter().filter(move |(_, registered)| registered.ends > now)
    }

    pub fn total(&self, now: Time) -> Total {
        self.live(now).fold(Total::default(), |total, (_, registered)| Total {
            instances: total.instances + 1,
            per_s: total.per_s + registered.capacity_per_s,
            concurrency: total.concurrency + registered.concurrency,
            timeout_ms: total.timeout_ms.max(registered.timeout_ms),
        })
    }

    /// A caller may give up by then.
    pub(super) fn shortest_timeout_ms(&self, now: Time) -> Option<u64> {
        self.live(now).map(|(_, registered)| registered.timeout_ms).min()
    }

    /// Takes processing times, so many with this sum in milliseconds, into their mean; of a service that is known.
    pub fn note_times(&mut self, took: (u64, u64)) {
        if self.since.is_some() {
            self.took_us = mean_us(self.took_us, took);
        }
    }

    /// The mean time, in milliseconds; `None`: none has ended yet.
    pub(super) fn processing_ms(&self) -> Option<u64> {
        Some(self.took_us.div_ceil(1_000)).filter(|ms| *ms > 0)
    }
}

/// The mean of processing times in microseconds, with so many more whose sum is in milliseconds; 0: there was none yet.
pub fn mean_us(before_us: u64, (count, sum_ms): (u64, u64)) -> u64 {
    let weight = if before_us == 0 { 0 } else { MEAN_OF };
    let sum_us = (before_us * weight).saturating_add(sum_ms.saturating_mul(1_000));
    if count == 0 { before_us } else { sum_us / (weight + count) }
}

/// The name of a service or of one of its instances: 1 to 64 ASCII letters, digits, `.`, `_` and `-`, so that it needs no quoting in
/// paths, labels and Redis keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName(Arc<str>);

impl ServiceName {
    /// `None` where the text is no such name.
    pub fn new(text: &str) -> Option<Self> {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        ((1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_known)).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_needs_no_quoting() {
        for text in ["a", "hedwig-email", "A.b_c-9", &"x".repeat(64)] {
            assert_eq!(ServiceName::new(text).unwrap().as_str(), text);
        }
        for text in ["", "a b", "a/b", "a:b", "é", "a\n", &"x".repeat(65)] {
            assert_eq!(ServiceName::new(text), None, "{text:?}");
        }
    }
}
