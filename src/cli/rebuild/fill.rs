//! Reads topics into Redis, and keeps how far it is.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use backon::BackoffBuilder as _;
use tokio::runtime::Handle;
use weir_core::{
    basis::{origin::Topic, time::Time},
    intent::fields::FieldMap,
};
use weir_kafka::{client::KafkaOptions, extents::Span};
use weir_redis::rebuild::{Rebuild, RebuildError};
use weir_worker::clock::{ComparedClock, SystemClock};

use super::{
    approved::{self, Part},
    progress::Progress,
    read::{Reader, patience},
    readers::{Happened, PartReaders},
    summary::Summary,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RebuildTopic {
    /// Sends, to be put back.
    Approved,
    /// Refunds, to be taken.
    Refunds,
    /// Reports of deliveries. A delivery that failed permanently is a refund.
    DeliveryReports,
}

/// What all readers share, and what they are for.
pub(super) struct Fill {
    pub(super) kafka: Arc<KafkaOptions>,
    pub(super) clock: ComparedClock<SystemClock>,
    pub(super) fields: Arc<FieldMap>,
    /// The refunds topic, where there is one.
    pub(super) refunds: Option<Topic>,
    /// The topic of reports of deliveries, where there is one.
    pub(super) delivery_reports: Option<Topic>,
    pub(super) readers: usize,
    pub(super) skip_unreadable: bool,
    /// Sends that were decided then or later are left out.
    pub(super) before: Option<Time>,
    /// What was written since then is read.
    pub(super) since: Time,
    /// How long what was decided before may take to become visible, or void.
    pub(super) settle: Duration,
}

/// Spans of a topic that are read to their end.
pub(super) struct ToRead {
    pub(super) source: RebuildTopic,
    pub(super) spans: Vec<Span>,
}

impl Fill {
    pub(super) async fn run(
        &self,
        rebuild: &mut Rebuild,
        to_read: ToRead,
        progress: &mut Progress,
        summary: &mut Summary,
    ) -> anyhow::Result<()> {
        let ToRead { source, spans } = to_read;
        let began = Instant::now();
        progress.more(&spans);
        let mut readers = PartReaders::start(self, source, &spans, |part, reports| {
            let reader = Reader {
                source,
                part,
                restorer: rebuild.restorer(),
                clock: self.clock.clone(),
                fields: Arc::clone(&self.fields),
                before: self.before,
                reports,
                runtime: Handle::current(),
            };
            move || reader.run()
        })?;
        let mut next: BTreeMap<i32, i64> = spans.iter().map(|span| (span.partition, span.from)).collect();
        while let Some(happened) = readers.next().await? {
            match happened {
                Happened::Reported(report) => {
                    next.extend(&report.next);
                    summary.add(source, &report);
                    rebuild.first.extend(summary.cut_at());
                    progress.at(&spans, &next);
                }
                Happened::Ended(()) => {}
                Happened::Tick => later("progress is not kept", save(rebuild, source, &next).await)?,
            }
        }
        summary.reading += began.elapsed();
        let mut pauses = patience().build();
        while let Err(error) = save(rebuild, source, &next).await {
            let RebuildError::Store(_) = error else { return Err(error.into()) };
            let Some(pause) = pauses.next() else { return Err(error.into()) };
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// Whether records that cannot be read are passed over. Those of refunds and reports became dead letters when they were first read.
    pub(super) fn skips_unreadable(&self, source: RebuildTopic) -> bool {
        self.skip_unreadable || source != RebuildTopic::Approved
    }

    /// What is to be read of each topic.
    pub(super) fn parts(&self, source: RebuildTopic, spans: &[Span]) -> Vec<Part> {
        let topic = match source {
            RebuildTopic::Approved => return approved::parts(&self.kafka, spans),
            RebuildTopic::Refunds => &self.refunds,
            RebuildTopic::DeliveryReports => &self.delivery_reports,
        };
        topic.iter().map(|topic| Part { topic: topic.clone(), base: 0, spans: spans.to_vec() }).collect()
    }
}

/// What is not kept now is kept later, unless another run has taken over.
fn later(what: &str, saved: Result<(), RebuildError>) -> Result<(), RebuildError> {
    match saved {
        Err(RebuildError::Store(error)) => {
            tracing::warn!("{what}: {error}");
            Ok(())
        }
        Ok(()) | Err(RebuildError::TakenOver) => saved,
    }
}

pub(super) async fn keep_lock(rebuild: &mut Rebuild) -> Result<(), RebuildError> {
    later("the lock is not renewed", rebuild.save(&BTreeMap::new()).await)
}

/// Keeps how far the sends are. Refunds need no such thing: each shard knows which it has taken.
async fn save(rebuild: &mut Rebuild, source: RebuildTopic, next: &BTreeMap<i32, i64>) -> Result<(), RebuildError> {
    let none = BTreeMap::new();
    let next = match source {
        RebuildTopic::Approved => next,
        RebuildTopic::Refunds | RebuildTopic::DeliveryReports => &none,
    };
    rebuild.save(next).await
}
