//! The outside world, a folder a system: turns its errors and bytes into domain types and back.

pub mod embedded;
pub mod redis;
