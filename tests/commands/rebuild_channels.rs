//! The promise: a rebuild reads the approved topics of all channels.

use serde_json::json;
use testkit::wait_until;

use crate::support::{
    DEADLINE, Scene, header,
    http::{wait_degraded, wait_whole},
    outcome::intent,
};

const POLICY: &str = r#"
version = "1"
[default]
caps = [{ name = "daily", limit = 1, window = "24h" }]
"#;

#[test]
fn what_was_approved_on_the_topic_of_a_channel_is_restored_too() {
    let (redis, mut scene) = Scene::with_redis("channels", 2, POLICY);
    let mail = scene.topic("approved-email");
    // With more partitions than kafka.approved: they are told apart.
    let settings: &[(&str, &str)] = &[("max.message.bytes", "9000000"), ("retention.ms", "691200000")];
    scene.kafka.create_topic_with(&mail, 5, settings).unwrap();
    scene.set("WEIR__KAFKA__APPROVED_BY_CHANNEL__EMAIL", mail);
    let mut worker = scene.ready("weir-0");
    let publish = |wave: &str| {
        let one = |user: u64| {
            let channel = ["email", "push"][user as usize % 2];
            intent(&format!("{wave}-{user}"), user, json!({"channel": channel}))
        };
        scene.publish((0..40).map(one));
    };
    publish("first");
    scene.drain(&mut worker);
    let (mails, others) = (scene.output("approved-email"), scene.output("approved"));
    assert_eq!((mails.len(), others.len()), (20, 20), "each channel has its topic");
    assert!(
        mails.iter().all(|record| record.value_text().contains("email") && header(record, "weir-decision").is_some())
    );

    redis.query::<()>(&["FLUSHALL"]).unwrap();
    wait_degraded(&worker, "shards_lost");
    let summary = scene.summary(&["rebuild", "--all", "--settle", "0s"]);
    assert_eq!(summary["restored"], 40, "{summary}");
    wait_whole(&worker);
    publish("second");
    wait_until(DEADLINE, "all are decided again", || scene.count("suppressed") == 40);
}
