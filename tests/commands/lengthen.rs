//! The promise: `weir rebuild --history` makes the history of a keyspace in use longer. Decisions go on, none is lost or taken twice,
//! and then the histories are those of a twin that had the longer history from the beginning.

mod unreadable;

use std::{collections::BTreeMap, ops::RangeInclusive, process::Command, thread};

use crate::support::{
    DEADLINE, Scene, contains_all,
    http::{metric, wait_ready},
    outcome::intent,
    said, stop, succeed,
};
use serde_json::json;
use testkit::{
    kafka::Record,
    process::{Guarded, output},
    redis::RedisServer,
    wait_for, wait_until,
    worker::Worker,
};
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::{
        shard::{Layout, UserHash, shard_tags},
        time::Time,
    },
    history,
    ports::Clock as _,
};
use weir_worker::clock::SystemClock;

const DAY_MS: i64 = 86_400_000;
/// 34 days, in milliseconds: more than the history that is made.
const KEPT_MS: &str = "2937600000";
/// Users whose sends are older than 8 days.
const USERS: usize = 400;
/// What the scene's configuration says.
const SHARDS: u16 = 64;
const EXPECTED_USERS: u64 = 10_000;

/// A cap that the short history allows; the long one would be `30d`.
fn policy(window: &str) -> String {
    format!("version = \"{window}\"\n[default]\ncaps = [{{ name = \"long\", limit = 3, window = \"{window}\" }}]\n")
}

/// Sends by key and field: when, what, what it costs, and its class.
type Sends = BTreeMap<(String, Vec<u8>), Vec<(i64, u64, u8, String)>>;

/// A group that has run for 32 days with a history of 8: what is older is on the approved topic alone.
struct Old {
    redis: RedisServer,
    scene: Scene,
    now_ms: i64,
}

impl Old {
    fn new(name: &str) -> Self {
        let (redis, mut scene) = Scene::with_redis(name, 4, &policy("8d"));
        scene.set_topic("WEIR__KAFKA__REFUNDS", "refunds", 2);
        for topic in ["approved", "refunds"] {
            scene.kafka.configure_topic(&scene.topic(topic), &[("retention.ms", KEPT_MS)]).unwrap();
        }
        let old = Self { redis, scene, now_ms: SystemClock.now().millis() };
        old.publish_the_past();
        old
    }

    /// Two sends of each user, 20 and 10 days ago; every fifth user's older one was refunded, and one is 40 days old. Before all of them lies
    /// a record of today: a later time ends nothing.
    fn publish_the_past(&self) {
        let early = (0..4).map(|place| Record::new("early", "{}").timestamp_ms(self.now_ms).partition(place));
        self.scene.kafka.publish(&self.scene.topic("approved"), early).unwrap();
        let approved = |user: usize, days: i64| {
            let at_ms = self.now_ms - days * DAY_MS;
            let value = json!({"id": format!("old-{days}-{user}"), "user_id": user.to_string(), "channel": "push"});
            let header = json!({
                "verdict": "approved", "decided_at": Time::from_millis(at_ms).unwrap().to_string(),
                "policy_version": "old", "segments_version": "old",
                "class": ["push", null, format!("c{}", user % 7)], "cost": 1 + user % 2,
            });
            Record::new(user.to_string(), value.to_string())
                .header("weir-decision", header.to_string())
                .timestamp_ms(at_ms)
        };
        for days in [40, 20, 10] {
            let records = (0..USERS).map(|user| approved(user, days));
            self.scene.kafka.publish(&self.scene.topic("approved"), records).unwrap();
        }
        let refund = |user: usize| {
            let value = json!({"intent_id": format!("old-20-{user}"), "user_id": user.to_string()});
            Record::new(user.to_string(), value.to_string()).timestamp_ms(self.now_ms - 9 * DAY_MS)
        };
        self.scene.kafka.publish(&self.scene.topic("refunds"), (0..USERS).step_by(5).map(refund)).unwrap();
    }

