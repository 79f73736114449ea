//! The decider: turns a batch of records into requests to the store, and its answers into output records.
//!
//! A batch goes from step to step by value, so that no step is left out, repeated or taken in another order:
//!
//! 1. [`Decider::decode`] reads the intents, once, however often they are judged.
//! 2. [`Decider::begin`] judges them by the clock, policy and segments of now: the gate runs, and places and permits are taken. What is
//!    needed of budgets is the [claim](GatedBatch::claim).
//! 3. [`GatedBatch::ask`] takes what that is granted: what the store is to be asked is known.
//! 4. [`AskedBatch`] takes the store's answers, and [offers](AskedBatch::offer) what came back to other intents of the batch.
//! 5. [`AskedBatch::finish`] decides. [`DecidedBatch`] has the outputs, and the [`Settlement`] is told what becomes of them.
//!
//! Whatever is dropped on the way gives back what its limits gave, but for what is recorded, or may be. A batch that is
//! [given up](AskedBatch::give_up) to be judged again keeps the tokens of that, one set for an intent.
//!
//! ```
//! use weir_core::batch::{
//!     decider::{AskedBatch, DecidedBatch, Decider, DecodedBatch, GatedBatch, Ground, Settlement},
//!     record::Records,
//! };
//!
//! fn decide<'b, R: Records>(
//!     decider: &Decider,
//!     batch: DecodedBatch<'b, R>,
//!     ground: Ground<'b>,
//! ) -> (DecidedBatch<'b, R>, Settlement) {
//!     let gated: GatedBatch<'b, R> = decider.begin(batch, ground);
//!     let mut asked: AskedBatch<'b, R> = gated.ask(None);
//!     let (_requests, _answers) = asked.to_ask();
//!     asked.finish()
//! }
//! ```
//!
//! Nothing is decided, nor asked of the store, before the budgets are asked:
//!
//! ```compile_fail,E0599
//! # use weir_core::batch::{decider::GatedBatch, record::Records};
//! fn decide<R: Records>(gated: GatedBatch<'_, R>) {
//!     gated.finish();
//! }
//! ```
//!
//! There are no outputs before all is decided, and the store is not asked afterwards:
//!
//! ```compile_fail,E0599
//! # use weir_core::batch::{decider::AskedBatch, record::Records};
//! fn decide<R: Records>(mut asked: AskedBatch<'_, R>) {
//!     asked.outputs(&|_| None);
//! }
//! ```
//!
//! ```compile_fail,E0382
//! # use weir_core::batch::{decider::AskedBatch, record::Records};
//! fn decide<R: Records>(mut asked: AskedBatch<'_, R>) {
//!     let (decided, settlement) = asked.finish();
//!     asked.offer();
//! }
//! ```

mod asked;
mod budgets;
mod decided;
mod fate;
mod gated;
mod ground;
mod intents;
mod kept;
mod limits;
mod offer;
mod pressure;
mod settlement;
#[cfg(test)]
mod tests;
mod units;

use std::{collections::BTreeSet, sync::Arc};

use super::{
    record::{ApprovedByChannel, RecordView, Records},
    retry,
};
use crate::{
    basis::{current::Current, origin::Topic},
    batch::sizes::OutputLimits,
    decision::room::{Oversize, added_bytes},
    deferral::{Deferral, wheel::Wheel},
    intent::{
        Intent,
        dead_letter::DeadLetter,
        decode::{Header, decode},
        fields::{FieldMap, schemas::SchemaId},
    },
    limit::HeldLimits,
    policy::{Caps, Policy, PolicyEval, Unavailable},
    segment::SegmentSet,
};

pub use crate::intent::reason::GateDenial;
pub use asked::{AskedBatch, RequestIndex};
pub(crate) use budgets::TakenNames;
pub use decided::DecidedBatch;
pub(crate) use fate::Fates;
pub use fate::{Approval, Denier, Fate, UnavailableOutcome};
pub use gated::GatedBatch;
pub use ground::{DecodedBatch, Ground, Patience, Takes, Times};
use intents::Intents;
pub(crate) use intents::{BatchClasses, facts};
pub use kept::{KeptLimits, KeptTokens};
pub(crate) use limits::BatchLimits;
pub use settlement::Settlement;

/// By how much the names of the policy and segments that decide a batch may be longer than of those that were in force when it was
/// read: it is evaluated again after a wait.
const LONGER_NAMES_BYTES: usize = 256;

/// The inputs of every decision; shared by all lanes.
#[derive(Clone)]
pub struct Decider {
    /// The intents topic, part of every origin.
    pub topic: Topic,
    pub fields: Arc<FieldMap>,
    pub segments: Arc<Current<SegmentSet>>,
    pub policy: Arc<Current<Policy>>,
    pub limits: Arc<OutputLimits>,
    /// Where intents are deferred to; `None`: nothing is deferred.
    pub wheel: Option<Wheel>,
    pub held: HeldLimits,
    pub approved_by_channel: ApprovedByChannel,
}

