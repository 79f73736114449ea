//! TLS, passwords, certificates and rights, against servers that require them; and secrets, which appear nowhere.
//!
//! All tests share one secured Kafka, Redis and S3 ([`stage::Stage`]). The worker's rights there are the
//! lines of docs/security.md.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../redis_support/mod.rs"]
mod redis_support;
#[path = "../support/mod.rs"]
mod support;

mod commands;
mod documented;
mod let_in;
mod page;
mod redis_rights;
mod replaced;
mod rights;
mod s3_rights;
mod secrets;
mod stage;
mod tokens;
