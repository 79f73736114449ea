//! What the worker reports while it works.

#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use weir_core::{
    basis::{time::Time, words},
    batch::{
        stamps::Stamps,
        tally::{SegmentCounts, Tally, TopicTally},
    },
    limit::budget::BudgetId,
    ports::CommitTimes,
};

words! {
    pub enum Stage {
        /// Waiting for and taking records.
        Poll = "poll",
        /// Decoding, segments, policy.
        Decode = "decode",
        /// Asking the store.
        Admit = "admit",
        Encode = "encode",
        /// Handing them to the Kafka client.
        Produce = "produce",
        /// Waiting for the brokers to have them.
        Flush = "flush",
        /// Offsets and commit.
        Commit = "commit",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A commit failed, and the lane goes back to the committed offsets.
    CommitFailed,
    /// The brokers were too slow for a batch: the next ones are half as large.
    BatchHalved,
    Rebalanced,
    /// The store did not answer a whole batch.
    StoreFailed,
    /// Intents wait because no more writes may be deferred.
    DeferredFull,
    SchemasUnavailable,
}

words! {
    pub enum LedgerCall {
        /// Tokens were asked for, and it answered.
        Took = "take",
        GaveBack = "give_back",
        /// It did not answer.
        Failed = "failed",
    }
}

words! {
    pub enum BesideTopic {
        /// Approved intents that no longer count.
        Refunds = "refunds",
        Activity = "activity",
        DeliveryReports = "reports of deliveries",
        /// Approved records whose delivery failed: a lane takes them.
        Retries = "retries",
    }
}

/// Who is told what the worker does: the metrics.
pub trait Observer: Send + Sync {
    fn stage(&self, stage: Stage, time: Duration);
    /// The segments of a batch's users were looked up.
    fn gated(&self, counts: SegmentCounts);
    fn committed(&self, tally: &Tally, times: &CommitTimes);
    /// Records of the intents topic with these timestamps were decided and committed at these times.
    fn records_committed(&self, stamps: &Stamps, decided: Time, committed: Time);
    fn topic_committed(&self, topic: BesideTopic, tally: &TopicTally);
    fn happened(&self, event: Event);
    /// An approved send is not in its history yet.
    fn deferred(&self);
    /// So many of them are now.
    fn deferred_recorded(&self, sends: u64);
    /// How many records of a partition are not yet decided and committed, and when the oldest of them was published, as far as
    /// is known.
    fn set_lag(&self, partition: i32, records: i64, oldest: Option<Time>);
    /// Another lane now reads a partition.
    fn forget_lag(&self, partition: i32);
    fn ledger_called(&self, call: LedgerCall);
    /// So many tokens of a budget were left when the ledger last answered.
    fn budget_left(&self, budget: &BudgetId, tokens: u64);
    /// How many of its records are not yet taken and committed.
    fn set_topic_lag(&self, topic: BesideTopic, records: i64);
    /// A turn at the log of activity: so many bytes were sent and received, and so many users were not noted, or not told to others.
    fn activity_synced(&self, bytes: u64, ignored_users: u64);
}
