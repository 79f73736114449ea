//! The outside: one folder a system, which turns its bytes and errors into domain types and back.

pub mod object_store;
pub mod segments;
