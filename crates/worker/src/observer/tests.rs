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

/// Counts what is reported of turns at the log of activity, bytes and ignored users, and nothing else.
#[derive(Default)]
pub(crate) struct TestObserver(pub(crate) RwLock<(u64, u64)>);

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
    fn set_topic_lag(&self, _: BesideTopic, _: i64) {}

    fn activity_synced(&self, bytes: u64, ignored_users: u64) {
        let mut counts = self.0.write().unwrap();
        *counts = (counts.0 + bytes, counts.1 + ignored_users);
    }
}
