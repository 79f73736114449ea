//! What is fuzzed: everything that reads bytes from elsewhere, one function a target.
//!
//! The modules under test are compiled from their own files, without the rest of weir: nothing here needs librdkafka or an
//! AWS SDK, which a fuzzer would have to build again with its flags. A function panics where a promise is broken; the
//! fuzzer, or the test over the stored corpus below, reports it.
#![allow(dead_code, unused_imports, reason = "the modules are whole, their callers are not here")]

use std::alloc::System;

use cap::Cap;

#[path = "../../src/document/mod.rs"]
pub mod document;
#[path = "../../src/domain/mod.rs"]
pub mod domain;
mod policy_file;
#[path = "../../src/edge/redis/reply.rs"]
mod reply_format;

mod segment_files;
mod targets;

pub use targets::{approved, bitmap, history, intent, manifest, parked, policy, refund, reply};

/// Bytes in use are limited by each target, so that an allocation that the input does not bear out is found.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);
