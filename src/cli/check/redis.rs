//! Redis: the servers, and the keyspace on them.

use std::sync::Arc;

use weir_core::ports::{StoreError, in_short};
use weir_kafka::{topics::TopicError, waiting_topics};
use weir_redis::{Looked, Opened, RedisOptions, RedisStats, Tuning, WhenMissing};

use super::{
    CheckArgs,
    report::{CheckReport, Finding},
};
use crate::{
    cli::{assemble, clocks},
    config::Settings,
};

/// Looks at Redis, and creates the keyspace where that is asked for, and no history is lost by it. No server's setting is changed.
/// `has_decided`: whether the group has decided intents before; `None`: Kafka does not say.
pub(super) async fn look(settings: &Settings, args: &CheckArgs, has_decided: Option<bool>, report: &mut CheckReport) {
    // What is wrong with the settings is reported with the files.
    if assemble::redis(&settings.redis).is_err() {
        return;
    }
    let mut options = match assemble::signed_redis(&settings.redis).await {
        Ok(options) => options,
        Err(error) => return report.add(Finding::Error, "redis", format!("{error:#}")),
    };
    options.tuning = match options.tuning {
        Tuning::Set | Tuning::Announce => Tuning::Announce,
        Tuning::Advise => Tuning::Advise,
    };
    let options = Arc::new(options);
    clock(&options, report).await;
    // Whoever repeats the command of the first start after a loss would reset all caps.
    let may_create = has_decided == Some(false) || args.accept_lost_history;
    match found(&options, args.create && may_create).await {
        Err(error) => report.add(Finding::Error, "redis", error.to_string()),
        Ok(Looked { keyspace, warnings }) => {
            match keyspace {
                Some(opened) => {
                    keyspace_found(&settings.redis.prefix, &opened, report);
                    waiting_elsewhere(settings, (&options, &opened), report).await;
                }
                None => no_keyspace(&settings.redis.prefix, (args.create, has_decided), report),
            }
            for warning in warnings {
                report.add(Finding::Warning, "redis", warning);
            }
        }
    }
}

async fn clock(options: &Arc<RedisOptions>, report: &mut CheckReport) {
    let differences = match clocks::compared(options).await {
        Ok(clock) => clocks::differences(&clock),
        Err(error) => Err(format!("this machine's clock cannot be compared: {error}")),
    };
    match differences {
        Ok(within) => report.add(Finding::Ok, "clock", within),
        Err(apart) => report.add(Finding::Error, "clock", apart),
    }
}

async fn found(options: &Arc<RedisOptions>, create: bool) -> Result<Looked, StoreError> {
    let (keyspace_seed, stats) = (assemble::keyspace_seed(), Arc::new(RedisStats::default()));
    if !create {
        return weir_redis::look(options, &stats, keyspace_seed).await;
    }
    let mut opened = weir_redis::open(options, &stats, WhenMissing::Create, keyspace_seed).await?;
    let warnings = std::mem::take(&mut opened.warnings);
    Ok(Looked { keyspace: Some(opened), warnings })
}

fn keyspace_found(prefix: &str, opened: &Opened, report: &mut CheckReport) {
    let layout = opened.keyspace.meta().layout;
    let message = format!("the keyspace {prefix} has {} shards of {} keys", layout.shards, layout.buckets);
    report.add(Finding::Ok, "redis", message);
    if !opened.lost.is_empty() {
        let message = format!(
            "shards {} have lost their history: their intents wait until weir rebuild has restored it",
            in_short(&opened.lost)
        );
        report.add(Finding::Error, "redis", message);
    }
}

/// Whether intents wait in topics that `kafka.waiting` does not name any more: the keyspace knows what groups have committed.
async fn waiting_elsewhere(
    settings: &Settings,
    (options, opened): (&Arc<RedisOptions>, &Opened),
    report: &mut CheckReport,
) {
    let noted = match weir_redis::noted_topics(options, &Arc::new(RedisStats::default()), opened).await {
        Ok(noted) => noted,
        Err(error) => return report.add(Finding::Error, "redis", error.to_string()),
    };
    // What is wrong with Kafka itself is reported by whoever looks at it.
    let Ok(kafka) = assemble::signed_kafka(&settings.kafka).await.map(Arc::new) else { return };
    let looked = assemble::ask_kafka(&kafka, move |kafka| waiting_topics::none_left_behind(kafka, &noted)).await;
    if let Err(error) = looked
        && let Some(TopicError::WaitElsewhere { .. }) = error.downcast_ref()
    {
        report.add(Finding::Error, "kafka", error.to_string());
    }
}

/// Where nothing was decided yet, there is nothing to be lost.
fn no_keyspace(prefix: &str, (create, has_decided): (bool, Option<bool>), report: &mut CheckReport) {
    let first = "the first start of weir run creates it, or weir check --create";
    let (finding, message) = match has_decided {
        None if create => (
            Finding::Error,
            format!(
                "there is no keyspace {prefix}, and none was created, because Kafka does not say whether the group has decided \
                 intents before. Correct what is wrong with Kafka, and run this again. Without Kafka, --accept-lost-history \
                 creates one (if histories are lost, every user can then be sent messages as if for the first time)"
            ),
        ),
        Some(false) => (Finding::Ok, format!("there is no keyspace {prefix} yet: {first}")),
        None => (
            Finding::Warning,
            format!("there is no keyspace {prefix}. Where the group has decided nothing yet, {first}"),
        ),
        Some(true) => (
            Finding::Error,
            format!(
                "there is no keyspace {prefix}, though the group has decided intents before: its histories are lost. Restore \
                 them with weir rebuild --all. To give them up, create an empty keyspace with weir check --create \
                 --accept-lost-history (every user can then be sent messages as if for the first time)"
            ),
        ),
    };
    report.add(finding, "redis", message);
}
