//! Whether a consumer's client still has a broker to talk to.
//!
//! librdkafka forgets brokers that a metadata response does not list. A response that lists none (the brokers answer and
//! are fenced by their controller, as after a freeze of all of them) leaves it with none, and nothing in it asks the
//! configured ones again (seen with 2.12.1: a client was without a broker for minutes, all of which were up). Only
//! another client helps.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdkafka::consumer::Consumer;

use super::context::KafkaConsumer;

const EVERY: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// So many questions in a row without an answer, and the client is given up: half a minute.
const LOST_AFTER: u32 = 3;

/// Asks for the topic's metadata now and then. Dropped, it lets go of the client before it returns.
pub(super) struct BrokerWatchdog {
    unanswered: Arc<AtomicU32>,
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BrokerWatchdog {
    /// Starts to watch.
    pub(super) fn of(consumer: &Arc<KafkaConsumer>, topic: &str) -> Result<Self, String> {
        let unanswered = Arc::new(AtomicU32::new(0));
        let (end, ended) = sync_channel::<()>(1);
        let (count, consumer, topic) = (Arc::clone(&unanswered), Arc::clone(consumer), topic.to_owned());
        let watch = move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let answer = consumer.fetch_metadata(Some(&topic), ANSWER_TIMEOUT);
                if answer.is_ok_and(|metadata| !metadata.brokers().is_empty()) {
                    count.store(0, Ordering::Relaxed);
                } else {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(watch);
        let thread = thread.map_err(|error| format!("no thread to watch the brokers: {error}"))?;
        Ok(Self { unanswered, end: Some(end), thread: Some(thread) })
    }

    /// Whether no broker has answered for half a minute.
    pub(super) fn is_lost(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) >= LOST_AFTER
    }
}

impl Drop for BrokerWatchdog {
    fn drop(&mut self) {
        drop(self.end.take());
        // The client must not outlive its source on this thread: its end leaves the group.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the watch on the brokers panicked");
        }
    }
}
