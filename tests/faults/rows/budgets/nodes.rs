//! Budgets whose nodes lose everything, come back with an old snapshot, have a clock that is ahead, or carry out turns without an answer.

use anyhow::bail;

use super::*;
use crate::rows::lost::rebuild;

/// A total for each campaign: for those of the load, and for one that is spent before it begins.
const TOTALS: &str = r#"
[[budgets]]
name = "totals"
campaign = ["spring", "summer", "autumn"]
each = "campaign"
limit = 400
total = true
"#;
const TOTAL_LIMIT: u64 = 400;

/// Retention has deleted what a campaign's total was spent on when all of Redis is lost: it stays closed until a person says what was used.
pub fn all_lost(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const BEFORE: u64 = 250;
    let used_before = [("spring", 0), ("summer", 0), ("autumn", BEFORE)];
    let mut trial = plain(ground, order, "budget-all-lost")?;
    trial.scene.write_policy(&format!("{POLICY}{TOTALS}"));
    let worker = trial.start_ready("only", &SHORT_SESSION)?;
    trial.publish(sends_of("autumn", 0..BEFORE))?;
    // Not by what is written: the trial would remember the records that are deleted.
    trial.until_of(worker, "the first intents are approved", |worker| {
        metric(worker, "weir_budget_tokens_total", "outcome=\"spent\"") == Some(BEFORE as f64)
    })?;
    trial.scene.wait_until_drained();
    expire(&trial)?;

    trial.load(0)?;
    trial.decided(3_000)?;
    let cluster = ground.cluster()?;
    for node in cluster.primaries()? {
        cluster.node(node).query::<()>(&["FLUSHALL"])?;
    }
    trial.until_of(worker, "the loss is counted", |worker| metric(worker, "weir_shards_lost", "") > Some(0.0))?;
    let folder = trial.worker(worker).folder().to_owned();
    let said = rebuild(&folder, &["--all"], 1)?;
    for (campaign, _) in used_before {
        let command = format!("weir rebuild --budget-used totals/{campaign}=N");
        ensure!(said.contains(&command), "{command:?} is not in: {said}");
    }
    // More than is left; none of them is approved before the budget is open.
    trial.publish(sends_of("autumn", BEFORE..BEFORE + TOTAL_LIMIT))?;
    trial.live(worker, Duration::from_secs(3))?;
    let given = used_before.map(|(campaign, used)| format!("totals/{campaign}={used}"));
    let args: Vec<&str> = given.iter().flat_map(|given| ["--budget-used", given.as_str()]).collect();
    rebuild(&folder, &args, 0)?;
    trial.comes_back()?;
    trial.drain()?;
    let spent = spent(&trial)?;
    for (campaign, used) in used_before {
        let all = used + spent.get(&format!("totals of \"{campaign}\"")).map_or(0, |spent| sum(spent));
        ensure!(all <= TOTAL_LIMIT, "{all} of {TOTAL_LIMIT} of {campaign}");
        ensure!(all * 100 >= TOTAL_LIMIT * 95, "{all} of {TOTAL_LIMIT} of {campaign}: it was hardly spent");
    }
    trial.note("exit 1 with the command for each of three budgets; none grants a token until it is run");
    trial.finish(1)
}

/// Sends of a campaign, each of a user of its own, whom the load does not have.
pub(super) fn sends_of(campaign: &str, numbers: Range<u64>) -> Vec<Sent> {
    numbers.map(|number| send(format!("{campaign}-{number}"), 10_000 + number, campaign.to_owned())).collect()
}

/// Deletes all that was published and approved so far, as retention does.
fn expire(trial: &Trial) -> Result<()> {
    for topic in ["intents", "approved"].map(|topic| trial.scene.topic(topic)) {
        for (partition, end) in (0..).zip(trial.kafka.end_offsets(&topic)?).filter(|(_, end)| *end > 0) {
            trial.kafka.delete_records(&topic, partition, end)?;
        }
    }
    Ok(())
}

