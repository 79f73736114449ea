//! A producer of one topic.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rdkafka::{
    ClientContext,
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext},
};

use super::{KafkaClient, Record, client::partitions_of};
use crate::stack::is_shared;

/// How long a record may wait for the brokers, which tests break for a while: less than a test may take, so that it is told.
const PUBLISH_DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);

/// How long a client that is kept waits at most until it connects again to a broker that was gone: a new one would not wait.
pub(super) const RECONNECT_MS: &str = "200";

#[derive(Debug, Default)]
pub(super) struct Failures(AtomicUsize);

impl ClientContext for Failures {}

impl ProducerContext for Failures {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Publishes to one topic, in the order of the calls, each record once. A key goes to the partition that Java's
/// murmur2 gives.
pub struct Publisher {
    topic: String,
    producer: BaseProducer<Failures>,
}

impl Publisher {
    /// One with this producer, which has published before.
    pub(super) fn again(producer: BaseProducer<Failures>, topic: &str) -> Result<Self> {
        partitions_of(producer.client(), topic)?;
        Ok(Self { topic: topic.to_owned(), producer })
    }

    /// Its producer, for the next topic.
    pub(super) fn into_producer(self) -> BaseProducer<Failures> {
        self.producer
    }

    pub(super) fn with(client: &KafkaClient, topic: &str, transactional_id: Option<&str>) -> Result<Self> {
        let mut config = client.config();
        // One that waits for an id of the broker's is half a second late. A broker that nobody breaks loses no reply: there records come
        // once and in their order also without.
        match transactional_id {
            None if is_shared(client.bootstrap()) => config.set("max.in.flight.requests.per.connection", "1"),
            None | Some(_) => config.set("enable.idempotence", "true"),
        };
        config.set("partitioner", "murmur2_random").set("linger.ms", "5");
        config.set("reconnect.backoff.max.ms", RECONNECT_MS);
        config.set("message.max.bytes", "10000000").set("queue.buffering.max.messages", "100000");
        config.set("compression.type", client.codec());
        if let Some(id) = transactional_id {
            config.set("transactional.id", id);
        }
        let producer: BaseProducer<Failures> = config.create_with_context(Failures::default())?;
        partitions_of(producer.client(), topic)?;
        if transactional_id.is_some() {
            producer.init_transactions(PUBLISH_DEADLINE)?;
        }
        Ok(Self { topic: topic.to_owned(), producer })
    }

    /// One that publishes in transactions: [`Publisher::begin`] comes first.
    pub fn transactional(client: &KafkaClient, topic: &str, id: &str) -> Result<Self> {
        Self::with(client, topic, Some(id))
    }

    pub fn begin(&self) -> Result<()> {
        Ok(self.producer.begin_transaction()?)
    }

    pub fn commit(&self) -> Result<()> {
        // Not left to the commit: it would wait for what only a poll takes from the queue.
        self.flush()?;
        Ok(self.producer.commit_transaction(PUBLISH_DEADLINE)?)
    }

    /// Aborts the open transaction once the brokers have its records.
    pub fn abort(&self) -> Result<()> {
        self.flush()?;
        Ok(self.producer.abort_transaction(PUBLISH_DEADLINE)?)
    }

    /// Hands one record over, waiting while the queue is full.
    pub fn send(&self, record: &Record) -> Result<()> {
        let mut outcome = Ok(());
        let queued = self.serve_until(|| match self.producer.send(base_record(&self.topic, record)) {
            Ok(()) => true,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => false,
            Err((error, _)) => {
                outcome = Err(error);
                true
            }
        });
        if !queued {
            bail!("the producer's queue stayed full for {PUBLISH_DEADLINE:?}");
        }
        outcome.with_context(|| format!("cannot publish to {}", self.topic))
    }

    pub fn serve(&self, until: Instant) {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.producer.poll(left);
            if left.is_zero() {
                return;
            }
        }
    }

    /// Waits until all brokers have everything.
    pub fn flush(&self) -> Result<()> {
        // rdkafka's own flush goes in steps of 100 ms.
        let flushed = self.serve_until(|| self.producer.in_flight_count() == 0);
        ensure!(flushed, "{} records are not delivered after {PUBLISH_DEADLINE:?}", self.producer.in_flight_count());
        let failed = self.producer.context().0.load(Ordering::Relaxed);
        ensure!(failed == 0, "{failed} records to {} were not delivered", self.topic);
        Ok(())
    }

    pub fn finish(self) -> Result<()> {
        self.flush()
    }

    /// Serves the producer's events until `done`, for [`PUBLISH_DEADLINE`] at most.
    fn serve_until(&self, mut done: impl FnMut() -> bool) -> bool {
        if done() {
            return true;
        }
        let start = Instant::now();
        while start.elapsed() < PUBLISH_DEADLINE {
            self.producer.poll(POLL);
            if done() {
                return true;
            }
        }
        false
    }
}

fn base_record<'a>(topic: &'a str, record: &'a Record) -> BaseRecord<'a, [u8], [u8]> {
    let mut base = BaseRecord::to(topic);
    base.key = record.key.as_deref();
    base.payload = record.value.as_deref();
    base.partition = record.partition;
    base.timestamp = record.timestamp_ms;
    if !record.headers.is_empty() {
        let headers = OwnedHeaders::new_with_capacity(record.headers.len());
        base.headers = Some(
            record
                .headers
                .iter()
                .fold(headers, |headers, (key, value)| headers.insert(Header { key, value: value.as_deref() })),
        );
    }
    base
}
