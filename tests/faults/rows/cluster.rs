//! A Redis Cluster that fails over, also before the name tables' node has replicated new names, moves and grows. Rows 14, 15 and 29a.

use super::{lost::table_node, *};
use crate::{support::SEGMENTS, trial::RATE};

/// How long a replica gets no writes before its primary dies: below the 2 s after which it would count as dead.
const BEHIND: Duration = Duration::from_millis(1_500);
/// Intents per second, enough that a failover forgets some.
const HEAVY: u32 = 1_500;
/// Slots that are moved at once: three of 64 shards are in them.
const SLOTS: u16 = 600;

/// Whether a decision waits for a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    No,
    ForOne,
}

/// A replica falls behind, its primary is killed, and the replica takes over without the missing writes.
pub fn promoted(ground: &mut Ground, order: &Order, waits: Waits) -> Result<Findings> {
    let mut trial = plain(ground, order, "promoted")?;
    trial.load_at(0, HEAVY)?;
    let replicas = ("WEIR__REDIS__WAIT_REPLICAS", if waits == Waits::No { "0" } else { "1" });
    let worker = trial.start_ready("only", &[replicas, ("WEIR__REDIS__TIMEOUT", "500ms")])?;
    for _ in 0..order.times {
        trial.decided(2_000)?;
        let cluster = ground.cluster()?;
        let (primary, replica) = pair(cluster)?;
        cluster.freeze(replica);
        trial.live(worker, BEHIND)?;
        cluster.kill(primary);
        cluster.thaw(replica);
        let killed = trial.over()?;
        cluster.wait_primary(replica)?;
        match waits {
            Waits::No => {
                trial.back(&killed)?;
                cluster.restart(primary)?;
            }
            Waits::ForOne => {
                // There is no replica to wait for until the dead node is back as one.
                cluster.restart(primary)?;
                trial.comes_back()?;
            }
        }
    }
    trial.live(worker, Duration::ZERO)?;
    let mut findings = trial.finish(order.times)?;
    let forgot = &findings.verdict;
    findings.notes.push(match waits {
        Waits::No => format!(
            "sends of the last 1.5 s on one of three primaries are forgotten: {} of {} approved were over a cap, {} verdicts are \
             not the model's; with no replica behind, nothing is forgotten",
            forgot.exceeded.count, forgot.approved, forgot.different.count
        ),
        Waits::ForOne => "nothing is forgotten; the shards of that primary wait until it has a replica again".to_owned(),
    });
    Ok(findings)
}

/// A primary with a replica, and the replica.
fn pair(cluster: &RedisCluster) -> Result<(usize, usize)> {
    let found = cluster.primaries()?.into_iter().find_map(|primary| {
        let replica = cluster.replicas_of(primary).ok()?.first().copied()?;
        Some((primary, replica))
    });
    found.context("no primary has a replica")
}

fn loaded(ground: &mut Ground, order: &Order, name: &str) -> Result<(Trial, usize)> {
    let (trial, worker) = plain(ground, order, name)?.at_work("only", &[])?;
    trial.decided(500)?;
    Ok((trial, worker))
}

pub fn failed_over(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = loaded(ground, order, "failover")?;
    for _ in 0..order.times {
        let cluster = ground.cluster()?;
        let (_, replica) = pair(cluster)?;
        cluster.failover(replica)?;
        trial.comes_back()?;
    }
    trial.live(worker, Duration::ZERO)?;
    trial.finish(order.times)
}

pub fn resharded(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = loaded(ground, order, "reshard")?;
    for time in 0..order.times {
        let cluster = ground.cluster()?;
        let primaries = cluster.primaries()?;
        let from = cluster.owner_of(u16::try_from(time % 3)? * 5_000)?;
        let to = primaries.into_iter().find(|node| *node != from).context("no other primary")?;
        let slots = first_slots(cluster, from)?;
        cluster.move_slots(slots.clone(), from, to)?;
        trial.comes_back()?;
        cluster.move_slots(slots, to, from)?;
        trial.comes_back()?;
    }
    redirected(&mut trial, worker)?;
    trial.finish(order.times)
}

fn first_slots(cluster: &RedisCluster, node: usize) -> Result<Vec<u16>> {
    Ok(cluster.slots_of(node)?.into_iter().take(SLOTS.into()).collect())
}

fn redirected(trial: &mut Trial, worker: usize) -> Result<()> {
    let told = ["moved", "ask", "try_again"].map(|reason| {
        let label = format!("reason=\"{reason}\"");
        metric(trial.worker(worker), "weir_redis_retries_total", &label).unwrap_or(0.0)
    });
    ensure!(told[0] > 0.0, "nothing was moved under the worker");
    trial.note(format!("{} x MOVED, {} x ASK, {} x TRYAGAIN", told[0], told[1], told[2]));
    Ok(())
}

pub fn grown_and_shrunk(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = loaded(ground, order, "grown")?;
    for _ in 0..order.times {
        let cluster = ground.cluster()?;
        let new = cluster.add_node()?;
        let from = cluster.owner_of(0)?;
        let slots = first_slots(cluster, from)?;
        cluster.move_slots(slots.clone(), from, new)?;
        trial.comes_back()?;
        let cluster = ground.cluster()?;
        cluster.move_slots(slots, new, from)?;
        cluster.remove_last_node()?;
        trial.comes_back()?;
    }
    redirected(&mut trial, worker)?;
    trial.finish(order.times)
}

