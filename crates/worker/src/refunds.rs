//! Refunds: the feed that takes sends back. The store passes over what it has taken, and a refund waits whose shard has lost its
//! history.

use weir_core::{
    basis::{origin::Topic, time::Time},
    batch::record::RecordView,
    history::refund::{Refund, RefundOutcome, RefundReader},
    intent::dead_letter::DeadLetter,
    ports::{StoreError, TakeBack},
};

use super::{observer::BesideTopic, topic_reader::Feed};

#[derive(Debug)]
pub struct Refunds<T> {
    reader: RefundReader,
    store: T,
}

impl<T> Refunds<T> {
    pub fn new(store: T) -> Self {
        Self { reader: RefundReader::default(), store }
    }
}

impl<T: TakeBack> Feed for Refunds<T> {
    const TOPIC: BesideTopic = BesideTopic::Refunds;
    type Item = Refund;
    type Outcome = RefundOutcome;

    fn read(&self, record: &RecordView<'_>, _: Time) -> Result<Refund, DeadLetter> {
        let (user, id) = self.reader.read(record.value)?;
        Ok(Refund { user, id, at: record.timestamp, partition: record.partition, offset: record.offset })
    }

    async fn take(
        &mut self,
        topic: &Topic,
        refunds: &[Refund],
        outcomes: &mut [Option<RefundOutcome>],
    ) -> Result<(), StoreError> {
        self.store.take_back(topic, refunds, outcomes).await
    }

    fn label(outcome: RefundOutcome) -> Option<&'static str> {
        (outcome != RefundOutcome::Waits).then(|| outcome.as_str())
    }

    async fn any_back(&mut self) -> bool {
        self.store.any_back().await
    }
}
