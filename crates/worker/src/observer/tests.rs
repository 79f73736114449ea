//! The observer of tests.

use std::{sync::RwLock, time::Duration};

use weir_core::{
    basis::time::Time,
    batch::{
        stamps::Stamps,
        tally::{SegmentCounts, Tally, TopicTally},
    },
    limit::budget::BudgetId,
    ports::CommitTimes,
};

use super::{BesideTopic, Event, LedgerCall, Observer, Stage};

/// Keeps these reports, and no others.
#[derive(Default)]
pub(crate) struct TestObserver {
    /// Of turns at the log of activity: bytes and ignored users.
    pub(crate) synced: RwLock<(u64, u64)>,
    /// Of topics beside the intents.
    pub(crate) lags: RwLock<Vec<(BesideTopic, i64)>>,
}

impl Observer for TestObserver {
    fn stage(&self, _: Stage, _: Duration) {}
    fn gated(&self, _: SegmentCounts) {}
    fn committed(&self, _: &Tally, _: &CommitTimes) {}
    fn records_committed(&self, _: &Stamps, _: Time, _: Time) {}
    fn ledger_called(&self, _: LedgerCall) {}
    fn budget_left(&self, _: &BudgetId, _: u64) {}
    fn topic_committed(&self, _: BesideTopic, _: &TopicTally) {}
    fn happened(&self, _: Event) {}
    fn deferred(&self) {}
    fn deferred_recorded(&self, _: u64) {}
    fn set_lag(&self, _: i32, _: i64, _: Option<Time>) {}
    fn forget_lag(&self, _: i32) {}

    fn set_topic_lag(&self, topic: BesideTopic, records: i64) {
        self.lags.write().unwrap().push((topic, records));
    }

    fn activity_synced(&self, bytes: u64, ignored_users: u64) {
        let mut counts = self.synced.write().unwrap();
        *counts = (counts.0 + bytes, counts.1 + ignored_users);
    }
}
