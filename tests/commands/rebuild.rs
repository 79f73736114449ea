//! The promise: after a rebuild every verdict is the one that it would have been without the loss.

use std::{collections::BTreeMap, ops::Range};

use crate::support::{
    DEADLINE, Scene, approval, header,
    http::{metric, wait_degraded, wait_ready, wait_whole},
    model::Sent,
    outcome::CASE,
    said, succeed,
    workload::pick,
};
use serde_json::Value;
use testkit::{
    kafka::{Consumed, Record},
    process::{Guarded, output},
    redis::RedisCluster,
    stack::Stack,
    wait_until,
    worker::Worker,
};
use weir_core::{
    basis::shard::{Layout, UserHash, slot_of_shard},
    ports::Clock as _,
};
use weir_worker::clock::SystemClock;

/// Windows that do not end while the test runs, so that a twin gives the same verdicts at other times.
const POLICY: &str = r#"
version = "test-1"
[segments.new]
caps = [ { name = "daily", limit = 2, window = "24h" }, { name = "weekly", limit = 5, window = "7d" } ]
[segments.active]
caps = [
  { name = "daily",      limit = 9, window = "24h" },
  { name = "push",       limit = 3, window = "2d", channel = "push" },
  { name = "promo-week", limit = 4, window = "7d", category = ["promo", "partner"] },
  { name = "once",       limit = 2, window = "12h", each = "campaign" },
]
[segments.staff]
caps = "unlimited"
[default]
caps = [ { name = "daily", limit = 3, window = "24h" } ]
[[bypass]]
category = "transactional"
counts = false
"#;

const SHARDS: u16 = 64;
/// Users of all segments, few enough that most meet their caps.
const USERS: [u64; 8] = [0, 7, 1000, 1001, 2500, 3000, 5000, 9000];

/// The decision on an intent: approved, or the reason, the cap and its use.
type Told = (String, String, u64);

fn scene(kafka_name: &str, redis: Vec<String>) -> Scene {
    let mut scene = Scene::on_redis(redis, kafka_name, 4, POLICY);
    scene.set_topic("WEIR__KAFKA__REFUNDS", "refunds", 3);
    let mail = scene.topic("approved-email");
    let kept = [("max.message.bytes", "9000000"), ("retention.ms", "691200000")];
    // With more partitions than kafka.approved: a rebuild tells them apart.
    scene.kafka.create_topic_with(&mail, 5, &kept).unwrap();
    scene.set("WEIR__KAFKA__APPROVED_BY_CHANNEL__EMAIL", mail);
    scene.set("WEIR__REDIS__TIMEOUT", "5s");
    scene
}

/// What was approved, of all channels.
fn approved(scene: &Scene) -> impl Iterator<Item = Consumed> {
    ["approved", "approved-email"].into_iter().flat_map(move |topic| scene.output(topic))
}

/// A scene whose Redis is going to be lost, its twin, and a worker each.
struct Pair {
    cluster: RedisCluster,
    lossy: Scene,
    twin: Scene,
    workers: [Worker; 2],
    waves: u64,
    sent: Vec<Sent>,
    /// Intents that waited for a lost shard.
    waited: Vec<Range<usize>>,
}

impl Pair {
    fn new(name: &str) -> Self {
        let cluster = std::thread::spawn(|| RedisCluster::start(3, 0).unwrap());
        let twin = scene(&format!("{name}-twin"), Stack::shared().redis_cluster().to_vec());
        let of_twin = twin.worker("twin");
        let cluster = cluster.join().unwrap();
        let lossy = scene(&format!("{name}-lossy"), cluster.nodes());
        let workers = [lossy.worker("lossy"), of_twin];
        workers.iter().for_each(wait_ready);
        Self { cluster, lossy, twin, workers, waves: 0, sent: Vec::new(), waited: Vec::new() }
    }

    /// With some intents that are decided, and refunds that are taken.
    fn begun(name: &str) -> Self {
        let mut pair = Self::new(name);
        pair.publish(1500);
        pair.compare();
        pair.refund();
        pair.wait_all_refunded();
        pair
    }

    fn scenes(&self) -> [&Scene; 2] {
        [&self.lossy, &self.twin]
    }

