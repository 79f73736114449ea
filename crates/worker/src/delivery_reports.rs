//! Reports of deliveries: the feed that takes sends back whose delivery failed for good, and notes how long the others took. Each
//! refund is taken once; a time may count again where records are read again.

use std::{collections::BTreeMap, sync::Arc};

use weir_core::{
    basis::{origin::Topic, time::Time},
    batch::record::RecordView,
    history::{
        delivery_report::{Delivery, DeliveryReportReader, DeliveryReported, Took},
        refund::{Refund, RefundOutcome},
    },
    intent::dead_letter::DeadLetter,
    limit::route::routes::Routes,
    ports::{StoreError, TakeBack},
};

use super::{observer::BesideTopic, topic_reader::Feed};

#[derive(Debug)]
pub struct DeliveryReports<T> {
    reader: DeliveryReportReader,
    store: T,
    routes: Arc<Routes>,
}

#[derive(Debug)]
pub enum Reported {
    Ok(Option<Took>),
    /// The delivery failed for good.
    Refund(Refund),
}

impl<T> DeliveryReports<T> {
    /// Takes sends back in this store, and notes times for these routes.
    pub fn new(store: T, routes: Arc<Routes>) -> Self {
        Self { reader: DeliveryReportReader::default(), store, routes }
    }

    /// Notes how long deliveries took, by route. A route that no policy has had here has no controller either.
    fn note_times<'t>(&self, times: impl Iterator<Item = &'t Took>) {
        let mut by_route = BTreeMap::<&str, (u64, u64)>::new();
        for Took { route, ms } in times {
            let (count, sum_ms) = by_route.entry(route).or_default();
            (*count, *sum_ms) = (*count + 1, *sum_ms + ms);
        }
        for (route, times) in by_route {
            if let Some(state) = self.routes.find(route) {
                state.note_times(times);
            }
        }
    }
}

impl<T: TakeBack> Feed for DeliveryReports<T> {
    const TOPIC: BesideTopic = BesideTopic::DeliveryReports;
    type Item = Reported;
    type Outcome = DeliveryReported;

    fn read(&self, record: &RecordView<'_>, _: Time) -> Result<Reported, DeadLetter> {
        let report = self.reader.read(record.value)?;
        Ok(match report.outcome {
            Delivery::Ok(took) => Reported::Ok(took),
            Delivery::Permanent => Reported::Refund(Refund {
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
        reports: &[Reported],
        outcomes: &mut [Option<DeliveryReported>],
    ) -> Result<(), StoreError> {
        let (mut refunds, mut places, mut taken, mut times) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (place, (report, outcome)) in reports.iter().zip(&mut *outcomes).enumerate() {
            match report {
                Reported::Ok(took) => {
                    times.extend(took.as_ref().filter(|_| outcome.is_none()));
                    *outcome = Some(DeliveryReported::Ok);
                }
                Reported::Refund(refund) => {
                    refunds.push(*refund);
                    places.push(place);
                    taken.push(match outcome {
                        Some(DeliveryReported::Refund(outcome)) => Some(*outcome),
                        Some(DeliveryReported::Ok) | None => None,
                    });
                }
            }
        }
        self.note_times(times.into_iter());
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
