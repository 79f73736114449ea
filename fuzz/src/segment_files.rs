//! What reads the objects of segments, from their own files.

#[path = "../../src/edge/segments/blocks.rs"]
mod blocks;
#[path = "../../src/edge/segments/format.rs"]
pub mod format;
