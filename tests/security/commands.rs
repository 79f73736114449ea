//! Refunds, `weir rebuild`, `weir policy simulate` and `weir explain` work with exactly the rights of the page; a
//! missing right is named.

use testkit::{kafka::Record, process::Exit, wait_until};

use crate::{
    page,
    stage::{EntryPoint, REDIS_PASSWORD, STAGE, lines, publish, says, works},
    support::{
        DEADLINE, Scene, ends,
        http::{metric, wait_ready},
        outcome::intent,
        stop,
    },
};

/// A scene with refunds; its worker has the rights of the page.
fn scene(name: &str, user: &'static str) -> Scene {
    let mut scene = STAGE.scene(name, EntryPoint::Mutual(user));
    scene.set_topic("WEIR__KAFKA__REFUNDS", "refunds", 1);
    STAGE.grant(user, &[lines("kafka run", &scene), lines("kafka refunds", &scene)].concat());
    scene
}

/// The scene as another user with a part of a block's rights.
fn as_user(scene: &mut Scene, user: &'static str, blocks: &[&str], without: &str) {
    let lines = blocks.iter().flat_map(|block| lines(block, scene));
    let lines: Vec<String> = lines.filter(|line| without.is_empty() || !line.contains(without)).collect();
    STAGE.grant(user, &lines);
    STAGE.come_by(scene, EntryPoint::Mutual(user));
}

