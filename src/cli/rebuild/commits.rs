//! Restores the table of what groups have committed.

use std::{collections::BTreeSet, sync::Arc};

use weir_core::deferral::wheel::Ring;
use weir_kafka::{client::KafkaOptions, committed, waiting_topics};
use weir_redis::rebuild::Rebuild;

use super::identify;
use crate::cli::assemble;

/// Restores the table, where the keyspace has lost it: the partitions of which the groups of intents, and of deferred, retried and
/// waiting ones, have committed offsets. One without an offset beside others that have one was added, and was never read. If no
/// partition of the intents has one, Kafka has lost them.
pub(super) async fn restore(rebuild: &mut Rebuild, kafka: &Arc<KafkaOptions>) -> anyhow::Result<()> {
    if !rebuild.has_lost_commits().await? {
        return Ok(());
    }
    let (topic, all) = identify(kafka, &kafka.intents).await?;
    let read = assemble::ask_kafka(kafka, committed::partitions).await?;
    let mut commits = vec![(kafka.group.clone(), topic, if read.is_empty() { all } else { read })];
    let rings = kafka.wheels().flat_map(|wheel| Ring::ALL.map(|ring| kafka.for_ring(wheel, ring)));
    let routes = assemble::ask_kafka(kafka, |kafka| waiting_topics::routes(kafka, &BTreeSet::new())).await?;
    let waiting = routes.iter().filter_map(|route| kafka.for_waiting(route));
    for reader in rings.chain(kafka.for_retries()).chain(waiting) {
        let reader = Arc::new(reader);
        let read = assemble::ask_kafka(&reader, committed::partitions).await?;
        if !read.is_empty() {
            let (topic, _) = identify(kafka, &reader.intents).await?;
            commits.push((reader.group.clone(), topic, read));
        }
    }
    rebuild.restore_commits(&commits).await?;
    Ok(())
}
