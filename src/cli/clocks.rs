//! This machine's clock, compared with those of the Redis nodes.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::clocks::{MAX_SKEW_MS, in_words},
    ports::{Clock as _, StoreError},
};
use weir_redis::{LedgerClock, NodeClocks, RedisOptions, RedisStats};
use weir_worker::clock::{ComparedClock, SystemClock};

/// How often each node is asked for its time. A step of this machine's clock shows at once; this is how soon a step of
/// theirs does, or the end of a suspension of this machine.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// The clock after one round of questions.
pub async fn compared(options: &Arc<RedisOptions>) -> Result<ComparedClock<SystemClock>, StoreError> {
    let clock = ComparedClock::new(SystemClock);
    clock.note(NodeClocks::new(options, &Arc::new(RedisStats::default())).ask(&clock).await?);
    Ok(clock)
}

/// A clock that is compared now, and again until `stop`. Where no node answers now, it decides nothing until one does.
pub async fn keep_comparing(
    options: &Arc<RedisOptions>,
    stats: &Arc<RedisStats>,
    stop: &CancellationToken,
) -> anyhow::Result<ComparedClock<SystemClock>> {
    let (clock, mut nodes) = (ComparedClock::new(SystemClock), NodeClocks::new(options, stats));
    match nodes.ask(&clock).await {
        Ok(answers) => clock.note(answers),
        Err(denied @ StoreError::Fatal(_)) => return Err(denied).context("clocks cannot be compared"),
        Err(error) => tracing::warn!("clocks are not compared yet: {error}"),
    }
    let (compared, stop) = (clock.clone(), stop.clone());
    let asking = async move {
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            match nodes.ask(&compared).await {
                Ok(answers) => compared.note(answers),
                // What is known of the clocks holds on, and the lanes report that Redis is unavailable.
                Err(error) => tracing::debug!("clocks are not compared: {error}"),
            }
        }
    };
    tokio::spawn(async move { stop.run_until_cancelled(asking).await });
    Ok(clock)
}

/// The clock that the ledger's clocks are compared with: this one, while it may be decided by.
pub fn of_ledger(clock: &ComparedClock<SystemClock>) -> LedgerClock {
    let clock = clock.clone();
    Arc::new(move || clock.time_to_decide(&[]))
}

/// How this machine's clock stands to each node's: a line for `weir check`. The error has the clocks that are too far apart.
pub fn differences(clock: &ComparedClock<SystemClock>) -> Result<String, String> {
    let skews = clock.skews_ms();
    let apart: Vec<String> = skews
        .iter()
        .filter(|(_, skew_ms)| skew_ms.abs() > MAX_SKEW_MS)
        .map(|(node, skew_ms)| {
            let way = if *skew_ms > 0 { "ahead of" } else { "behind" };
            format!("this machine's clock is {} {way} that of Redis node {node}", in_words(*skew_ms))
        })
        .collect();
    if !apart.is_empty() {
        return Err(format!(
            "{}: correct the clock that is wrong (timedatectl, chronyc tracking). weir decides nothing while most clocks \
             are more than 5 minutes from this machine's",
            apart.join("; ")
        ));
    }
    let Some(most_ms) = skews.iter().map(|(_, skew_ms)| skew_ms.abs()).max() else {
        return Err("no Redis node has answered TIME: this machine's clock cannot be compared".to_owned());
    };
    Ok(format!("this machine's is within {most_ms} ms of those of {} Redis nodes", skews.len()))
}
