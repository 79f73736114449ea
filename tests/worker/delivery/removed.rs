//! Routes that are removed while intents wait: these are decided all the same. What waits for another installation is left alone, however
//! its topics are called.

use std::{collections::BTreeSet, ffi::OsString, process::Command};

use testkit::{
    kafka::Consumed,
    process::{Exit, output},
    wait_until,
};
use weir::{cli::assemble, config};
use weir_kafka::waiting_topics;

use super::{mails, wait_looked, waits};
use crate::support::{
    DEADLINE, Scene, header,
    http::{wait_degraded, wait_ready, wait_version, wait_whole},
    weir as binary,
};

/// More than a slow route takes before a test gives up.
const MAILS: usize = 400;
const SLOW: &str = "[[routes]]\nname = \"email\"\nchannel = \"email\"\nrate = 1\n";

fn write(scene: &Scene, version: &str, routes: &str) {
    scene.write_policy(&format!("version = \"{version}\"\n[default]\ncaps = \"unlimited\"\n{routes}"));
}

/// Runs a worker until nearly all intents of a blast wait, and kills it.
fn leave_waiting(scene: &Scene, campaign: &'static str) {
    let mut worker = scene.worker("only");
    wait_looked(&worker);
    scene.publish(mails(campaign, MAILS));
    wait_until(DEADLINE, "they wait", || waits(&worker) > MAILS as u64 * 9 / 10);
    worker.kill();
}

/// Waits until all intents of a blast are approved, and fails unless each has one record and nothing else has.
fn wait_all_approved(scene: &Scene, campaign: &str) {
    wait_until(DEADLINE, "all are approved", || scene.count("approved") >= MAILS);
    let names = |records: Vec<Consumed>| -> Vec<String> {
        records.iter().map(|record| header(record, "case").unwrap()).collect()
    };
    let approved = names(scene.output("approved"));
    assert!(approved.iter().all(|name| name.starts_with(&format!("{campaign}-"))), "{approved:?}");
    assert_eq!((approved.iter().collect::<BTreeSet<_>>().len(), approved.len()), (MAILS, MAILS));
    assert!(scene.output("suppressed").is_empty() && scene.output("dead").is_empty());
}

/// The offsets that the group of a route has committed.
fn committed(scene: &Scene, route: &str) -> Vec<Option<i64>> {
    let (group, topic) = (format!("{}-waiting-{route}", scene.name), scene.topic(&format!("waiting-{route}")));
    scene.kafka.committed(&group, &topic).unwrap()
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
    let file = scene.path("checked.toml");
    std::fs::write(&file, scene.config("only")).unwrap();
    let own = scene.env.iter().map(|(name, value)| (*name, value.as_str()));
    let output = output(Command::new(binary()).args(["check", "--config"]).arg(&file).envs(own)).unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn intents_that_wait_when_their_route_is_removed_are_decided_at_once() {
    let mut scene = Scene::new("removed", 4, "");
    write(&scene, "1", "");
    scene.wait_for_routes(&["email"]);
    let worker = scene.worker("only");
    wait_ready(&worker);
    write(&scene, "2", SLOW);
    wait_version(&worker, "policy", "2");
    // Nothing can wait yet, so whoever starts without the route finds all that does.
    let begun = committed(&scene, "email");
    assert!(begun.len() == 32 && begun.iter().all(Option::is_some), "{begun:?}");
    wait_looked(&worker);
    scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "they wait", || waits(&worker) > MAILS as u64 * 9 / 10);
    write(&scene, "3", "");
    wait_all_approved(&scene, "blast");
}

#[test]
fn intents_whose_route_was_removed_while_no_worker_ran_are_decided_and_another_installation_s_are_not() {
    let mut scene = Scene::new("removed-meanwhile", 4, "");
    scene.end_sessions_soon();
    write(&scene, "1", SLOW);
    scene.wait_for_routes(&["email"]);
    leave_waiting(&scene, "own");
    // The other one calls its topics as this one would for a route `eu-email`.
    let mut other = Scene::new("removed-other", 4, "");
    other.end_sessions_soon();
    write(&other, "1", SLOW);
    let topic = scene.topic("waiting-eu-email");
    scene.kafka.create_topic_with(&topic, 32, &[("retention.ms", "424800000")]).unwrap();
    other.env.push(("WEIR__KAFKA__WAITING", scene.topic("waiting-eu")));
    leave_waiting(&other, "other");
    assert_eq!(known(&scene), BTreeSet::from(["email".to_owned()]));
    assert_eq!(known(&other), BTreeSet::from(["email".to_owned()]));
    for (scene, campaign) in [(&scene, "own"), (&other, "other")] {
        write(scene, "2", "");
        let _worker = scene.worker("only");
        wait_all_approved(scene, campaign);
    }
    let read = committed(&scene, "eu-email");
    assert!(read.iter().all(Option::is_none), "{read:?}");
}

