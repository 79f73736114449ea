//! Limits that instances share: what all of them have in common ([`share`]), and what is limited.

pub mod budget;
pub mod pressure;
pub mod route;
pub mod share;

use std::sync::Arc;

use self::{pressure::Pressure, route::routes::Routes, share::Reference};

/// What a process knows and holds of limits, for its batches to take from. Without its part, a limit of the policy has no effect.
#[derive(Debug, Clone, Default)]
pub struct HeldLimits {
    /// Who is active.
    pub pressure: Option<Arc<Pressure>>,
    /// What routes take.
    pub routes: Option<Arc<Routes>>,
}

/// A limit that instances share, turn by turn ([`share::Share`]).
pub trait SharedLimit: Sized + Send + Sync + 'static {
    /// Names one of its kind; `()` where there is one alone.
    type Key: Clone + Ord + Send + Sync;
    /// What a member reports in a turn, and wants.
    type Turn: Send + Sync;
    type Reply: Send;
    /// What its script must equal: one of its kind in memory.
    type Reference: Reference<Self>;
}