#[test]
fn refunds_are_taken_with_exactly_the_documented_rights_and_each_is_named_where_it_is_missing() {
    let mut scene = scene("refunds", "refunds");
    publish(&scene);
    let mut worker = scene.drained("i");
    let sent = format!(r#"{{"intent_id":"{} 3","user_id":"user-3"}}"#, scene.name);
    scene.kafka.publish(&scene.topic("refunds"), [Record::keyless(&sent), Record::keyless("no refund")]).unwrap();
    wait_ready(&worker);
    let taken = || metric(&worker, "weir_refunds_total", "outcome=\"taken_back\"").unwrap_or(0.0);
    wait_until(DEADLINE, "the refund is taken", || taken() == 1.0);
    wait_until(DEADLINE, "the invalid refund is a dead letter", || scene.count("dead") == 1);
    stop(&mut worker);

    let (topic, group) = (scene.topic("refunds"), format!("{}-refunds", scene.name));
    let cases = [
        ("refunds-no-topic", format!("--topic {topic}"), format!("grant READ on the topic {topic}")),
        ("refunds-no-group", format!("--group {group}"), format!("grant READ on the group {group}")),
        ("refunds-no-transaction", format!("{group}/i/"), format!("grant WRITE on the transactional id {group}/i/")),
    ];
    for (user, without, named) in &cases {
        as_user(&mut scene, user, &["kafka run", "kafka refunds"], without);
        let mut worker = scene.worker("i");
        let log = ends(&mut worker, 1);
        assert!(log.lines().any(|line| line.starts_with("weir: ") && line.contains(named)), "{user}: {named}: {log}");
    }
}

#[test]
fn reports_and_retries_are_read_with_exactly_the_documented_rights() {
    let mut scene = STAGE.scene("deliveries", EntryPoint::Mutual("deliveries"));
    scene.defer(1);
    scene.set_topic("WEIR__KAFKA__DELIVERY_REPORTS", "delivery-reports", 1);
    scene.set_topic("WEIR__KAFKA__RETRIES", "retries", 1);
    scene.set_topic("WEIR__KAFKA__UNDELIVERED", "undelivered", 1);
    as_user(&mut scene, "deliveries", &["kafka run", "kafka deferred", "kafka delivery reports", "kafka retries"], "");
    let report = r#"{"intent_id":"i","user_id":1,"outcome":"permanent"}"#;
    scene.kafka.publish(&scene.topic("delivery-reports"), [report, "no report"].map(Record::keyless)).unwrap();
    let decision = r#"{"verdict":"approved","decided_at":"2026-11-20T09:00:00.000Z","policy_version":"1","segments_version":"1","retry":4}"#;
    let retry = Record::keyless(r#"{"id":"i","user_id":1}"#).header("weir-decision", decision);
    scene.kafka.publish(&scene.topic("retries"), [retry, Record::keyless("no retry")]).unwrap();
    let mut worker = scene.ready("i");
    let read = || metric(&worker, "weir_delivery_reports_total", "outcome=\"unknown\"").unwrap_or(0.0);
    wait_until(DEADLINE, "the report is read", || read() == 1.0);
    wait_until(DEADLINE, "what is invalid is a dead letter", || scene.count("dead") == 2);
    wait_until(DEADLINE, "the delivery is given up", || scene.count("undelivered") == 1);
    stop(&mut worker);
}

#[test]
fn activity_is_read_with_exactly_the_documented_rights() {
    let mut scene = STAGE.scene("activity", EntryPoint::Mutual("activity"));
    scene.set_topic("WEIR__KAFKA__ACTIVITY", "activity", 1);
    as_user(&mut scene, "activity", &["kafka run", "kafka activity"], "");
    scene.kafka.publish(&scene.topic("activity"), [r#"{"user_id":1}"#, "no report"].map(Record::keyless)).unwrap();
    let mut worker = scene.ready("i");
    let read = || metric(&worker, "weir_activity_reports_total", "by=\"kafka\"").unwrap_or(0.0);
    wait_until(DEADLINE, "the report is read", || read() == 1.0);
    wait_until(DEADLINE, "the invalid report is a dead letter", || scene.count("dead") == 1);
    stop(&mut worker);
}

#[test]
fn a_simulation_of_topics_and_a_rebuild_work_with_exactly_the_documented_rights_and_each_is_named_where_it_is_missing()
{
    let mut scene = scene("rebuild", "rebuild-worker");
    works(&scene);
    let policy = scene.path("policy.toml").display().to_string();
    let simulate = ["policy", "simulate", "--policy", &policy, "--intents", "topic", "--output", "json"];
    as_user(&mut scene, "simulate", &["kafka simulate"], "");
    let (exit, said) = says(&scene, &[], &simulate);
    assert_eq!(exit, Exit::Code(0), "{said}");
    assert!(said.contains("\"records\": 10") && !said.contains("WARN"), "{said}");

    let rebuild = ["rebuild", "--all", "--settle", "0s", "--output", "json"];
    as_user(&mut scene, "rebuild", &["kafka rebuild"], "");
    let (exit, said) = says(&scene, &[], &rebuild);
    assert!(exit == Exit::Code(2) && said.contains("NOPERM") && said.contains("docs/security.md"), "{said}");
    // The lock of a run that may not give it back runs out in 20 s. Of lost tables, it restores that of what groups have committed.
    for key in ["rebuilding", "commits"] {
        STAGE.redis.cli(&["del", &format!("{0}:{{{0}}}:{key}", scene.name)]).unwrap();
    }
    STAGE.redis_acl(&scene.name, &page::redis_rights("redis rebuild", &scene.name, REDIS_PASSWORD));
    let (exit, said) = says(&scene, &[], &rebuild);
    assert_eq!(exit, Exit::Code(0), "{said}");
    assert!(said.contains("\"unreadable\": 0") && !said.contains("WARN"), "{said}");

    for (user, block, command, topic) in [
        ("simulate-no-intents", "kafka simulate", &simulate[..], "intents"),
        ("simulate-no-approved", "kafka simulate", &simulate, "approved"),
        ("rebuild-no-approved", "kafka rebuild", &rebuild, "approved"),
        ("rebuild-no-refunds", "kafka rebuild", &rebuild, "refunds"),
    ] {
        let topic = scene.topic(topic);
        as_user(&mut scene, user, &[block], &topic);
        let (exit, said) = says(&scene, &[], command);
        assert_eq!(exit, Exit::Code(1), "{user}: {said}");
        assert!(said.contains(&format!("grant READ on the topic {topic}")), "{user}: {said}");
    }
}

#[test]
fn explain_needs_nothing_of_kafka_and_each_word_of_its_line_at_redis() {
    let mut scene = scene("explain", "explain-worker");
    // Names of channel and campaign are looked up, too.
    let class = serde_json::json!({"channel": "push", "category": "promo", "campaign": "spring"});
    scene.publish([intent("named", "user-3", class)]);
    let mut worker = scene.drained("i");
    worker.kill();
    // Nobody answers there.
    scene.set("WEIR__KAFKA__BROKERS", "127.0.0.1:1");
    let user = format!("{}-explain", scene.name);
    scene.set("WEIR__REDIS__USERNAME", user.clone());
    let rights = page::redis_rights("redis explain", &scene.name, REDIS_PASSWORD);
    STAGE.redis_acl(&user, &rights);
    let (exit, said) = says(&scene, &[], &["explain", "user-3"]);
    assert!(exit == Exit::Code(0) && !said.contains("WARN") && said.contains("user-3"), "{said}");

    let commands = rights.iter().filter(|word| word.starts_with('+'));
    let mut unneeded = Vec::new();
    for left_out in commands {
        STAGE.redis_acl(&user, &[format!("-{}", &left_out[1..])]);
        let (_, said) = says(&scene, &[], &["explain", "user-3"]);
        STAGE.redis_acl(&user, std::slice::from_ref(left_out));
        // As Redis names it; of a script's commands Redis 7.0 gives the line only.
        let named = said.to_lowercase().contains(&format!("'{}'", &left_out[1..])) || said.contains("docs/security.md");
        if !named && left_out != "+asking" {
            unneeded.push(format!("{left_out}: {said}"));
        }
    }
    assert!(unneeded.is_empty(), "not needed, or not named:\n{}", unneeded.join("\n"));
}
