//! The promise: while a shard is unavailable, its intents follow their class after the stated time, other shards continue,
//! and intents approved without their history are recorded as soon as it is available.

use std::collections::BTreeSet;

use crate::support::{
    DEADLINE, Decision, Scene, approval,
    http::{metric, wait_degraded, wait_ready, wait_whole},
    stop, succeed,
};
use testkit::{clock::ProcessClock, kafka::Record, redis::RedisCluster, wait_until, worker::Worker};
use weir_core::basis::shard::{Layout, UserHash, slot_of_shard};

const POLICY: &str = r#"
version = "1"
[default]
caps = [{ name = "daily", limit = 3, window = "24h" }]
[[on_unavailable]]
channel = "push"
action = "approve"
[[on_unavailable]]
channel = "sms"
action = "suppress"
"#;

const USERS: u64 = 600;
const BATCH: usize = 40;

/// A cluster that continues without one of its nodes, a worker on it, and the node to be frozen.
struct Stage {
    cluster: RedisCluster,
    scene: Scene,
    worker: Worker,
    /// The worker's.
    clock: ProcessClock,
    victim: usize,
    /// The users whose histories are on it.
    victims: BTreeSet<u64>,
}

impl Stage {
    fn new(name: &str, full_coverage: &str) -> Self {
        Self::with(name, full_coverage, |_| ())
    }

    /// A scene of which something is changed before its worker starts.
    fn with(name: &str, full_coverage: &str, change: impl FnOnce(&mut Scene)) -> Self {
        let clock = ProcessClock::ahead(0).unwrap();
        let cluster = RedisCluster::start_with(3, 0, &["--cluster-require-full-coverage", full_coverage]).unwrap();
        let mut scene = Scene::on_redis(cluster.nodes(), name, 2, POLICY);
        change(&mut scene);
        let worker = start(&scene, &clock);
        wait_ready(&worker);
        // Not the node of the tables: without them no new channel or campaign has a number.
        let victim = (cluster.owner_of_key(&scene.name).unwrap() + 1) % 3;
        let slots = cluster.slots_of(victim).unwrap();
        let victims = (0..USERS).filter(|user| slots.contains(&slot_of(*user))).collect();
        Self { cluster, scene, worker, clock, victim, victims }
    }

