//! Limits that instances share: what all of them have in common ([`share`]), and what is limited.

pub mod budget;
pub mod pressure;
pub mod route;
pub mod share;

/// A limit that instances share, turn by turn ([`share::Share`]).
pub trait SharedLimit: Send + Sync + 'static {
    /// Names one of its kind; `()` where there is one alone.
    type Key: Clone + Ord + Send + Sync;
    /// What a member reports in a turn, and wants.
    type Turn: Send + Sync;
    type Reply: Send;
}