    fn rebuild(&self, args: &[&str]) -> Command {
        let mut command = self.scene.command(&["rebuild"]);
        command.args(args);
        command
    }

    /// What it prints where it ends with this code.
    #[track_caller]
    fn ends(&self, code: i32, args: &[&str]) -> String {
        let output = output(&mut self.rebuild(args)).unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        said(&output)
    }

    /// The histories under a prefix, without it.
    fn histories(&self, prefix: &str) -> Sends {
        let names = |table: &str| -> BTreeMap<String, String> {
            self.redis.query(&["HGETALL", &format!("{prefix}:{{{prefix}}}:{table}")]).unwrap()
        };
        let (kinds, campaigns) = (names("kind-names"), names("campaign-names"));
        let keys: Vec<String> = self.redis.query(&["KEYS", &format!("{prefix}:{{*}}:[0-9]*")]).unwrap();
        let mut all = Sends::new();
        for key in keys {
            let behind = key.strip_prefix(&format!("{prefix}:")).unwrap();
            let fields: BTreeMap<Vec<u8>, Vec<u8>> = self.redis.query(&["HGETALL", &key]).unwrap();
            // The field of a key's last sweep is empty.
            for (field, packed) in fields.into_iter().filter(|(field, _)| !field.is_empty()) {
                let class = |entry: &history::Entry| {
                    let kind = kinds.get(&entry.kind.0.to_string()).cloned().unwrap_or_default();
                    kind + &campaigns.get(&entry.campaign.0.to_string()).cloned().unwrap_or_default()
                };
                let entries = history::unpack(&packed).unwrap();
                let mut entries: Vec<_> =
                    entries.iter().map(|entry| (entry.at.millis(), entry.id.0, entry.cost, class(entry))).collect();
                entries.sort_unstable();
                if !entries.is_empty() {
                    all.insert((behind.to_owned(), field), entries);
                }
            }
        }
        all
    }

    /// The histories, of more sends than so many, are those of a twin that is made now with the longer history.
    fn equals_a_twin(&self, more_than: usize) {
        let twin = [("WEIR__REDIS__PREFIX", "twin"), ("WEIR__REDIS__HISTORY", "32d")];
        succeed(self.rebuild(&["--all", "--settle", "0s"]).envs(twin));
        let (found, expected) = (self.histories(&self.scene.name), self.histories("twin"));
        let sends: usize = expected.values().map(Vec::len).sum();
        assert!(sends > more_than, "{sends}");
        let differs = expected.iter().find(|(user, entries)| found.get(*user) != Some(entries));
        assert_eq!(differs.map(|(user, entries)| (user, entries, found.get(user))), None);
        assert_eq!(found.len(), expected.len());
    }

    /// The key of some users who have none yet, and with whom none of these users is.
    fn free_key(&self, others: RangeInclusive<usize>) -> String {
        let tags = shard_tags(SHARDS);
        let key = |user: usize| {
            let place = Layout::for_users(SHARDS, EXPECTED_USERS).place(UserHash::of(&user.to_string()));
            format!("{}:{{{}}}:{}", self.scene.name, tags[usize::from(place.shard)], place.bucket)
        };
        let theirs: Vec<String> = others.map(key).collect();
        (100..USERS).map(key).find(|key| !theirs.contains(key)).unwrap()
    }

    /// Publishes intents, not far ahead of the worker, until it is told to stop; gives how many.
    fn load(&self, stop: &CancellationToken) -> usize {
        let (mut wave, mut published) = (0, 0);
        while !stop.is_cancelled() {
            let one = |user: usize| intent(&format!("load-{wave}-{user}"), user, json!({"channel": "push"}));
            self.scene.publish((0..100).map(|place| one(USERS / 2 + (wave * 100 + place) % USERS)));
            (wave, published) = (wave + 1, published + 100);
            let may_go_on = || stop.is_cancelled() || self.scene.done() + 500 > published;
            wait_for(DEADLINE, || may_go_on().then_some(()));
        }
        wave * 100
    }
}

