//! How long to wait before a request is sent again, and how often.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use super::{network::Network, trouble::Pace};

/// The first wait; each is twice the one before, with jitter.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// How often something may be sent again at once (redirects, reloaded scripts) before that waits too.
const AT_ONCE: usize = 4;

/// The tries of one batch.
pub(super) struct Backoff {
    waits: ExponentialBackoff,
    at_once: usize,
    network: Arc<dyn Network>,
}

impl Backoff {
    /// For so many tries, the first one included.
    pub(super) fn new(tries: usize, network: Arc<dyn Network>) -> Self {
        let waits = ExponentialBuilder::default()
            .with_min_delay(FIRST_WAIT)
            .with_max_delay(LONGEST_WAIT)
            .with_max_times(tries.saturating_sub(1))
            .with_jitter()
            .build();
        Self { waits, at_once: AT_ONCE, network }
    }

    /// Waits as long as is due. `false`: it was tried often enough, or cannot help.
    pub(super) async fn again(&mut self, pace: Pace) -> bool {
        match pace {
            Pace::Never => return false,
            Pace::AtOnce if self.at_once > 0 => {
                self.at_once -= 1;
                return true;
            }
            Pace::AtOnce | Pace::AfterWait => {}
        }
        match self.waits.next() {
            Some(wait) => {
                self.network.sleep(wait).await;
                true
            }
            None => false,
        }
    }
}
