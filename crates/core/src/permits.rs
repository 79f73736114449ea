//! The permits of routes, as instances share them: so many approvals that a route has room for.

mod book;
mod embedded;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use book::{PermitBook, Registered, Registry};
pub use embedded::EmbeddedPermits;

use crate::ports::PermitTurn;

/// How long an instance holds its permits without another turn. A grant counts for so long from when it was made, and may be used
/// for so long from when it was asked for.
pub const LEASE: Duration = Duration::from_secs(3);
/// The largest number in a turn: what Lua's numbers count exactly is more.
pub const MOST: u64 = 1_000_000_000_000;
/// Factors are passed on in so many parts.
pub const FACTOR_PARTS: f64 = 1_000.0;

impl PermitTurn<'_> {
    /// The factor of its signals in thousandths.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1,000")]
    pub fn slow_parts(&self) -> u64 {
        (self.slow.clamp(0.0, 1.0) * FACTOR_PARTS).round() as u64
    }

    /// The room, [`MOST`] where nothing bounds it.
    #[must_use]
    pub fn room_or_most(&self) -> u64 {
        self.room.unwrap_or(MOST).min(MOST)
    }
}
