//! Segments: who is in which one.
//!
//! A set is a manifest and, for each segment, the members' ids as a bitmap. It is replaced as a whole and never
//! changed, so that every intent of a batch is judged by one version.

mod blocks;
mod change;
pub mod format;
mod manifest;
mod members;
mod set;
mod user_ids;

pub use blocks::{Blocks, block_of};
pub use change::{Move, SegmentChange, SetChange};
pub use manifest::{
    MAX_MANIFEST_BYTES, MAX_OBJECT_BYTES, MAX_SEGMENTS, MAX_TEXT_BYTES, Manifest, ManifestError, ManifestSegment,
    ObjectKey, Sha256, text_problem,
};
pub use members::{Members, Page, SetOperation};
pub use set::{LookupScratch, Overlap, Segment, SegmentSet, UserSegment};
pub use user_ids::{UserIdKind, UserIds};
