//! Limits that instances share: what all of them have in common, whatever is limited.

pub mod share;
