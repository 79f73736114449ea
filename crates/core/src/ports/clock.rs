//! The clock that decisions go by.

use std::{future::Future, time::Duration};

use crate::basis::{
    clocks::{Append, WrongClock},
    time::Time,
};

/// The clock, and time that passes. The clock is read once for each time that a batch is judged, and handed down; what waits
/// uses the other two, which no change of the system's clock disturbs.
pub trait Clock: Send + Sync {
    /// The time now, to be shown. What is decided or trimmed goes by [`Clock::time_to_decide`].
    fn now(&self) -> Time;

    /// The time now, to decide by. A clock that there is nothing to compare with is taken to be right. `appends`: when brokers have stamped
    /// the records that are to be decided. Fails where most other clocks contradict it, or none has been asked yet: decide nothing, and ask
    /// again.
    fn time_to_decide(&self, appends: &[Append]) -> Result<Time, WrongClock> {
        let _ = appends;
        Ok(self.now())
    }

    /// Time passed since some fixed moment; never goes back.
    fn passed(&self) -> Duration;

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send;
}
