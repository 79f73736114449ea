//! The servers of the tests, and what can be broken about them, are as weir's tests take them for granted.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod deadlines;
mod ends_with_its_owner;
mod kafka;
mod redis;
mod s3;
mod wrong;
