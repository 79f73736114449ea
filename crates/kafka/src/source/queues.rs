//! Where fetched messages wait: in one queue, or in one for each partition, which are read by turns.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use weir_core::batch::record::Records as _;

use crate::{
    client::ReadOrder,
    context::KafkaClient,
    native::{MessageBatch, MessageQueue, PartitionError},
};

/// How long a reader of many queues pauses until it looks at them again: there is no call that waits for several.
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(super) enum Queues {
    /// One for all partitions, in the order in which brokers answer.
    Shared(MessageQueue),
    /// One for each partition, and the partition that comes next.
    ByTurns(BTreeMap<i32, MessageQueue>, i32),
}

impl Queues {
    pub(super) fn new(client: &KafkaClient, order: ReadOrder) -> Result<Self, String> {
        Ok(match order {
            ReadOrder::AsFetched => Self::Shared(MessageQueue::new(client)?),
            ReadOrder::ByTurns => Self::ByTurns(BTreeMap::new(), 0),
        })
    }

    /// See [`MessageQueue::take_over`].
    pub(super) fn take_over(&mut self, client: &KafkaClient, topic: &str, partition: i32) -> Result<(), String> {
        match self {
            Self::Shared(queue) => queue.take_over(client, topic, partition),
            Self::ByTurns(queues, _) => {
                let queue = MessageQueue::new(client)?;
                queue.take_over(client, topic, partition)?;
                queues.insert(partition, queue);
                Ok(())
            }
        }
    }

    /// Forgets what waits: nothing is assigned any more.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Shared(_) => {}
            Self::ByTurns(queues, _) => queues.clear(),
        }
    }

    /// Takes at most `most` messages into a batch; waits at most `wait` for the first one.
    pub(super) fn fill(&mut self, batch: &mut MessageBatch, most: usize, wait: Duration) -> Vec<PartitionError> {
        let (queues, next) = match self {
            Self::Shared(queue) => return batch.fill(queue, most, wait),
            Self::ByTurns(queues, next) => (queues, next),
        };
        let deadline = Instant::now() + wait;
        let (first, wanted) = (batch.len(), batch.len() + most);
        loop {
            let before = batch.len();
            let each = (wanted - before).div_ceil(queues.len().max(1));
            let turns: Vec<i32> = queues.range(*next..).chain(queues.range(..*next)).map(|(at, _)| *at).collect();
            for partition in turns {
                let left = wanted.saturating_sub(batch.len());
                let Some(queue) = queues.get(&partition).filter(|_| left > 0) else { break };
                *next = partition + 1;
                let errors = batch.fill(queue, each.min(left), Duration::ZERO);
                // The next call would forget what this one could not read.
                if !errors.is_empty() {
                    return errors;
                }
            }
            let is_idle = batch.len() == before;
            if batch.len() >= wanted || is_idle && (batch.len() > first || Instant::now() >= deadline) {
                return Vec::new();
            }
            if is_idle {
                thread::park_timeout(LOOK_EVERY.min(deadline.saturating_duration_since(Instant::now())));
            }
        }
    }
}