/// New campaigns at each step. Fewer than the 1,024 numbers that a promoted server skips: the case looks for a campaign with two
/// numbers, and `tests/redis/names.rs` for a number with two names.
const CAMPAIGNS: u64 = 40;
/// Users who get them. A user gets few of the campaigns: the `daily` cap must not hide what `once` says.
const USERS: usize = 300;

/// The replica is frozen, new campaigns arrive, the primary that numbered them is killed, the replica is promoted, and
/// other new campaigns arrive. No decision waits for replicas, so all users are on shards of the other nodes: only the
/// names can be lost.
pub fn names_promoted(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = plain(ground, order, "names-promoted")?;
    let cluster = ground.cluster()?;
    let tables = table_node(cluster, &trial.scene.name)?;
    let own_slots = cluster.slots_of(tables)?;
    let is_elsewhere = move |user: u64| !own_slots.contains(&slot_of_user(user));
    // Of the segment with a cap for each campaign. The load has all others.
    let active = SEGMENTS[1].1.clone();
    let mut users: Vec<u64> = active.clone().filter(|user| is_elsewhere(*user)).collect();
    let load = trial.stream().filter(move |sent| is_elsewhere(sent.user) && !active.contains(&sent.user));
    trial.load_of(load, LoadRate { backlog: 0, a_second: RATE, padding: 0 })?;
    let worker =
        trial.start_ready("only", &[("WEIR__REDIS__WAIT_REPLICAS", "0"), ("WEIR__REDIS__TIMEOUT", "500ms")])?;
    for time in 0..order.times {
        trial.decided(600)?;
        ensure!(users.len() >= USERS, "each time needs {USERS} new users: run the case fewer times");
        let users = users.split_off(users.len() - USERS);
        fail_over(ground.cluster()?, &mut trial, &users, time)?;
        let lost = metric(trial.worker(worker), "weir_shards_lost", "");
        ensure!(lost == Some(0.0), "{lost:?} shards are lost: no name that was used may be lost");
    }
    trial.live(worker, Duration::ZERO)?;
    trial.unload()?;
    let numbered = one_number_each(&trial)?;
    trial.finish_noting(order.times, format!("{numbered} campaigns in approved records, each with a number of its own"))
}

/// One failover of the tables' node, with new campaigns on both sides of it.
fn fail_over(cluster: &mut RedisCluster, trial: &mut Trial, users: &[u64], time: usize) -> Result<()> {
    let primary = table_node(cluster, &trial.scene.name)?;
    let replica = cluster.replicas_of(primary)?.first().copied().context("the tables' node has no replica")?;
    let known = campaigns_on(cluster, primary, trial)?;
    cluster.freeze(replica);
    let before = sends(trial, users, &format!("before-{time}"), 0..2);
    trial.publish(before.clone())?;
    let mut unreplicated = 0;
    trial.until("the primary has numbered new campaigns", || {
        unreplicated = campaigns_on(cluster, primary, trial).unwrap_or(known) - known;
        unreplicated > 0
    })?;
    cluster.kill(primary);
    cluster.thaw(replica);
    let killed = trial.over()?;
    cluster.wait_primary(replica)?;
    let after = sends(trial, users, &format!("after-{time}"), 2..4);
    trial.publish(after)?;
    // The same campaigns for the same users: a cap that forgets approves them again.
    let again = before.into_iter().map(|sent| Sent { id: format!("{}-again", sent.id), ..sent });
    trial.publish(again.collect())?;
    trial.back(&killed)?;
    trial.note(format!("{unreplicated} campaigns were numbered by the node that died, and by no replica"));
    cluster.restart(primary)
}

/// How many campaigns the table on this node has; its own fields are counted too.
fn campaigns_on(cluster: &RedisCluster, node: usize, trial: &Trial) -> Result<usize> {
    let prefix = &trial.scene.name;
    cluster.node(node).query(&["HLEN", &format!("{prefix}:{{{prefix}}}:campaigns")])
}

/// A send of each of these places to each user, of campaigns of this name: pairs of a user and a campaign are drawn.
fn sends(trial: &mut Trial, users: &[u64], name: &str, places: Range<usize>) -> Vec<Sent> {
    let mut sends = Vec::new();
    for place in places {
        for &user in users {
            let campaign = format!("{name}-{}", trial.numbers.u64(..CAMPAIGNS));
            let id = format!("{name}-{user}-{place}");
            sends.push(send(id, user, campaign));
        }
    }
    sends
}

fn slot_of_user(user: u64) -> u16 {
    let layout = Layout::for_users(SHARDS, 10_000);
    slot_of_shard(layout.place(UserHash::of(&user.to_string())).shard, SHARDS)
}

/// Every campaign has one number, and no number has two campaigns, in all that was approved. Gives how many there are.
fn one_number_each(trial: &Trial) -> Result<usize> {
    let (mut numbers, mut names) = (HashMap::new(), HashMap::new());
    for (_, decision) in trial.scene.every_decision().into_iter().filter(|(_, decision)| decision.approved()) {
        let Decision { record, .. } = decision;
        let approved = approval(&record);
        let (Some(name), Some(number)) = (approved["class"][2].as_str(), approved["numbers"][1].as_u64()) else {
            continue;
        };
        let first = numbers.entry(name.to_owned()).or_insert(number);
        ensure!(*first == number, "the campaign {name} has the numbers {first} and {number}");
        let other = names.entry(number).or_insert_with(|| name.to_owned());
        ensure!(other == name, "the number {number} is that of the campaigns {other} and {name}");
    }
    Ok(numbers.len())
}
