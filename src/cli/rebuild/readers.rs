//! Readers side by side: partitions are shared out, reports gathered, and the lock is renewed meanwhile.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use weir_core::{
    basis::origin::Topic,
    batch::record::{RecordView, Records as _},
    decision::decision_header::DecisionHeader,
    intent::decode::Header,
};
use weir_kafka::{
    extents::{ReadError, Span},
    partition_reader::{PartitionBatch, PartitionReader},
};

use super::{
    approved::Part,
    fill::{Fill, RebuildTopic},
};

/// How often the lock is renewed, and progress kept.
const SAVE_EVERY: Duration = Duration::from_secs(2);
/// Reports that wait to be read, at most.
const REPORTS: usize = 64;
/// Records taken together, at most.
const BATCH: usize = 5_000;
/// How long a batch may wait to be filled.
const FILL: Duration = Duration::from_millis(200);

/// Readers on threads that may block. They stop when this is dropped.
pub(super) struct PartReaders<R, T> {
    reports: Receiver<R>,
    readers: JoinSet<anyhow::Result<T>>,
    /// The first error: the others read on to their ends, so that the next run has only the rest to read.
    failed: Option<anyhow::Error>,
    tick: Interval,
    _stops_readers: DropGuard,
}

pub(super) enum Happened<R, T> {
    Reported(R),
    Ended(T),
    /// It is time to renew the lock.
    Tick,
}

impl<R: Send + 'static, T: Send + 'static> PartReaders<R, T> {
    /// Begins to read these spans; `reader` makes a reader of a part, which may send reports.
    pub(super) fn start<F: FnOnce() -> anyhow::Result<T> + Send + 'static>(
        fill: &Fill,
        source: RebuildTopic,
        spans: &[Span],
        reader: impl Fn(PartReader, Sender<R>) -> F,
    ) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let (sender, reports) = mpsc::channel(REPORTS);
        let mut readers = JoinSet::new();
        for share in shares(spans, fill.readers) {
            for Part { topic, base, spans } in fill.parts(source, &share) {
                let skips_unreadable = fill.skips_unreadable(source);
                let spans = PartitionReader::new(&fill.kafka, &topic.name, &spans)?;
                let spans = spans.passing_over_unreadable(skips_unreadable);
                let part = PartReader { topic, base, skips_unreadable, spans, stop: stop.clone() };
                readers.spawn_blocking(reader(part, sender.clone()));
            }
        }
        let mut tick = interval(SAVE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { reports, readers, failed: None, tick, _stops_readers: guard })
    }

    /// What happens next; `None` once all have ended, and their reports are read.
    ///
    /// # Errors
    /// All have ended, and one of them has failed.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Happened<R, T>>> {
        loop {
            let ended = tokio::select! {
                Some(report) = self.reports.recv() => return Ok(Some(Happened::Reported(report))),
                Some(ended) = self.readers.join_next() => ended.context("a reader ended").flatten(),
                _ = self.tick.tick(), if !self.readers.is_empty() => return Ok(Some(Happened::Tick)),
                else => return self.failed.take().map_or(Ok(None), Err),
            };
            match ended {
                Ok(ended) => return Ok(Some(Happened::Ended(ended))),
                Err(error) => _ = self.failed.get_or_insert(error),
            }
        }
    }
}

/// Partitions for each reader, as many each.
fn shares(spans: &[Span], readers: usize) -> Vec<Vec<Span>> {
    let mut shares = vec![Vec::new(); readers.clamp(1, spans.len().max(1))];
    let count = shares.len();
    for (place, span) in spans.iter().filter(|span| span.from < span.to).enumerate() {
        shares[place % count].push(*span);
    }
    shares.retain(|share: &Vec<Span>| !share.is_empty());
    shares
}

pub(super) struct PartReader {
    pub(super) topic: Topic,
    /// What is added to its partitions in reports.
    pub(super) base: i32,
    pub(super) skips_unreadable: bool,
    spans: PartitionReader,
    stop: CancellationToken,
}

impl PartReader {
    /// The next records; `None` at the end, and where the run stops.
    pub(super) fn batch(&mut self) -> Result<Option<PartitionBatch>, ReadError> {
        if self.stop.is_cancelled() { Ok(None) } else { self.spans.read(BATCH, FILL) }
    }

    /// The next offsets of its partitions, by their numbers.
    pub(super) fn next_offsets(&self) -> BTreeMap<i32, i64> {
        self.spans.next().iter().map(|(partition, next)| (partition + self.base, *next)).collect()
    }

    /// Takes the decisions of the next records, by the numbers of their partitions; `false` where there are no more.
    pub(super) fn decisions(
        &mut self,
        mut take: impl FnMut(i32, DecisionHeader<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        let Some(batch) = self.batch()? else { return Ok(false) };
        for index in 0..batch.len() {
            let record = batch.get(index);
            let headers = record.header_pairs().map(|(key, value)| Header { key, value });
            match DecisionHeader::of(headers) {
                Some(Ok(decision)) => take(record.partition + self.base, decision)?,
                Some(Err(error)) if !self.skips_unreadable => {
                    return Err(self.unreadable(&record, error, "; --skip-unreadable passes over such records"));
                }
                Some(Err(_)) | None => {}
            }
        }
        Ok(true)
    }

    /// The error of a record that cannot be read, with what to do.
    pub(super) fn unreadable(
        &self,
        RecordView { partition, offset, .. }: &RecordView<'_>,
        error: impl std::error::Error + Send + Sync + 'static,
        advice: &str,
    ) -> anyhow::Error {
        let topic = &self.topic.name;
        anyhow::Error::new(error)
            .context(format!("offset {offset} of partition {partition} of {topic} cannot be read{advice}"))
    }
}
