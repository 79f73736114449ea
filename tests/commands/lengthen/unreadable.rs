//! The promise: what cannot be inflated stops a rebuild only where it may hold sends, and then by name.

use serde_json::{Value, json};
use testkit::{kafka::Record, process::output};

use super::{Old, USERS};
use crate::support::{contains_all, said};

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
        let mut command = old.rebuild(&["--all", "--settle", "0s", "--output", "json"]);
        output(command.args(more).envs(env)).unwrap()
    };
    bomb("refunds");
    let behind = Record::new("1", json!({"intent_id": "old-10-1", "user_id": "1"}).to_string()).partition(0);
    old.scene.kafka.publish(&old.scene.topic("refunds"), [behind]).unwrap();
    let counted = rebuild("refunds", &[]);
    assert!(counted.status.success(), "{}", said(&counted));
    let summary: Value = serde_json::from_slice(&counted.stdout).unwrap();
    assert_eq!(summary["taken_back"], USERS / 5 + 1, "{summary}");

    bomb("approved");
    let stopped = rebuild("approved", &[]);
    assert_eq!(stopped.status.code(), Some(1), "{}", said(&stopped));
    contains_all(&said(&stopped), &["partition 0 of", "the batch at offset"]);
    let whole = rebuild("approved", &["--skip-unreadable"]);
    assert!(whole.status.success(), "{}", said(&whole));
}
