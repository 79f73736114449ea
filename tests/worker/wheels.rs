//! The promise: the lanes share a wheel out, a wheel is not left behind, and what is never deferred is not.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use crate::{
    deferral::{Lapse, decided, ms},
    support::{
        DEADLINE, Scene, header,
        http::{send, wait_ready, wait_version},
        outcome::intent,
        weir,
    },
};
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde_json::{Value, json};
use testkit::{SLOW_INTERVAL, process::output, wait_for, wait_until, wait_until_every, worker::Worker};
use weir_core::{
    basis::{shard::UserHash, time::Time},
    deferral::wheel::Wheel,
};

const PLAIN: &str = "version = \"1\"\n[default]\ncaps = [{ name = \"day\", limit = 100, window = \"24h\" }]\n";
const DUE: &str = "2026-11-20T21:45:00Z";

/// The bytes of a member's assignment, as Kafka's consumer protocol has them: a version, then topics with their partitions.
struct Assignment<'b>(&'b [u8]);

impl Assignment<'_> {
    fn number(&mut self, bytes: usize) -> i32 {
        let (number, rest) = self.0.split_at(bytes);
        self.0 = rest;
        number.iter().fold(0, |sum, byte| sum << 8 | i32::from(*byte))
    }

    fn partitions_of(mut self, topic: &str) -> Vec<i32> {
        self.number(2);
        for _ in 0..self.number(4) {
            let length = self.number(2) as usize;
            let (name, rest) = self.0.split_at(length);
            self.0 = rest;
            let partitions: Vec<i32> = (0..self.number(4)).map(|_| self.number(4)).collect();
            if name == topic.as_bytes() {
                return partitions;
            }
        }
        Vec::new()
    }
}

/// Which member of the wheel's group each partition of a topic belongs to, by the group's coordinator; `None` while it is not settled.
fn owners(reader: &BaseConsumer, scene: &Scene, topic: &str, members: usize) -> Option<BTreeMap<i32, String>> {
    let groups = reader.fetch_group_list(Some(&format!("{}-later", scene.name)), DEADLINE).ok()?;
    let group = groups.groups().first().filter(|group| group.state() == "Stable")?;
    if group.members().len() != members {
        return None;
    }
    let mut owners = BTreeMap::new();
    for member in group.members() {
        for partition in Assignment(member.assignment()?).partitions_of(topic) {
            owners.insert(partition, member.id().to_owned());
        }
    }
    Some(owners)
}

#[test]
fn two_lanes_release_the_two_shares_of_a_minute() {
    const COUNT: usize = 400;
    let mut lapse = Lapse::begin("shares", 2, PLAIN, "2026-11-20T21:30:00Z");
    lapse.scene.env.extend([("WEIR__WORKER__LANES", "4".to_owned()), ("WEIR__WORKER__MEMORY", "400MiB".to_owned())]);
    let mut worker = lapse.worker("only");
    let name = |number: usize| format!("u{number}");
    lapse.scene.publish((0..COUNT).map(|user| intent(&name(user), name(user), json!({"not_before": DUE}))));
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are deferred", || lapse.waiting() == COUNT as i64);
    let topic = lapse.scene.topic("deferred-minutes");
    // Two lanes of what is due, and one that moves what is deferred on.
    let reader: BaseConsumer = lapse.scene.kafka.config().create().unwrap();
    let owners =
        wait_for(DEADLINE, || owners(&reader, &lapse.scene, &topic, 3)).expect("three lanes share the wheel out");
    lapse.move_to("2026-11-20T21:45:01Z");
    let found = lapse.wait_decided(&mut worker, COUNT);
    assert!(found.values().all(|reason| reason == "approved"), "{found:?}");

    let due = Time::from_rfc3339(DUE).unwrap();
    let place = |user| Wheel { shares: 2 }.place(UserHash::of(&name(user)), due, due).partition;
    let shares: BTreeSet<i32> = (0..COUNT).map(place).collect();
    let [one, other] = shares.into_iter().collect::<Vec<_>>()[..] else { panic!("two partitions") };
    assert_ne!(owners[&one], owners[&other], "the shares of one minute belong to two lanes: {owners:?}");
    wait_until(DEADLINE, "both lanes have committed their share", || {
        let committed = lapse.scene.kafka.committed(&format!("{}-later", lapse.scene.name), &topic).unwrap();
        [one, other].iter().all(|partition| committed[*partition as usize] > Some(0))
    });
    // Records have the time at which they were written, by the true clock.
    for (name, decision) in lapse.scene.every_decision() {
        let late_ms = decision.record.timestamp_ms.unwrap() + lapse.ahead_ms() - ms(DUE);
        assert!(late_ms >= 0, "{name} was released {late_ms} ms after it was due");
    }
}

