//! The promise: what cannot be inflated stops a rebuild only where it may hold sends, and then by name.

use serde_json::{Value, json};
use testkit::kafka::Record;

use super::{Old, USERS, text};

#[test]
fn a_batch_that_cannot_be_inflated_stops_a_rebuild_only_where_it_has_sends() {
    const BOMB: usize = 100 * 1024 * 1024;
    let (old, zeros) = (Old::new("unreadable"), vec![0; BOMB]);
    let bomb = |topic: &str| {
        let gzip = old.scene.kafka.compressing("gzip");
        gzip.publish_as_one_batch(&old.scene.topic(topic), 0, &[("b", &zeros)]).unwrap();
    };
    let rebuild = |prefix: &str, more: &[&str]| {
        let env = [("WEIR__REDIS__PREFIX", prefix), ("WEIR__REDIS__HISTORY", "32d")];
        old.rebuild(&[&["--all", "--settle", "0s", "--output", "json"], more].concat(), &env)
    };
    bomb("refunds");
    let behind = Record::new("1", json!({"intent_id": "old-10-1", "user_id": "1"}).to_string()).partition(0);
    old.scene.kafka.publish(&old.scene.topic("refunds"), [behind]).unwrap();
    let output = rebuild("refunds", &[]);
    assert!(output.status.success(), "{}", text(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["taken_back"], USERS / 5 + 1, "{summary}");

    bomb("approved");
    let output = rebuild("approved", &[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("partition 0 of") && text(&output).contains("the batch at offset"),
        "{}",
        text(&output)
    );
    let output = rebuild("approved", &["--skip-unreadable"]);
    assert!(output.status.success(), "{}", text(&output));
}
