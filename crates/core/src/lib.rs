//! The pure core of weir: what an intent, a policy, a segment, a history and a decision are, and how a batch is decided.
//!
//! It depends on no other crate of weir. It does no I/O, reads no clock, draws no random number, logs nothing and has no
//! async runtime: time is a parameter, and what it needs of the outside are the traits in [`ports`]. `clippy.toml` of this
//! crate bans what the standard library has of these.
//!
//! A batch: [`decode`], [`segment`] and [`policy`] say what to ask a store ([`admit`]), [`decide`] is the answer's reference,
//! [`decider`] leads a batch from records to outputs ([`record`], [`output`]), and [`embedded`] is a store in memory.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a private crate: a doc that repeats the name is left out")]

pub mod activity;
pub mod activity_log;
pub mod activity_report;
pub mod admit;
pub mod approved;
pub mod arrivals;
pub mod budget;
pub mod class;
pub mod clocks;
pub mod current;
pub mod dead_letter;
pub mod decide;
pub mod decider;
pub mod decision_header;
pub mod decode;
pub mod deferral;
pub mod deferred_send;
pub mod delivery_report;
pub mod delivery_signals;
pub mod document;
pub mod embedded;
pub mod envelope;
pub mod explain;
pub mod fields;
pub mod found_names;
pub mod header;
pub mod history;
pub mod intent;
mod json;
pub mod lease;
pub mod ledger;
pub mod letter;
pub mod limit;
pub mod limits;
mod locked;
pub mod memory;
pub mod moving;
pub mod named_history;
mod number;
pub mod origin;
pub mod output;
pub mod pace;
pub mod permits;
pub mod policy;
pub mod policy_file;
pub mod ports;
pub mod pressure;
pub mod record;
pub mod refund;
pub mod replay;
pub mod reply;
pub mod retry;
pub mod room;
pub mod route;
pub mod routes;
pub mod schema;
pub mod segment;
pub mod segment_format;
pub mod selection;
pub mod shard;
pub mod stamps;
pub mod store_error;
pub mod tally;
pub mod time;
pub mod verdict;
pub mod wheel;
pub mod window;
pub mod zone;