/// A node comes back with what it held before a total was spent; `weir rebuild --all` counts it again.
pub fn old_snapshot(ground: &mut Ground, order: &Order) -> Result<Findings> {
    // Without replicas, of which one would be promoted; and of its own, since the snapshot stays.
    let mut cluster = RedisCluster::start(3, 0)?;
    let mut trial = on(ground, order, "budget-snapshot", cluster.nodes())?;
    let policy = |limit: u64| {
        let of = |limit: u64| format!("limit = {limit}\ntotal = true");
        format!("{POLICY}{}", BUDGETS.replace(&of(PREPAID_LIMIT), &of(limit)))
    };
    let mut limit = PREPAID_LIMIT;
    trial.scene.write_policy(&policy(limit));
    trial.load_at(2_000, OFFERED)?;
    let mut worker = trial.start_ready("only", &SHORT_SESSION)?;
    wait_spent(&trial, &cluster, limit)?;
    for _ in 0..order.times {
        trial.drain()?;
        let node = node_of(&cluster, &id("prepaid"))?;
        let saved = cluster.cli(node, &["SAVE"])?;
        ensure!(saved.trim() == "OK", "SAVE: {saved}");
        // It is spent to a higher limit then.
        limit += PREPAID_LIMIT;
        trial.scene.write_policy(&policy(limit));
        trial.load_at(2_000, OFFERED)?;
        wait_spent(&trial, &cluster, limit)?;
        // What would be decided between the return and the rebuild exceeds what the snapshot does not know.
        trial.stop(worker)?;
        cluster.kill(node);
        cluster.restart(node)?;
        cluster.wait_whole()?;
        let held = granted(&trial, &cluster)?;
        ensure!(held <= limit - PREPAID_LIMIT, "the node came back with {held} of {limit}: the snapshot is not old");
        rebuild(trial.worker(worker).folder(), &["--all"], 0)?;
        worker = trial.start("only", &SHORT_SESSION);
        trial.comes_back()?;
    }
    trial.decided(3_000)?;
    judged(trial, order.times, all_of(limit))
}

/// Waits until nearly all of the total is granted.
pub(super) fn wait_spent(trial: &Trial, cluster: &RedisCluster, limit: u64) -> Result<()> {
    trial.until(&format!("{limit} tokens are granted"), || {
        granted(trial, cluster).is_ok_and(|granted| granted * 100 >= limit * 99)
    })
}

fn granted(trial: &Trial, cluster: &RedisCluster) -> Result<u64> {
    granted_of(trial, cluster, &id("prepaid"))
}

/// What its node has granted of a total.
pub(super) fn granted_of(trial: &Trial, cluster: &RedisCluster, budget: &BudgetId) -> Result<u64> {
    let node = cluster.node(node_of(cluster, budget)?);
    let keys: Vec<String> = node.query(&["KEYS", &format!("{}:*:b{}", trial.scene.name, budget.key_name())])?;
    let [key] = &keys[..] else { bail!("the keys of {budget} are {keys:?}") };
    Ok(node.query::<Option<u64>>(&["HGET", key, "t"])?.unwrap_or(0))
}

/// A budget that is the same for all campaigns.
pub(super) fn id(name: &str) -> BudgetId {
    BudgetId { name: name.into(), campaign: None }
}

/// The node that counts a budget.
pub(super) fn node_of(cluster: &RedisCluster, budget: &BudgetId) -> Result<usize> {
    cluster.owner_of(slot_of_shard(budget.shard(SHARDS), SHARDS))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// That of the node that counts the budgets.
    Primary,
    /// That of its replica, which takes over.
    Heir,
}

/// How often a worker was granted nothing because of the node's clock.
fn refusals(worker: &Worker) -> usize {
    worker.log().matches("ahead of most others").count()
}

