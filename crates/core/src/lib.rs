//! The pure core of weir: what an intent, a policy, a segment, a history and a decision are, and how a batch is decided.
//!
//! It depends on no other crate of weir. It does no I/O, reads no clock, draws no random number, logs nothing and has no
//! async runtime: time is a parameter, and what it needs of the outside are the traits in [`ports`]. `clippy.toml` of this
//! crate bans what the standard library has of these.
//!
//! Each module is an idea. ARCHITECTURE.md has them in their order: none refers to one that is after it.
//!
//! A batch: [`intent::decode`], [`segment`] and [`policy`] say what to ask a store ([`history::admit`]), [`history::decide`] is the
//! answer's reference, [`batch::decider`] leads a batch from records to outputs ([`batch::record`], [`batch::output`]), and
//! [`ports::embedded`] is a store in memory.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a private crate: a doc that repeats the name is left out")]

pub mod basis;
pub mod batch;
pub mod decision;
pub mod deferral;
pub mod history;
pub mod intent;
pub mod limit;
pub mod policy;
pub mod ports;
pub mod replay;
pub mod schema;
pub mod segment;
