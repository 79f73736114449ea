//! A decision: what it says, how it is written, read back and explained.

pub mod approved;
pub mod decision_header;
pub mod envelope;
pub mod explain;
pub mod room;
pub mod verdict;