/// The clock by which rolling windows free is an hour ahead, more than they are long, and is corrected.
pub fn clock_ahead(ground: &mut Ground, order: &Order, whose: Whose) -> Result<Findings> {
    const AHEAD_S: i64 = 3_600;
    const LONG_LIMIT: u64 = 400;
    const LONG_WINDOW_MS: i64 = 600_000;
    let clocks = (0..6).map(|_| ProcessClock::ahead(0)).collect::<Result<Vec<_>>>()?;
    let cluster = RedisCluster::start_by(&clocks, 1)?;
    let mut trial = on(ground, order, "budget-clock", cluster.nodes())?;
    // One more that the case does not outlast, on the same node.
    let counts = node_of(&cluster, &id("rate"))?;
    let mut names = (0..1_000).map(|number| format!("long-{number}"));
    let long = names.find(|name| node_of(&cluster, &id(name)).is_ok_and(|node| node == counts));
    let long = long.context("no budget's name is on the node")?;
    let budget =
        format!("[[budgets]]\nname = {long:?}\nchannel = \"in-app\"\nlimit = {LONG_LIMIT}\nwindow = \"10m\"\n");
    trial.scene.write_policy(&format!("{POLICY}{BUDGETS}{budget}"));
    trial.load_at(2_000, OFFERED)?;
    let worker = trial.start_ready("only", &SHORT_SESSION)?;
    for _ in 0..order.times {
        trial.decided(6_000)?;
        let node = node_of(&cluster, &id("rate"))?;
        let odd = match whose {
            Whose::Primary => node,
            Whose::Heir => cluster.replicas_of(node)?.first().copied().context("the node has no replica")?,
        };
        let before = refusals(trial.worker(worker));
        clocks[odd].set(AHEAD_S)?;
        if whose == Whose::Heir {
            cluster.failover(odd)?;
        }
        trial.until_of(worker, "the node grants nothing", |worker| refusals(worker) > before)?;
        // Longer than the shorter of the two windows.
        trial.live(worker, Duration::from_secs(12))?;
        clocks[odd].set(0)?;
        trial.comes_back()?;
        cluster.wait_whole()?;
    }
    trial.decided(3_000)?;
    trial.drain()?;
    let most = fullest(spent(&trial)?.get(&long).map(Vec::as_slice).unwrap_or_default(), LONG_WINDOW_MS);
    ensure!(most <= LONG_LIMIT, "{most} of {LONG_LIMIT} in ten minutes");
    ensure!(most * 100 >= LONG_LIMIT * 90, "{most} of {LONG_LIMIT} in ten minutes: the budget was hardly spent");
    trial.note(format!("the node grants nothing until its clock is right; in ten minutes {most} of {LONG_LIMIT}"));
    judged(trial, order.times, all_of(PREPAID_LIMIT))
}

/// Of what intents of their own users take.
const AUTUMN: &str = r#"
[[budgets]]
name = "autumn"
campaign = "autumn"
limit = 5_000
total = true
best_effort = true
"#;
const AUTUMN_LIMIT: u64 = 5_000;
/// How long calls wait for a replica, twice.
const TIMEOUT: (&str, &str) = ("WEIR__REDIS__TIMEOUT", "500ms");

/// Each of three primaries has a replica, and for 25 s none of them answers, while more intents come than the total has left.
pub fn unreplicated(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const FAULT: Duration = Duration::from_secs(25);
    let mut cluster = RedisCluster::start(3, 1)?;
    let mut trial = on(ground, order, "budget-unreplicated", cluster.nodes())?;
    trial.scene.write_policy(&format!("{POLICY}{AUTUMN}"));
    let worker = trial.start_ready("only", &[("WEIR__REDIS__WAIT_REPLICAS", "1"), TIMEOUT])?;
    trial.publish(sends_of("autumn", 0..3_000))?;
    trial.scene.wait_until_drained();
    let replica = |primary| cluster.replicas_of(primary)?.first().copied().context("a primary has no replica");
    let replicas = cluster.primaries()?.into_iter().map(replica).collect::<Result<Vec<usize>>>()?;
    replicas.iter().for_each(|replica| cluster.freeze(*replica));
    trial.publish(sends_of("autumn", 3_000..6_000))?;
    trial.live(worker, FAULT)?;
    replicas.iter().for_each(|replica| cluster.thaw(*replica));
    let mark = trial.over()?;
    trial.publish(sends_of("autumn", 6_000..8_000))?;
    trial.back(&mark)?;
    trial.scene.wait_until_drained();
    let approved = spent(&trial)?.get("autumn").map_or(0, |spent| sum(spent));
    ensure!(approved <= AUTUMN_LIMIT, "{approved} of {AUTUMN_LIMIT}");
    ensure!(
        approved * 100 >= AUTUMN_LIMIT * 99,
        "{approved} of {AUTUMN_LIMIT} of 8,000 that came: the others are burnt"
    );
    trial.note(format!("{approved} of {AUTUMN_LIMIT} are approved"));
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
    judged(trial, order.times, all_of(PREPAID_LIMIT))
}
