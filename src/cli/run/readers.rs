//! The readers of topics beside the intents: refunds, reports of deliveries and activity.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use weir_core::ports::{Clock, TakeBack};
use weir_kafka::{client::KafkaOptions, sink::KafkaSink, source::KafkaSource};
use weir_worker::{
    activity::Activity,
    clock::{ComparedClock, SystemClock},
    delivery_reports::DeliveryReports,
    lane::LaneError,
    refunds::Refunds,
    status::LaneStatus,
    supervise::LaneWork,
    topic_reader::{Feed, TopicReader},
};

use crate::{
    cli::{assemble, worker::BesideReader},
    http::Degraded,
    metrics::Metrics,
};

/// What all readers have in common.
pub(super) struct Readers<'r> {
    pub(super) kafka: &'r KafkaOptions,
    pub(super) drain: Duration,
    pub(super) metrics: &'r Arc<Metrics>,
    pub(super) stop: &'r CancellationToken,
}

impl Readers<'_> {
    /// The readers of refunds and of reports of deliveries, where there are topics of them; each with a store of its own.
    pub(super) fn refunds<T: TakeBack + 'static>(&self, store: impl Fn() -> T) -> [Option<BesideReader>; 2] {
        // A refund goes by its record's time.
        let refunds = self.kafka.for_refunds();
        let refunds =
            refunds.map(|options| self.reader(Degraded::Refunds, options, Refunds::new(store()), SystemClock));
        let reports = self.kafka.for_delivery_reports().map(|options| {
            let feed = DeliveryReports::new(store(), Arc::clone(&self.kafka.routes));
            self.reader(Degraded::DeliveryReports, options, feed, SystemClock)
        });
        [refunds, reports]
    }

    /// The reader of activity, where there is a topic of it.
    pub(super) fn activity(&self, feed: Activity, clock: &ComparedClock<SystemClock>) -> Option<BesideReader> {
        let options = self.kafka.for_activity(assemble::activity_since())?;
        Some(self.reader(Degraded::Activity, options, feed, clock.clone()))
    }

    fn reader<F, C>(&self, what: Degraded, options: KafkaOptions, feed: F, clock: C) -> BesideReader
    where
        F: Feed + Send + 'static,
        C: Clock + 'static,
    {
        let options = Arc::new(options);
        let (drain, stop, runtime) = (self.drain, self.stop.clone(), Handle::current());
        let metrics = Arc::clone(self.metrics);
        let status = Arc::<LaneStatus>::default();
        let its_status = Arc::clone(&status);
        let work: LaneWork = Box::new(move || {
            let failed = |error| LaneError::Fatal(format!("{}: {error}", F::TOPIC.as_str()));
            let source = KafkaSource::join(&options).map_err(failed)?;
            let (topic, limits) = (options.intents.as_str().into(), Arc::clone(&options.limits));
            let sink = KafkaSink::new(options, 0);
            let mut reader =
                TopicReader { topic, source, sink, feed, clock, limits, drain, stop, metrics, status: its_status };
            runtime.block_on(Box::pin(reader.run()))
        });
        BesideReader { what, work, status }
    }
}
