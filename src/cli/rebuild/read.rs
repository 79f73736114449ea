//! One reader of a rebuild: some partitions of one topic, into Redis.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::bail;
use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::{runtime::Handle, sync::mpsc::Sender};
use weir_core::{
    basis::time::Time,
    batch::{decider::schemas_of, record::Records},
    decision::approved::{self, ApprovedRecord, Sent},
    history::{
        deferred_send::PastSend,
        delivery_report::{Delivery, DeliveryReportReader},
        refund::{Refund, RefundOutcome, RefundReader},
    },
    intent::{decode::Header, fields::FieldMap},
    ports::{Clock as _, HeldSchemas, StoreError},
};
use weir_kafka::partition_reader::PartitionBatch;
use weir_redis::rebuild::Restorer;
use weir_worker::clock::{ComparedClock, SystemClock};

use super::{fill::RebuildTopic, readers::PartReader};

/// How long Redis or the schema registry may be away before the run stops (and can be run again).
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) records: u64,
    /// Sends of the shards being restored, within the history.
    pub(super) sends: u64,
    /// Of them, those that were not there.
    pub(super) restored: u64,
    /// Sends that are in no history.
    pub(super) uncounted: u64,
    /// Records that weir did not write.
    pub(super) foreign: u64,
    /// Records passed over.
    pub(super) unreadable: u64,
    /// Refunds that took a send back.
    pub(super) taken_back: u64,
}

/// What a reader tells after each batch, when it is in Redis.
#[derive(Debug, Default)]
pub(super) struct ReadReport {
    pub(super) next: BTreeMap<i32, i64>,
    pub(super) counts: Counts,
    /// The time of each partition's first record in it.
    pub(super) first: BTreeMap<i32, Time>,
}

pub(super) struct Reader {
    pub(super) source: RebuildTopic,
    pub(super) part: PartReader,
    pub(super) restorer: Restorer,
    pub(super) clock: ComparedClock<SystemClock>,
    pub(super) fields: Arc<FieldMap>,
    pub(super) before: Option<Time>,
    pub(super) reports: Sender<ReadReport>,
    pub(super) runtime: Handle,
}

