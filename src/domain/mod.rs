//! The pure heart of weir: what an intent is, what a policy says, and what the history of a user allows.
//!
//! Nothing here does I/O, reads a clock, draws a random number, logs or awaits; time is a parameter.
//! `tests/pure/tidy.rs` keeps it so.

pub mod admit;
pub mod approved;
pub mod class;
pub mod clocks;
pub mod dead_letter;
pub mod decide;
pub mod decision_header;
pub mod decode;
pub mod envelope;
pub mod explain;
pub mod fields;
pub mod found_names;
pub mod header;
pub mod history;
pub mod intent;
mod json;
pub mod memory;
pub mod named_history;
mod number;
pub mod origin;
pub mod owed;
pub mod parked;
pub mod policy;
pub mod refund;
pub mod room;
pub mod schema;
pub mod segment;
pub mod shard;
pub mod simulation;
pub mod time;
pub mod verdict;
pub mod window;
pub mod zone;
