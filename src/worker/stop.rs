//! The word to stop, as lanes and background tasks hear it.

use std::time::Duration;

use tokio::{runtime::Handle, sync::watch, time::timeout};

/// Says stop, once and for all.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// Hears it.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

/// A stopper, and what hears it.
#[must_use]
pub fn stop() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    /// Tells all to stop.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// One more listener.
    #[must_use]
    pub fn listener(&self) -> Stop {
        Stop(self.0.subscribe())
    }
}

impl Stop {
    /// Whether it has been said. A stopper that is gone has said it.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until it is said.
    pub async fn wait(&mut self) {
        // An error means that the stopper is gone, which is a stop too.
        let _ = self.0.wait_for(|said| *said).await;
    }

    /// Waits at most `longest` on this thread; returns whether it has been said.
    pub fn wait_blocking(&mut self, runtime: &Handle, longest: Duration) -> bool {
        runtime.block_on(async { timeout(longest, self.wait()).await }).is_ok()
    }
}