impl Scene {
    fn reason_of(&self, case: &str) -> String {
        self.reasons().remove(case).unwrap_or_else(|| panic!("{case} has no record"))
    }
}

#[test]
fn a_history_is_made_longer_under_load_and_equals_a_twins() {
    let old = Old::new("lengthen");
    let scene = &old.scene;
    let mut worker = scene.ready("only");
    let stopped = CancellationToken::new();
    let published = thread::scope(|scope| {
        // Ends the load, also of a test that fails.
        let stops = stopped.clone().drop_guard();
        let load = scope.spawn(|| old.load(&stopped));
        wait_until(DEADLINE, "intents are decided", || scene.done() > 500);
        succeed(&mut old.rebuild(&["--history", "32d"]));
        let done = scene.done();
        wait_until(DEADLINE, "intents are decided afterwards", || scene.done() > done + 500);
        drop(stops);
        load.join().unwrap()
    });
    scene.drain(&mut worker);
    assert_eq!(scene.reasons().len(), published, "each intent has one record");
    wait_until(DEADLINE, "no shard is lost", || metric(&worker, "weir_shards_lost", "").unwrap_or(0.0) == 0.0);
    stop(&mut worker);
    old.equals_a_twin(2 * USERS - USERS / 5);

    let again = said(&output(&mut old.rebuild(&["--history", "32d"])).unwrap());
    assert!(again.contains("long already"), "{again}");
    // A shard that is lost later comes back as long, though the command is still told of the short history.
    let expected = old.histories(&scene.name);
    let (lost, _) = expected.keys().next().unwrap();
    let stem = lost.rsplit_once(':').unwrap().0;
    let keys: Vec<String> = old.redis.query(&["KEYS", &format!("{}:{stem}:*", scene.name)]).unwrap();
    assert!(keys.len() > 2, "{keys:?}");
    keys.iter().for_each(|key| old.redis.query(&["DEL", key]).unwrap());
    succeed(&mut old.rebuild(&["--settle", "0s"]));
    assert_eq!(old.histories(&scene.name), expected);

    // Now caps may look back for 30 days.
    scene.write_policy(&policy("30d"));
    let mut worker = scene.worker_with("only", &[("WEIR__REDIS__HISTORY", "32d")]);
    wait_ready(&worker);
    // Neither has sends younger than 8 days: one has two of cost 2, and of the other's one was refunded.
    scene.decide_by(&mut worker, [intent("capped", 1, json!({})), intent("refunded", 5, json!({}))]);
    assert_eq!([scene.reason_of("capped"), scene.reason_of("refunded")], ["cap", "approved"]);
    stop(&mut worker);
}

