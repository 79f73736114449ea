//! Counts approved records for budgets, partitions side by side: from headers alone.

use std::collections::BTreeMap;

use tokio::sync::mpsc::Sender;
use weir_core::{
    basis::time::Time,
    decision::decision_header::DecisionHeader,
    limit::budget::{RecordSpend, ledger::Recount},
};
use weir_kafka::extents::Extent;
use weir_redis::rebuild::Rebuild;

use super::{
    approved,
    fill::{Fill, RebuildTopic, keep_lock},
    progress::Progress,
    readers::{Happened, PartReader, PartReaders},
    spans,
};

pub(super) struct Count {
    /// Nothing: what each reader begins with.
    empty: Recount,
    pub(super) counted: Recount,
    /// From here on records are read.
    since: Time,
    next: BTreeMap<i32, i64>,
    /// The partitions that no longer begin at their first record, and when the first one that is still there was decided.
    pub(super) cut: BTreeMap<i32, Option<Time>>,
}

impl Count {
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
        let mut readers = PartReaders::start(fill, RebuildTopic::Approved, &spans, |part, reports| {
            let counted = self.empty.clone();
            move || count(part, counted, &reports)
        })?;
        let mut next: BTreeMap<i32, i64> = spans.iter().map(|span| (span.partition, span.from)).collect();
        while let Some(happened) = readers.next().await? {
            match happened {
                Happened::Reported(read) => {
                    next.extend(read);
                    progress.at(&spans, &next);
                }
                Happened::Ended((counted, first)) => {
                    self.counted.merge(counted);
                    for (partition, time) in first {
                        self.cut.entry(partition).and_modify(|known| *known = known.or(Some(time)));
                    }
                }
                Happened::Tick => keep_lock(rebuild).await?,
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

/// Counts a part to its end: what was counted, and when the first record of each partition was decided.
fn count(
    mut part: PartReader,
    mut counted: Recount,
    reports: &Sender<BTreeMap<i32, i64>>,
) -> anyhow::Result<(Recount, BTreeMap<i32, Time>)> {
    let mut first = BTreeMap::new();
    let mut add = |partition: i32, decision: DecisionHeader<'_>| -> anyhow::Result<()> {
        let (at, cost) = (decision.decided_at, decision.cost());
        first.entry(partition).or_insert(at);
        // What is delivered again was counted with its first record.
        if !decision.budgets().is_empty() && decision.retry == 0 {
            let ([_, _, campaign], budgets) = decision.into_class_and_budgets();
            counted.add(&RecordSpend { at, cost, campaign, budgets });
        }
        Ok(())
    };
    while part.decisions(&mut add)? && reports.blocking_send(part.next_offsets()).is_ok() {}
    Ok((counted, first))
}