    /// The next intents, the same to both; some carry ids of before.
    fn publish(&mut self, count: usize) {
        self.waves += 1;
        let (mut random, wave) = (fastrand::Rng::with_seed(self.waves), self.waves);
        for index in 0..count {
            let old = random.choice(&self.sent).filter(|_| random.u8(..6) == 0).cloned();
            self.sent.push(old.unwrap_or_else(|| Sent {
                id: format!("w{wave}-{index}"),
                user: pick(&mut random, &USERS) + random.u64(..25),
                channel: pick(&mut random, &[Some("push"), Some("email"), None]),
                category: pick(
                    &mut random,
                    &[Some("promo"), Some("partner"), Some("news"), Some("transactional"), None],
                ),
                campaign: pick(&mut random, &[Some("spring"), Some("summer"), None]).map(str::to_owned),
                cost: pick(&mut random, &[1, 1, 1, 2]),
                not_before_ms: None,
            }));
        }
        let first = self.sent.len() - count;
        for scene in self.scenes() {
            let numbered = self.sent.iter().enumerate().skip(first);
            let record = |sent: &Sent| Record::new(sent.user.to_string(), sent.json());
            scene.publish(numbered.map(|(place, sent)| record(sent).header(CASE, place.to_string())));
        }
    }

    /// The same, while a shard is lost.
    fn publish_into_loss(&mut self, count: usize) {
        self.publish(count);
        self.waited.push(self.sent.len() - count..self.sent.len());
    }

