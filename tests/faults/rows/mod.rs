//! How each fault is injected; a file for what is broken.

pub mod process;
pub mod script;
