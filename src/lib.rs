//! weir caps marketing messages: send-intents in from Kafka, approved and suppressed ones out.
//!
//! `domain` is pure; `edge` talks to the outside; `worker` is the loop between them; `cli` puts them together.
//! See ARCHITECTURE.md for the walk of one intent.
#![recursion_limit = "256"]

pub mod authorities;
pub mod cli;
pub mod config;
pub mod document;
pub mod domain;
pub mod edge;
pub mod metrics;
pub mod worker;
