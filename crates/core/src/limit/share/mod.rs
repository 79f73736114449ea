//! How members share a limit: their records, the order of their turns, and the fair rule. The reference that `lua/share/` must equal.

mod embedded;
mod fair;
mod members;
mod pool;
mod turn;

pub use embedded::{Embedded, Reference};
pub(crate) use fair::{Wanting, fair_share, grow};
pub(crate) use members::{Member, MemberRecords};
pub use pool::UnitPool;
pub(crate) use turn::TurnOrder;
pub use turn::{TurnNumber, overtaken};
