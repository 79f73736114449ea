//! The Redis edge of weir: histories in Redis, one server or a cluster, Redis from 6.2 on or Valkey.
//!
//! It implements the ports of `weir-core`, and the one of `weir-oracle`; it depends on no other crate of weir. It carries the scripts of
//! `lua/`.
//!
//! A batch is grouped by shard and bucket (`plan`), packed (`packing`), sent as one pipeline a node
//! (`cluster`, `node`), and every reply is looked at by itself (`run`); `lua/admit.lua` decides, next to
//! the data. [`open`] finds, verifies or makes the keyspace.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a private crate: a doc that repeats the name is left out")]

mod activity;
mod address;
mod admit_run;
mod backoff;
mod clocks;
mod cluster;
mod commits;
mod health;
mod history;
mod keyspace;
mod ledger;
mod names;
mod network;
mod node;
mod open;
mod options;
mod packing;
mod plan;
mod pool;
pub mod rebuild;
mod refunds;
mod request_error;
mod script;
mod sequence;
mod servers;
mod services;
mod share;
mod slot_map;
mod stats;
mod store;
mod totals;
mod watch;

pub use activity::RedisActivityLog;
pub use address::NodeAddr;
pub use clocks::NodeClocks;
pub use commits::{RedisCommits, noted_topics};
pub use keyspace::{FORMAT, Keyspace, Lengthening, Meta};
pub use ledger::{LedgerClock, RedisLedger};
pub use network::{Boxed, Link, Network, Tcp};
pub use open::{KeyspaceSeed, Looked, Opened, look, open};
pub use options::{Absent, BadOptions, Eviction, Password, Passwords, RedisOptions, TlsFiles, Tuning, WhenMissing};
pub use pool::{PooledStore, RedisPool};
pub use refunds::RedisRefunds;
pub use servers::LISTPACK_VALUE_BYTES;
pub use services::RedisServices;
pub use share::{OnRedis, RedisShare};
pub use stats::{RedisStats, RetryCause};
pub use store::RedisStore;
