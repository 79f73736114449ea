//! The permits of routes, as instances share them: so many approvals that a route has room for.

mod book;
mod embedded;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use book::{PermitBook, Registered, Registry};
pub use embedded::EmbeddedPermits;

use crate::{pace::KeptRates, ports::PermitTurn};

/// How long an instance holds its permits without another turn. A grant counts for so long from when it was made, and may be used
/// for so long from when it was asked for.
pub const LEASE: Duration = Duration::from_secs(3);
/// The largest number in a turn: what Lua's numbers count exactly is more.
pub const MOST: u64 = 1_000_000_000_000;
/// Factors are passed on in so many parts.
pub const FACTOR_PARTS: f64 = 1_000.0;
/// Rates are kept in so many parts of an intent per second; 0 stands for a rate that is not known.
const RATE_PARTS: f64 = 1_000.0;

impl PermitTurn<'_> {
    /// The factor of its signals in thousandths.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1,000")]
    pub fn slow_parts(&self) -> u64 {
        (self.slow.clamp(0.0, 1.0) * FACTOR_PARTS).round() as u64
    }

    /// What this instance knows of the rates of its delivery, in thousandths, at most [`MOST`]; 0: not known.
    #[must_use]
    pub fn rate_parts(&self) -> [u64; 2] {
        [self.rates.drain_per_s, self.rates.best_per_s].map(|rate| rate.map_or(0, in_parts))
    }

    /// The room, [`MOST`] where nothing bounds it.
    #[must_use]
    pub fn room_or_most(&self) -> u64 {
        self.room.unwrap_or(MOST).min(MOST)
    }
}

/// The rates that are kept in thousandths.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "at most 10^12")]
pub fn kept_rates([drain, best]: [u64; 2]) -> KeptRates {
    let rate = |parts: u64| (parts > 0).then(|| parts as f64 / RATE_PARTS);
    KeptRates { drain_per_s: rate(drain), best_per_s: rate(best) }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates at 0 and at the maximum"
)]
fn in_parts(rate: f64) -> u64 {
    ((rate * RATE_PARTS) as u64).clamp(1, MOST)
}
