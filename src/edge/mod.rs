//! The edges: one folder an outside system. Each turns its errors and bytes into domain types and back.

pub mod embedded;
pub mod http;
pub mod kafka;
pub mod object_store;
pub mod policy_file;
pub mod redis;
pub mod segments;
pub mod time_zones;