fn ends(lapse: &Lapse) -> String {
    let mut worker = lapse.worker("only");
    let exit = worker.wait_exit(DEADLINE).unwrap();
    format!("{exit:?} {}", worker.log())
}

/// What `weir check` says, and whether it finds nothing wrong.
fn check(lapse: &Lapse) -> (bool, String) {
    let file = lapse.scene.path("checked.toml");
    std::fs::write(&file, lapse.scene.config("checked")).unwrap();
    let own = lapse.scene.env.iter().map(|(name, value)| (*name, value.clone()));
    let mut check = Command::new(weir());
    check.args(["check", "--config"]).arg(&file).envs(own.chain(lapse.clock.env()));
    let output = output(&mut check).unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Sets a variable of the workers that are started from now on.
fn set(lapse: &mut Lapse, variable: &'static str, value: Option<&str>) {
    lapse.scene.env.retain(|(name, _)| *name != variable);
    lapse.scene.env.extend(value.map(|value| (variable, value.to_owned())));
}

fn stop(mut worker: Worker) {
    worker.terminate();
    worker.wait_exit(DEADLINE).unwrap();
}

#[test]
fn a_wheel_that_is_not_empty_has_to_be_named_and_then_comes_back_once_by_the_new_one() {
    let mut lapse = Lapse::begin("prefixes", 1, PLAIN, "2026-11-20T21:30:00Z");
    let mut worker = lapse.worker("only");
    lapse.scene.publish([
        intent("first", "u-two", json!({"not_before": DUE})),
        intent("second", "u-two", json!({"not_before": DUE})),
        intent("late", "u-late", json!({"not_before": "2026-11-20T23:10:00Z"})),
    ]);
    // The wheel's lanes have committed where they start.
    wait_ready(&worker);
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are deferred", || lapse.waiting() == 3);
    let (one, other) = (lapse.scene.topic("deferred"), lapse.scene.topic("other"));
    stop(worker);
    let names_both = |said: &str| {
        assert!(said.contains(&format!("deferred intents wait in {one}-hours and {one}-minutes")), "{said}");
        assert!(said.contains("kafka.deferred_before"), "{said}");
    };
    // Switched off, then another prefix alone.
    set(&mut lapse, "WEIR__KAFKA__DEFERRED", None);
    names_both(&ends(&lapse));
    let (fine, said) = check(&lapse);
    assert!(!fine, "{said}");
    names_both(&said);
    for (ring, buckets) in [("hours", 96), ("minutes", 120)] {
        let settings = [("max.message.bytes", "9000000"), ("retention.ms", "424800000")];
        lapse.scene.kafka.create_topic_with(&format!("{other}-{ring}"), buckets, &settings).unwrap();
    }
    set(&mut lapse, "WEIR__KAFKA__DEFERRED", Some(&other));
    names_both(&ends(&lapse));
    assert_eq!(lapse.waiting(), 3, "nothing was read");

    set(&mut lapse, "WEIR__KAFKA__DEFERRED_BEFORE", Some(&one));
    lapse.scene.env.push(("WEIR__WORKER__MEMORY", "400MiB".to_owned()));
    lapse.scene.write_policy(
        "version = \"2\"\n[default]\ncaps = [{ name = \"hour\", limit = 1, window = \"1h\", action = \"defer\" }]\n",
    );
    worker = lapse.worker("only");
    wait_ready(&worker);
    lapse.move_to("2026-11-20T21:45:01Z");
    let mut expected = lapse.wait_decided(&mut worker, 1);
    assert_eq!(expected.len(), 1, "the cap lets one of the two through");
    let again = if expected.contains_key("first") { "second" } else { "first" };
    wait_until_every(SLOW_INTERVAL, DEADLINE, "the other one is deferred to the new wheel", || {
        lapse.waiting_on(&format!("{other}-hours")) + lapse.waiting_on(&format!("{other}-minutes")) == 1
            && lapse.waiting() == 1
    });
    lapse.move_to("2026-11-20T22:50:01Z");
    expected.extend(decided(&[(again, "approved")]));
    assert_eq!(lapse.wait_decided(&mut worker, 2), expected);
    lapse.move_to("2026-11-20T23:10:01Z");
    expected.extend(decided(&[("late", "approved")]));
    assert_eq!(lapse.wait_decided(&mut worker, 3), expected);
    wait_until_every(SLOW_INTERVAL, DEADLINE, "the old wheel is empty", || lapse.waiting() == 0);
    stop(worker);
    // Now it can be left out.
    set(&mut lapse, "WEIR__KAFKA__DEFERRED_BEFORE", None);
    let worker = lapse.worker("only");
    wait_ready(&worker);
    assert_eq!(lapse.decided(), expected);
    stop(worker);
}

/// The topics of a wheel with so many shares, and what their names begin with.
fn wheel(lapse: &Lapse, name: &str, shares: i32) -> String {
    let prefix = lapse.scene.topic(name);
    for (ring, buckets) in [("hours", 96), ("minutes", 120)] {
        let settings = [("max.message.bytes", "9000000"), ("retention.ms", "424800000")];
        lapse.scene.kafka.create_topic_with(&format!("{prefix}-{ring}"), buckets * shares, &settings).unwrap();
    }
    prefix
}

/// How many intents wait in a wheel.
fn in_wheel(lapse: &Lapse, prefix: &str) -> i64 {
    ["hours", "minutes"].into_iter().map(|ring| lapse.waiting_on(&format!("{prefix}-{ring}"))).sum()
}

#[test]
fn two_earlier_wheels_are_emptied_and_each_intent_comes_back_once_though_their_worker_is_killed() {
    const EACH: usize = 300;
    let mut lapse = Lapse::begin("earlier", 1, PLAIN, "2026-11-20T21:30:00Z");
    lapse.scene.env.push(("WEIR__WORKER__MEMORY", "400MiB".to_owned()));
    let wheels = [lapse.scene.topic("deferred"), wheel(&lapse, "second", 2), wheel(&lapse, "third", 1)];
    for (round, prefix) in wheels.iter().enumerate() {
        let before = wheels[..round].join(",");
        set(&mut lapse, "WEIR__KAFKA__DEFERRED", Some(prefix));
        set(&mut lapse, "WEIR__KAFKA__DEFERRED_BEFORE", (round > 0).then_some(before.as_str()));
        let worker = lapse.worker("only");
        // The wheels' lanes have committed where they start.
        wait_ready(&worker);
        let name = |number: usize| format!("w{round}-{number}");
        let due = |number| intent(&name(number), name(number), json!({"not_before": DUE}));
        lapse.scene.publish((0..EACH).map(due));
        wait_until_every(SLOW_INTERVAL, DEADLINE, "they are deferred to the wheel", || {
            in_wheel(&lapse, prefix) == EACH as i64
        });
        stop(worker);
    }
    let left = |lapse: &Lapse| wheels.iter().map(|prefix| in_wheel(lapse, prefix)).sum::<i64>();
    let all = 3 * EACH;
    assert_eq!(left(&lapse), all as i64, "no wheel was read before the time");
    // Batches are small, so that it is killed between two of them.
    lapse.scene.env.push(("WEIR__WORKER__BATCH", "50".to_owned()));
    lapse.move_to("2026-11-20T21:45:01Z");
    for part in [1, 2] {
        let mut worker = lapse.worker("only");
        wait_until_every(SLOW_INTERVAL, DEADLINE, "some are released", || left(&lapse) <= all as i64 * (3 - part) / 3);
        worker.kill();
    }
    let mut worker = lapse.worker("only");
    let found = lapse.wait_decided(&mut worker, all);
    assert!(found.len() == all && found.values().all(|reason| reason == "approved"), "{} of {all}", found.len());
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all wheels are empty", || left(&lapse) == 0);
}

#[test]
#[ignore = "compares rates: cargo xtask ci --extent everything"]
fn fresh_intents_keep_half_of_the_pace_while_an_overdue_bucket_drains() {
    const COUNT: usize = 30_000;
    let mut lapse = Lapse::begin("fair", 1, PLAIN, "2026-11-20T21:30:00Z");
    lapse.scene.env.push(("WEIR__WORKER__BATCH", "200".to_owned()));
    let mut worker = lapse.worker("only");
    let some = |prefix: &'static str, more: Value| {
        (0..COUNT).map(move |number| intent(&format!("{prefix}{number}"), format!("{prefix}{number}"), more.clone()))
    };
    lapse.scene.publish(some("d", json!({"not_before": DUE})));
    lapse.scene.drain(&mut worker);
    let (topic, group) = (lapse.scene.topic("deferred-minutes"), format!("{}-later", lapse.scene.name));
    let (all, done_before) = (COUNT as i64, lapse.scene.done());
    lapse.scene.publish(some("f", json!({})));
    lapse.move_to("2026-11-20T21:45:01Z");
    let progress = || {
        let released = lapse.scene.kafka.committed(&group, &topic).unwrap_or_default();
        (lapse.scene.done() - done_before, released.into_iter().flatten().sum::<i64>())
    };
    // From when both are under way until one is through.
    let from =
        wait_for(DEADLINE, || Some(progress()).filter(|(_, released)| *released > 0)).expect("some are released");
    let to = wait_for(DEADLINE, || Some(progress()).filter(|(fresh, released)| *fresh.max(released) >= all))
        .expect("one of them is through");
    let (fresh, released) = (to.0 - from.0, to.1 - from.1);
    assert!(fresh + released > all / 2, "they overlapped: from {from:?} to {to:?}");
    // Of one lane each. A released record costs a little more than a fresh one.
    assert!(fresh * 10 >= (fresh + released) * 4, "{fresh} fresh intents while {released} were released");
    assert_eq!(lapse.wait_decided(&mut worker, 2 * COUNT).len(), 2 * COUNT);
}

