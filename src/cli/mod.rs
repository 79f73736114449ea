//! The command line: one file a verb.
pub mod segments;

pub mod logging;
pub mod worker;
pub mod policy;
