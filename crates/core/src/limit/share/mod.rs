//! How members share a limit: their records, the order of their turns, and the fair rule; the reference that `lua/share/` must equal. And
//! what a process holds of a limit.

mod clients;
mod embedded;
mod fair;
mod members;
mod part;
mod plain;
mod pool;
#[cfg(test)]
pub(crate) mod tests;
mod turns;
mod units;

pub use clients::Clients;
pub use embedded::{Embedded, Reference};
pub use fair::{Wanting, fair_share, grow};
pub use members::{Member, MemberRecords};
pub use part::{ANSWER_WITHIN, HoldsPart, HoldsParts, KeyOf, LimitTask, Silence, TurnOf};
pub use plain::PlainLimit;
pub use pool::UnitPool;
pub use turns::{
    Answered, TurnNumber, TurnOrder, Turns, Unanswered, answer_within, is_overtaken, no_answer_within, overtaken,
};
pub use units::{Pool, Taken, UnitRule, Units, Waits};

use crate::{basis::store_error::StoreError, limit::SharedLimit};

/// Where instances share a limit, as one member takes its turns there.
pub trait Share<L: SharedLimit>: Send {
    /// Takes a turn. One round trip.
    ///
    /// Safe to drop half way. A turn that has no answer may be repeated as it is, with its number, before another one is made: it gets what it
    /// was granted, and nothing of it counts twice. What was granted without an answer is held until then, or until the member's next turn.
    ///
    /// # Errors
    /// It may have been taken or not.
    fn turn(
        &mut self,
        key: &L::Key,
        number: TurnNumber,
        turn: &L::Turn,
    ) -> impl Future<Output = Result<L::Reply, StoreError>> + Send;
}
