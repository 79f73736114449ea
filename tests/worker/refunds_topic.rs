//! The promise: refunds count where their topic was deleted and recreated, though its offsets are the old ones again.

use crate::{
    reports::{POLICY, USER, report, send, wait_counted},
    support::{DEADLINE, Scene, http::metric, stop},
};
use serde_json::json;
use testkit::{kafka::Record, wait_until};

const REFUNDS: &str = "weir_refunds_total";

fn scene(name: &str) -> Scene {
    let mut scene = Scene::new(name, 1, POLICY);
    scene.set_topic("WEIR__KAFKA__REFUNDS", "refunds", 1);
    scene
}

fn refund(scene: &Scene, id: &str) {
    report(scene, "refunds", &json!({"intent_id": id, "user_id": USER}));
}

fn made_anew(scene: &Scene) {
    scene.kafka.delete_topic(&scene.topic("refunds")).unwrap();
    wait_until(DEADLINE, "it is gone and there again", || scene.kafka.create_topic(&scene.topic("refunds"), 1).is_ok());
}

#[test]
fn the_refunds_of_a_recreated_topic_are_taken_though_its_offsets_start_again() {
    let scene = scene("refunds-anew");
    let mut worker = scene.ready("only");
    assert_eq!([send(&scene, "first"), send(&scene, "second")], ["approved", "cap"]);
    refund(&scene, "first");
    wait_counted(&worker, REFUNDS, "taken_back", 1.0);
    assert_eq!(send(&scene, "third"), "approved");
    stop(&mut worker);

    // The offsets start again, and the user's shard has taken the first one.
    made_anew(&scene);
    worker = scene.ready("only");
    refund(&scene, "third");
    wait_counted(&worker, REFUNDS, "taken_back", 1.0);
    assert_eq!(send(&scene, "fourth"), "approved");

    // The same under a running worker; and a refund that is read again is none still.
    made_anew(&scene);
    wait_until(DEADLINE, "it is noticed", || worker.log().contains("was deleted and recreated"));
    refund(&scene, "fourth");
    wait_counted(&worker, REFUNDS, "taken_back", 2.0);
    refund(&scene, "fourth");
    wait_counted(&worker, REFUNDS, "unknown", 1.0);
    stop(&mut worker);
}

#[test]
fn refunds_on_an_added_partition_are_taken_and_a_group_whose_offsets_expired_starts_at_the_end_again() {
    let mut scene = scene("refunds-latest");
    scene.set("WEIR__KAFKA__PROPERTIES__AUTO_OFFSET_RESET", "latest");
    let (topic, group) = (scene.topic("refunds"), format!("{}-refunds", scene.name));
    // Before the first start, so without an effect.
    refund(&scene, "long-ago");
    let mut worker = scene.ready("only");
    scene.wait_at_end(&group, &topic);
    assert_eq!([send(&scene, "first"), send(&scene, "second")], ["approved", "cap"]);
    scene.kafka.grow_topic(&topic, 2).unwrap();
    let value = json!({"intent_id": "first", "user_id": USER}).to_string();
    scene.kafka.publish(&topic, [Record::keyless(value).partition(1)]).unwrap();
    wait_counted(&worker, REFUNDS, "taken_back", 1.0);
    stop(&mut worker);

    // As after a week without members. This topic has no table: it is a first start.
    scene.kafka.delete_group(&group).unwrap();
    refund(&scene, "while-away");
    worker = scene.ready("only");
    scene.wait_at_end(&group, &topic);
    refund(&scene, "third");
    // Once all is read, so that none of those before is still to be counted.
    scene.wait_at_end(&group, &topic);
    wait_counted(&worker, REFUNDS, "unknown", 1.0);
    assert_eq!(metric(&worker, "weir_refunds_total", ""), Some(1.0), "it is the only one");
    stop(&mut worker);
}

#[test]
fn offsets_without_a_record_are_no_lag_of_the_topics_beside_the_intents_either() {
    let mut scene = scene("refunds-marks");
    scene.set_topic("WEIR__KAFKA__DELIVERY_REPORTS", "reports", 1);
    let worker = scene.ready("only");
    let topics = [
        ("refunds", "refunds", "weir_refunds_lag_records"),
        ("reports", "delivery-reports", "weir_delivery_reports_lag_records"),
    ];
    for (topic, group, lag) in topics {
        let topic = scene.topic(topic);
        scene.kafka.publish_aborted(&topic, (0..21).map(|_| Record::keyless("{}"))).unwrap();
        let group = format!("{}-{group}", scene.name);
        wait_until(DEADLINE, "the end is committed", || {
            scene.kafka.committed(&group, &topic).is_ok_and(|committed| committed == [Some(22)])
        });
        wait_until(DEADLINE, "no lag is left", || metric(&worker, lag, "") == Some(0.0));
    }
}
