//! Shards that lose their history, the tables of names, and `weir rebuild`. Rows 18, 29b and 32.

use std::path::Path;

use testkit::process::{Guarded, Signal, output_within};

use super::*;
use crate::support::{http::degraded, weir};

/// Everything on a node and its replica is deleted.
pub fn flush(cluster: &mut RedisCluster, node: usize) -> Result<()> {
    cluster.node(node).query::<()>(&["FLUSHALL"])
}

/// A node without persistence is killed and restarts empty before its replica is promoted.
pub fn restart_empty(cluster: &mut RedisCluster, node: usize) -> Result<()> {
    cluster.kill(node);
    cluster.restart(node)
}

/// Whether the node of the keyspace's tables, which every shard's histories depend on, is the one that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    Kept,
    Lost,
}

/// A node loses what it has; `weir rebuild` restores it.
pub fn lost(
    ground: &mut Ground,
    order: &Order,
    tables: Tables,
    lose: fn(&mut RedisCluster, usize) -> Result<()>,
) -> Result<Findings> {
    let (mut trial, worker) = plain(ground, order, "lost")?.at_work("only", &[])?;
    for time in 0..order.times {
        trial.decided(600)?;
        let cluster = ground.cluster()?;
        let mut nodes = cluster.primaries()?;
        let of_tables = table_node(cluster, &trial.scene.name)?;
        nodes.retain(|node| (*node == of_tables) == (tables == Tables::Lost));
        lose(cluster, nodes[time % nodes.len()])?;
        trial.until_of(worker, "the loss is counted", |worker| metric(worker, "weir_shards_lost", "") > Some(0.0))?;
        let lost = metric(trial.worker(worker), "weir_shards_lost", "").unwrap_or(0.0);
        ensure!(lost < 64.0, "all {lost} shards are lost, and not those of one node");
        trial.until_of(worker, "/v1/status names the shards", |worker| {
            degraded(worker).iter().any(|(what, entry)| what == "shards_lost" && entry["shards"][0].is_u64())
        })?;
        let (status, said) = get(trial.worker(worker), "/readyz");
        ensure!(status == 200, "/readyz says {status} {said}: a lost shard is lost for all instances");
        // Nothing is decided on what is lost; the judge would see it.
        trial.live(worker, Duration::from_secs(3))?;
        rebuild(trial.worker(worker).folder(), &[], 0)?;
        trial.comes_back()?;
        trial.until_of(worker, "nothing is degraded", |worker| degraded(worker).is_empty())?;
    }
    trial.note("/readyz stays 200, /v1/status names the shards; `weir rebuild` restores them while the worker runs");
    trial.finish(order.times)
}

/// Where a rebuild is when it is frozen.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// It deletes the contents of shards with a foreign epoch.
    Purge,
    /// It restores sends.
    Fill,
    /// It waits until earlier decisions are visible.
    Settle,
}

/// A rebuild is frozen in a step, a second one finishes while the worker continues, and the first wakes.
pub fn rebuild_frozen(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = plain(ground, order, "rebuild-frozen")?.at_work("only", &[])?;
    for (time, step) in (0..order.times).zip([Step::Purge, Step::Fill, Step::Settle].into_iter().cycle()) {
        trial.decided(600)?;
        let cluster = ground.cluster()?;
        let prefix = trial.scene.name.clone();
        let tables = table_node(cluster, &prefix)?;
        let mut nodes = cluster.primaries()?;
        nodes.retain(|node| *node != tables);
        let lost = nodes[time % nodes.len()];
        cluster.node(lost).query::<()>(&["FLUSHALL"])?;
        trial.until_of(worker, "the loss is counted", |worker| metric(worker, "weir_shards_lost", "") > Some(0.0))?;

        let folder = trial.worker(worker).folder().to_owned();
        let mut command = Command::new(weir());
        command.args(["rebuild", "--settle", "10m", "--config"]).arg(folder.join("weir.toml"));
        let mut first = Guarded::spawn("the first rebuild", &command, &folder.join(format!("rebuild-{time}.log")))?;
        let reached = freeze_in(&mut first, step, cluster, (lost, tables), &prefix)?;
        rebuild(&folder, &[], 0)?;
        trial.ready(worker)?;
        trial.decided(300)?;
        first.signal(Signal::CONT);
        let exit = first.wait_exit(Duration::from_secs(60))?;
        let said = first.log();
        let clear = ["has taken over", "another rebuild has taken over"].iter().any(|words| said.contains(words));
        ensure!(exit == Exit::Code(1) && clear, "frozen in {step:?}: it ended with {exit:?}: {said}");
        trial.live(worker, Duration::from_secs(3))?;
        let lost = metric(trial.worker(worker), "weir_shards_lost", "");
        ensure!(lost == Some(0.0), "{lost:?} shards are lost after the first rebuild woke");
        trial.comes_back()?;
        trial.note(format!("frozen in {step:?} ({reached}): exit 1, \"another weir rebuild has taken over\""));
    }
    trial.finish(order.times)
}

/// The node of a keyspace's tables.
pub(super) fn table_node(cluster: &RedisCluster, prefix: &str) -> Result<usize> {
    let slot: u16 = cluster.cli(0, &["CLUSTER", "KEYSLOT", prefix])?.trim().parse()?;
    cluster.owner_of(slot)
}

/// Freezes a rebuild as soon as Redis shows it in this step. Returns what was seen.
fn freeze_in(
    run: &mut Guarded,
    step: Step,
    cluster: &RedisCluster,
    (lost, tables): (usize, usize),
    prefix: &str,
) -> Result<String> {
    let keys = || cluster.node(lost).query::<Vec<String>>(&["KEYS", &format!("{prefix}:*:e")]);
    // It asks for no more than it needs: a step may take some ten milliseconds.
    let is_marked = |stem: &str| -> Result<bool> {
        for key in keys()? {
            let epoch: Option<String> = cluster.node(lost).query(&["GET", &key])?;
            if epoch.is_some_and(|epoch| epoch.starts_with(stem)) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let progress = format!("{prefix}:{{{prefix}}}:rebuild");
    let noted = || -> Result<usize> { Ok(cluster.node(tables).query::<Vec<String>>(&["HVALS", &progress])?.len()) };
    let began = Instant::now();
    loop {
        let seen = match step {
            Step::Purge => is_marked("purging:")?,
            Step::Fill => is_marked("rebuilding:")?,
            // Run, time, and how far some partitions are.
            Step::Settle => noted()? > 2,
        };
        if seen {
            run.signal(Signal::STOP);
            return Ok(format!("{} shards marked", keys()?.len()));
        }
        ensure!(began.elapsed() < Duration::from_secs(60), "{step:?} was not seen: {}", run.log());
        ensure!(run.exit().is_none(), "the first rebuild ended: {}", run.log());
    }
}

/// How long earlier decisions may take to become visible: a session of 6 s and a transaction of 15.
const SETTLE: &str = "25s";
const REBUILD_DEADLINE: Duration = Duration::from_secs(300);

/// Runs `weir rebuild` with a worker's configuration and further arguments, and gives what it prints. It has to end with this code.
pub(super) fn rebuild(folder: &Path, args: &[&str], code: i32) -> Result<String> {
    let mut command = Command::new(weir());
    command.args(["rebuild", "--settle", SETTLE]).args(args).arg("--config").arg(folder.join("weir.toml"));
    let output = output_within(REBUILD_DEADLINE, &mut command)?;
    let [said, complaint] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(output.status.code() == Some(code), "weir rebuild {args:?}: {}: {said}{complaint}", output.status);
    Ok(said)
}
