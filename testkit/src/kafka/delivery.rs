//! A delivery service: a consumer group that takes a topic's records at a rate, and commits what it has read or what it has taken.

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
use rdkafka::{
    Message,
    consumer::{CommitMode, Consumer},
};

use super::{BoundedConsumer, Consumed, KafkaClient, reader::consumed};

/// How often offsets are committed in the background.
const COMMIT_MS: &str = "1000";
/// What a service that was held up catches up with, at most.
const CATCHES_UP: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy)]
enum Commits {
    /// How far it has read, as its client does by itself: offsets without a record, too.
    WhatWasRead,
    /// The offset behind each record.
    WhatWasTaken,
    /// The same, but of this partition no record but the first is taken.
    AllBut(i32),
}

/// Where a member begins whose group has committed nothing.
const AT_THE_FIRST: &str = "earliest";
const AT_THE_END: &str = "latest";

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
    pub fn start(client: &KafkaClient, group: &str, topic: &str, per_s: u32) -> Result<Self> {
        Self::with(client, group, topic, per_s, (AT_THE_FIRST, Commits::WhatWasRead))
    }

    pub fn from_its_end(client: &KafkaClient, group: &str, topic: &str, per_s: u32) -> Result<Self> {
        Self::with(client, group, topic, per_s, (AT_THE_END, Commits::WhatWasTaken))
    }

    /// As [`Self::start`], but it commits no more than the offset behind the last record that it has taken.
    pub fn by_record(client: &KafkaClient, group: &str, topic: &str, per_s: u32) -> Result<Self> {
        Self::with(client, group, topic, per_s, (AT_THE_FIRST, Commits::WhatWasTaken))
    }

    /// As [`Self::by_record`], but it never passes the second record of a partition.
    pub fn of_all_but(client: &KafkaClient, group: &str, topic: &str, per_s: u32, partition: i32) -> Result<Self> {
        Self::with(client, group, topic, per_s, (AT_THE_FIRST, Commits::AllBut(partition)))
    }

    fn with(
        client: &KafkaClient,
        group: &str,
        topic: &str,
        per_s: u32,
        (begins, commits): (&str, Commits),
    ) -> Result<Self> {
        let mut config = client.config();
        let stores = match commits {
            Commits::WhatWasRead => "true",
            Commits::WhatWasTaken | Commits::AllBut(_) => "false",
        };
        config.set("enable.auto.offset.store", stores).set("auto.offset.reset", begins);
        config.set("group.id", group).set("isolation.level", "read_committed");
        config.set("auto.commit.interval.ms", COMMIT_MS).set("fetch.wait.max.ms", "50");
        config.set("session.timeout.ms", "6000").set("heartbeat.interval.ms", "500");
        let consumer: BoundedConsumer = config.create()?;
        consumer.subscribe(&[topic])?;
        let (sender, received) = channel();
        let (stop, every) = (Arc::<AtomicBool>::default(), Duration::from_secs(1) / per_s);
        let its_stop = Arc::clone(&stop);
        let thread = thread::spawn(move || deliver((&consumer, commits), every, &sender, &its_stop));
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

fn deliver(
    (consumer, commits): (&BoundedConsumer, Commits),
    every: Duration,
    sender: &Sender<(Instant, Consumed)>,
    stop: &AtomicBool,
) {
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
        if matches!(commits, Commits::AllBut(partition) if partition == message.partition() && message.offset() > 0) {
            continue;
        }
        let now = Instant::now();
        due = due.max(now.checked_sub(CATCHES_UP).unwrap_or(now)) + every;
        match commits {
            Commits::WhatWasRead => {}
            // Refused where the partition was taken meanwhile: then another member takes the record.
            Commits::WhatWasTaken | Commits::AllBut(_) => _ = consumer.store_offset_from_message(&message),
        }
        let _ = sender.send((now, consumed(&message)));
    }
    // Closing would take what the client has fetched, and commit it. What is under way to the broker is waited for at the close, which
    // is bounded.
    let _ = consumer.commit_consumer_state(CommitMode::Async);
    let _ = consumer.unassign();
}
