//! A consumer that reads spans of a topic's partitions: outside of the group, and without committing anything.

use std::{sync::Arc, thread, time::Duration};

use rdkafka::{
    Offset, TopicPartitionList,
    config::ClientConfig,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
};

use super::{
    client::{KafkaOptions, not_made},
    extents::{ReadError, Span},
    lane_context::LaneContext,
    native::{self, MessageQueue},
    rights::Right,
    topics::TopicError,
};

/// Reads spans, each into its queue. Queues and batches are dropped before it.
pub(super) struct Reading {
    pub(super) consumer: Arc<BaseConsumer<LaneContext>>,
    // Dropped behind the consumer: fields go in their order.
    _closing: Closing,
    topic: String,
}

/// Closes a consumer on a thread of its own: because of its `group.id`, rdkafka waits until librdkafka has closed it, however long that
/// takes.
struct Closing(Option<Arc<BaseConsumer<LaneContext>>>);

impl Drop for Closing {
    fn drop(&mut self) {
        let consumer = self.0.take();
        let end = thread::Builder::new().name("reader-end".to_owned()).spawn(move || drop(consumer));
        if let Err(error) = end {
            tracing::warn!(%error, "no thread for the end of a consumer");
        }
    }
}

fn settings(options: &KafkaOptions, read_ahead_kbytes: usize) -> ClientConfig {
    let (mut config, fetch_bytes) = (options.client(), options.span_fetch_bytes());
    config
        .set("fetch.max.bytes", fetch_bytes.to_string())
        .set("receive.message.max.bytes", options.inflated_bytes().to_string())
        // The producer's; librdkafka holds a consumer's fetches to it.
        .set("message.max.bytes", fetch_bytes.clamp(1_000, 1_000_000).to_string())
        .set("isolation.level", "read_committed")
        // librdkafka assigns no partitions without one; the group is not joined.
        .set("group.id", &options.group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("fetch.queue.backoff.ms", "10")
        .set("fetch.wait.max.ms", "100")
        .set("queued.max.messages.kbytes", read_ahead_kbytes.to_string());
    config
}

fn client(error: &KafkaError) -> ReadError {
    TopicError::Client(not_made(error)).into()
}

impl Reading {
    /// Reads nothing yet. So much of each queue is read ahead.
    pub(super) fn new(options: &KafkaOptions, topic: &str, read_ahead_kbytes: usize) -> Result<Self, ReadError> {
        let consumer = settings(options, read_ahead_kbytes).create_with_context(LaneContext::default());
        let consumer: Arc<BaseConsumer<LaneContext>> = Arc::new(consumer.map_err(|error| client(&error))?);
        native::inflate::bound(options.inflated_bytes(), options.answer_bytes());
        Ok(Self { _closing: Closing(Some(Arc::clone(&consumer))), consumer, topic: topic.to_owned() })
    }

    /// A queue for messages.
    pub(super) fn queue(&self) -> Result<MessageQueue, ReadError> {
        Ok(MessageQueue::new(self.consumer.client()).map_err(TopicError::Client)?)
    }

    /// Begins to read each span into its queue.
    pub(super) fn begin<'q>(&self, spans: impl Iterator<Item = (Span, &'q MessageQueue)>) -> Result<(), ReadError> {
        let mut assigned = TopicPartitionList::new();
        for (Span { partition, from, .. }, queue) in spans {
            let failed = |reason| self.failed(partition, reason);
            queue.take_over(self.consumer.client(), &self.topic, partition).map_err(failed)?;
            assigned
                .add_partition_offset(&self.topic, partition, Offset::Offset(from))
                .map_err(|error| failed(error.to_string()))?;
        }
        if assigned.count() == 0 {
            return Ok(());
        }
        self.consumer.assign(&assigned).map_err(|error| client(&error))
    }

    /// Serves logs and errors; messages come by queues.
    pub(super) fn serve(&self) {
        if let Some(Err(error)) = self.consumer.poll(Duration::ZERO) {
            tracing::warn!(%error, "reading {}", self.topic);
        }
    }

    pub(super) fn failed(&self, partition: i32, reason: String) -> ReadError {
        ReadError::Partition { topic: self.topic.clone(), partition, reason }
    }

    /// Whether an error of a partition, other than its end, is one that librdkafka mends by itself.
    ///
    /// # Errors
    /// It ends the read.
    #[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka's codes are not ours to close")]
    pub(super) fn judge(&self, code: RDKafkaErrorCode, partition: i32) -> Result<(), ReadError> {
        let reason = match code {
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => {
                "records were deleted while they were read, by retention or with the topic: begin later, or run it again"
                    .to_owned()
            }
            RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed => {
                let right = Right::ReadTopic(self.topic.clone());
                format!("Kafka does not let weir ({code}): grant {right} (docs/security.md)")
            }
            RDKafkaErrorCode::Fatal => "the consumer failed for good".to_owned(),
            // It would be reported again and again.
            RDKafkaErrorCode::BadCompression => {
                "a record batch cannot be decompressed, or inflates to more than receive.message.max.bytes".to_owned()
            }
            other => {
                tracing::warn!(error = %other, partition, "reading {}", self.topic);
                return Ok(());
            }
        };
        Err(self.failed(partition, reason))
    }
}