/// A decoded record, or why nothing is decided of it.
pub type Decoded<'a> = Result<Intent<'a>, Undecided<'a>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecided<'a> {
    Invalid(DeadLetter),
    /// Its intent was approved before, and its delivery is tried again.
    Retry(Box<Intent<'a>>),
}

impl From<DeadLetter> for Undecided<'_> {
    fn from(letter: DeadLetter) -> Self {
        Self::Invalid(letter)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Nothing is decided: the record is invalid, or a retry.
    Undecided,
    /// The intent is suppressed, or waits for its route. A retry waits, or is undelivered.
    Suppress(GateDenial),
    /// The intent is suppressed, unless the store knows that it was approved before. The store allows nothing new for it.
    LookUp {
        request: RequestIndex,
        denial: GateDenial,
        /// Whether it waits where the store has no answer; else it is suppressed. `None`: it does not depend on the store, so it is
        /// suppressed at once.
        fallback: Option<Unavailable>,
    },
    /// It is approved, unrecorded.
    Bypass {
        /// In shadow mode: why it would have been suppressed.
        shadowed: Option<GateDenial>,
    },
    /// The store decides.
    CheckCaps {
        request: RequestIndex,
        /// The caps it is judged by.
        cap_set: usize,
        /// In shadow mode: why it would have been suppressed.
        shadowed: Option<GateDenial>,
        /// Its outcome where the store has no answer.
        fallback: Unavailable,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateResult {
    pub disposition: Disposition,
    /// The user's segment, by its place in the set.
    pub segment: Option<usize>,
}

impl Decider {
    /// By these segments and policy. Fields are where they are by default, nothing is deferred, and no limit has an effect.
    pub fn new(topic: impl Into<Topic>, segments: Arc<Current<SegmentSet>>, policy: Arc<Current<Policy>>) -> Self {
        let (fields, limits, approved_by_channel) = Default::default();
        let (topic, wheel, held) = (topic.into(), None, HeldLimits::default());
        Self { topic, fields, segments, policy, limits, wheel, held, approved_by_channel }
    }

    /// Reads the intents; the clock has no part in it. One whose output could not be written is none: decided here, before the
    /// store is asked, so that nothing is recorded for it.
    #[must_use]
    pub fn decode<'b>(&self, records: &'b impl Records) -> Vec<Decoded<'b>> {
        let (limit_bytes, added_bytes) = (self.limits.of_decisions(), added_bytes(self.names_bytes()));
        let one = |index| {
            if let Some(limit_bytes) = records.not_inflated(index) {
                return Err(DeadLetter::not_inflated(limit_bytes).into());
            }
            if records.is_foreign(index) {
                return Err(DeadLetter::foreign().into());
            }
            let record: RecordView<'b> = records.get(index);
            let headers = record.header_pairs().map(|(key, value)| Header { key, value });
            let intent = decode(record.value, headers, &self.fields)?;
            let value_bytes = record.value.map_or(0, <[u8]>::len);
            if record.deferral.is_some_and(Deferral::is_until_retry) {
                return Err(retry::decoded(intent, &self.limits, (value_bytes, records.bytes_beside_value(index))));
            }
            let largest_value = value_bytes.max(intent.value().envelope_bytes());
            match Oversize::check(largest_value + records.bytes_beside_value(index) + added_bytes, limit_bytes) {
                Ok(()) => Ok(intent),
                Err(oversize) => Err(DeadLetter::not_writable(value_bytes, oversize).into()),
            }
        };
        (0..records.len()).map(one).collect()
    }

    /// Judges a batch: runs the gate as far as limits ask, and takes of them.
    #[must_use]
    pub fn begin<'b, R: Records>(&self, batch: DecodedBatch<'b, R>, mut ground: Ground<'b>) -> GatedBatch<'b, R> {
        let (set, policy, now) = (self.segments.get(), self.policy.get(), ground.times.first());
        let eval = PolicyEval::new(policy, Arc::clone(set.names()), now);
        let mut intents = Intents::new(batch, (eval, set), ground.times);
        let limits = BatchLimits::take(self, &mut intents, &mut ground);
        GatedBatch { decider: self.clone(), intents, limits, read_before: ground.read_before, now }
    }

    /// How many bytes the names have together that a decision writes, at most.
    fn names_bytes(&self) -> usize {
        let (set, policy) = (self.segments.get(), self.policy.get());
        let longest_cap = |caps: &Caps| match caps {
            Caps::Unlimited => 0,
            Caps::Limited(caps) => caps.iter().map(|cap| cap.name.len()).max().unwrap_or(0),
        };
        let cap = policy.segments.values().chain([&policy.default]).map(|caps| longest_cap(caps)).max().unwrap_or(0);
        let segment = set.segments().iter().map(|segment| segment.name.len()).max().unwrap_or(0);
        // One byte more for each: six bytes are enough for its quotes and comma.
        let budgets: usize = policy.budgets.iter().map(|budget| budget.name.len() + 1).sum();
        self.topic.name.len()
            + policy.version.len()
            + set.version().len()
            + segment
            + cap
            + budgets
            + LONGER_NAMES_BYTES
    }
}

/// The ids of the schemas that have to be ready before these records are read; empty where intents are JSON.
pub fn schemas_of(fields: &FieldMap, records: &impl Records) -> BTreeSet<SchemaId> {
    let mut ids = BTreeSet::new();
    let Some(schemas) = fields.schemas() else { return ids };
    let mut last = None;
    // The others are not decoded.
    let decoded = |index: &usize| records.not_inflated(*index).is_none() && !records.is_foreign(*index);
    for index in (0..records.len()).filter(decoded) {
        let id = records.get(index).value.and_then(|value| schemas.needs(value));
        // Nearly all records have the schema of the one before.
        if id != last {
            last = id;
            ids.extend(id);
        }
    }
    ids
}

impl GateResult {
    /// The request by which the store is asked, whether it decides or looks up.
    pub const fn request(&self) -> Option<RequestIndex> {
        match self.disposition {
            Disposition::CheckCaps { request, .. } | Disposition::LookUp { request, .. } => Some(request),
            Disposition::Undecided | Disposition::Suppress(_) | Disposition::Bypass { .. } => None,
        }
    }
}
