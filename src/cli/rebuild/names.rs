//! Repairs the tables of names, before any shard is restored: from the headers of approved records.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::time::Time,
    batch::record::{RecordView, Records},
    decision::decision_header::DecisionHeader,
    history::found_names::{Age, FoundNames},
    intent::decode::Header,
    ports::Clock as _,
};
use weir_kafka::{extents::Span, partition_reader::PartitionReader};
use weir_redis::rebuild::NamesRepair;
use weir_worker::clock::SystemClock;

use super::{
    approved::{self, Part},
    fill::{Fill, SAVE_EVERY, shares},
    spans,
};

/// Records taken together, at most.
const BATCH: usize = 5_000;
/// How long a batch may wait to be filled.
const FILL: Duration = Duration::from_millis(200);

/// Reads the approved topic, pauses all shards, reads what was decided before, and writes the names; gives how many there are.
/// `history`: when the history begins.
pub(super) async fn repair(mut repair: NamesRepair, fill: &Fill, history: Time) -> anyhow::Result<usize> {
    let repaired = read_all(&mut repair, fill, history).await;
    match repaired {
        Ok(found) => {
            let names = found.kinds().0.len() + found.campaigns().0.len();
            repair.finish(&found).await?;
            Ok(names)
        }
        Err(error) => {
            repair.leave().await;
            Err(error.context("the names are not repaired: run weir rebuild again"))
        }
    }
}

async fn read_all(repair: &mut NamesRepair, fill: &Fill, history: Time) -> anyhow::Result<FoundNames> {
    let kafka = &fill.kafka;
    let mut found = FoundNames::default();
    let first = approved::extents(kafka, fill.since).await?;
    read(repair, fill, (spans(&first, &BTreeMap::new()), history), &mut found).await?;
    repair.pause().await?;
    // What was decided before is visible then, or void. Nothing else is decided meanwhile.
    let settled = SystemClock.now().plus(i64::try_from(fill.settle.as_millis())?);
    let mut tick = interval(Duration::from_secs(1));
    while SystemClock.now() < settled {
        tick.tick().await;
        renew(repair).await;
    }
    let ends = first.iter().map(|extent| (extent.partition, extent.high)).collect();
    let last = approved::extents(kafka, fill.since).await?;
    read(repair, fill, (spans(&last, &ends), history), &mut found).await?;
    Ok(found)
}

/// A lock that is not renewed now is renewed later; the end is refused where another run has taken it.
async fn renew(repair: &mut NamesRepair) {
    if let Err(error) = repair.renew().await {
        tracing::warn!("the lock is not renewed: {error}");
    }
}

/// Reads spans to their end.
async fn read(
    repair: &mut NamesRepair,
    fill: &Fill,
    (spans, history): (Vec<Span>, Time),
    found: &mut FoundNames,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let _stops_readers = stop.clone().drop_guard();
    let mut readers = JoinSet::new();
    for share in shares(&spans, fill.readers) {
        for Part { topic, spans, .. } in approved::parts(&fill.kafka, &share) {
            let reader = NamesReader {
                spans: PartitionReader::new(&fill.kafka, &topic, &spans)?.passing_over_unreadable(fill.skip_unreadable),
                topic,
                history,
                skip_unreadable: fill.skip_unreadable,
                stop: stop.clone(),
            };
            readers.spawn_blocking(move || reader.run());
        }
    }
    let mut tick = interval(SAVE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            read = readers.join_next() => match read {
                None => return Ok(()),
                Some(read) => found.merge(read.context("a reader ended")??).with_context(conflict)?,
            },
            _ = tick.tick() => renew(repair).await,
        }
    }
}

fn conflict() -> &'static str {
    "numbers were given twice: restore all with weir rebuild --all, which gives new ones"
}

/// Reads some partitions.
struct NamesReader {
    spans: PartitionReader,
    topic: String,
    history: Time,
    skip_unreadable: bool,
    stop: CancellationToken,
}

impl NamesReader {
    fn run(mut self) -> anyhow::Result<FoundNames> {
        let mut found = FoundNames::default();
        while !self.stop.is_cancelled()
            && let Some(batch) = self.spans.read(BATCH, FILL)?
        {
            for index in 0..batch.len() {
                self.record(&batch.get(index), &mut found)?;
            }
        }
        Ok(found)
    }

    fn record(&self, record: &RecordView<'_>, found: &mut FoundNames) -> anyhow::Result<()> {
        let headers = record.header_pairs().map(|(key, value)| Header { key, value });
        let decision = match DecisionHeader::of(headers) {
            None => return Ok(()),
            Some(Ok(decision)) => decision,
            Some(Err(_)) if self.skip_unreadable => return Ok(()),
            Some(Err(error)) => {
                let (partition, offset, topic) = (record.partition, record.offset, &self.topic);
                return Err(anyhow::Error::new(error).context(format!(
                    "offset {offset} of partition {partition} of {topic} cannot be read; --skip-unreadable passes over such \
                     records"
                )));
            }
        };
        let age = if decision.decided_at > self.history { Age::InHistory } else { Age::Older };
        let numbers = decision.numbers();
        found.add(decision.into_class(), numbers, age).with_context(conflict)
    }
}
