//! The promise: an intent that may be sent later comes back by itself, once, when it is due and no sooner, and is decided then.

use std::collections::BTreeMap;

use crate::support::{
    DEADLINE, RINGS, Scene,
    http::{get, metric, send, wait_ready},
    outcome::{OutcomeKind, case, intent},
    stop,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::{
    SLOW_INTERVAL,
    clock::ProcessClock,
    kafka::{Consumed, Record},
    redis::RedisServer,
    wait_until, wait_until_every,
    worker::Worker,
};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// A worker and a Redis whose clock the test moves.
pub(super) struct Lapse {
    _redis: RedisServer,
    pub(super) clock: ProcessClock,
    pub(super) scene: Scene,
    /// By case, what has become of intents so far.
    pub(super) expected: BTreeMap<String, String>,
}

/// By how much a clock that shows this is ahead of the true one, in seconds.
fn ahead_s(at: &str) -> i64 {
    (ms(at) - SystemClock.now().millis()) / 1000
}

/// The time of a clock text such as `2026-11-20T21:30:00Z`, in milliseconds.
fn ms(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

impl Lapse {
    pub(super) fn begin(name: &str, shares: i32, policy: &str, at: &str) -> Self {
        let clock = ProcessClock::ahead(ahead_s(at)).unwrap();
        let redis = RedisServer::start_by(&clock).unwrap();
        let mut scene = Scene::on_redis(vec![redis.url()], name, 2, policy);
        scene.defer(shares);
        Self { _redis: redis, clock, scene, expected: BTreeMap::new() }
    }

    pub(super) fn worker(&self, instance: &str) -> Worker {
        self.scene.worker_by(instance, &self.clock, &[])
    }

    pub(super) fn ready(&self, instance: &str) -> Worker {
        let worker = self.worker(instance);
        wait_ready(&worker);
        worker
    }

    pub(super) fn move_to(&mut self, at: &str) {
        self.clock.set(ahead_s(at)).unwrap();
    }

    /// Waits until so many intents are decided, and gives what became of each: `approved`, or the reason.
    pub(super) fn wait_decided(&self, worker: &mut Worker, count: usize) -> BTreeMap<String, String> {
        wait_until(DEADLINE, &format!("{count} intents are decided"), || {
            assert_eq!(worker.exit(), None, "the worker ended");
            self.scene.reasons().len() >= count
        });
        self.scene.reasons()
    }

    /// Waits until these are decided, and fails where what was before them and these are not all.
    #[track_caller]
    pub(super) fn decides(&mut self, worker: &mut Worker, more: &[(&str, &str)]) {
        self.expected.extend(more.iter().map(|(name, reason)| ((*name).to_owned(), (*reason).to_owned())));
        assert_eq!(self.wait_decided(worker, self.expected.len()), self.expected);
    }

    pub(super) fn waiting(&self) -> i64 {
        self.waiting_at(&self.scene.topic("deferred"))
    }

    /// How many records wait in the wheel whose topics begin so.
    pub(super) fn waiting_at(&self, prefix: &str) -> i64 {
        RINGS.into_iter().map(|(ring, _)| self.waiting_on(&format!("{prefix}-{ring}"))).sum()
    }

    /// How many records wait in a topic of a wheel.
    fn waiting_on(&self, topic: &str) -> i64 {
        // The group has no coordinator before its first member asks for one.
        let committed = self.scene.kafka.committed(&format!("{}-later", self.scene.name), topic).unwrap_or_default();
        // Each committed batch ends with the mark of its transaction, which has an offset, too: what is left is counted by reading.
        let records = self.scene.kafka.read_committed(topic).unwrap();
        let left = |record: &&Consumed| {
            let committed = committed.get(record.partition as usize).copied().flatten();
            committed.is_none_or(|committed| record.offset >= committed)
        };
        records.iter().filter(left).count() as i64
    }
}

/// A record with the headers of a deferred one: due, origin, first at, why and count.
pub(super) fn deferred_as(record: Record, values: [&str; 5]) -> Record {
    let names = ["weir-due", "weir-origin", "weir-first-at", "weir-why", "weir-count"];
    names.into_iter().zip(values).fold(record, |record, (name, value)| record.header(name, value))
}

/// A policy whose caps deny nothing here.
pub(super) const PLAIN: &str =
    "version = \"1\"\n[default]\ncaps = [{ name = \"day\", limit = 100, window = \"24h\" }]\n";

const POLICY: &str = r#"
version = "1"
[default]
caps = [{ name = "hour", limit = 1, window = "1h", action = "defer" }, { name = "day", limit = 3, window = "24h" }]
[quiet_hours]
from = "22:00"
to = "08:00"
action = "defer"
spread = "30m"
channel = "email"
[defer]
max = "72h"
"#;

/// Without a key, it keeps its partition.
const KEYLESS: &str = r#"{"id": "keyless", "user_id": "u-keyless", "not_before": "2026-11-20T21:45:00Z"}"#;

#[test]
#[expect(clippy::too_many_lines, reason = "one walk of all cases")]
fn deferred_intents_come_back_once_when_they_are_due_and_are_decided_then() {
    let mut lapse = Lapse::begin("deferral", 1, POLICY, "2026-11-20T21:30:00Z");
    let mut worker = lapse.worker("only");
    let at = |clock: &str| json!({"not_before": format!("2026-11-20T{clock}:00Z")});
    let forged = |record: Record| {
        // What an approved record of "now" came from, and a time that is long gone.
        deferred_as(record, ["0", &format!("{}/0/0/", lapse.scene.topic("intents")), "0", "cap", "7"])
    };
    lapse.scene.publish([
        intent("now", "u-now", json!({})).partition(0),
        intent("soon", "u-soon", at("21:45")),
        intent("at eleven", "u-eleven", at("23:10")),
        intent(
            "expires",
            "u-expires",
            json!({"not_before": "2026-11-20T23:00:00Z", "expires_at": "2026-11-20T22:30:00Z"}),
        ),
        intent("stopped", "u-stopped", json!({"not_before": "2026-11-20T23:00:00Z", "campaign": "spring"})),
        intent("too far", "u-far", json!({"not_before": "2026-11-24T21:00:00Z"})),
        intent("first", "u-capped", json!({})).partition(1),
        intent("second", "u-capped", json!({})).partition(1),
        intent("first of two", "u-two", at("23:20")),
        case("keyless", Record::keyless(KEYLESS)).partition(1),
        forged(intent("forged", "u-forged", json!({}))),
        forged(intent("forged and deferred", "u-forged-2", at("21:45"))),
        forged(case("forged replay", Record::new("u-now", r#"{"id": "now", "user_id": "u-now"}"#))).partition(0),
    ]);
    lapse.decides(
        &mut worker,
        &[
            ("now", "approved"),
            ("too far", "too_early"),
            ("first", "approved"),
            ("forged", "approved"),
            ("forged replay", "duplicate"),
        ],
    );
    wait_until_every(SLOW_INTERVAL, DEADLINE, "eight are deferred", || lapse.waiting() == 8);
    assert_eq!(lapse.waiting_on(&lapse.scene.topic("deferred-minutes")), 3, "what is due within the hour");
    // The same id again, and not deferred: the later of the two is the duplicate.
    lapse.scene.publish([case("second of two", Record::new("u-two", r#"{"id": "first of two", "user_id": "u-two"}"#))]);
    lapse.decides(&mut worker, &[("second of two", "approved")]);

    lapse.move_to("2026-11-20T21:45:01Z");
    lapse.decides(&mut worker, &[("soon", "approved"), ("keyless", "approved"), ("forged and deferred", "approved")]);
    lapse.move_to("2026-11-20T22:32:01Z");
    lapse.decides(&mut worker, &[("second", "approved")]);
    lapse.scene.publish([intent("quiet", "u-quiet", json!({"channel": "email"}))]);
    let stop = POLICY.replace("version = \"1\"", "version = \"2\"") + "\n[[stop]]\ncampaign = \"spring\"\n";
    lapse.scene.change_policy(&worker, "2", &stop);
    lapse.move_to("2026-11-20T23:21:01Z");
    lapse.decides(
        &mut worker,
        &[("at eleven", "approved"), ("expires", "expired"), ("stopped", "stopped"), ("first of two", "duplicate")],
    );
    lapse.move_to("2026-11-21T08:31:01Z");
    lapse.decides(&mut worker, &[("quiet", "approved")]);
    assert_eq!(lapse.waiting(), 0);

    let outcomes = lapse.scene.outcomes();
    for (name, outcome) in outcomes.all() {
        let (approved, record, input) = (outcome.kind == OutcomeKind::Approved, &outcome.record, &outcome.input);
        let ours: Vec<String> = outcome.ours().into_iter().map(|(name, _)| name).collect();
        assert_eq!(ours, if approved { vec!["weir-decision"] } else { vec![] }, "{name}");
        assert_eq!(record.key, input.key, "{name}");
        assert!(record.key.is_some() || record.partition == input.partition, "{name} keeps its partition");
        assert!(!approved || record.value == input.value, "{name}");
    }
    let second = outcomes.of("second").approval();
    assert_eq!((&second["deferred"]["why"], &second["deferred"]["count"]), (&json!("cap"), &json!(1)), "{second}");
    assert!(second["deferred"]["waited_ms"].as_i64().unwrap() >= HOUR_MS - MINUTE_MS, "{second}");
    for (name, not_before) in
        [("soon", "2026-11-20T21:45:00Z"), ("at eleven", "2026-11-20T23:10:00Z"), ("quiet", "2026-11-21T08:00:00Z")]
    {
        assert!(outcomes.of(name).decided_ms() >= ms(not_before), "{name} was released before it was due");
    }
    let (stopped, input) = (outcomes.of("stopped").envelope(), &outcomes.of("stopped").input);
    let origin = json!({"topic": lapse.scene.topic("intents"), "partition": input.partition, "offset": input.offset});
    assert_eq!((&stopped["origin"], &stopped["deferred"]["why"]), (&origin, &json!("too_early")), "the first record");
    assert_eq!(outcomes.of("too far").envelope()["eligible_at"], "2026-11-24T21:00:00.000Z");
    assert_eq!(metric(&worker, "weir_deferred_total", "why=\"quiet_hours\""), Some(1.0));
    let (status, text) = get(&worker, "/metrics");
    assert!(status == 200 && text.contains("weir_deferred_late_seconds_count 9"), "{text}");
}

/// 64 MB wait, and a process that waits for them has nothing of them in its memory.
#[test]
#[cfg(target_os = "linux")]
fn intents_that_are_deferred_wait_in_kafka_and_take_no_memory() {
    const COUNT: usize = 8_000;
    const PAYLOAD_BYTES: usize = 8_000;
    let mut scene = Scene::new("deferred-memory", 2, PLAIN);
    scene.defer(1);
    let resident = |worker: &Worker| metric(worker, "process_resident_memory_bytes", "").unwrap();
    let wait_counted = |worker: &Worker, count: usize| {
        wait_ready(worker);
        let counted = || metric(worker, "weir_deferred_waiting", "") >= Some(count as f64);
        wait_until_every(SLOW_INTERVAL, DEADLINE, &format!("{count} are counted"), counted);
    };
    let mut worker = scene.worker("only");
    wait_counted(&worker, 0);
    let without = resident(&worker);
    let (due_ms, payload) = (SystemClock.now().millis() + 20 * HOUR_MS, "x".repeat(PAYLOAD_BYTES));
    let later = |number: usize| {
        intent(&format!("later-{number}"), number, json!({"not_before": due_ms, "payload": payload.as_str()}))
    };
    scene.decide_by(&mut worker, (0..COUNT).map(later));
    assert_eq!(scene.every_decision().len(), 0, "all are deferred");
    stop(&mut worker);
    // It has decided none of them: all that it can have of them is for those that wait.
    let worker = scene.worker("only");
    wait_counted(&worker, COUNT);
    let more = resident(&worker) - without;
    let waiting = (COUNT * PAYLOAD_BYTES) as f64;
    assert!(more < waiting / 2.0, "{more} bytes more where {waiting} wait");
}

#[test]
fn offsets_without_a_record_are_no_deferred_intents_and_buckets_that_retention_has_emptied_are_read_on() {
    let mut lapse = Lapse::begin("retention", 1, PLAIN, "2026-11-20T09:30:00Z");
    let mut worker = lapse.ready("only");
    for (ring, buckets) in RINGS {
        let topic = lapse.scene.topic(&format!("deferred-{ring}"));
        // The other half of the buckets never has anything.
        let aborted = (buckets / 2..buckets).map(|partition| Record::keyless("{}").partition(partition));
        lapse.scene.kafka.publish_aborted(&topic, aborted).unwrap();
    }
    // It waits behind the aborted record of its bucket.
    let due = |name: &str, at: &str| intent(name, name, json!({"not_before": at}));
    lapse.scene.publish([due("first", "2026-11-20T09:40:00Z")]);
    wait_until_every(SLOW_INTERVAL, DEADLINE, "it is deferred", || lapse.waiting() == 1);
    let counted = |worker: &Worker| metric(worker, "weir_deferred_waiting", "");
    wait_until_every(SLOW_INTERVAL, DEADLINE, "one is counted", || counted(&worker) == Some(1.0));
    lapse.move_to("2026-11-20T09:40:01Z");
    lapse.decides(&mut worker, &[("first", "approved")]);
    wait_until_every(SLOW_INTERVAL, DEADLINE, "none is counted", || counted(&worker) == Some(0.0));
    stop(&mut worker);
    // Five days later nothing is left of any bucket: not even the ends of the transactions.
    for (ring, _) in RINGS {
        let topic = lapse.scene.topic(&format!("deferred-{ring}"));
        let ends = lapse.scene.kafka.end_offsets(&topic).unwrap();
        for (partition, end) in (0..).zip(ends).filter(|(_, end)| *end > 0) {
            lapse.scene.kafka.delete_records(&topic, partition, end).unwrap();
        }
    }
    lapse.move_to("2026-11-25T09:30:00Z");
    let mut worker = lapse.worker("only");
    // The same bucket, which is the one of every second hour.
    lapse.scene.publish([due("second", "2026-11-25T09:40:00Z")]);
    wait_until_every(SLOW_INTERVAL, DEADLINE, "it is deferred", || lapse.waiting() == 1);
    lapse.move_to("2026-11-25T09:40:01Z");
    lapse.decides(&mut worker, &[("second", "approved")]);
}

#[test]
fn neither_shadow_mode_nor_http_defers_nor_is_deferred_what_the_topics_would_not_keep() {
    const DUE: &str = "2026-11-20T11:00:00Z";
    let policy = |max: &str, more: &str| {
        format!("{more}{}[defer]\nmax = {max:?}\n", PLAIN.replace("\"1\"", &format!("{max:?}")))
    };
    let mut lapse = Lapse::begin("kept", 1, &policy("2h", "shadow = true\n"), "2026-11-20T09:30:00Z");
    for (ring, _) in RINGS {
        // 26 hours: enough for two, and a day.
        let topic = lapse.scene.topic(&format!("deferred-{ring}"));
        lapse.scene.kafka.configure_topic(&topic, &[("retention.ms", "93600000")]).unwrap();
    }
    let mut worker = lapse.worker("only");
    let due = |name: &str, at: &str| intent(name, name, json!({"not_before": at}));
    lapse.scene.publish([due("shadow", DUE)]);
    lapse.decides(&mut worker, &[("shadow", "approved")]);
    lapse.scene.change_policy(&worker, "72h", &policy("72h", ""));
    let asked = json!({"id": "asked", "user_id": "u-asked", "not_before": DUE});
    let answer: Value = serde_json::from_str(&send(&worker, "POST", "/v1/decisions", &asked).1).unwrap();
    let found = (&answer["verdict"], &answer["reason"], &answer["eligible_at"]);
    assert_eq!(found, (&json!("suppressed"), &json!("too_early"), &json!("2026-11-20T11:00:00.000Z")), "{answer}");
    assert_eq!(lapse.waiting(), 0, "neither is deferred");
    lapse.scene.publish([due("near", DUE), due("far", "2026-11-20T15:00:00Z")]);
    lapse.decides(&mut worker, &[("far", "too_early")]);
    lapse.move_to("2026-11-20T11:00:01Z");
    lapse.decides(&mut worker, &[("near", "approved")]);
}