    fn publish(&self, wave: &str, channels: &[&str]) {
        let records = (0..USERS).flat_map(|user| channels.iter().map(move |channel| (user, channel)));
        self.scene.publish(records.map(|(user, channel)| {
            let id = format!("{wave}-{channel}-{user}");
            Record::new(user.to_string(), format!(r#"{{"id":"{id}","user_id":{user},"channel":"{channel}"}}"#))
        }));
    }

    /// Publishes a wave, and waits until all is read.
    fn drain(&self, wave: &str, channels: &[&str]) {
        self.publish(wave, channels);
        self.scene.wait_until_drained();
    }

    /// Sends of one, before and while the node is killed.
    fn kill_and_publish(&mut self) {
        self.drain("before", &["push"]);
        self.cluster.kill(self.victim);
        self.drain("during", &["push", "sms"]);
        wait_until(DEADLINE, "deferred writes are counted", || {
            self.metric("weir_owed_sends", "") >= self.victims.len() as f64
        });
    }

    fn rebuild(&self, args: &[&str]) {
        succeed(self.scene.command(&["rebuild", "--settle", "3s"]).args(args));
    }

    /// Each user of the node got two, before and during the outage: a third is approved, and a fourth is not.
    /// The others were sent three.
    fn counts_what_was_sent(&self) {
        self.drain("third", &["push"]);
        self.drain("fourth", &["push"]);
        let decisions = self.scene.decisions();
        assert_eq!(decisions.len() as u64, 5 * USERS, "each intent has one record");
        for user in 0..USERS {
            let of = |wave: &str| &decisions[&format!("{wave}-{user}")];
            let (push, sms, third, fourth) = (of("during-push"), of("during-sms"), of("third-push"), of("fourth-push"));
            if self.victims.contains(&user) {
                assert!(push.approved() && is_later(push), "user {user}: {push:?}");
                assert_eq!(sms.reason(), "unavailable", "user {user}");
                assert!(third.approved() && !is_later(third), "user {user}: two sends count: {third:?}");
            }
            assert_eq!(fourth.reason(), "cap", "user {user}: three sends count");
            assert_eq!(fourth.envelope.as_ref().unwrap()["cap"]["used"], 3, "user {user}: each once");
        }
    }

    fn metric(&self, name: &str, labels: &str) -> f64 {
        metric(&self.worker, name, labels).unwrap_or(0.0)
    }
}

fn slot_of(user: u64) -> u16 {
    let shard = Layout::for_users(64, 10_000).place(UserHash::of(&user.to_string())).shard;
    slot_of_shard(shard, 64)
}

fn start(scene: &Scene, clock: &ProcessClock) -> Worker {
    let batch = BATCH.to_string();
    let env = [
        ("WEIR__REDIS__UNAVAILABLE_AFTER", "2s"),
        ("WEIR__REDIS__TIMEOUT", "500ms"),
        ("WEIR__WORKER__BATCH", batch.as_str()),
        ("WEIR__WORKER__COMMIT_INTERVAL", "5ms"),
        ("WEIR__WORKER__DRAIN", "4s"),
    ];
    scene.worker_by("only", clock, &env)
}

fn is_later(decision: &Decision) -> bool {
    decision.approved() && approval(&decision.record)["recorded"] == "later"
}

#[test]
fn a_frozen_node_holds_nothing_up_but_what_waits_and_gets_what_it_is_owed() {
    let mut stage = Stage::new("away", "no");
    stage.drain("before", &["push"]);

    stage.cluster.freeze(stage.victim);
    stage.drain("during", &["push", "sms"]);

    let entry = wait_degraded(&stage.worker, "shards_unavailable");
    assert!(entry["message"].as_str().unwrap().contains("on_unavailable"), "{entry}");
    assert!(entry["shards"].as_array().unwrap().len() > 15, "{entry}");
    let owed = stage.victims.len();
    assert!(owed > 100, "{owed}");
    // On a busy machine there may be some of other nodes.
    assert!(stage.metric("weir_owed_sends", "") >= owed as f64);
    assert!(stage.metric("weir_unavailable_total", "action=\"suppress\"") >= owed as f64);

    // What waits does: nothing of its partition is committed beyond the first of it.
    let all = i64::try_from(4 * USERS).unwrap();
    stage.publish("waiting", &["email"]);
    wait_until(DEADLINE, "the lane waits", || stage.metric("weir_lag_records", "") > 0.0);
    assert!(stage.scene.done() < all, "nothing waits");
    stage.cluster.thaw(stage.victim);
    stage.scene.wait_until_drained();
    wait_until(DEADLINE, "all deferred writes are recorded", || stage.metric("weir_owed_sends", "") == 0.0);
    stage.drain("after", &["sms"]);
    wait_whole(&stage.worker);

    let decisions = stage.scene.decisions();
    assert_eq!(decisions.len() as u64, 5 * USERS, "each intent has one record");
    let mut unsent = 0;
    for user in 0..USERS {
        let of = |wave: &str| &decisions[&format!("{wave}-{user}")];
        let (push, sms, email, after) = (of("during-push"), of("during-sms"), of("waiting-email"), of("after-sms"));
        assert!(!is_later(email), "user {user}: what waits is decided as ever");
        if stage.victims.contains(&user) {
            assert!(push.approved() && is_later(push), "user {user}: {push:?}");
            assert_eq!(sms.reason(), "unavailable", "user {user}");
            let envelope = sms.envelope.as_ref().unwrap();
            assert!(envelope["eligible_at"].is_null() && envelope.get("cap").is_none(), "{envelope}");
            // What lay in the frozen node's socket is carried out when it thaws: the sms of the first batch may count.
            unsent += usize::from(!email.approved());
            // before-push, during-push (owed), waiting-email: the cap of three is used up.
            assert_eq!(after.reason(), "cap", "user {user}: the deferred write is not counted");
            assert_eq!(after.envelope.as_ref().unwrap()["cap"]["used"], 3, "user {user}");
        } else if !is_later(push) {
            assert!(push.approved() && sms.approved(), "user {user}: its shard was there");
            assert_eq!(email.reason(), "cap", "user {user}: its cap was used up all along");
        }
    }
    assert!(unsent <= 2 * BATCH, "{unsent} emails found no room: more than what was asked of the node when it froze");
}

#[test]
fn intents_that_wait_are_deferred_hold_up_no_others_and_are_decided_once_whoever_reads_on() {
    let mut stage = Stage::with("waiting", "no", |scene| {
        scene.defer(1);
        scene.end_sessions_soon();
    });
    let victims = stage.victims.clone();
    assert!(victims.len() > 100 && victims.len() < 400, "{}", victims.len());
    let send_past_the_node = |stage: &Stage, wave: &str| {
        stage.drain(wave, &["email"]);
        let decisions = stage.scene.decisions();
        let is_there = |user: &u64| decisions.contains_key(&format!("{wave}-email-{user}"));
        let without_history = victims.iter().find(|user| is_there(user));
        assert_eq!(without_history, None, "{wave}");
        // On a busy machine another node may not answer in time, for a batch or two.
        let others = (0..USERS).filter(|user| !victims.contains(user) && !is_there(user)).count();
        assert!(others <= 2 * BATCH, "{wave}: {others} of other nodes' are not decided");
    };
    stage.cluster.freeze(stage.victim);
    send_past_the_node(&stage, "first");
    let deferred = stage.metric("weir_deferred_total", "why=\"unavailable\"");
    assert!(deferred >= victims.len() as f64, "{deferred}");

    // Who reads on finds them in Kafka.
    stage.worker.kill();
    stage.worker = start(&stage.scene, &stage.clock);
    send_past_the_node(&stage, "second");
    stage.cluster.thaw(stage.victim);
    wait_whole(&stage.worker);

    // They come back within two minutes, by the worker's clock: a minute, rounded up to a full one.
    stage.clock.set(125).unwrap();
    let all = 2 * USERS as usize;
    wait_until(DEADLINE, "all have a decision", || stage.scene.decisions().len() == all);
    stage.drain("third", &["email"]);
    // Reading the decisions fails where an intent has two records.
    let decisions = stage.scene.decisions();
    assert_eq!(decisions.len(), 3 * USERS as usize, "each intent has one record");
    // Three fit into the cap: each was counted once.
    let unsent = decisions.values().find(|decision| !decision.approved());
    assert!(unsent.is_none(), "{unsent:?}");
    for user in &victims {
        let decision = approval(&decisions[&format!("first-email-{user}")].record);
        assert_eq!(decision["deferred"]["why"], "unavailable", "user {user}");
    }
}

#[test]
fn a_killed_node_that_comes_back_empty_is_rebuilt_and_gets_what_it_is_owed_once() {
    let mut stage = Stage::new("killed", "no");
    stage.kill_and_publish();
    let owed = stage.metric("weir_owed_sends", "");

    // The node is back without its histories: they are lost, its intents still follow their class, and nothing is recorded yet.
    stage.cluster.restart(stage.victim).unwrap();
    wait_until(DEADLINE, "the loss is noticed", || stage.metric("weir_shards_lost", "") > 0.0);
    let entry = wait_degraded(&stage.worker, "shards_lost");
    let message = entry["message"].as_str().unwrap();
    assert!(message.contains("weir rebuild") && message.contains("more"), "a few shards are named, not all: {message}");
    assert_eq!(stage.metric("weir_owed_sends", ""), owed);

    // The rebuild finds the deferred writes in the approved topic; the worker records them, too, and they count once.
    stage.rebuild(&[]);
    wait_until(DEADLINE, "all deferred writes are recorded", || stage.metric("weir_owed_sends", "") == 0.0);
    wait_whole(&stage.worker);
    stage.counts_what_was_sent();
}

#[test]
fn a_stop_with_owed_sends_names_the_shards_and_the_command_that_repairs_them() {
    let mut stage = Stage::new("stopped", "no");
    stage.kill_and_publish();
    let log = stop(&mut stage.worker);
    let line = log.lines().find(|line| line.contains("weir rebuild --shards")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("are not recorded"), "{line}");
    let (_, shards) = line.split_once("weir rebuild --shards ").unwrap();
    let shards = shards.split(' ').next().unwrap();
    assert!(shards.split(',').count() > 3, "{line}");

    stage.cluster.restart(stage.victim).unwrap();
    stage.worker = stage.scene.worker("only");
    stage.rebuild(&["--shards", shards]);
    // The node is back empty: shards without deferred writes are lost, too.
    stage.rebuild(&[]);
    wait_whole(&stage.worker);
    stage.counts_what_was_sent();
}

#[test]
fn where_full_coverage_is_required_one_lost_node_takes_all_shards_away() {
    let mut stage = Stage::new("coverage", "yes");
    stage.kill_and_publish();
    stage.drain("later", &["push"]);
    let decisions = stage.scene.decisions();
    assert_eq!(decisions.len() as u64, 4 * USERS, "each intent has one record");
    for user in 0..USERS {
        let later = &decisions[&format!("later-push-{user}")];
        assert!(later.approved() && is_later(later), "user {user}: its shard is unavailable like all: {later:?}");
    }
    // The others come back with the node, and get theirs; what it lost itself is rebuilt.
    let before = stage.metric("weir_owed_sends", "");
    stage.cluster.restart(stage.victim).unwrap();
    let elsewhere = USERS as f64 - stage.victims.len() as f64;
    wait_until(DEADLINE, "the other nodes' deferred writes are recorded", || {
        before - stage.metric("weir_owed_sends", "") >= elsewhere
    });
    stage.rebuild(&[]);
    wait_until(DEADLINE, "all deferred writes are recorded", || stage.metric("weir_owed_sends", "") == 0.0);
    wait_whole(&stage.worker);
}
