//! Policies that change while intents wait: what waits for a route that was removed is decided all the same, by the policy of when it has
//! its turn. What waits for another installation is left alone, however its topics are called.

use std::{collections::BTreeSet, ffi::OsString};

use testkit::{process::output, wait_until};
use weir::{cli::assemble, config};
use weir_kafka::waiting_topics;

use super::{all_approved, committed, looking, mails, outputs, paced, routed, wait_decided, wait_looked, waits};
use crate::support::{
    DEADLINE, Scene, ends,
    http::{wait_degraded, wait_ready, wait_whole},
    outcome::cases,
    said, unlimited,
};

/// What names the topics of waiting intents.
const WAITING: &str = "WEIR__KAFKA__WAITING";
/// More than a slow route takes before a test gives up.
const MAILS: usize = 400;

fn slow(name: &str) -> Scene {
    let mut scene = routed(name, (4, 32), &paced(1));
    scene.end_sessions_soon();
    scene
}

/// Runs a worker until nearly all intents of a blast wait, and kills it.
fn leave_waiting(scene: &Scene, campaign: &'static str) {
    let mut worker = looking(scene, "only");
    scene.publish(mails(campaign, MAILS));
    wait_until(DEADLINE, "they wait", || waits(&worker) > MAILS as u64 * 9 / 10);
    worker.kill();
}

/// Waits until all intents of a blast are approved, and fails unless each has one record and nothing else has.
fn wait_all_approved(scene: &Scene, campaign: &str) {
    wait_until(DEADLINE, "all are approved", || scene.count("approved") >= MAILS);
    let approved = cases(&all_approved(scene, MAILS));
    assert!(approved.iter().all(|name| name.starts_with(&format!("{campaign}-"))), "{approved:?}");
}

/// The routes for which something may wait, as a start finds them.
fn known(scene: &Scene) -> BTreeSet<String> {
    let file = scene.path("weir.toml");
    std::fs::write(&file, scene.config("only")).unwrap();
    let env = scene.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let settings = config::load(&file, env).unwrap();
    waiting_topics::routes(&assemble::kafka(&settings.kafka), &BTreeSet::new()).unwrap()
}

/// Whether `weir check` finds nothing wrong, and what it says.
fn check(scene: &Scene) -> (bool, String) {
    let output = output(&mut scene.command(&["check"])).unwrap();
    (output.status.success(), said(&output))
}

#[test]
fn intents_that_wait_when_their_route_is_removed_are_decided_at_once() {
    let scene = routed("removed", (4, 32), "");
    let worker = scene.ready("only");
    scene.change_policy(&worker, "2", &unlimited(2, &paced(1)));
    // Nothing can wait yet, so whoever starts without the route finds all that does.
    let begun = committed(&scene, "email");
    assert!(begun.len() == 32 && begun.iter().all(Option::is_some), "{begun:?}");
    wait_looked(&worker);
    scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "they wait", || waits(&worker) > MAILS as u64 * 9 / 10);
    scene.write_policy(&unlimited(3, ""));
    wait_all_approved(&scene, "blast");
}

#[test]
fn intents_whose_route_was_removed_while_no_worker_ran_are_decided_and_another_installation_s_are_not() {
    let scene = slow("removed-meanwhile");
    leave_waiting(&scene, "own");
    // The other one calls its topics as this one would for a route `eu-email`.
    let mut other = Scene::new("removed-other", 4, &unlimited(1, &paced(1)));
    other.end_sessions_soon();
    scene.create_waiting([(scene.topic("waiting-eu-email"), 32)]);
    other.set(WAITING, scene.topic("waiting-eu"));
    leave_waiting(&other, "other");
    assert_eq!(known(&scene), BTreeSet::from(["email".to_owned()]));
    assert_eq!(known(&other), BTreeSet::from(["email".to_owned()]));
    for (scene, campaign) in [(&scene, "own"), (&other, "other")] {
        scene.write_policy(&unlimited(2, ""));
        let _worker = scene.worker("only");
        wait_all_approved(scene, campaign);
    }
    let read = committed(&scene, "eu-email");
    assert!(read.iter().all(Option::is_none), "{read:?}");
}

