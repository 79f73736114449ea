//! The approved topics as one: a partition of any of them has a number of its own, by which a run keeps how far it is.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::ensure;
use weir_core::basis::{origin::Topic, shard::shard_of_name, time::Time};
use weir_kafka::{
    client::KafkaOptions,
    extents::{Extent, Span},
};

use super::extents_of;

/// More partitions than a topic has.
const PARTITIONS_A_TOPIC: i32 = 1 << 20;
/// So many topics of channels have numbers: those of the last one are below 2^31.
const TOPICS: u16 = 2_046;

/// What is added to the partitions of an approved topic: the same, whatever other topics there are.
fn base(kafka: &KafkaOptions, topic: &str) -> i32 {
    if topic == kafka.approved { 0 } else { (i32::from(shard_of_name(topic, TOPICS)) + 1) * PARTITIONS_A_TOPIC }
}

pub(super) async fn extents(kafka: &Arc<KafkaOptions>, since: Time) -> anyhow::Result<Vec<Extent>> {
    let (mut all, mut bases) = (Vec::new(), BTreeMap::new());
    for topic in kafka.approved_topics() {
        let base = base(kafka, topic);
        if let Some(other) = bases.insert(base, topic) {
            ensure!(other == topic, "{topic} and {other} cannot be told apart by weir rebuild: rename one of them");
        }
        let of_topic = extents_of(kafka, topic, since).await?;
        all.extend(of_topic.into_iter().map(|extent| Extent { partition: extent.partition + base, ..extent }));
    }
    Ok(all)
}

/// A part of what is to be read: one topic of it.
pub(super) struct Part {
    pub(super) topic: Topic,
    /// What is added to its partitions in reports.
    pub(super) base: i32,
    /// By the topic's own partitions.
    pub(super) spans: Vec<Span>,
}

/// The parts of some spans, by their topics.
pub(super) fn parts(kafka: &KafkaOptions, spans: &[Span]) -> Vec<Part> {
    let part = |topic: &str| {
        let base = base(kafka, topic);
        let is_own = |span: &&Span| (base..base + PARTITIONS_A_TOPIC).contains(&span.partition);
        let own = |span: &Span| Span { partition: span.partition - base, ..*span };
        Part { topic: topic.into(), base, spans: spans.iter().filter(is_own).map(own).collect() }
    };
    kafka.approved_topics().into_iter().map(part).filter(|part| !part.spans.is_empty()).collect()
}
