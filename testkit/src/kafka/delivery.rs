//! A delivery service: a consumer group that takes a topic's records at a rate, and commits as its client does by itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Result;
use rdkafka::consumer::Consumer;

use super::{BoundedConsumer, Consumed, KafkaClient, reader::consumed};

/// How often offsets are committed in the background.
const COMMIT_MS: &str = "1000";
/// What a service that was held up catches up with, at most.
const CATCHES_UP: Duration = Duration::from_millis(500);

/// A member of a group on a thread of its own. Dropped, it commits and leaves the group.
#[derive(Debug)]
pub struct Delivery {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    received: Receiver<(Instant, Consumed)>,
    delivered: Vec<(Instant, Consumed)>,
}

impl Delivery {
    /// Joins a group and takes so many records of a topic per second, from its beginning.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn start(client: &KafkaClient, group: &str, topic: &str, per_s: u32) -> Result<Self> {
        let mut config = client.config();
        config.set("group.id", group).set("isolation.level", "read_committed").set("auto.offset.reset", "earliest");
        config.set("auto.commit.interval.ms", COMMIT_MS).set("fetch.wait.max.ms", "50");
        config.set("session.timeout.ms", "6000").set("heartbeat.interval.ms", "500");
        let consumer: BoundedConsumer = config.create()?;
        consumer.subscribe(&[topic])?;
        let (sender, received) = channel();
        let (stop, every) = (Arc::<AtomicBool>::default(), Duration::from_secs(1) / per_s);
        let its_stop = Arc::clone(&stop);
        let thread = thread::spawn(move || deliver(&consumer, every, &sender, &its_stop));
        Ok(Self { stop, thread: Some(thread), received, delivered: Vec::new() })
    }

    /// What it has delivered so far, and when.
    pub fn delivered(&mut self) -> &[(Instant, Consumed)] {
        self.delivered.extend(self.received.try_iter());
        &self.delivered
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn deliver(consumer: &BoundedConsumer, every: Duration, sender: &Sender<(Instant, Consumed)>, stop: &AtomicBool) {
    // When the next record is due.
    let mut due = Instant::now();
    while !stop.load(Ordering::Acquire) {
        let now = Instant::now();
        if due > now {
            thread::park_timeout(due - now);
            continue;
        }
        // Rebalances and commits go on while there is nothing.
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(20)) else { continue };
        let now = Instant::now();
        let earliest = now.checked_sub(CATCHES_UP).unwrap_or(now);
        due = due.max(earliest) + every;
        let _ = sender.send((now, consumed(&message)));
    }
}
