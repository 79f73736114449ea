//! The promise: a wheel is not left behind, and an overdue bucket leaves fresh intents their part of the pace.

use crate::{
    deferral::{Lapse, PLAIN},
    support::{DEADLINE, http::wait_ready, outcome::intent, said, stop},
};
use serde_json::{Value, json};
use testkit::{SLOW_INTERVAL, process::output, wait_for, wait_until_every};

const DUE: &str = "2026-11-20T21:45:00Z";

fn ends(lapse: &Lapse) -> String {
    let mut worker = lapse.worker("only");
    let exit = worker.wait_exit(DEADLINE).unwrap();
    format!("{exit:?} {}", worker.log())
}

fn check(lapse: &Lapse) -> (bool, String) {
    let output = output(lapse.scene.command(&["check"]).envs(lapse.clock.env())).unwrap();
    (output.status.success(), said(&output))
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
    let one = lapse.scene.topic("deferred");
    stop(&mut worker);
    let names_both = |said: &str| {
        assert!(said.contains(&format!("deferred intents wait in {one}-hours and {one}-minutes")), "{said}");
        assert!(said.contains("kafka.deferred_before"), "{said}");
    };
    // Switched off, then another prefix alone.
    lapse.scene.unset("WEIR__KAFKA__DEFERRED");
    names_both(&ends(&lapse));
    let (fine, found) = check(&lapse);
    assert!(!fine, "{found}");
    names_both(&found);
    let other = lapse.scene.create_wheel("other", 1);
    lapse.scene.set("WEIR__KAFKA__DEFERRED", &*other);
    names_both(&ends(&lapse));
    assert_eq!(lapse.waiting(), 3, "nothing was read");

    lapse.scene.set("WEIR__KAFKA__DEFERRED_BEFORE", one);
    lapse.scene.set("WEIR__WORKER__MEMORY", "400MiB");
    lapse.scene.write_policy(
        "version = \"2\"\n[default]\ncaps = [{ name = \"hour\", limit = 1, window = \"1h\", action = \"defer\" }]\n",
    );
    worker = lapse.ready("only");
    lapse.move_to("2026-11-20T21:45:01Z");
    lapse.expected = lapse.wait_decided(&mut worker, 1);
    assert_eq!(lapse.expected.len(), 1, "the cap lets one of the two through");
    let again = if lapse.expected.contains_key("first") { "second" } else { "first" };
    wait_until_every(SLOW_INTERVAL, DEADLINE, "the other one is deferred to the new wheel", || {
        lapse.waiting_at(&other) == 1 && lapse.waiting() == 1
    });
    lapse.move_to("2026-11-20T22:50:01Z");
    lapse.decides(&mut worker, &[(again, "approved")]);
    lapse.move_to("2026-11-20T23:10:01Z");
    lapse.decides(&mut worker, &[("late", "approved")]);
    wait_until_every(SLOW_INTERVAL, DEADLINE, "the old wheel is empty", || lapse.waiting() == 0);
    stop(&mut worker);
    // Now it can be left out.
    lapse.scene.unset("WEIR__KAFKA__DEFERRED_BEFORE");
    let mut worker = lapse.ready("only");
    assert_eq!(lapse.scene.reasons(), lapse.expected);
    stop(&mut worker);
}

#[test]
fn two_earlier_wheels_are_emptied_and_each_intent_comes_back_once_though_their_worker_is_killed() {
    const EACH: usize = 300;
    let mut lapse = Lapse::begin("earlier", 1, PLAIN, "2026-11-20T21:30:00Z");
    lapse.scene.set("WEIR__WORKER__MEMORY", "400MiB");
    let [second, third] = [("second", 2), ("third", 1)].map(|(name, shares)| lapse.scene.create_wheel(name, shares));
    let wheels = [lapse.scene.topic("deferred"), second, third];
    for (round, prefix) in wheels.iter().enumerate() {
        lapse.scene.set("WEIR__KAFKA__DEFERRED", prefix);
        if round > 0 {
            lapse.scene.set("WEIR__KAFKA__DEFERRED_BEFORE", wheels[..round].join(","));
        }
        // Once it is ready, the wheels' lanes have committed where they start.
        let mut worker = lapse.ready("only");
        let name = |number: usize| format!("w{round}-{number}");
        let due = |number| intent(&name(number), name(number), json!({"not_before": DUE}));
        lapse.scene.publish((0..EACH).map(due));
        wait_until_every(SLOW_INTERVAL, DEADLINE, "they are deferred to the wheel", || {
            lapse.waiting_at(prefix) == EACH as i64
        });
        stop(&mut worker);
    }
    let left = |lapse: &Lapse| wheels.iter().map(|prefix| lapse.waiting_at(prefix)).sum::<i64>();
    let all = 3 * EACH;
    assert_eq!(left(&lapse), all as i64, "no wheel was read before the time");
    // Batches are small, so that it is killed between two of them.
    lapse.scene.set("WEIR__WORKER__BATCH", "50");
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
    lapse.scene.set("WEIR__WORKER__BATCH", "200");
    let mut worker = lapse.worker("only");
    let some = |prefix: &'static str, more: Value| {
        (0..COUNT).map(move |number| intent(&format!("{prefix}{number}"), format!("{prefix}{number}"), more.clone()))
    };
    lapse.scene.decide_by(&mut worker, some("d", json!({"not_before": DUE})));
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
