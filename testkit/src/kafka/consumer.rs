//! A consumer whose end cannot hold a test up.

use std::{ops::Deref, sync::mpsc, thread, time::Duration};

use rdkafka::{ClientConfig, config::FromClientConfig, consumer::BaseConsumer, error::KafkaResult};

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
