//! Repairs the tables of names, before any shard is restored: from the headers of approved records.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use tokio::time::interval;
use weir_core::{
    basis::time::Time,
    decision::decision_header::DecisionHeader,
    history::found_names::{Age, FoundNames},
    ports::Clock as _,
};
use weir_kafka::extents::Span;
use weir_redis::rebuild::NamesRepair;
use weir_worker::clock::SystemClock;

use super::{
    approved,
    fill::{Fill, RebuildTopic},
    readers::{Happened, PartReader, PartReaders},
    spans,
};

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

async fn read(
    repair: &mut NamesRepair,
    fill: &Fill,
    (spans, history): (Vec<Span>, Time),
    found: &mut FoundNames,
) -> anyhow::Result<()> {
    let mut readers =
        PartReaders::<(), _>::start(fill, RebuildTopic::Approved, &spans, |part, _| move || names_of(part, history))?;
    while let Some(happened) = readers.next().await? {
        match happened {
            Happened::Reported(()) => {}
            Happened::Ended(names) => found.merge(names).with_context(conflict)?,
            Happened::Tick => renew(repair).await,
        }
    }
    Ok(())
}

/// The names in the decisions of a part.
fn names_of(mut part: PartReader, history: Time) -> anyhow::Result<FoundNames> {
    let mut found = FoundNames::default();
    let mut add = |_: i32, decision: DecisionHeader<'_>| {
        let age = if decision.decided_at > history { Age::InHistory } else { Age::Older };
        let numbers = decision.numbers();
        found.add(decision.into_class(), numbers, age).with_context(conflict)
    };
    while part.decisions(&mut add)? {}
    Ok(found)
}

fn conflict() -> &'static str {
    "numbers were given twice: restore all with weir rebuild --all, which gives new ones"
}
