//! While Redis does not answer, intents that wait for a route stay where they are: none is deferred, none overtakes another.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{SLOW_INTERVAL, kafka::Consumed, wait_until, wait_until_every, worker::Worker};

use super::{all_approved, looking, mails, paced, waited, waits};
use crate::support::{
    DEADLINE, Scene, approval, header,
    http::{degraded, metric, wait_whole},
};

const CAMPAIGNS: [&str; 4] = ["spring", "summer", "autumn", "winter"];

#[test]
fn intents_that_wait_are_not_deferred_while_redis_does_not_answer_and_keep_their_order() {
    keep_their_order("frozen", true);
}

#[test]
fn where_nothing_can_be_deferred_intents_that_wait_keep_their_order_over_an_outage_of_redis_too() {
    keep_their_order("frozen-only", false);
}

fn keep_their_order(name: &str, defers: bool) {
    const MAILS_EACH: usize = 500;
    const FROZEN: Duration = Duration::from_secs(12);
    // Approved records of one partition are in the order of their commits.
    let (mut redis, mut scene) = Scene::with_redis(name, 1, "");
    let caps = "[default]\ncaps = [{ name = \"day\", limit = 9, window = \"24h\" }]\n";
    let policy = |version: u32, rate: u32| format!("version = \"{version}\"\n{caps}{}", paced(rate));
    scene.write_policy(&policy(1, 100));
    if defers {
        scene.defer(1);
    }
    scene.wait_for_routes(&["email"]);
    scene.set("WEIR__REDIS__UNAVAILABLE_AFTER", "2s");
    scene.set("WEIR__REDIS__TIMEOUT", "500ms");
    let worker = looking(&scene, "weir-0");
    let all = CAMPAIGNS.len() * MAILS_EACH;
    scene.publish(CAMPAIGNS.into_iter().flat_map(|campaign| mails(campaign, MAILS_EACH)));
    // Those that there are permits for are approved; all others wait.
    scene.wait_until_drained();
    let waiting = scene.output("waiting-email");
    wait_until(DEADLINE, "they have their turns", || waited(&scene.output("approved")) > 0);
    wait_until(DEADLINE, "most of them wait", || waits(&worker) as usize > all / 4);

    redis.freeze();
    let frozen_at = Instant::now();
    wait_until(DEADLINE, "the lane rests", || rests(&worker));
    wait_until(DEADLINE, "the outage has lasted", || frozen_at.elapsed() >= FROZEN);
    assert_eq!(scene.count("waiting-email"), waiting.len(), "none waits again");
    let before = scene.count("approved");
    redis.thaw();
    wait_until_every(SLOW_INTERVAL, DEADLINE, "they have their turns again", || scene.count("approved") > before);
    // The order of the rest is the same at any rate.
    scene.write_policy(&policy(2, 1_000));

    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are approved", || scene.count("approved") >= all);
    each_has_waited_once_in_order(&waiting, &all_approved(&scene, all));
    assert_eq!(metric(&worker, "weir_deferred_total", ""), Some(0.0), "nothing was deferred");
    assert_eq!(scene.count("waiting-email"), waiting.len());
    wait_whole(&worker);
}

/// Whether the lane of waiting intents says that it rests.
fn rests(worker: &Worker) -> bool {
    let is_it = |(_, lane): &(String, Value)| {
        let message = lane["message"].as_str().unwrap();
        lane["route"] == "email" && message.contains("what waits stays where it is until they answer")
    };
    degraded(worker).iter().filter(|(what, _)| what == "lane").any(is_it)
}

/// Those that waited have waited once, and were approved in the order of their partitions.
fn each_has_waited_once_in_order(waiting: &[Consumed], approved: &[Consumed]) {
    let name = |record: &Consumed| header(record, "case").unwrap();
    let places: BTreeMap<String, usize> =
        approved.iter().enumerate().map(|(place, record)| (name(record), place)).collect();
    let again = approved.iter().map(approval).find(|decision| {
        let deferred = &decision["deferred"];
        !deferred.is_null() && (deferred["why"] != "capacity" || deferred["count"] != json!(1))
    });
    assert_eq!(again, None, "it was deferred, or waited twice");
    let partitions: BTreeSet<i32> = waiting.iter().map(|record| record.partition).collect();
    assert!(partitions.len() > 1, "campaigns take turns");
    for partition in partitions {
        let of_partition = waiting.iter().filter(|record| record.partition == partition);
        let order: Vec<usize> = of_partition.map(|record| places[&name(record)]).collect();
        assert!(order.is_sorted(), "partition {partition} was not approved in its order: {order:?}");
    }
}
