//! How far behind the member is.

use std::collections::BTreeMap;

use weir_core::batch::record::{RecordView, Records as _};

use super::KafkaSource;
use crate::{
    lane_context::LaneContext,
    native::{self, MessageBatch},
};

impl KafkaSource {
    /// Forgets the ends that records of a batch lie behind, from this place on.
    pub(super) fn pass_ends(&mut self, batch: &MessageBatch<LaneContext>, from: usize) {
        if self.ends_read.is_empty() {
            return;
        }
        for index in from..batch.len() {
            let RecordView { partition, offset, .. } = batch.get(index);
            if self.ends_read.get(&partition).is_some_and(|end| *end <= offset) {
                self.ends_read.remove(&partition);
            }
        }
    }

    /// How many records of each partition are not done.
    pub(super) fn not_done(&self, done: &BTreeMap<i32, i64>) -> Vec<(i32, i64)> {
        let of = |partition: i32| {
            let (low, high) = native::known_offsets(&self.consumer, &self.topic_name, partition)?;
            let next = done.get(&partition).copied().unwrap_or(low);
            // What lies behind an end that was read cannot be read yet: records of a transaction that is open, and those behind them.
            let is_at_end = self.ends_read.get(&partition) == Some(&next) && !self.paused.contains(&partition);
            Some((partition, if is_at_end { 0 } else { (high - next).max(0) }))
        };
        self.assigned.elements().iter().filter_map(|element| of(element.partition())).collect()
    }
}
