//! Turns at the ledger of budgets that are carried out and have no answer. Row 41.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::{
    proxy::{Mode, Proxy},
    redis::{RedisCluster, RedisServer},
};

use super::{BUDGETS, OFFERED, PREPAID_LIMIT, Prepaid, judged, nodes::of_autumn, spent, sum};
use crate::{
    ground::Ground,
    rows::on,
    support::POLICY,
    trial::{Findings, Order},
};

/// Of what intents of their own users take.
const TOTAL: &str = r#"
[[budgets]]
name = "autumn"
campaign = "autumn"
limit = 5_000
total = true
best_effort = true
"#;
const TOTAL_LIMIT: u64 = 5_000;
/// How long calls wait for a replica, twice.
const TIMEOUT: (&str, &str) = ("WEIR__REDIS__TIMEOUT", "500ms");

/// Each of three primaries has a replica, and for 25 s none of them answers, while more intents come than the total has left.
pub fn unreplicated(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const FAULT: Duration = Duration::from_secs(25);
    let mut cluster = RedisCluster::start(3, 1)?;
    let mut trial = on(ground, order, "budget-unreplicated", cluster.nodes())?;
    trial.scene.write_policy(&format!("{POLICY}{TOTAL}"));
    let worker = trial.start_ready("only", &[("WEIR__REDIS__WAIT_REPLICAS", "1"), TIMEOUT])?;
    trial.publish(of_autumn(0..3_000))?;
    trial.scene.wait_until_drained();
    let replica = |primary| cluster.replicas_of(primary)?.first().copied().context("a primary has no replica");
    let replicas = cluster.primaries()?.into_iter().map(replica).collect::<Result<Vec<usize>>>()?;
    replicas.iter().for_each(|replica| cluster.freeze(*replica));
    trial.publish(of_autumn(3_000..6_000))?;
    trial.live(worker, FAULT)?;
    replicas.iter().for_each(|replica| cluster.thaw(*replica));
    let mark = trial.over()?;
    trial.publish(of_autumn(6_000..8_000))?;
    trial.back(&mark)?;
    trial.scene.wait_until_drained();
    let approved = spent(&trial)?.get("autumn").map_or(0, |spent| sum(spent));
    ensure!(approved <= TOTAL_LIMIT, "{approved} of {TOTAL_LIMIT}");
    ensure!(approved * 100 >= TOTAL_LIMIT * 99, "{approved} of {TOTAL_LIMIT} of 8,000 that came: the others are burnt");
    trial.note(format!("{approved} of {TOTAL_LIMIT} are approved"));
    trial.finish(1)
}

/// Replies are lost again and again while budgets are spent.
pub fn replies_lost(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let server = RedisServer::start::<&str>(&[])?;
    let proxy = Proxy::start(server.url().trim_start_matches("redis://"))?;
    let mut trial = on(ground, order, "budget-replies", vec![format!("redis://{}", proxy.address())])?;
    trial.scene.write_policy(&format!("{POLICY}{BUDGETS}"));
    let _worker = trial.start_ready("deaf", &[TIMEOUT])?;
    trial.load_at(0, OFFERED)?;
    for _ in 0..order.times {
        trial.decided(50)?;
        proxy.set(Mode::LoseReply);
        trial.until("a reply is lost", || proxy.mode() == Mode::Pass)?;
    }
    trial.comes_back()?;
    trial.decided(3_000)?;
    judged(trial, order.times, Prepaid::spent(PREPAID_LIMIT))
}
