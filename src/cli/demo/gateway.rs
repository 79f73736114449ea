//! The demo's slow delivery: a gateway of text messages, which is a consumer group like any other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Builder},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rdkafka::consumer::{BaseConsumer, Consumer};
use weir_kafka::client::KafkaOptions;

use super::reader;

/// The channel that it delivers, and its route.
pub(super) const CHANNEL: &str = "sms";
pub(super) const TOPIC: &str = "send-approved-sms";
/// What it takes per second.
pub(super) const PER_S: u32 = 150;
/// Its group, as the policy names it.
const GROUP: &str = "sms-gateway";
/// How often it commits. weir looks once a second.
const COMMIT_MS: &str = "500";
const POLL: Duration = Duration::from_millis(20);

/// A running gateway. When it is dropped, it leaves its group. Nobody waits for that, because it has no deadline.
pub(super) struct Gateway {
    stop: Arc<AtomicBool>,
    pub(super) taken: Arc<AtomicU64>,
}

impl Gateway {
    /// Takes the approved texts from the first one on.
    pub(super) fn start(options: &KafkaOptions) -> anyhow::Result<Self> {
        let mut reader = reader(options, GROUP);
        let consumer: BaseConsumer =
            reader.set("auto.commit.interval.ms", COMMIT_MS).create().context("the gateway's consumer")?;
        consumer.subscribe(&[TOPIC])?;
        let (stop, taken) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (its_stop, its_taken) = (Arc::clone(&stop), Arc::clone(&taken));
        Builder::new().name(GROUP.to_owned()).spawn(move || deliver(&consumer, &its_taken, &its_stop))?;
        Ok(Self { stop, taken })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn deliver(consumer: &BaseConsumer, taken: &AtomicU64, stop: &AtomicBool) {
    let every = Duration::from_secs(1) / PER_S;
    // When the next one is due.
    let mut due = Instant::now();
    while !stop.load(Ordering::Acquire) {
        let now = Instant::now();
        if due > now {
            thread::park_timeout(due - now);
        } else if let Some(Ok(_)) = consumer.poll(POLL) {
            taken.fetch_add(1, Ordering::Relaxed);
            due = due.max(now) + every;
        }
    }
}
