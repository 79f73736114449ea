//! How many deferred intents wait, and for which hour: counted from the offsets of the wheel's topics, for `GET /v1/deferred`,
//! the page and the metric. No record is read, so a count is an upper bound.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use weir_core::{
    basis::time::Time,
    deferral::wheel::{Ring, Wheel},
    ports::Clock as _,
};
use weir_kafka::{
    client::{KafkaOptions, WheelTopics},
    group_progress::GroupProgress,
    topics::TopicError,
};
use weir_worker::clock::SystemClock;

use crate::metrics::{Metrics, TopicLabel};

/// How often Kafka is asked.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Deferred intents of all instances, as of a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({
    "at": "2026-11-20T21:30:00.000Z", "waiting": 43,
    "hours": [{"from": "2026-11-20T21:00:00.000Z", "intents": 3}, {"from": "2026-11-21T08:00:00.000Z", "intents": 40}],
    "topics": ["weir-deferred-hours", "weir-deferred-minutes"]
}))]
pub struct DeferredIntents {
    /// When Kafka was asked: every 10 seconds, while it answers.
    #[schema(value_type = String, format = DateTime)]
    pub at: Time,
    /// How many intents are deferred at the most: transactions take up offsets, too.
    pub waiting: u64,
    /// The hours that intents are due in, ascending; overdue intents are due in the running hour. Hours without intents are absent. After
    /// an outage of two hours or more, an hour that is overdue may be shown up to 94 hours ahead until it is moved: the same bucket holds both.
    pub hours: Vec<DueHour>,
    /// The topics of deferred intents.
    pub topics: Vec<String>,
}

/// How many intents are due in an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct DueHour {
    /// When the hour begins.
    #[schema(value_type = String, format = DateTime)]
    pub from: Time,
    /// How many intents are due in it at the most.
    pub intents: u64,
}

/// The deferred intents as they were last counted; empty before the first answer of Kafka.
pub type DeferredCount = Arc<ArcSwapOption<DeferredIntents>>;

#[derive(Debug, Clone)]
struct RingTopic {
    topic: String,
    ring: Ring,
    wheel: Wheel,
}

/// Each partition of a topic, and how many records wait in it.
type PartitionCounts = Vec<(i32, u64)>;

/// Counts again and again, from now on until `stop`. `None` where nothing can be deferred.
pub fn keep_counting(
    kafka: &KafkaOptions,
    wheels: &[(WheelTopics, Wheel)],
    metrics: &Arc<Metrics>,
    stop: &CancellationToken,
) -> Result<Option<DeferredCount>, TopicError> {
    if wheels.is_empty() {
        return Ok(None);
    }
    let of_ring = |(topics, wheel): &(WheelTopics, Wheel), ring| RingTopic {
        topic: topics.topic(ring).to_owned(),
        ring,
        wheel: *wheel,
    };
    let topics: Arc<[RingTopic]> = wheels.iter().flat_map(|wheel| Ring::ALL.map(|ring| of_ring(wheel, ring))).collect();
    let (progress, counted) = (GroupProgress::new(kafka, kafka.later_group())?, DeferredCount::default());
    let counting = watch(progress, topics, Arc::clone(&counted), Arc::clone(metrics));
    tokio::spawn(stop.clone().run_until_cancelled_owned(counting));
    Ok(Some(counted))
}

