//! A consumer whose end cannot hold a test up, and the clients that a test keeps.

#![allow(clippy::disallowed_types, reason = "tests share their clients; no lane")]

use std::{
    collections::BTreeMap,
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

use anyhow::Result;
use rdkafka::{
    ClientConfig, admin::AdminClient, client::DefaultClientContext, config::FromClientConfig, consumer::BaseConsumer,
    error::KafkaResult, producer::BaseProducer,
};

use super::{publisher::Failures, reader::ReadTopic};

/// How long the end of a consumer is waited for. Measured: 0.1 s.
const END_DEADLINE: Duration = Duration::from_secs(10);

/// A `BaseConsumer` that ends on a thread of its own, which is left behind when it takes too long: with a `group.id`
/// rdkafka polls until librdkafka has closed the consumer, however long that takes.
pub struct BoundedConsumer(Option<BaseConsumer>);

impl FromClientConfig for BoundedConsumer {
    fn from_config(config: &ClientConfig) -> KafkaResult<Self> {
        Ok(Self(Some(config.create()?)))
    }
}

impl Deref for BoundedConsumer {
    type Target = BaseConsumer;

    fn deref(&self) -> &BaseConsumer {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for BoundedConsumer {
    fn drop(&mut self) {
        drop_within(END_DEADLINE, self.0.take());
    }
}

/// Drops a value on a thread of its own; `false` when that takes longer than the deadline.
fn drop_within<T: Send + 'static>(deadline: Duration, value: T) -> bool {
    let (ends, ended) = mpsc::channel::<()>();
    let end = thread::Builder::new().name("consumer-end".to_owned()).spawn(move || {
        drop(value);
        drop(ends);
    });
    end.is_err() || ended.recv_timeout(deadline) == Err(mpsc::RecvTimeoutError::Disconnected)
}

/// The setting in which consumers that ask differ.
pub(super) type Setting<'a> = (&'static str, &'a str);

/// A topic, and how its records are cut.
pub(super) type ReadAs = (String, &'static str);

/// The clients that ask for offsets and topics, publish and read, made when they are first needed: each has threads and connections.
#[derive(Default)]
pub(super) struct Askers(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    consumers: BTreeMap<(&'static str, String), Arc<BoundedConsumer>>,
    admin: Option<Arc<AdminClient<DefaultClientContext>>>,
    producers: BTreeMap<&'static str, BaseProducer<Failures>>,
    read: BTreeMap<ReadAs, ReadTopic>,
}

impl fmt::Debug for Askers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Askers").finish_non_exhaustive()
    }
}

impl Askers {
    /// Asks by the consumer with this setting. One that gets no answer may hold on to a broker that is gone: the next look
    /// has a new one.
    pub(super) fn ask<T>(
        &self,
        mut config: ClientConfig,
        (key, value): Setting<'_>,
        ask: impl FnOnce(&BaseConsumer) -> Result<T>,
    ) -> Result<T> {
        let place = (key, value.to_owned());
        let known = self.kept().consumers.get(&place).cloned();
        let consumer: Arc<BoundedConsumer> = match known {
            Some(known) => known,
            None => Arc::new(config.set(key, value).create()?),
        };
        let answer = ask(&consumer);
        let former = match answer {
            Ok(_) => self.kept().consumers.insert(place, consumer),
            Err(_) => self.kept().consumers.remove(&place),
        };
        drop(former);
        answer
    }

    /// The producer that compresses so, if there is one that nobody has taken.
    pub(super) fn take_producer(&self, codec: &str) -> Option<BaseProducer<Failures>> {
        self.kept().producers.remove(codec)
    }

    pub(super) fn keep_producer(&self, codec: &'static str, producer: BaseProducer<Failures>) {
        let former = self.kept().producers.insert(codec, producer);
        drop(former);
    }

    /// What was read of a topic, if nobody has taken it.
    pub(super) fn take_read(&self, of: &ReadAs) -> Option<ReadTopic> {
        self.kept().read.remove(of)
    }

    /// Keeps what was read of a topic for those who read on.
    pub(super) fn keep_read(&self, of: ReadAs, read: ReadTopic) {
        let former = self.kept().read.insert(of, read);
        drop(former);
    }

    /// Forgets what was read of a topic whose records are no longer what they were.
    pub(super) fn forget_read(&self, topic: &str) {
        self.kept().read.retain(|(read, _), _| read != topic);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn admin(&self, config: &ClientConfig) -> KafkaResult<Arc<AdminClient<DefaultClientContext>>> {
        let mut kept = self.kept();
        if let Some(known) = &kept.admin {
            return Ok(Arc::clone(known));
        }
        Ok(Arc::clone(kept.admin.insert(Arc::new(config.create()?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its end takes for ever.
    struct Hangs;

    impl Drop for Hangs {
        fn drop(&mut self) {
            loop {
                thread::park();
            }
        }
    }

    #[test]
    fn an_end_is_waited_for_but_not_for_ever() {
        assert!(drop_within(END_DEADLINE, "ends at once"));
        assert!(!drop_within(Duration::from_millis(10), Hangs));
    }
}
