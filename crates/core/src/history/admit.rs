//! What the worker asks of a store for one batch, in names: stores turn names into numbers themselves.

use std::{collections::BTreeSet, sync::Arc};

use super::decide::{Cap, RecordWhen, Scope, Send};
use crate::{
    basis::{
        shard::{IdHash, OriginMark, UserHash},
        time::Time,
        window::Window,
    },
    intent::class::{ClassNames, ClassNumbers, Filter, Kind},
};

/// The most caps that one set may hold: an answer names the denying cap in one byte.
pub const MAX_CAPS: usize = 255;

/// One cap as the policy has it, with its window resolved for this batch's clock and one time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapQuery {
    pub window: Window,
    /// The most that may be sent in it, in costs.
    pub limit: u32,
    pub filter: Arc<Filter>,
    pub scope: Scope,
}

impl CapQuery {
    /// The cap that nothing fits into: with it, the store allows nothing new and still knows a replay.
    pub fn nothing() -> Self {
        let window = Window::Sliding { length_ms: 1 };
        Self { window, limit: 0, filter: Arc::default(), scope: Scope::Every }
    }

    /// The same cap by numbers. `kinds`: the kinds that its filter matches.
    pub fn counting(&self, kinds: Option<BTreeSet<Kind>>) -> Cap {
        Cap { window: self.window, limit: self.limit, kinds, scope: self.scope }
    }
}

/// One send that asks to be let through.
#[derive(Debug, Clone)]
pub struct AdmitRequest<'a> {
    pub user: UserHash,
    pub id: IdHash,
    pub origin: OriginMark,
    pub class: ClassNames<'a>,
    /// What it takes, 1 to 255.
    pub cost: u8,
    /// The caps that must allow it: an index into [`AdmitBatch::cap_sets`].
    pub cap_set: usize,
    pub record: RecordWhen,
}

impl AdmitRequest<'_> {
    pub fn send(&self, (kind, campaign): ClassNumbers) -> Send {
        let Self { id, origin, cost, record, .. } = *self;
        Send { id, origin, kind, campaign, cost, record }
    }
}

/// All that one batch asks of the store. Requests of one user are answered in their order here.
#[derive(Debug, Clone, Default)]
pub struct AdmitBatch<'a> {
    /// The batch's clock, read once.
    pub now: Time,
    /// The different sets of caps, each at most [`MAX_CAPS`] long.
    pub cap_sets: Vec<Vec<CapQuery>>,
    pub requests: Vec<AdmitRequest<'a>>,
}