#[test]
fn a_run_that_is_killed_half_way_goes_on_and_the_caps_hold_meanwhile() {
    let old = Old::new("lengthen-killed");
    let scene = &old.scene;
    let mut worker = scene.ready("only");
    // As many as the cap of 8 days lets through, and one more, of a user with older sends.
    let mut published = 0;
    let mut caps_hold = |user: usize, worker: &mut Worker| {
        let case = |number: usize| format!("{user}-{number}");
        scene.decide_by(worker, (0..4).map(|number| intent(&case(number), user, json!({"channel": "push"}))));
        let all = scene.reasons();
        let reasons: Vec<&str> = (0..4).map(|number| all[&case(number)].as_str()).collect();
        assert_eq!(reasons, ["approved", "approved", "approved", "cap"], "of user {user}");
        published += 4;
    };
    caps_hold(1, &mut worker);

    // It cannot write to this key, asks again and again, and does not come to its end.
    let stuck = old.free_key(1..=4);
    old.redis.query::<()>(&["SET", &stuck, "of somebody else"]).unwrap();
    let command = old.rebuild(&["--history", "32d"]);
    let mut run = Guarded::spawn("weir rebuild", &command, &scene.path("rebuild.log")).unwrap();
    let script = "local all = 0 for _, key in ipairs(redis.call('KEYS', ARGV[1])) do \
                  all = all + (redis.call('TYPE', key).ok == 'hash' and redis.call('HLEN', key) or 0) end return all";
    let keys = format!("{}:{{*}}:[0-9]*", scene.name);
    wait_until(DEADLINE, "some sends are put back", || {
        assert_eq!(run.exit(), None, "{}", run.log());
        // Those of the worker's one user, and the mark of the key's last sweep, are two.
        old.redis.query::<usize>(&["EVAL", script, "0", &keys]).unwrap() > 10
    });
    caps_hold(2, &mut worker);
    run.kill();
    caps_hold(3, &mut worker);
    let mut early = scene.worker_with("early", &[("WEIR__REDIS__HISTORY", "32d")]);
    early.wait_exit(DEADLINE).unwrap();
    assert!(early.log().contains("finish weir rebuild --history 32d"), "{}", early.log());

    old.redis.query::<()>(&["DEL", &stuck]).unwrap();
    let summary = scene.summary(&["rebuild", "--history", "32d"]);
    assert_eq!(summary["beginning"], "resumed", "{summary}");
    caps_hold(4, &mut worker);
    assert_eq!(scene.reasons().len(), published, "each intent has one record");
    stop(&mut worker);
    old.equals_a_twin(2 * USERS - USERS / 5);
}

#[test]
fn a_history_is_lengthened_only_where_the_topics_keep_it_and_is_finished_before_another_one() {
    let old = Old::new("lengthen-half");
    let scene = &old.scene;
    let mut worker = scene.ready("only");
    // The topics do not keep 60 days.
    contains_all(&old.ends(2, &["--history", "60d"]), &["retention.ms=5184000000"]);
    contains_all(&old.ends(2, &["--history", "4d"]), &["8d long already"]);

    // A run that cannot read a record stops half way. Workers go on.
    let torn = Record::new("1", "{").header("weir-decision", "{}").timestamp_ms(old.now_ms - 15 * DAY_MS).partition(3);
    scene.kafka.publish(&scene.topic("approved"), [torn]).unwrap();
    old.ends(1, &["--history", "32d"]);
    scene.decide([intent("between", "u-between", json!({}))]);
    assert_eq!(scene.reason_of("between"), "approved");
    let other = said(&output(&mut old.rebuild(&["--history", "33d"])).unwrap());
    assert!(other.contains("finish that first"), "{other}");

    // A shard that was left with the epoch of before gets the new one.
    let meta = format!("{0}:{{{0}}}:meta", scene.name);
    let lengthening: String = old.redis.query(&["HGET", &meta, "lengthening"]).unwrap();
    let before = lengthening.rsplit(' ').next().unwrap();
    let keys: Vec<String> = old.redis.query(&["KEYS", &format!("{}:{{*}}:e", scene.name)]).unwrap();
    assert_eq!(keys.len(), usize::from(SHARDS));
    old.redis.query::<()>(&["SET", &keys[0], before]).unwrap();
    succeed(&mut old.rebuild(&["--history", "32d", "--skip-unreadable"]));
    let epoch: String = old.redis.query(&["HGET", &meta, "epoch"]).unwrap();
    assert_eq!(old.redis.query::<String>(&["GET", &keys[0]]).unwrap(), epoch);
    assert_eq!(old.redis.query::<String>(&["HGET", &meta, "lengthening"]).unwrap(), "");
    let marks: Vec<String> = old.redis.query(&["KEYS", &format!("{}:{{*}}:r", scene.name)]).unwrap();
    for key in marks {
        let fields: Vec<String> = old.redis.query(&["HKEYS", &key]).unwrap();
        assert!(fields.iter().all(|field| !field.contains("lengthening")), "{fields:?}");
    }
    // 20 and 10 days ago, but those that were refunded.
    assert_eq!(old.histories(&scene.name).values().map(Vec::len).sum::<usize>(), 2 * USERS - USERS / 5 + 1);
    stop(&mut worker);
}
