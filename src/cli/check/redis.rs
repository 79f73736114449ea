//! Redis: the servers, and the keyspace on them.

use std::sync::Arc;

use super::report::{Finding, Report};
use crate::{
    cli::assemble,
    config::Settings,
    edge::redis::{self, Birth, RedisStats, WhenMissing},
    worker::{
        clock::SystemClock,
        ports::{Clock as _, in_short},
    },
};

pub(super) async fn look(settings: &Settings, when_missing: WhenMissing, report: &mut Report) {
    let options = match assemble::redis(&settings.redis) {
        Ok(options) => Arc::new(options),
        Err(error) => return report.add(Finding::Error, "redis", error.to_string()),
    };
    let birth = Birth { epoch: assemble::new_epoch(), now: SystemClock.now() };
    match redis::open(&options, &Arc::new(RedisStats::default()), when_missing, birth).await {
        Err(error) => report.add(Finding::Error, "redis", error.to_string()),
        Ok(opened) => {
            let layout = opened.keyspace.meta().layout;
            let message =
                format!("the keyspace {} has {} shards of {} keys", options.prefix, layout.shards, layout.buckets);
            report.add(Finding::Ok, "redis", message);
            for warning in opened.warnings {
                report.add(Finding::Warning, "redis", warning);
            }
            if !opened.lost.is_empty() {
                let message = format!(
                    "shards {} have lost their history: their intents wait for a rebuild",
                    in_short(&opened.lost)
                );
                report.add(Finding::Error, "redis", message);
            }
        }
    }
}