#[test]
fn where_intents_wait_in_topics_that_no_setting_names_no_worker_starts_until_they_are_named_again() {
    let mut scene = slow("waits-elsewhere");
    leave_waiting(&scene, "blast");
    // With the route goes the setting, or it gets another value.
    scene.write_policy(&unlimited(2, ""));
    let names_it =
        format!("wait for their routes in {}, which kafka.waiting does not name", scene.topic("waiting-email"));
    for prefix in [None, Some(scene.topic("elsewhere"))] {
        scene.unset(WAITING);
        scene.env.extend(prefix.map(|prefix| (WAITING, prefix)));
        let log = ends(&mut scene.worker("only"), 2);
        let (is_fine, found) = check(&scene);
        assert!(!is_fine, "{found}");
        for said in [log, found] {
            assert!(said.contains(&names_it), "{said}");
        }
    }
    scene.set(WAITING, scene.topic("waiting"));
    let _worker = scene.worker("only");
    wait_all_approved(&scene, "blast");
}

#[test]
#[ignore = "takes a minute: cargo xtask ci --extent everything"]
fn intents_that_wait_for_a_route_that_an_instance_has_never_seen_are_decided_by_it() {
    let scene = routed("removed-unseen", (4, 32), "");
    let blind = scene.worker_with("blind", &[("WEIR__POLICY__REFRESH", "1h")]);
    wait_ready(&blind);
    let mut sees = scene.ready("sees");
    scene.change_policy(&sees, "2", &unlimited(2, &paced(1)));
    wait_looked(&sees);
    scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "some wait", || waits(&sees) > 50);
    sees.kill();
    wait_until(2 * DEADLINE, "all are approved", || scene.count("approved") >= MAILS);
    wait_all_approved(&scene, "blast");
}

#[test]
fn where_waiting_topics_are_called_like_outputs_these_are_not_read_and_are_no_topic_of_a_route() {
    let mut scene = Scene::new("called", 2, &unlimited(1, &paced(1_000)));
    // As `waiting = "send"` beside `send-approved`.
    scene.set(WAITING, scene.name.clone());
    scene.create_waiting([(scene.topic("email"), 32)]);
    let mut worker = looking(&scene, "only");
    scene.decide_by(&mut worker, mails("blast", MAILS));
    wait_all_approved(&scene, "blast");
    // Topics are looked for at the start.
    assert_eq!(known(&scene), BTreeSet::from(["email".to_owned()]));
    scene.write_policy(&unlimited(2, "[[routes]]\nname = \"approved\"\nrate = 1\n"));
    let entry = wait_degraded(&worker, "policy");
    let message = entry["message"].as_str().unwrap();
    assert!(message.contains(&format!("{}-approved, which the configuration names", scene.name)), "{message}");
    scene.change_policy(&worker, "3", &unlimited(3, ""));
    wait_whole(&worker);
}

#[test]
fn a_campaign_that_waits_can_be_stopped_and_caps_count_what_was_approved_alone() {
    const EACH: usize = 300;
    let mut scene = Scene::new("stopped-waiting", 4, "");
    let write = |scene: &Scene, version: &str, rate: u32, more: &str| {
        let caps = "[default]\ncaps = [{ name = \"day\", limit = 1, window = \"24h\" }]\n";
        scene.write_policy(&format!("version = \"{version}\"\n{caps}{}{more}", paced(rate)));
    };
    write(&scene, "1", 1, "");
    scene.wait_for_routes(&["email"]);
    let worker = looking(&scene, "weir-0");
    // Both campaigns go to the same users. Each user may have one mail a day.
    scene.publish(mails("spring", EACH).chain(mails("summer", EACH)));
    wait_until(DEADLINE, "they wait", || waits(&worker) > 2 * EACH as u64 * 9 / 10);
    write(&scene, "2", 1_000, "[[stop]]\ncampaign = \"spring\"\n");
    wait_decided(&scene, 2 * EACH);
    assert_eq!(outputs(&scene).iter().sum::<usize>(), 2 * EACH, "each has one record");
    let decisions = scene.decisions();
    for number in 0..EACH {
        let of = |campaign: &str| decisions[&format!("{campaign}-{number}")].reason();
        // Some have their turns before the stop: the first one of a user is approved, and the other one capped.
        let found = (of("spring"), of("summer"));
        let expected = [("stopped", "approved"), ("approved", "cap"), ("cap", "approved")];
        assert!(expected.contains(&found), "{number}: {found:?}");
    }
    let stopped = decisions.values().filter(|decision| decision.reason() == "stopped").count();
    assert!(stopped > EACH / 2, "{stopped} of {EACH}");
}
