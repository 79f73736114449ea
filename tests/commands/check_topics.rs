//! What `weir check` finds at the topics and groups beside the intents: those of waiting intents, of earlier wheels and of channels.

use testkit::{
    kafka::{Delivery, Record},
    wait_until,
};

use crate::{
    check::{Found, check, check_with, fine, found_where, scene},
    support::{DEADLINE, POLICY, Scene},
};

/// [`POLICY`] with routes of these channels, each with further lines.
fn policy(routes: &[(&str, &str)]) -> String {
    let route =
        |(name, more): &(&str, &str)| format!("[[routes]]\nname = {name:?}\nchannel = {name:?}\nrate = 5\n{more}\n");
    format!("{POLICY}\n{}", routes.iter().map(route).collect::<String>())
}

/// The configuration of an instance with these lines of `[kafka]`, and memory for two wheels.
fn config(scene: &Scene, kafka: &str) -> String {
    let config = scene.config("i").replace("[worker]", "[worker]\nmemory = \"400MiB\"");
    config.replace("[kafka]\n", &format!("[kafka]\n{kafka}"))
}

/// The topics that are warned of because they take smaller records than intents may be.
fn too_small(found: &Found) -> Vec<String> {
    let of_size = found.of("warning").into_iter().filter(|text| text.contains("takes records of"));
    let topic = |text: String| Some(text.strip_prefix("kafka: ")?.split_once(' ')?.0.to_owned());
    let mut topics: Vec<String> = of_size.filter_map(topic).collect();
    topics.sort_unstable();
    topics
}

#[test]
fn every_topic_that_an_intent_may_be_written_to_is_large_enough_or_warned_of() {
    let (scene, _redis) = scene("check-sizes");
    scene.write_policy(&policy(&[("email", "")]));
    let of = |name: &str| scene.topic(name);
    let names = ["approved-push", "later-hours", "later-minutes", "before-hours", "before-minutes", "waiting-email"];
    let mut topics = names.map(of);
    let own = format!(
        "deferred = {:?}\ndeferred_before = [{:?}]\nwaiting = {:?}\nretries = {:?}\nundelivered = {:?}\n",
        of("later"),
        of("before"),
        of("waiting"),
        of("retries"),
        of("undelivered")
    );
    let config = format!("{}\n[kafka.approved_by_channel]\npush = {:?}\n", config(&scene, &own), topics[0]);
    for topic in ["retries", "undelivered"] {
        scene.kafka.create_topic_with(&of(topic), 1, &[("max.message.bytes", "9000000")]).unwrap();
    }
    // Kafka's default is the size of the largest intent, without what weir adds.
    let size = ("max.message.bytes", "1048588");
    let kept = ("retention.ms", "691200000");
    scene.kafka.configure_topic(&of("intents"), &[size]).unwrap();
    for (topic, partitions) in topics.iter().zip([1, 96, 120, 96, 120, 1]) {
        scene.kafka.create_topic_with(topic, partitions, &[kept, size]).unwrap();
    }
    let found = fine(&scene, &config, &[]);
    topics.sort_unstable();
    assert_eq!(too_small(&found), topics);
    for topic in &topics {
        scene.kafka.configure_topic(topic, &[kept, ("max.message.bytes", "9000000")]).unwrap();
    }
    assert_eq!(too_small(&check(&scene, &config)), [] as [&str; 0]);
}

#[test]
fn lanes_of_waiting_intents_open_a_transaction_and_their_topics_keep_them_for_a_day_longer_than_they_wait() {
    let (mut scene, _redis) = scene("check-waiting");
    scene.write_policy(&policy(&[("email", ""), ("push", ""), ("sms", "when_full = \"suppress\"")]));
    scene.wait_for_routes(&["email", "push"]);
    let config = config(&scene, &format!("waiting = {:?}\n", scene.topic("waiting")));
    let found = fine(&scene, &config, &[]);
    let ok = found.of("ok").join("\n");
    for group in ["", "-waiting-email", "-waiting-push"] {
        let id = format!("(as {}{group}/i/check, and was aborted)", scene.name);
        assert!(ok.contains(&id), "{id}: {ok}");
    }
    assert!(!ok.contains("-waiting-sms"), "no intent waits for it: {ok}");

    let topic = scene.topic("waiting-email");
    let keep = |ms: &str| {
        scene.kafka.configure_topic(&topic, &[("max.message.bytes", "9000000"), ("retention.ms", ms)]).unwrap();
    };
    keep("345599999");
    let found = found_where(&scene, &config, |found| !found.of("error").is_empty());
    found.is_one("error", &[&topic, "retention.ms is 345599999, and must be 345600000 or more"]);
    keep("345600000");
    found_where(&scene, &config, |found| found.of("error").is_empty()).is_fine();
}

#[test]
fn a_group_that_has_committed_nothing_is_warned_of_until_it_does() {
    let (scene, _redis) = scene("check-group");
    let (group, approved) = (scene.topic("hedwig"), scene.topic("approved"));
    let more = format!("consumer_group = {group:?}\nwhen_full = \"suppress\"");
    scene.write_policy(&policy(&[("email", more.as_str())]));
    let config = config(&scene, "");
    let silent = |found: &Found| {
        found.of("warning").into_iter().filter(|text| text.contains("has committed nothing")).collect::<Vec<String>>()
    };
    let found = fine(&scene, &config, &[]);
    let warned = silent(&found);
    let says = format!("route email: the group {group} has committed nothing of {approved}.");
    assert!(warned.len() == 1 && warned[0].contains(&says), "{warned:?}");
    let undelivered = format!("the group {group} has 0 approved records to deliver");
    assert!(!found.of("ok").concat().contains(&undelivered), "{:?}", found.of("ok"));

    scene.kafka.publish(&approved, [Record::new("one", "{}")]).unwrap();
    let mut delivery = Delivery::start(&scene.kafka, &group, &approved, 100).unwrap();
    wait_until(DEADLINE, "it is delivered", || !delivery.delivered().is_empty());
    drop(delivery);
    let found = found_where(&scene, &config, |found| silent(found).is_empty());
    assert!(found.of("ok").concat().contains(&undelivered), "{:?}", found.of("ok"));
}

#[test]
fn the_topics_of_an_earlier_wheel_are_looked_at_like_those_of_the_wheel() {
    let (_redis, scene) = Scene::with_redis("check-before", 1, POLICY);
    let (now, before) = (scene.topic("now"), scene.topic("before"));
    let config = config(&scene, &format!("deferred = {now:?}\ndeferred_before = [{before:?}]\n"));
    let missing = ["-now-hours", "-now-minutes", "-before-hours", "-before-minutes", "weir check --create"];
    check(&scene, &config).is_one("error", &missing);
    check_with(&scene, &config, &["--create"]).is_fine();
    let found = fine(&scene, &config, &[]);
    let ok = found.of("ok").join("\n");
    for prefix in [&now, &before] {
        assert!(ok.contains(&format!("{prefix}-*: 1 partition(s) a bucket")), "{ok}");
    }
    // What is there may have as long to wait as what is deferred now.
    let hours = format!("{before}-hours");
    scene.kafka.configure_topic(&hours, &[("retention.ms", "345599999")]).unwrap();
    let found = found_where(&scene, &config, |found| !found.of("error").is_empty());
    found.is_one("error", &[&hours, "retention.ms is 345599999, and must be 345600000 or more"]);
}
