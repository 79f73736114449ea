//! Readers side by side: partitions shared out, reports gathered, progress kept.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use backon::BackoffBuilder as _;
use tokio::{runtime::Handle, sync::mpsc, task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::{origin::Topic, time::Time},
    intent::fields::FieldMap,
};
use weir_kafka::{
    client::KafkaOptions,
    extents::{ReadError, Span},
    partition_reader::PartitionReader,
};
use weir_redis::rebuild::{Rebuild, RebuildError};
use weir_worker::clock::{ComparedClock, SystemClock};

use super::{
    approved,
    progress::Progress,
    read::{Reader, patience},
    summary::Summary,
};

/// How often progress is kept.
pub(super) const SAVE_EVERY: Duration = Duration::from_secs(2);
/// Reports that wait to be read, at most.
const REPORTS: usize = 64;

/// What is read.
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
    /// Reads it.
    pub(super) async fn run(
        &self,
        rebuild: &mut Rebuild,
        to_read: ToRead,
        progress: &mut Progress,
        summary: &mut Summary,
    ) -> anyhow::Result<()> {
        let ToRead { source, spans } = to_read;
        let began = Instant::now();
        let stop = CancellationToken::new();
        let _stops_readers = stop.clone().drop_guard();
        let (reports, mut told) = mpsc::channel(REPORTS);
        let mut readers = JoinSet::new();
        progress.more(&spans);
        for share in shares(&spans, self.readers) {
            for (topic, base, spans) in self.parts(source, share) {
                let reader = Reader {
                    source,
                    spans: self.reader((source, &topic), &spans)?,
                    topic,
                    base,
                    restorer: rebuild.restorer(),
                    clock: self.clock.clone(),
                    fields: Arc::clone(&self.fields),
                    skip_unreadable: self.skip_unreadable,
                    before: self.before,
                    reports: reports.clone(),
                    runtime: Handle::current(),
                    stop: stop.clone(),
                };
                readers.spawn_blocking(move || reader.run());
            }
        }
        drop(reports);
        let mut next: BTreeMap<i32, i64> = spans.iter().map(|span| (span.partition, span.from)).collect();
        let mut tick = tokio::time::interval(SAVE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                report = told.recv() => match report {
                    None => break,
                    Some(report) => {
                        next.extend(&report.next);
                        summary.add(source, &report);
                        rebuild.note_first(summary.cut_at());
                        progress.at(&spans, &next);
                    }
                },
                // What is not kept now is kept later.
                _ = tick.tick() => match save(rebuild, source, &next).await {
                    Ok(()) => {}
                    Err(error @ RebuildError::TakenOver) => return Err(error.into()),
                    Err(RebuildError::Store(error)) => tracing::warn!("progress is not kept: {error}"),
                },
            }
        }
        while let Some(ended) = readers.join_next().await {
            ended.context("a reader ended")??;
        }
        summary.reading(began.elapsed());
        let mut pauses = patience().build();
        while let Err(error) = save(rebuild, source, &next).await {
            let RebuildError::Store(_) = error else { return Err(error.into()) };
            let Some(pause) = pauses.next() else { return Err(error.into()) };
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }
}

impl Fill {
    /// Reads spans of a topic. What cannot be read of refunds and reports has become a dead letter when they were first read.
    fn reader(&self, (source, topic): (RebuildTopic, &Topic), spans: &[Span]) -> Result<PartitionReader, ReadError> {
        let passes_over = match source {
            RebuildTopic::Approved => self.skip_unreadable,
            RebuildTopic::Refunds | RebuildTopic::DeliveryReports => true,
        };
        Ok(PartitionReader::new(&self.kafka, &topic.name, spans)?.passing_over_unreadable(passes_over))
    }

    /// What is to be read of each topic: its spans, and what is added to its partitions.
    fn parts(&self, source: RebuildTopic, share: Vec<Span>) -> Vec<(Topic, i32, Vec<Span>)> {
        let one =
            |topic: &Option<Topic>, share| topic.iter().map(|topic| (topic.clone(), 0, Vec::clone(&share))).collect();
        match source {
            RebuildTopic::Approved => {
                let parts = approved::parts(&self.kafka, &share);
                parts.into_iter().map(|part| (part.topic.as_str().into(), part.base, part.spans)).collect()
            }
            RebuildTopic::Refunds => one(&self.refunds, share),
            RebuildTopic::DeliveryReports => one(&self.delivery_reports, share),
        }
    }
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

/// Partitions for each reader, as many each.
pub(super) fn shares(spans: &[Span], readers: usize) -> Vec<Vec<Span>> {
    let mut shares = vec![Vec::new(); readers.clamp(1, spans.len().max(1))];
    let count = shares.len();
    for (place, span) in spans.iter().filter(|span| span.from < span.to).enumerate() {
        shares[place % count].push(*span);
    }
    shares.retain(|share: &Vec<Span>| !share.is_empty());
    shares
}
