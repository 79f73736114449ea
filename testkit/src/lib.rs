//! Starts and breaks the real servers that weir is tested against.
//!
//! Everything listens on loopback, on ports leased for this process, and ends with its owner: when a value is
//! dropped, when a test panics, and when the test process itself is killed with SIGKILL (see [`process`]).
//!
//! * [`stack::Stack::shared`]: one Kafka broker, a Redis Cluster of 3 + 3, a single Redis and an S3, shared by all
//!   tests; use [`unique`] names so that tests do not meet.
//! * [`kafka::Kafka`], [`redis::RedisServer`], [`redis::RedisCluster`], [`s3::S3`]: one's own, to be frozen, killed,
//!   failed over and resharded.
//! * [`kafka::SecuredKafka`], [`redis::RedisServer::start_mutual_tls`], [`s3::S3::start_secured`]: servers that demand TLS,
//!   passwords, certificates and rights; [`tls::Authority`] makes the certificates.
//! * [`kafka::KafkaClient`]: publishes, and reads what a `read_committed` reader can see.
//! * [`registry::Registry`]: a stub of a Schema Registry that speaks its HTTP API.
//! * [`proxy::Proxy`]: loses replies, stalls.
//! * [`browser::Driver`]: a headless Chromium over WebDriver.
//! * [`worker::Worker`]: the built `weir` binary with a configuration file.
//! * [`folder`]: a temporary folder that goes with its owner.
//! * [`process::output`] and [`http`]: commands and HTTP requests that end at their deadline.
//! * [`wait_until`]: for a condition with a deadline; nothing here sleeps and hopes.
//!
//! A server that is not installed is an error that names the command to run (`cargo xtask setup`), never a skip.

#![allow(missing_docs, reason = "a private crate: a doc that repeats the name is left out")]

mod background;
pub mod browser;
pub mod clock;
pub mod disk;
pub mod http;
pub mod kafka;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod registry;
pub mod s3;
pub mod scratch;
pub mod stack;
pub mod tls;
mod wait;
pub mod worker;

pub use scratch::folder;
pub use wait::{POLL_INTERVAL, SLOW_INTERVAL, unique, wait_for, wait_until, wait_until_every};
