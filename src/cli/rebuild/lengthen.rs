//! `weir rebuild --history`: makes the history of a keyspace in use longer.
//!
//! The order matters (docs/decisions.md): first the keyspace remembers for longer, so that nothing is trimmed any more that is put back;
//! then the older sends are put back, and then all refunds are taken, which takes those of sends that were put back though they had been
//! refunded.

use std::{ops::RangeInclusive, sync::Arc};

use anyhow::ensure;
use weir_core::{basis::time::Time, ports::Clock as _};
use weir_kafka::{client::KafkaOptions, topic_settings};
use weir_redis::{
    RedisOptions,
    rebuild::{self, Rebuild, RebuildError},
};

use super::{
    RebuildArgs, approved,
    fill::{Fill, RebuildTopic, ToRead},
    progress::Progress,
    spans,
    summary::Summary,
    take_refunds, under_lock, unfinished,
};
use crate::cli::{assemble, exit::UsageError};

/// The shortest and the longest history, in milliseconds, as `redis.history` has them.
const POSSIBLE_MS: RangeInclusive<i64> = 60_000..=3_660 * 86_400_000;

pub(super) fn history_ms(args: &RebuildArgs) -> anyhow::Result<Option<i64>> {
    let Some(history) = args.history else { return Ok(None) };
    let history_ms = i64::try_from(history.as_millis()).ok().filter(|ms| POSSIBLE_MS.contains(ms));
    let history_ms = history_ms.ok_or_else(|| UsageError("--history is from 1m to 3660d".to_owned()))?;
    Ok(Some(history_ms))
}

/// The options with the history of the keyspace.
pub(super) async fn with_kept_history(mut redis: RedisOptions) -> anyhow::Result<Arc<RedisOptions>> {
    let asked = Arc::new(redis.clone());
    let kept = under_lock(|| async { Ok(rebuild::kept_history(&asked, &Arc::default()).await?) });
    redis.history_ms = kept.await?;
    Ok(Arc::new(redis))
}

/// Makes the history so long, from what is on the topics by now. Run again, it goes on where it stopped.
pub(super) async fn run(
    redis: &Arc<RedisOptions>,
    fill: &mut Fill,
    history_ms: i64,
    now: Time,
) -> anyhow::Result<Summary> {
    are_kept(&fill.kafka, history_ms).await?;
    let mut rebuild = under_lock(|| begin(redis, history_ms)).await?;
    let mut summary = Summary::new(&rebuild.shards, rebuild.beginning);
    let restored = restore(&mut rebuild, fill, &mut summary).await;
    let before = match restored {
        Ok(before) => before,
        Err(error) => {
            rebuild.leave().await;
            let why = "the older sends are not all there yet, and weir decides on: run the command again, it goes on";
            return Err(unfinished(error, why));
        }
    };
    summary.warn_of_gaps((now.plus(-history_ms), before), None);
    rebuild.lengthened().await?;
    Ok(summary)
}

/// Fails where the topics do not keep their records for as long: a history that is lost later could not be rebuilt.
async fn are_kept(kafka: &Arc<KafkaOptions>, history_ms: i64) -> anyhow::Result<()> {
    let found = match topic_settings::describe(kafka, &topic_settings::rebuilt_from(kafka)).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!("whether the topics keep their records for as long is not known: {error}");
            return Ok(());
        }
    };
    let because = "records are deleted before they leave the history";
    let wrong = found.iter().flat_map(|(topic, settings)| {
        let wrong = settings.keeps_too_little(history_ms, because).into_iter();
        wrong.map(move |wrong| {
            let (must_be, command) = (wrong.must_be(), wrong.command(&kafka.brokers, topic));
            format!("{topic}: {} is {}, and must be {must_be}: {command}", wrong.setting, wrong.value)
        })
    });
    let wrong: Vec<String> = wrong.collect();
    ensure!(wrong.is_empty(), UsageError(format!("topics do not keep what the history needs. {}", wrong.join("; "))));
    Ok(())
}

async fn begin(redis: &Arc<RedisOptions>, history_ms: i64) -> Result<Rebuild, RebuildError> {
    rebuild::begin_lengthening(redis, &Arc::default(), history_ms, assemble::new_epoch(), assemble::keyspace_seed())
        .await
}

/// Puts the older sends back and takes the refunds; gives before when those were decided.
async fn restore(rebuild: &mut Rebuild, fill: &mut Fill, summary: &mut Summary) -> anyhow::Result<Time> {
    let before = rebuild.lengthens_before(fill.clock.time_to_decide(&[])?).await?;
    fill.before = Some(before);
    // To their ends: an old record may lie behind younger ones, for the times of records do not ascend.
    let approved = approved::extents(&fill.kafka, fill.since).await?;
    summary.begins(&approved, (&rebuild.progress, &rebuild.first));
    let all = ToRead { source: RebuildTopic::Approved, spans: spans(&approved, &rebuild.progress) };
    let mut progress = Progress::new("sends");
    fill.run(rebuild, all, &mut progress, summary).await?;
    progress.done();
    take_refunds(rebuild, fill, summary).await?;
    Ok(before)
}
