//! The schemas in memory.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::Instant;
use weir_core::ports::SchemaId;

use crate::plan::Plan;

/// How long the registry is not asked again for a schema that does not exist or cannot be used. Records that name one are dead
/// letters meanwhile.
pub(crate) const ABSENT_FOR: Duration = Duration::from_secs(30);
/// How many of those stay in memory: more than a batch has records, as each may name another one. Some 200 bytes each; a problem has 300 characters at most.
const ABSENT_KEPT: usize = 100_000;
/// What the schemas that can be used may take in memory, in bytes. What lanes hold for a batch comes on top of it.
const KEPT_BYTES: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct KnownSchema {
    pub(crate) plan: Result<Plan, String>,
    /// Until when it is not asked for again; `None`: never, as a schema does not change.
    until: Option<Instant>,
    /// What it takes in memory, in bytes, at most.
    bytes: usize,
}

impl KnownSchema {
    /// What the registry has said just now, in texts of so many bytes.
    pub(crate) fn found(plan: Result<Plan, String>, text_bytes: usize) -> Arc<Self> {
        let until = plan.is_err().then(|| Instant::now() + ABSENT_FOR);
        // Names in a plan are parts of the texts.
        let bytes = plan.as_ref().map_or(0, |plan| plan.bytes() + text_bytes);
        Arc::new(Self { plan, until, bytes })
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}

/// Schemas by their ids. It is replaced as a whole.
#[derive(Debug, Default)]
pub(crate) struct SchemaTable {
    /// The usable schemas that stay in memory, the newest last.
    kept: VecDeque<(SchemaId, Arc<KnownSchema>)>,
    /// Schemas that do not exist or cannot be used. They are apart, so that they never displace usable ones.
    absent: VecDeque<(SchemaId, Arc<KnownSchema>)>,
    /// Those and the ones that a lane holds although they had to make room.
    known: HashMap<SchemaId, Weak<KnownSchema>, foldhash::fast::RandomState>,
}

impl SchemaTable {
    pub(crate) fn get(&self, id: SchemaId) -> Option<Arc<KnownSchema>> {
        self.known.get(&id)?.upgrade()
    }

    /// The same with other entries; so many that can be used are kept, and no more than there is memory for.
    pub(crate) fn with(&self, new: &[(SchemaId, Arc<KnownSchema>)], kept: usize) -> Self {
        let ids: HashSet<SchemaId> = new.iter().map(|(id, _)| *id).collect();
        let old = self.kept.iter().chain(&self.absent).filter(|(id, entry)| !ids.contains(id) && entry.is_fresh());
        let all = old.chain(new).cloned();
        let (mut usable, mut absent): (VecDeque<_>, VecDeque<_>) = all.partition(|(_, entry)| entry.plan.is_ok());
        let mut known = self.known.clone();
        known.extend(new.iter().map(|(id, entry)| (*id, Arc::downgrade(entry))));
        let mut bytes = 0;
        let fits = |(_, entry): &&(SchemaId, Arc<KnownSchema>)| {
            bytes += entry.bytes;
            bytes <= KEPT_BYTES
        };
        let newest = usable.iter().rev().take(kept).take_while(fits).count();
        usable.drain(..usable.len() - newest);
        absent.drain(..absent.len().saturating_sub(ABSENT_KEPT));
        known.retain(|_, entry| entry.strong_count() > 0);
        Self { kept: usable, absent, known }
    }

    /// How many stay in memory.
    #[cfg(all(test, feature = "avro", feature = "protobuf"))]
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }
}