async fn watch(progress: Arc<GroupProgress>, topics: Arc<[RingTopic]>, counted: DeferredCount, metrics: Arc<Metrics>) {
    let mut answers = true;
    loop {
        let (asking, asked) = (Arc::clone(&progress), Arc::clone(&topics));
        let look = tokio::task::spawn_blocking(move || {
            asked.iter().map(|of| asking.waiting(&of.topic)).collect::<Result<Vec<PartitionCounts>, TopicError>>()
        });
        // A look is cancelled with the runtime alone.
        let Ok(found) = look.await else { return };
        match &found {
            Ok(waiting) => note(&topics, waiting, &counted, &metrics),
            Err(error) if answers => {
                tracing::warn!("the deferred intents cannot be counted: {error}; trying again every {LOOK_EVERY:?}");
            }
            Err(error) => tracing::debug!("the deferred intents cannot be counted: {error}"),
        }
        answers = found.is_ok();
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn note(topics: &[RingTopic], waiting: &[PartitionCounts], counted: &DeferredCount, metrics: &Metrics) {
    let at = SystemClock.now();
    for (of, waiting) in topics.iter().zip(waiting) {
        let all: u64 = waiting.iter().map(|(_, records)| records).sum();
        let gauge = metrics.deferred_waiting.get_or_create(&TopicLabel { topic: of.topic.clone() });
        gauge.set(i64::try_from(all).unwrap_or(i64::MAX));
    }
    counted.store(Some(Arc::new(DeferredIntents {
        at,
        waiting: waiting.iter().flatten().map(|(_, records)| records).sum(),
        hours: by_hour(topics.iter().zip(waiting), at),
        topics: topics.iter().map(|of| of.topic.clone()).collect(),
    })));
}

/// Sums partitions up by the hour that their bucket is due in; what is overdue, by the running hour.
fn by_hour<'a>(waiting: impl Iterator<Item = (&'a RingTopic, &'a PartitionCounts)>, now: Time) -> Vec<DueHour> {
    let mut hours = BTreeMap::new();
    for (RingTopic { ring, wheel, .. }, partitions) in waiting {
        for &(partition, records) in partitions.iter().filter(|(_, records)| *records > 0) {
            let due = ring.slot_of(partition, wheel.shares, now).max(now);
            *hours.entry(Ring::Hours.slot(due)).or_default() += records;
        }
    }
    hours.into_iter().map(|(from, intents)| DueHour { from, intents }).collect()
}

#[cfg(test)]
mod tests {
    use weir_core::{basis::shard::UserHash, deferral::wheel::Bucket};

    use super::*;

    /// Of a day and a clock in November.
    fn time(text: &str) -> Time {
        Time::from_rfc3339(&format!("2026-11-{text}:00Z")).unwrap()
    }

    /// The hours of intents that were deferred at a time until each of these times, so many each.
    fn hours_of(shares: u16, deferred: &[(&str, &str, u64)], now: &str) -> Vec<(Time, u64)> {
        let wheel = Wheel { shares };
        let topics = Ring::ALL.map(|ring| RingTopic { topic: ring.topic("deferred"), ring, wheel });
        let mut waiting = [Ring::Hours, Ring::Minutes].map(|ring| {
            let partitions = i32::try_from(ring.buckets()).unwrap() * i32::from(shares);
            (0..partitions).map(|partition| (partition, 0)).collect::<PartitionCounts>()
        });
        for (number, (at, due, records)) in deferred.iter().enumerate() {
            let Bucket { ring, partition } = wheel.place(UserHash::of(&number.to_string()), time(due), time(at));
            let ring = Ring::ALL.iter().position(|known| *known == ring).unwrap();
            waiting[ring][usize::try_from(partition).unwrap()].1 += records;
        }
        by_hour(topics.iter().zip(&waiting), time(now)).iter().map(|hour| (hour.from, hour.intents)).collect()
    }

    #[test]
    fn buckets_of_both_rings_and_all_shares_are_summed_up_by_hour() {
        /// The shares, what was deferred, the time, and the hours.
        type Case<'c> = (u16, &'c [(&'c str, &'c str, u64)], &'c str, &'c [(&'c str, u64)]);
        let now = "20T21:30";
        let deferred = [
            (now, "20T21:40", 1),
            (now, "20T21:59", 2),
            (now, "20T22:00", 4),
            (now, "20T22:59", 8),
            (now, "22T03:30", 16),
            (now, "24T18:59", 32),
        ];
        let summed = [("20T21:00", 3), ("20T22:00", 12), ("22T03:00", 16), ("24T18:00", 32)];
        // Minutes of the next hour that were moved on early are the next hour's, and what is overdue is the running hour's.
        let moved_on = [("20T22:00", "20T22:10", 1)];
        let overdue = [("20T21:30", "20T21:40", 1), ("20T20:30", "20T21:10", 2), ("20T21:30", "20T22:10", 4)];
        let cases: [Case<'_>; 5] = [
            (1, &deferred, now, &summed),
            (3, &deferred, now, &summed),
            (1, &[], now, &[]),
            (1, &moved_on, "20T21:56", &[("20T22:00", 1)]),
            (1, &overdue, "20T22:05", &[("20T22:00", 7)]),
        ];
        for (shares, deferred, now, expected) in cases {
            let expected: Vec<(Time, u64)> = expected.iter().map(|(from, intents)| (time(from), *intents)).collect();
            assert_eq!(hours_of(shares, deferred, now), expected, "{deferred:?} at {now} in {shares} shares");
        }
    }
}
