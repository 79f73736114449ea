//! What is fuzzed: everything that reads bytes from elsewhere, one function per target.
//!
//! The readers are in `weir-core`, so nothing here needs librdkafka or an AWS SDK, which a fuzzer would have to build again with
//! its flags. A function panics where a promise is broken; the fuzzer, or the test over the stored corpus below, reports it.

use std::alloc::System;

use cap::Cap;

mod targets;

pub use targets::{approved, bitmap, deferral, history, intent, manifest, policy, refund, reply};

/// Bytes in use are limited by each target, so that an allocation that the input does not bear out is found.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);