    /// Takes back every fourth approved send so far, in both; with one that nobody sent, and some twice. Gives the users.
    fn refund(&self) -> Vec<u64> {
        let told = told(&self.twin);
        let approved = told.iter().filter(|(_, told)| told.0 == "approved").step_by(4);
        let bounced: Vec<&Sent> = approved.map(|(place, _)| &self.sent[*place]).collect();
        assert!(bounced.len() > 10, "{}", bounced.len());
        let twice = || bounced.iter().chain(bounced.iter().step_by(3)).copied();
        for scene in self.scenes() {
            let refund = |sent: &Sent| {
                let value = serde_json::json!({"intent_id": sent.id, "user_id": sent.user}).to_string();
                Record::new(sent.user.to_string(), value)
            };
            let unknown = Record::keyless(r#"{"intent_id":"nobody-sent-it","user_id":"5"}"#);
            let twice = twice().map(refund);
            scene.kafka.publish(&scene.topic("refunds"), twice.chain([unknown, Record::keyless("no refund")])).unwrap();
        }
        twice().map(|sent| sent.user).chain([5]).collect()
    }

    /// Intents of the newest wave whose users' histories were on this node, and that are decided.
    fn decided_on(&self, node: usize) -> Vec<usize> {
        let newest = self.waited.last().unwrap();
        let on_it = |place: &usize| self.node_of(self.sent[*place].user) == node;
        let counts = |place: &usize| self.sent[*place].category != Some("transactional");
        told(&self.lossy).into_keys().filter(|place| newest.contains(place) && on_it(place) && counts(place)).collect()
    }

    fn wait_all_refunded(&self) {
        self.scenes().into_iter().for_each(wait_refunded);
    }

    /// Fails unless each intent has the same verdict in both, for the same cap at the same use.
    fn compare(&self) {
        let differ = self.differ();
        assert!(differ.is_empty(), "{:#?}", &differ[..differ.len().min(10)]);
    }

    /// Intents whose verdicts differ: with the loss, and without. One that waited for a shard was asked for more than once,
    /// and if denied may name what was sent after it in its batch: only its reason is compared.
    fn differ(&self) -> Vec<(&Sent, Told, Told)> {
        self.scenes().iter().for_each(|scene| scene.wait_until_drained());
        let (lossy, twin) = (told(&self.lossy), told(&self.twin));
        assert_eq!((lossy.len(), twin.len()), (self.sent.len(), self.sent.len()), "each intent has one record");
        let waited = |place: &usize| self.waited.iter().any(|waited| waited.contains(place));
        let same = |place: &usize, a: &Told, b: &Told| a.0 == b.0 && (a == b || waited(place));
        let pairs = lossy.into_iter().zip(twin.into_values());
        let differ = pairs.filter(|((place, lossy), twin)| !same(place, lossy, twin));
        differ.map(|((place, lossy), twin)| (&self.sent[place], lossy, twin)).collect()
    }

    fn flush(&self, node: usize) {
        self.cluster.cli(node, &["FLUSHALL"]).unwrap();
    }

    /// Nodes of the lossy cluster, the one with the keyspace's tables first.
    fn nodes(&self) -> Vec<usize> {
        let tables = self.cluster.owner_of_key(&self.lossy.name).unwrap();
        let mut nodes = self.cluster.primaries().unwrap();
        nodes.sort_by_key(|node| *node != tables);
        nodes
    }

    fn node_of(&self, user: u64) -> usize {
        let place = Layout::for_users(SHARDS, 10_000).place(UserHash::of(&user.to_string()));
        self.cluster.owner_of(slot_of_shard(place.shard, SHARDS)).unwrap()
    }

    fn rebuild(&self, args: &[&str]) -> Value {
        self.lossy.summary(&[&["rebuild", "--settle", "3s"], args].concat())
    }

    fn wait_lost(&self) {
        wait_until(DEADLINE, "the loss is noticed", || metric(&self.workers[0], "weir_shards_lost", "").unwrap() > 0.0);
    }
}

/// A rebuild that ends with the value.
pub(super) fn start(scene: &Scene, args: &[&str]) -> Guarded {
    let mut command = scene.command(&["rebuild"]);
    Guarded::spawn("weir rebuild", command.args(args), &scene.path("rebuild.log")).unwrap()
}

/// Kills a rebuild, and takes its lock, which would run out in 20 s: tests/commands/lengthen.rs waits for that.
pub(super) fn kill(mut rebuild: Guarded, scene: &Scene, cluster: &RedisCluster) {
    rebuild.kill();
    let (lock, tables) = (format!("{0}:{{{0}}}:rebuilding", scene.name), cluster.owner_of_key(&scene.name).unwrap());
    assert_eq!(cluster.cli(tables, &["DEL", &lock]).unwrap().trim(), "1");
}

fn wait_refunded(scene: &Scene) {
    scene.wait_read_or(&format!("{}-refunds", scene.name), &scene.topic("refunds"), || {});
}

/// The decision on each intent, in the order of publishing.
fn told(scene: &Scene) -> BTreeMap<usize, Told> {
    let mut all = BTreeMap::new();
    let approved = approved(scene).map(|record| (record, Value::Null));
    let suppressed = scene.output("suppressed").into_iter().map(|record| {
        let envelope = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
        (record, envelope)
    });
    for (record, envelope) in approved.chain(suppressed) {
        let Some(place) = header(&record, CASE) else { continue };
        let (cap, reason) = (&envelope["cap"], envelope["reason"].as_str().unwrap_or("approved"));
        let told = (
            reason.to_owned(),
            cap["name"].as_str().unwrap_or_default().to_owned(),
            cap["used"].as_u64().unwrap_or_default(),
        );
        let before = all.insert(place.parse().unwrap(), told);
        assert!(before.is_none(), "intent {place} has two records");
    }
    all
}

#[test]
fn after_a_rebuild_every_verdict_is_the_one_without_the_loss() {
    let mut pair = Pair::begun("rebuild");
    pair.publish(500);
    pair.compare();
    for (topic, is_mail) in [("approved-email", true), ("approved", false)] {
        let records = pair.lossy.output(topic);
        let fits = |record: &Consumed| record.value_text().contains(r#""channel":"email""#) == is_mail;
        assert!(records.len() > 50 && records.iter().all(fits), "{topic}: each channel has its topic");
    }

    // A node comes back empty. Users elsewhere are served, and their refunds are taken; the others wait, and that is told.
    let lost = pair.nodes()[1];
    pair.flush(lost);
    let elsewhere = (100..).find(|user| pair.node_of(*user) != lost).unwrap();
    let one = Record::new("x", format!(r#"{{"id":"elsewhere","user_id":{elsewhere}}}"#));
    pair.scenes().iter().for_each(|scene| scene.publish([one.clone()]));
    pair.scenes().iter().for_each(|scene| scene.wait_until_drained());
    let taken = || metric(&pair.workers[0], "weir_refunds_total", "").unwrap();
    let (before, refunded) = (taken(), pair.refund());
    let theirs = refunded.iter().filter(|user| pair.node_of(**user) != lost).count();
    wait_until(DEADLINE, "refunds elsewhere are taken", || taken() >= before + theirs as f64);
    assert!(theirs < refunded.len() && taken() < before + refunded.len() as f64);
    wait_refunded(&pair.twin);
    pair.publish_into_loss(500);
    pair.wait_lost();
    let entry = wait_degraded(&pair.workers[0], "shards_lost");
    assert!(entry["message"].as_str().unwrap().contains("weir rebuild"), "{entry}");
    assert_eq!(pair.decided_on(lost), Vec::<usize>::new(), "decided without their history");

    let summary = pair.rebuild(&[]);
    assert_eq!(summary["beginning"], "fresh", "{summary}");
    assert!(summary["restored"].as_u64().unwrap() > 50 && summary["taken_back"].as_u64().unwrap() > 5, "{summary}");
    wait_whole(&pair.workers[0]);
    pair.compare();
    pair.wait_all_refunded();
    pair.publish(500);
    pair.compare();

    // Again, of all shards, while the worker is at work: that changes nothing.
    pair.publish_into_loss(1500);
    let again = pair.rebuild(&["--all"]);
    assert_eq!((&again["unreadable"], &again["warnings"]), (&Value::from(0), &serde_json::json!([])));
    wait_whole(&pair.workers[0]);
    pair.compare();
    let none = pair.rebuild(&[]);
    assert_eq!(none["shards"], serde_json::json!([]), "{none}");
    for scene in pair.scenes() {
        assert_eq!(scene.count("dead"), 2, "an invalid refund is one dead letter, also where it was read again");
    }
}

#[test]
fn a_rebuild_that_is_killed_goes_on_and_a_lost_keyspace_is_made_anew() {
    let mut pair = Pair::begun("rebuild-killed");

    // Under load this time; batches that are being committed are read too.
    pair.publish_into_loss(2000);
    pair.flush(pair.nodes()[1]);
    pair.publish_into_loss(500);
    pair.wait_lost();
    let killed = start(&pair.lossy, &["--settle", "10m"]);
    let key = format!("{0}:{{{0}}}:rebuild", pair.lossy.name);
    let tables = pair.nodes()[0];
    wait_until(DEADLINE, "it has put sends back", || {
        pair.cluster.cli(tables, &["HVALS", &key]).unwrap().lines().count() > 4
    });
    kill(killed, &pair.lossy, &pair.cluster);
    // Half a rebuild is none.
    wait_degraded(&pair.workers[0], "shards_lost");
    let summary = pair.rebuild(&[]);
    assert_eq!(summary["beginning"], "resumed", "{summary}");
    wait_whole(&pair.workers[0]);
    pair.compare();

    // All nodes, the tables too: all of it has to be asked for, and the worker takes the new keyspace up by itself.
    (0..3).for_each(|node| pair.flush(node));
    pair.publish_into_loss(500);
    pair.wait_lost();
    let refused = output(&mut pair.lossy.command(&["rebuild"])).unwrap();
    let said = said(&refused);
    assert!(refused.status.code() == Some(2) && said.contains("weir rebuild --all"), "{said}");
    let summary = pair.rebuild(&["--all"]);
    assert_eq!(summary["beginning"], "new_keyspace", "{summary}");
    wait_whole(&pair.workers[0]);
    pair.publish(500);
    pair.compare();
}

/// The numbers of names in the decisions on approved records; fails where a name has two, or a number.
fn numbers(scene: &Scene) -> BTreeMap<String, u64> {
    let (mut numbers, mut names) = (BTreeMap::new(), BTreeMap::new());
    for record in approved(scene) {
        let decision = approval(&record);
        let class = decision["class"].as_array().cloned().unwrap_or_default();
        let name = |at: usize| class.get(at).unwrap_or(&Value::Null).to_string();
        let kind = format!("{},{}", name(0), name(1));
        let campaign = class.get(2).map(Value::to_string).unwrap_or_default();
        for (name, number) in [(format!("kind {kind}"), 0), (format!("campaign {campaign}"), 1)] {
            let Some(number) = decision["numbers"][number].as_u64().filter(|number| *number > 0) else { continue };
            let table = name.split(' ').next().unwrap().to_owned();
            assert_eq!(*numbers.entry(name.clone()).or_insert(number), number, "{name} has two numbers");
            assert_eq!(*names.entry((table, number)).or_insert(name.clone()), name, "{number} was given twice");
        }
    }
    numbers
}

#[test]
fn names_lost_with_their_node_are_repaired_like_any_shard_and_keep_their_numbers() {
    let mut pair = Pair::new("rebuild-names");
    pair.publish(1500);
    pair.compare();
    let before = numbers(&pair.lossy);
    assert!(before.len() > 8, "{before:?}");

    // Users elsewhere are served by the names that the worker knows; new names wait.
    let tables = pair.nodes()[0];
    pair.flush(tables);
    let elsewhere = (100..).find(|user| pair.node_of(*user) != tables).unwrap();
    let known = format!(
        r#"{{"id":"elsewhere","user_id":{elsewhere},"channel":"push","category":"promo","campaign":"spring"}}"#
    );
    pair.scenes().iter().for_each(|scene| scene.publish([Record::new("x", known.clone())]));
    pair.scenes().iter().for_each(|scene| scene.wait_until_drained());
    pair.publish_into_loss(500);
    let new = format!(r#"{{"id":"new","user_id":{elsewhere},"channel":"push","campaign":"autumn"}}"#);
    pair.scenes().iter().for_each(|scene| scene.publish([Record::new("x", new.clone())]));
    pair.wait_lost();

    // A run that is killed while all shards wait for it is followed by one that does the whole.
    let killed = start(&pair.lossy, &["--settle", "10m"]);
    wait_until(DEADLINE, "all shards wait for the names", || {
        metric(&pair.workers[0], "weir_shards_lost", "").unwrap() >= f64::from(SHARDS)
    });
    kill(killed, &pair.lossy, &pair.cluster);

    let summary = pair.rebuild(&[]);
    assert_eq!(summary["names_repaired"], before.len(), "{summary}");
    let restored = summary["shards"].as_array().unwrap().len();
    assert!(restored > 5 && restored < usize::from(SHARDS) / 2, "only those of the node: {summary}");
    wait_ready(&pair.workers[0]);
    pair.compare();
    pair.publish(1000);
    pair.compare();
    let after = numbers(&pair.lossy);
    assert!(before.iter().all(|(name, number)| after.get(name) == Some(number)), "{before:?} {after:?}");
    let autumn = after["campaign \"autumn\""];
    assert!(before.values().all(|number| autumn > number + 256), "{autumn} may be in a history");
    assert_eq!(pair.rebuild(&[])["names_repaired"], 0);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    NoRefunds,
    ShortHistory,
}

#[test]
fn a_rebuild_that_forgets_refunds_or_a_part_of_the_history_is_seen_by_the_comparison() {
    let mut pair = Pair::begun("rebuild-wrong");
    // Each of a node of its own: what the first leaves behind is told from what the second does.
    for (node, planted) in pair.nodes().into_iter().skip(1).zip([Planted::NoRefunds, Planted::ShortHistory]) {
        pair.flush(node);
        let mut command = pair.lossy.command(&["rebuild", "--settle", "0s"]);
        let now = jiff::Timestamp::from_millisecond(SystemClock.now().millis()).unwrap().to_string();
        match planted {
            Planted::NoRefunds => command.env_remove("WEIR__KAFKA__REFUNDS"),
            Planted::ShortHistory => command.args(["--since", &now]),
        };
        let warned = String::from_utf8_lossy(&succeed(&mut command).stdout).contains("--since");
        assert_eq!(warned, planted == Planted::ShortHistory);
        pair.publish(1000);
        assert!(pair.differ().iter().any(|(sent, ..)| pair.node_of(sent.user) == node), "{planted:?} was not seen");
    }
}
