//! `weir policy simulate`, through the built binary.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod caps;
mod model;
mod page;
mod runs;
mod topics;
