//! Redis unavailable for longer than intents live. Row 27.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{kafka::Record, redis::RedisServer};

use super::{on, pause, plain};
use crate::{
    ground::Ground,
    support::{
        Decision, POLICY, header,
        outcome::{CASE, intent},
    },
    trial::{Findings, Order, Trial, now_ms},
};

const STALL: Duration = Duration::from_secs(12);
/// How long intents live, and how much later one may become visible: the time of a batch and its commit.
const LIVE_MS: i64 = 4_000;
const SLACK_MS: i64 = 5_000;
/// Intents of each kind in a stall.
const EACH: usize = 200;
/// The users without caps get one: shorter than a stall, on a channel that the load does not use.
const NO_CAPS: &str = "[segments.staff]\ncaps = \"unlimited\"";
const WINDOW_MS: i64 = 8_000;
const ONE_CAP: &str =
    "[segments.staff]\ncaps = [{ name = \"brief\", limit = 1, window = \"8s\", channel = \"stall\" }]";

/// A step of a stall.
#[derive(Debug, Clone, Copy)]
enum Step {
    Begin,
    End,
}

/// The nodes of a cluster drop requests that were given up meanwhile.
pub fn paused(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let trial = plain(ground, order, "paused-past-expiry")?;
    let cluster = ground.cluster()?;
    stalls(trial, order, |step| match step {
        Step::Begin => pause(cluster, STALL),
        // The pause ends by itself.
        Step::End => Ok(()),
    })
}

/// A server executes the requests that were sent meanwhile when it wakes.
pub fn frozen(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut redis = RedisServer::start::<&str>(&[])?;
    let trial = on(ground, order, "frozen-past-expiry", vec![redis.url()])?;
    stalls(trial, order, |step| {
        match step {
            Step::Begin => redis.freeze(),
            Step::End => redis.thaw(),
        }
        Ok(())
    })
}

/// Under load, intents are published that expire within the stall, and sends to users whose cap's window ends within it;
/// right after the stall each of those users gets another intent.
fn stalls(mut trial: Trial, order: &Order, mut stall: impl FnMut(Step) -> Result<()>) -> Result<Findings> {
    trial.scene.write_policy(&POLICY.replace(NO_CAPS, ONE_CAP));
    trial.load(0)?;
    let worker = trial.start_ready("stalled", &[])?;
    trial.decided(500)?;
    for time in 0..order.times {
        let publish = |trial: &Trial, kind: &str, from: usize, expires_at: Option<i64>| {
            let one = |number: usize| one(&format!("{kind} {time} {number}"), from + number, expires_at);
            trial.kafka.publish(&trial.scene.topic("intents"), (0..EACH).map(one))
        };
        stall(Step::Begin)?;
        publish(&trial, "expires", 3_000, Some(now_ms() + LIVE_MS))?;
        publish(&trial, "window", 3_000 + EACH, None)?;
        trial.live(worker, STALL)?;
        stall(Step::End)?;
        let mark = trial.over()?;
        publish(&trial, "again", 3_000 + EACH, None)?;
        trial.back(&mark)?;
    }
    trial.drain()?;
    by_true_time(&mut trial)?;
    trial.finish(order.times)
}

fn one(name: &str, user: usize, expires_at: Option<i64>) -> Record {
    let mut more = json!({ "channel": "stall" });
    if let Some(expires_at) = expires_at {
        more["expires_at"] = expires_at.into();
    }
    intent(name, user, more)
}

/// No intent became visible long after it had expired or long after it was decided, and nobody had two sends in a window.
fn by_true_time(trial: &mut Trial) -> Result<()> {
    let approved = trial.scene.slim_output("approved");
    let mut decided_at = HashMap::new();
    let mut latest_ms = 0;
    for record in approved.into_iter().filter(|record| header(record, CASE).is_some()) {
        let visible_ms = record.timestamp_ms.context("an output has no time")?;
        let intent: Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default())?;
        let (id, decision) = Decision::approval(record);
        if let Some(expires_ms) = intent["expires_at"].as_i64() {
            ensure!(visible_ms <= expires_ms + SLACK_MS, "{id} expired {} ms before", visible_ms - expires_ms);
        }
        latest_ms = latest_ms.max(visible_ms - decision.at_ms);
        ensure!(decision.at_ms + SLACK_MS >= visible_ms, "{id} was decided {} ms before", visible_ms - decision.at_ms);
        decided_at.insert(id, decision.at_ms);
    }
    for (id, again_ms) in &decided_at {
        let first_ms = id.strip_prefix("again").and_then(|which| decided_at.get(&format!("window{which}")));
        let apart_ms = first_ms.map(|first_ms| again_ms - first_ms);
        ensure!(
            apart_ms.is_none_or(|apart_ms| apart_ms >= WINDOW_MS),
            "the user of {id} had two sends in one window: they were decided {} ms apart",
            apart_ms.unwrap_or_default()
        );
    }
    let windows = decided_at.keys().filter(|id| id.starts_with("window")).count();
    ensure!(windows > 0, "no send of a short window was approved: nothing was tried");
    trial.note(format!("approved records are visible at most {latest_ms} ms after their `decided_at`"));
    Ok(())
}