impl Reader {
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        while let Some(batch) = self.part.batch()? {
            let _schemas = self.schemas(&batch)?;
            let mut report = match self.source {
                RebuildTopic::Approved => self.approved(&batch)?,
                RebuildTopic::Refunds | RebuildTopic::DeliveryReports => self.refunds(&batch)?,
            };
            report.next = self.part.next_offsets();
            report.counts.records = batch.len() as u64;
            for index in (0..batch.len()).rev() {
                let record = batch.get(index);
                report.first.extend(record.timestamp.map(|time| (record.partition + self.part.base, time)));
            }
            if self.reports.blocking_send(report).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Makes the schemas of approved records ready, and holds them.
    fn schemas(&self, batch: &PartitionBatch) -> anyhow::Result<HeldSchemas> {
        let ids = match self.source {
            RebuildTopic::Approved => schemas_of(&self.fields, batch),
            RebuildTopic::Refunds | RebuildTopic::DeliveryReports => BTreeSet::new(),
        };
        let Some(schemas) = self.fields.schemas().filter(|_| !ids.is_empty()) else { return Ok(HeldSchemas::new()) };
        for pause in patience().build() {
            match self.runtime.block_on(schemas.prepare(&ids)) {
                Ok(held) => return Ok(held),
                Err(error) => {
                    tracing::warn!("{error}; trying again");
                    self.runtime.block_on(tokio::time::sleep(pause));
                }
            }
        }
        bail!("the schema registry was unavailable for too long while approved records were read")
    }

    fn approved(&mut self, batch: &PartitionBatch) -> anyhow::Result<ReadReport> {
        let (mut report, mut sent) = (ReadReport::default(), Vec::new());
        let counts = &mut report.counts;
        for index in 0..batch.len() {
            let record = batch.get(index);
            let headers: Vec<_> = record.header_pairs().map(|(key, value)| Header { key, value }).collect();
            match approved::read(record.value, headers, &self.fields) {
                Ok(ApprovedRecord::Counts(send)) if self.wants(&send) => sent.push(send),
                Ok(ApprovedRecord::Counts(_) | ApprovedRecord::Retried) => {}
                Ok(ApprovedRecord::DoesNotCount(_)) => counts.uncounted += 1,
                Ok(ApprovedRecord::Foreign) => counts.foreign += 1,
                Err(_) if self.part.skips_unreadable => counts.unreadable += 1,
                Err(error) => {
                    let advice = ". Was it written under other [intent.fields] or intent.format? --skip-unreadable passes over \
                                  such records and forgets their sends";
                    return Err(self.part.unreadable(&record, error, advice));
                }
            }
        }
        let sends: Vec<PastSend<'_>> = sent.iter().map(Sent::past).collect();
        counts.sends = sends.len() as u64;
        // What a try put back that failed half way is not counted by the next one.
        counts.restored = self.insert(&sends)?;
        Ok(report)
    }

    fn wants(&self, send: &Sent) -> bool {
        self.before.is_none_or(|before| send.at < before) && self.restorer.wants(send.user)
    }

    fn insert(&mut self, sends: &[PastSend<'_>]) -> anyhow::Result<u64> {
        if sends.is_empty() {
            return Ok(0);
        }
        let Self { clock, restorer, runtime, .. } = self;
        patiently(runtime, ("sends are not all put back", "sends were restored"), async || {
            let now = clock.time_to_decide(&[])?;
            Ok(restorer.insert(sends, now).await?)
        })
    }

    fn refunds(&mut self, batch: &PartitionBatch) -> anyhow::Result<ReadReport> {
        let (mut report, mut refunds) = (ReadReport::default(), Vec::new());
        let (of_refunds, of_reports) = (RefundReader::default(), DeliveryReportReader::default());
        for index in 0..batch.len() {
            let record = batch.get(index);
            // What is invalid has become a dead letter when it was first read.
            let refund = match self.source {
                RebuildTopic::DeliveryReports => {
                    let report = of_reports.read(record.value).ok();
                    report.filter(|report| report.outcome == Delivery::Permanent).map(|report| (report.user, report.id))
                }
                RebuildTopic::Refunds | RebuildTopic::Approved => of_refunds.read(record.value).ok(),
            };
            if let Some((user, id)) = refund
                && self.restorer.wants(user)
            {
                let (partition, offset) = (record.partition, record.offset);
                refunds.push(Refund { user, id, at: record.timestamp, partition, offset });
            }
        }
        let mut outcomes = vec![None; refunds.len()];
        let Self { part, restorer, runtime, .. } = self;
        patiently(runtime, ("refunds are not all taken", "refunds were applied"), async || {
            Ok(restorer.take_back(&part.topic, &refunds, &mut outcomes).await?)
        })?;
        let taken = outcomes.iter().flatten().filter(|outcome| **outcome == RefundOutcome::TakenBack);
        report.counts.taken_back = taken.count() as u64;
        Ok(report)
    }
}

/// Asks Redis until it answers. `undone` tells the log what waits; `during` tells the error at which step Redis was away for too long.
fn patiently<T>(
    runtime: &Handle,
    (undone, during): (&str, &str),
    mut ask: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    for pause in patience().build() {
        let answer = runtime.block_on(ask());
        let error = answer.as_ref().err().and_then(|error| error.downcast_ref::<StoreError>());
        let Some(StoreError::Temporary(reason) | StoreError::TooSlow(reason)) = error else { return answer };
        tracing::warn!("{undone}: {reason}; trying again");
        runtime.block_on(tokio::time::sleep(pause));
    }
    bail!("Redis was unavailable for too long while {during}")
}

/// The pauses between attempts at a Redis that is away.
pub(super) fn patience() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(5))
        .with_total_delay(Some(PATIENCE))
        .without_max_times()
        .with_jitter()
}
