//! What is fuzzed: everything that reads bytes from elsewhere, one function per target.
//!
//! The readers are in `weir-core` and `weir-schemas`, so nothing here needs librdkafka or an AWS SDK, which a fuzzer would have
//! to build again with its flags. A function panics where a promise is broken, and the fuzzer reports it.

use std::alloc::System;

use cap::Cap;

mod framed;
mod targets;

pub use framed::framed;
pub use targets::{approved, bitmap, deferral, history, intent, manifest, policy, refund, reply};

/// Bytes in use are limited by each target, so that an allocation that the input does not bear out is found.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Memory for every reader beyond its input: tables, messages, the fuzzer's own.
const ALLOWANCE_BYTES: usize = 4 << 20;

/// Runs `read` with memory for at most `times` the input, and the allowance. Memory beyond ends the process.
fn bounded<T>(input: &[u8], times: usize, read: impl FnOnce() -> T) -> T {
    let limit = ALLOCATOR.allocated() + ALLOWANCE_BYTES + input.len() * times;
    ALLOCATOR.set_limit(limit).expect("the limit is above what is in use");
    let result = read();
    ALLOCATOR.set_limit(usize::MAX).expect("there is no higher limit");
    result
}
