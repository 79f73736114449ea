//! How long to wait before a request is sent again, and how often.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use super::{network::Network, request_error::RetryTiming};

/// The first wait; each is twice the one before, with jitter.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// How often something may be sent again at once (redirects, reloaded scripts) before that waits too.
const AT_ONCE: usize = 4;

/// The tries of calls that go on side by side, each under a key. A call whose error requires a wait rests; the wait begins when all
/// open calls rest, so that one node's trouble does not delay the others.
pub(super) struct Tries<K> {
    most: usize,
    waits: ExponentialBackoff,
    at_once: usize,
    resting: BTreeSet<K>,
    /// A call failed since the last decision to go on.
    failed: bool,
    network: Arc<dyn Network>,
}

fn waits(tries: usize) -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(FIRST_WAIT)
        .with_max_delay(LONGEST_WAIT)
        .with_max_times(tries.saturating_sub(1))
        .with_jitter()
        .build()
}

impl<K: Ord> Tries<K> {
    /// So many tries, the first one included.
    pub(super) fn new(most: usize, network: Arc<dyn Network>) -> Self {
        Self { most, waits: waits(most), at_once: AT_ONCE, resting: BTreeSet::new(), failed: false, network }
    }

    /// Whether a call is not to be sent before the next wait is over.
    pub(super) fn rests(&self, key: &K) -> bool {
        self.resting.contains(key)
    }

    pub(super) fn none_rests(&self) -> bool {
        self.resting.is_empty()
    }

    /// Notes that a call failed. `false`: it is not worth sending again.
    pub(super) fn failed(&mut self, key: K, retry_timing: RetryTiming) -> bool {
        match retry_timing {
            RetryTiming::Never => return false,
            RetryTiming::AtOnce => {}
            RetryTiming::AfterWait => drop(self.resting.insert(key)),
        }
        self.failed = true;
        true
    }

    /// A call was answered where tries are counted between answers: all of them are left again.
    pub(super) fn answered(&mut self) {
        (self.waits, self.at_once) = (waits(self.most), AT_ONCE);
    }

    /// Waits where all open calls rest, or where calls were repeated at once too often. `false`: the tries are used up.
    pub(super) async fn again<'k>(&mut self, mut open: impl Iterator<Item = &'k K>) -> bool
    where
        K: 'k,
    {
        let all_rest = open.all(|key| self.rests(key));
        if !all_rest && !std::mem::take(&mut self.failed) {
            return true;
        }
        if !all_rest && self.at_once > 0 {
            self.at_once -= 1;
            return true;
        }
        let Some(wait) = self.waits.next() else { return false };
        self.network.sleep(wait).await;
        self.resting.clear();
        self.failed = false;
        true
    }
}
