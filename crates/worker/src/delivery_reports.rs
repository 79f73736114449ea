//! Reports of deliveries: the feed that takes sends back whose delivery failed for good. Each report is taken once, as a refund is.

use weir_core::{
    dead_letter::DeadLetter,
    delivery_report::{Delivery, DeliveryReportReader, DeliveryReported},
    origin::Topic,
    ports::{StoreError, TakeBack},
    record::RecordView,
    refund::{Refund, RefundOutcome},
    time::Time,
};

use super::{observer::BesideTopic, topic_reader::Feed};

/// Reports of deliveries, for the store that has the histories.
#[derive(Debug)]
pub struct DeliveryReports<T> {
    reader: DeliveryReportReader,
    store: T,
}

impl<T> DeliveryReports<T> {
    /// Takes sends back in this store.
    #[must_use]
    pub fn new(store: T) -> Self {
        Self { reader: DeliveryReportReader::default(), store }
    }
}

impl<T: TakeBack> Feed for DeliveryReports<T> {
    const TOPIC: BesideTopic = BesideTopic::DeliveryReports;
    /// The refund that a report is, if it is one.
    type Item = Option<Refund>;
    type Outcome = DeliveryReported;

    fn read(&self, record: &RecordView<'_>, _: Time) -> Result<Option<Refund>, DeadLetter> {
        let report = self.reader.read(record.value)?;
        Ok(match report.outcome {
            Delivery::Ok => None,
            Delivery::Permanent => Some(Refund {
                user: report.user,
                id: report.id,
                at: record.timestamp,
                partition: record.partition,
                offset: record.offset,
            }),
        })
    }

    async fn take(
        &mut self,
        topic: &Topic,
        reports: &[Option<Refund>],
        outcomes: &mut [Option<DeliveryReported>],
    ) -> Result<(), StoreError> {
        let (mut refunds, mut places, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (report, outcome)) in reports.iter().zip(&mut *outcomes).enumerate() {
            match report {
                None => *outcome = Some(DeliveryReported::Ok),
                Some(refund) => {
                    refunds.push(*refund);
                    places.push(place);
                    taken.push(match outcome {
                        Some(DeliveryReported::Refund(outcome)) => Some(*outcome),
                        Some(DeliveryReported::Ok) | None => None,
                    });
                }
            }
        }
        if refunds.is_empty() {
            return Ok(());
        }
        let ended = self.store.take_back(topic, &refunds, &mut taken).await;
        for (place, outcome) in places.into_iter().zip(taken) {
            outcomes[place] = outcome.map(DeliveryReported::Refund);
        }
        ended
    }

    fn label(outcome: DeliveryReported) -> Option<&'static str> {
        (outcome != DeliveryReported::Refund(RefundOutcome::Waits)).then(|| outcome.as_str())
    }

    async fn any_back(&mut self) -> bool {
        self.store.any_back().await
    }
}
