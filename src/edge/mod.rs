//! The outside: one folder a system, its bytes and errors to domain types and back.

pub mod policy_file;
