//! What tests of several modules need.

use std::{collections::BTreeMap, sync::Arc};

use weir_core::basis::memory::LaneMemory;

use crate::client::{COMMIT_INTERVAL, Delivery, KafkaOptions, RECORDS_A_CALL, ReadOrder, Reads};

/// Options with these properties.
pub(crate) fn with(delivery: Delivery, properties: &[(&str, &str)]) -> KafkaOptions {
    let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    KafkaOptions { delivery, properties, ..options("weir", "0") }
}

/// Options of a group and an instance, without brokers.
pub(crate) fn options(group: &str, instance: &str) -> KafkaOptions {
    let [group, instance] = [group, instance].map(str::to_owned);
    let topic = || "t".to_owned();
    KafkaOptions {
        brokers: String::new(),
        group,
        intents: topic(),
        approved: topic(),
        approved_by_channel: BTreeMap::new(),
        suppressed: topic(),
        dead_letters: topic(),
        refunds: None,
        activity: None,
        delivery_reports: None,
        retries: None,
        undelivered: None,
        deferred: None,
        deferred_before: Vec::new(),
        waiting: None,
        routes: Arc::default(),
        reads: Reads::Published,
        read_order: ReadOrder::AsFetched,
        delivery: Delivery::ExactlyOnce,
        instance,
        tokens: None,
        properties: BTreeMap::new(),
        files: Arc::default(),
        limits: Arc::default(),
        memory: LaneMemory::default(),
        records_a_call: RECORDS_A_CALL,
        commit_interval: COMMIT_INTERVAL,
    }
}
