//! What all ideas are written with: times, names, numbers, texts, and values that are shared.

pub mod clocks;
pub mod current;
pub mod document;
pub mod header;
pub(crate) mod json;
pub(crate) mod locked;
pub mod memory;
pub(crate) mod number;
pub mod origin;
pub mod shard;
pub mod store_error;
pub mod time;
pub mod window;
mod worded;
pub mod zone;

pub use worded::words;
