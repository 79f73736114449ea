//! Topics of waiting intents that change while workers run: partitions are added, and those of removed routes are deleted.

use std::time::{Duration, Instant};

use testkit::{SLOW_INTERVAL, wait_until, wait_until_every};

use super::{all_approved, looking, mails, paced, routed, wait_looked, waits};
use crate::support::{DEADLINE, http::wait_whole, unlimited};

#[test]
fn intents_wait_on_partitions_that_were_added_and_have_their_turns() {
    const EACH: usize = 300;
    let scene = routed("waiting-grown", (1, 1), &paced(1));
    let worker = looking(&scene, "only");
    scene.publish(mails("before", EACH));
    wait_until(DEADLINE, "they wait", || waits(&worker) > EACH as u64 * 9 / 10);
    let topic = scene.topic("waiting-email");
    scene.kafka.grow_topic(&topic, 4).unwrap();
    // A campaign waits on the less loaded one of two partitions, and only one of all has something.
    let (mut later, mut sent) = (mails("later", usize::MAX), 0);
    wait_until_every(SLOW_INTERVAL, DEADLINE, "some wait on others", || {
        scene.publish(later.next());
        sent += 1;
        scene.kafka.end_offsets(&topic).unwrap()[1..].iter().any(|end| *end > 0)
    });
    let all = EACH + sent;
    scene.change_policy(&worker, "2", &unlimited(2, &paced(1_000)));
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are approved", || scene.count("approved") >= all);
    all_approved(&scene, all);
}

#[test]
fn the_topic_of_a_route_that_was_removed_may_be_deleted_and_troubles_no_worker() {
    const MAILS: usize = 200;
    let scene = routed("waiting-deleted", (1, 4), &paced(20));
    // So that the group hears of it at once.
    let env = [("WEIR__KAFKA__PROPERTIES__TOPIC_METADATA_REFRESH_INTERVAL_MS", "500")];
    let mut worker = scene.worker_with("only", &env);
    wait_looked(&worker);
    scene.publish(mails("first", MAILS));
    wait_until(DEADLINE, "some wait", || waits(&worker) > 0);
    scene.write_policy(&unlimited(2, ""));
    wait_until_every(SLOW_INTERVAL, DEADLINE, "all are approved", || scene.count("approved") >= MAILS);
    let topic = scene.topic("waiting-email");
    scene.wait_at_end(&format!("{}-waiting-email", scene.name), &topic);
    scene.kafka.delete_topic(&topic).unwrap();
    let has_none = |line: &str| {
        let given = line.contains("waiting intents: the group has given the partitions");
        line.contains("waiting intents: the group has taken the partitions")
            || given && line.contains("\"partitions\":0")
    };
    wait_until(DEADLINE, "its lane has no partitions any more", || worker.log().lines().any(has_none));
    let since = Instant::now();
    wait_until(DEADLINE, "its lane has had time to join its group again", || since.elapsed() >= Duration::from_secs(5));
    scene.publish(mails("second", MAILS));
    scene.drain(&mut worker);
    assert_eq!(scene.count("approved"), 2 * MAILS, "each has one record");
    wait_whole(&worker);
}
