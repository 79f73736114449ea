//! Counts approved records for budgets, partitions side by side: from headers alone.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use tokio::{
    sync::mpsc::{self, Sender},
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::time::Time,
    batch::record::{RecordView, Records as _},
    decision::decision_header::DecisionHeader,
    intent::decode::Header,
    limit::budget::{RecordSpend, ledger::Recount},
};
use weir_kafka::{extents::Extent, partition_reader::PartitionReader};
use weir_redis::rebuild::{Rebuild, RebuildError};

use super::{
    approved::{self, Part},
    fill::{Fill, SAVE_EVERY, shares},
    progress::Progress,
    spans,
};

/// Records taken together, at most.
const BATCH: usize = 5_000;
/// How long a batch may wait to be filled.
const FILL: Duration = Duration::from_millis(200);
/// Reports that wait to be read, at most.
const REPORTS: usize = 64;

/// What was counted so far.
pub(super) struct Count {
    /// Nothing: what each reader begins with.
    empty: Recount,
    pub(super) counted: Recount,
    /// From here on records are read.
    since: Time,
    /// The next offset of each partition.
    next: BTreeMap<i32, i64>,
    /// The partitions that no longer begin at their first record, and when the first one that is still there was decided.
    pub(super) cut: BTreeMap<i32, Option<Time>>,
}

impl Count {
    /// Nothing counted yet, of records since then.
    pub(super) fn new(empty: Recount, since: Time) -> Self {
        Self { counted: empty.clone(), empty, since, next: BTreeMap::new(), cut: BTreeMap::new() }
    }

    /// Counts all records that are there and were not counted before.
    pub(super) async fn read(&mut self, rebuild: &mut Rebuild, fill: &Fill) -> anyhow::Result<()> {
        let extents = approved::extents(&fill.kafka, self.since).await?;
        if self.next.is_empty() {
            let cut = |extent: &&Extent| extent.low > 0 && extent.since == extent.low;
            self.cut = extents.iter().filter(cut).map(|extent| (extent.partition, None)).collect();
        }
        let spans = spans(&extents, &self.next);
        let mut progress = Progress::new("budgets");
        progress.more(&spans);
        let stop = CancellationToken::new();
        let _stops_readers = stop.clone().drop_guard();
        let (reports, mut told) = mpsc::channel(REPORTS);
        let mut readers = JoinSet::new();
        for share in shares(&spans, fill.readers) {
            for Part { topic, base, spans } in approved::parts(&fill.kafka, &share) {
                let reader = CountReader {
                    reader: PartitionReader::new(&fill.kafka, &topic, &spans)?
                        .passing_over_unreadable(fill.skip_unreadable),
                    topic,
                    base,
                    counted: self.empty.clone(),
                    first: BTreeMap::new(),
                    skip_unreadable: fill.skip_unreadable,
                    reports: reports.clone(),
                    stop: stop.clone(),
                };
                readers.spawn_blocking(move || reader.run());
            }
        }
        drop(reports);
        let mut next: BTreeMap<i32, i64> = spans.iter().map(|span| (span.partition, span.from)).collect();
        let mut tick = interval(SAVE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                report = told.recv() => match report {
                    None => break,
                    Some(read) => {
                        next.extend(read);
                        progress.at(&spans, &next);
                    }
                },
                _ = tick.tick() => keep_lock(rebuild).await?,
            }
        }
        while let Some(read) = readers.join_next().await {
            let (counted, first) = read.context("a reader ended")??;
            self.counted.merge(counted);
            for (partition, time) in first {
                self.cut.entry(partition).and_modify(|known| *known = known.or(Some(time)));
            }
        }
        self.next.extend(spans.iter().map(|span| (span.partition, span.to)));
        progress.done();
        Ok(())
    }

    /// The time from which on all approvals were there to be counted; `now` where a partition holds nothing any more.
    pub(super) fn complete_since(&self, now: Time) -> Option<Time> {
        self.cut.values().map(|first| first.unwrap_or(now)).max()
    }
}

/// A lock that is not renewed now is renewed later.
pub(super) async fn keep_lock(rebuild: &mut Rebuild) -> anyhow::Result<()> {
    match rebuild.save(&BTreeMap::new()).await {
        Ok(()) => Ok(()),
        Err(error @ RebuildError::TakenOver) => Err(error.into()),
        Err(RebuildError::Store(error)) => {
            tracing::warn!("the lock is not renewed: {error}");
            Ok(())
        }
    }
}

/// What a reader has counted, and when the first record of each partition was decided.
type PartitionsCounted = (Recount, BTreeMap<i32, Time>);

/// Reads some partitions.
struct CountReader {
    reader: PartitionReader,
    topic: String,
    /// What is added to its partitions.
    base: i32,
    counted: Recount,
    first: BTreeMap<i32, Time>,
    skip_unreadable: bool,
    reports: Sender<BTreeMap<i32, i64>>,
    stop: CancellationToken,
}

impl CountReader {
    fn run(mut self) -> anyhow::Result<PartitionsCounted> {
        while !self.stop.is_cancelled()
            && let Some(batch) = self.reader.read(BATCH, FILL)?
        {
            for index in 0..batch.len() {
                self.record(&batch.get(index))?;
            }
            if self.reports.blocking_send(approved::numbered(self.base, self.reader.next())).is_err() {
                break;
            }
        }
        Ok((self.counted, self.first))
    }

    fn record(&mut self, record: &RecordView<'_>) -> anyhow::Result<()> {
        let (partition, offset) = (record.partition, record.offset);
        let headers = record.header_pairs().map(|(key, value)| Header { key, value });
        let decision = match DecisionHeader::of(headers) {
            None => return Ok(()),
            Some(Ok(decision)) => decision,
            Some(Err(_)) if self.skip_unreadable => return Ok(()),
            Some(Err(error)) => {
                return Err(anyhow::Error::new(error).context(format!(
                    "offset {offset} of partition {partition} of {} cannot be read; --skip-unreadable passes over such records",
                    self.topic
                )));
            }
        };
        let (at, cost) = (decision.decided_at, decision.cost());
        self.first.entry(partition + self.base).or_insert(at);
        // What is delivered again was counted with its first record.
        if decision.budgets().is_empty() || decision.retry > 0 {
            return Ok(());
        }
        let ([_, _, campaign], budgets) = decision.into_class_and_budgets();
        self.counted.add(&RecordSpend { at, cost, campaign, budgets });
        Ok(())
    }
}
