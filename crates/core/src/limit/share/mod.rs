//! How members share a limit: their records, the order of their turns, and the fair rule. The reference that `lua/share/` must equal.

mod embedded;
mod fair;
mod members;
mod pool;
mod port;
#[cfg(test)]
pub(crate) mod tests;
mod turn;
mod turns;

pub use embedded::{Embedded, Reference};
pub use fair::{Wanting, fair_share, grow};
pub use members::{Member, MemberRecords};
pub use pool::UnitPool;
pub use port::Share;
pub use turn::{TurnNumber, TurnOrder, is_overtaken, overtaken};
pub use turns::{Answered, Turns, Unanswered};