#[test]
fn the_end_of_quiet_hours_is_spread_over_the_users_minutes() {
    const COUNT: usize = 60;
    let policy =
        format!("{PLAIN}[quiet_hours]\nfrom = \"22:00\"\nto = \"08:00\"\naction = \"defer\"\nspread = \"30m\"\n");
    let mut lapse = Lapse::begin("spread", 1, &policy, "2026-11-20T22:30:00Z");
    let mut worker = lapse.worker("only");
    lapse.scene.publish((0..COUNT).map(|user| intent(&user.to_string(), user, json!({}))));
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are deferred", || lapse.waiting() == COUNT as i64);
    let due_ms = |record| header(record, "weir-due").unwrap().parse::<i64>().unwrap();
    let deferred = lapse.scene.kafka.read_committed(&lapse.scene.topic("deferred-hours")).unwrap();
    let dues: BTreeSet<i64> = deferred.iter().map(due_ms).collect();
    let (from_ms, to_ms) = (ms("2026-11-21T08:00:00Z"), ms("2026-11-21T08:30:00Z"));
    assert!(dues.iter().all(|due| (from_ms..=to_ms).contains(due)), "{dues:?}");
    assert!(dues.len() >= 20, "60 users are spread over 30 minutes, not {}", dues.len());
    let half_ms = ms("2026-11-21T08:15:00Z");
    let early = deferred.iter().filter(|record| due_ms(record) <= half_ms).count();
    lapse.move_to("2026-11-21T08:15:01Z");
    assert_eq!(lapse.wait_decided(&mut worker, early).len(), early, "those of the first half");
    lapse.move_to("2026-11-21T08:30:01Z");
    let found = lapse.wait_decided(&mut worker, COUNT);
    assert!(found.values().all(|reason| reason == "approved"), "{found:?}");
}

