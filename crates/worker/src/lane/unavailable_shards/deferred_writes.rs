//! Sends that were approved while their history was unavailable: kept until they are recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use weir_core::{batch::record::Progress, history::deferred_send::DeferredSend};

use crate::{deferred_shards::DeferredShards, observer::Observer};

/// A write that is deferred once its batch is committed.
#[derive(Debug, Clone)]
pub(in crate::lane) struct Promise {
    pub(in crate::lane) partition: i32,
    pub(in crate::lane) offset: i64,
    pub(in crate::lane) shard: u16,
    pub(in crate::lane) send: DeferredSend,
}

/// The deferred writes of a lane.
///
/// invariant: only what is in a committed batch is recorded; from its decision until its fate is known, a shard with a promise is not
/// asked.
#[derive(Debug, Default)]
pub(in crate::lane) struct DeferredWrites {
    /// Of committed batches, by shard, in the order of the decisions.
    sends: BTreeMap<u16, Vec<DeferredSend>>,
    /// Of the batch that is decided and not handed over yet.
    decided: Vec<Promise>,
    /// Of the batch that is being committed.
    in_flight: Vec<Promise>,
    /// Of batches whose commit failed: whether they are visible shows in the committed offsets.
    unclear: Vec<Promise>,
    bytes: usize,
    /// Whether it was reported that no more may be deferred.
    told_full: bool,
    /// All shards that one of the above is of.
    lacking: BTreeSet<u16>,
    /// The same of all lanes of the process.
    all: Arc<DeferredShards>,
}

impl Drop for DeferredWrites {
    fn drop(&mut self) {
        self.lack(BTreeSet::new());
    }
}

impl DeferredWrites {
    pub(super) fn new(all: Arc<DeferredShards>) -> Self {
        let mut deferred = Self::default();
        deferred.all = all;
        deferred
    }

    fn lack(&mut self, shards: BTreeSet<u16>) {
        self.all.change(&self.lacking, &shards);
        self.lacking = shards;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.in_flight.is_empty() && self.unclear.is_empty()
    }

    /// Whether something is being committed that may be deferred then.
    pub(in crate::lane) fn is_promised(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// What all of it takes in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it has to be reported that no more may be deferred: once, until all is recorded.
    pub(super) fn is_full_for_the_first_time(&mut self) -> bool {
        !std::mem::replace(&mut self.told_full, true)
    }

    /// How many sends wait to be recorded.
    pub(super) fn len(&self) -> usize {
        self.sends.values().map(Vec::len).sum()
    }

    pub(super) fn shards(&self) -> Vec<u16> {
        self.sends.keys().copied().collect()
    }

    /// Whether a shard's history lacks something: nothing may be asked of it before that is there.
    pub(super) fn lacks(&self, shard: u16) -> bool {
        self.lacking.contains(&shard)
    }

    fn look_through(&mut self) {
        let promised = self.decided.iter().chain(&self.in_flight).chain(&self.unclear).map(|promise| promise.shard);
        let lacking = promised.chain(self.sends.keys().copied()).collect();
        self.lack(lacking);
    }

    /// A batch with these is decided: no lane and no HTTP request asks their shards until they are recorded. The one before may take
    /// seconds to be committed.
    pub(in crate::lane) fn decided(&mut self, promises: Vec<Promise>) {
        if !(promises.is_empty() && self.decided.is_empty()) {
            self.decided = promises;
            self.look_through();
        }
    }

    /// The decided batch is being committed.
    pub(in crate::lane) fn handed_over(&mut self) {
        self.bytes += self.decided.iter().map(|promise| promise.send.bytes()).sum::<usize>();
        self.in_flight.append(&mut self.decided);
    }

    pub(in crate::lane) fn committed(&mut self, metrics: &dyn Observer) {
        for promise in std::mem::take(&mut self.in_flight) {
            self.defer(promise, metrics);
        }
    }

    /// It is not, or perhaps it is.
    pub(in crate::lane) fn failed(&mut self) {
        self.unclear.append(&mut self.in_flight);
    }

    /// Uses the committed offsets: sends before them were committed, sends behind them will be decided again. Another lane
    /// reads the partitions that are missing there; their unclear sends are recorded with their origin, so that a second
    /// decision would be a replay.
    pub(in crate::lane) fn settle(&mut self, starts: &[Progress], metrics: &dyn Observer) {
        self.decided.clear();
        for promise in std::mem::take(&mut self.unclear) {
            let start = starts.iter().find(|start| start.partition == promise.partition);
            if start.is_none_or(|start| promise.offset < start.next_offset) {
                self.defer(promise, metrics);
            } else {
                self.bytes -= promise.send.bytes();
            }
        }
        self.look_through();
    }

    fn defer(&mut self, promise: Promise, metrics: &dyn Observer) {
        metrics.deferred();
        self.sends.entry(promise.shard).or_default().push(promise.send);
    }

    pub(super) fn of_all_lanes(&self) -> &DeferredShards {
        &self.all
    }

    pub(super) fn first(&self, shard: u16, most: usize) -> Vec<DeferredSend> {
        self.sends.get(&shard).map(|sends| sends[..sends.len().min(most)].to_vec()).unwrap_or_default()
    }

    /// The first `count` sends of a shard are recorded.
    pub(super) fn recorded(&mut self, shard: u16, count: usize, metrics: &dyn Observer) {
        let Some(sends) = self.sends.get_mut(&shard) else { return };
        let count = count.min(sends.len());
        self.bytes -= sends.drain(..count).map(|send| send.bytes()).sum::<usize>();
        metrics.deferred_recorded(u64::try_from(count).unwrap_or(u64::MAX));
        if sends.is_empty() {
            self.sends.remove(&shard);
            self.told_full &= !self.sends.is_empty();
            self.look_through();
        }
    }

    /// Logs what ends with the lane, if something does.
    pub(in crate::lane) fn say_what_is_left(&self) {
        let (sends, promised) = (self.len(), self.in_flight.len() + self.unclear.len());
        if sends + promised > 0 {
            let mut shards = self.shards();
            shards.extend(self.in_flight.iter().chain(&self.unclear).map(|promise| promise.shard));
            shards.sort_unstable();
            shards.dedup();
            let shards: Vec<String> = shards.iter().map(u16::to_string).collect();
            tracing::error!(
                sends,
                unclear = promised,
                "sends that were approved while Redis was away are not recorded, and no cap counts them: once Redis is back, \
                 run weir rebuild --shards {} (they are in the approved topic)",
                shards.join(",")
            );
        }
    }
}