#[test]
fn where_intents_wait_in_topics_that_no_setting_names_no_worker_starts_until_they_are_named_again() {
    const WAITING: &str = "WEIR__KAFKA__WAITING";
    let mut scene = Scene::new("waits-elsewhere", 4, "");
    scene.end_sessions_soon();
    write(&scene, "1", SLOW);
    scene.wait_for_routes(&["email"]);
    leave_waiting(&scene, "blast");
    // With the route goes the setting, or it gets another value.
    write(&scene, "2", "");
    let set = |scene: &mut Scene, prefix: Option<String>| {
        scene.env.retain(|(name, _)| *name != WAITING);
        scene.env.extend(prefix.map(|prefix| (WAITING, prefix)));
    };
    for prefix in [None, Some(scene.topic("elsewhere"))] {
        set(&mut scene, prefix);
        let mut worker = scene.worker("only");
        assert_eq!(worker.wait_exit(DEADLINE).unwrap(), Exit::Code(2), "{}", worker.log());
        let (is_fine, found) = check(&scene);
        assert!(!is_fine, "{found}");
        let names_it =
            format!("wait for their routes in {}, which kafka.waiting does not name", scene.topic("waiting-email"));
        for said in [worker.log(), found] {
            assert!(said.contains(&names_it), "{said}");
        }
    }
    let prefix = scene.topic("waiting");
    set(&mut scene, Some(prefix));
    let _worker = scene.worker("only");
    wait_all_approved(&scene, "blast");
}

#[test]
#[ignore = "takes a minute: cargo xtask ci --extent everything"]
fn intents_that_wait_for_a_route_that_an_instance_has_never_seen_are_decided_by_it() {
    let mut scene = Scene::new("removed-unseen", 4, "");
    write(&scene, "1", "");
    scene.wait_for_routes(&["email"]);
    let blind = scene.worker_with("blind", &[("WEIR__POLICY__REFRESH", "1h")]);
    wait_ready(&blind);
    let mut sees = scene.worker("sees");
    wait_ready(&sees);
    write(&scene, "2", SLOW);
    wait_version(&sees, "policy", "2");
    wait_looked(&sees);
    scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "some wait", || waits(&sees) > 50);
    sees.kill();
    wait_until(2 * DEADLINE, "all are approved", || scene.count("approved") >= MAILS);
    wait_all_approved(&scene, "blast");
}

#[test]
fn where_waiting_topics_are_called_like_outputs_these_are_not_read_and_are_no_topic_of_a_route() {
    let mut scene = Scene::new("called", 2, "");
    let name = scene.name.clone();
    // As `waiting = "send"` beside `send-approved`.
    scene.env.push(("WEIR__KAFKA__WAITING", name.clone()));
    scene.kafka.create_topic_with(&format!("{name}-email"), 32, &[("retention.ms", "424800000")]).unwrap();
    write(&scene, "1", &SLOW.replace("rate = 1", "rate = 1000"));
    let mut worker = scene.worker("only");
    wait_looked(&worker);
    scene.publish(mails("blast", MAILS));
    scene.drain(&mut worker);
    wait_all_approved(&scene, "blast");
    // Topics are looked for at the start.
    assert_eq!(known(&scene), BTreeSet::from(["email".to_owned()]));
    write(&scene, "2", "[[routes]]\nname = \"approved\"\nrate = 1\n");
    let entry = wait_degraded(&worker, "policy");
    let message = entry["message"].as_str().unwrap();
    assert!(message.contains(&format!("{name}-approved, which the configuration names")), "{message}");
    write(&scene, "3", "");
    wait_version(&worker, "policy", "3");
    wait_whole(&worker);
}