#[test]
fn neither_shadow_mode_nor_http_defers() {
    let mut lapse = Lapse::begin("never", 1, &format!("shadow = true\n{PLAIN}"), "2026-11-20T21:30:00Z");
    let mut worker = lapse.worker("only");
    lapse.scene.publish([intent("shadow", "u-shadow", json!({"not_before": DUE}))]);
    let expected = decided(&[("shadow", "approved")]);
    assert_eq!(lapse.wait_decided(&mut worker, 1), expected);
    lapse.scene.write_policy(&PLAIN.replace("\"1\"", "\"2\""));
    wait_version(&worker, "policy", "2");
    let asked = json!({"id": "asked", "user_id": "u-asked", "not_before": DUE});
    let (_, answer) = send(&worker, "POST", "/v1/decisions", &asked);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let found = (&answer["verdict"], &answer["reason"], &answer["eligible_at"]);
    assert_eq!(found, (&json!("suppressed"), &json!("too_early"), &json!("2026-11-20T21:45:00.000Z")), "{answer}");
    assert_eq!(lapse.waiting(), 0, "neither is deferred");
    lapse.move_to("2026-11-20T21:46:00Z");
    lapse.scene.publish([intent("after", "u-after", json!({}))]);
    lapse.wait_decided(&mut worker, 2);
    assert_eq!(lapse.decided(), decided(&[("after", "approved"), ("shadow", "approved")]));
}
