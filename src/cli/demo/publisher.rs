//! Publishes the demo's intents: many at once, and then some each second for as long as the demo stays up.

use std::{pin::pin, time::Duration};

use anyhow::Context as _;
use rdkafka::{
    error::RDKafkaErrorCode,
    producer::{BaseProducer, BaseRecord, Producer as _},
};
use tokio::{
    task::block_in_place,
    time::{MissedTickBehavior, interval},
};
use weir_core::ports::Clock as _;
use weir_kafka::client::KafkaOptions;
use weir_worker::clock::SystemClock;

use super::{
    PATIENCE, client,
    traffic::{self, Published},
};
use crate::cli::signals;

/// How many intents come per second while the demo stays up.
pub(super) const PER_S: u32 = 500;
/// In how many parts they come.
const PARTS_PER_S: u32 = 10;

pub(super) struct Publisher {
    producer: BaseProducer,
    topic: String,
    intents: Box<dyn Iterator<Item = Published> + Send>,
}

impl Publisher {
    pub(super) fn new(options: &KafkaOptions) -> anyhow::Result<Self> {
        let producer = client(options).set("partitioner", "murmur2_random").set("linger.ms", "5").create()?;
        let intents = Box::new(traffic::intents(|| SystemClock.now()));
        Ok(Self { producer, topic: options.intents.clone(), intents })
    }

    /// Publishes the next intents, waiting where the client's queue is full, and until the broker has them.
    pub(super) fn publish(&mut self, count: u32) -> anyhow::Result<()> {
        const FAILED: &str = "publishing the demo's intents";
        for _ in 0..count {
            let Some(intent) = self.intents.next() else { break };
            let record = || BaseRecord::to(&self.topic).key(&intent.key).payload(&intent.value);
            while let Err((error, _)) = self.producer.send(record()) {
                if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                    return Err(error).context(FAILED);
                }
                self.producer.poll(Duration::from_millis(10));
            }
        }
        self.producer.flush(PATIENCE).context(FAILED)
    }

    /// Keeps intents coming until somebody asks to stop.
    pub(super) async fn keep_publishing(mut self) -> anyhow::Result<()> {
        let mut asked_to_stop = pin!(signals::asked_to_stop()?);
        let mut parts = interval(Duration::from_secs(1) / PARTS_PER_S);
        parts.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = &mut asked_to_stop => return Ok(()),
                _ = parts.tick() => block_in_place(|| self.publish(PER_S / PARTS_PER_S))?,
            }
        }
    }
}
