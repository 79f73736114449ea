//! Topics of waiting intents: each intent costs one write and one read there; while workers run partitions are added, and those of removed
//! routes are deleted.

use std::time::{Duration, Instant};

use testkit::{SLOW_INTERVAL, wait_until, wait_until_every};

use super::{PER_S, Post, all_approved, committed, looking, mails, paced, routed, wait_looked, waited, waits};
use crate::support::{
    DEADLINE,
    http::{metric, wait_whole},
    outcome::cases,
    unlimited,
};

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
    scene.decide_by(&mut worker, mails("second", MAILS));
    assert_eq!(scene.count("approved"), 2 * MAILS, "each has one record");
    wait_whole(&worker);
}

#[test]
fn an_intent_that_waits_is_written_and_read_once_more() {
    const MAILS: usize = 2_000;
    let post = Post::new("cost", "rate = 400");
    // So that a busy machine, too, decides most of them in one batch, by the permits of one turn.
    let worker = post.scene.worker_with("weir-0", &[("WEIR__WORKER__COMMIT_INTERVAL", "1s")]);
    wait_looked(&worker);
    let mut delivery = post.delivery(2 * PER_S);
    post.scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "all are delivered", || delivery.delivered().len() >= MAILS);
    let waited = waited(&all_approved(&post.scene, MAILS));
    assert!(waited > MAILS / 2, "{waited} of {MAILS} waited");
    let written = post.scene.output("waiting-email");
    assert_eq!(cases(&written).len(), waited, "each is written once to wait");
    // What else has an offset there are ends of transactions: less than one for each partition and batch.
    let topic = post.scene.topic("waiting-email");
    let ends = post.scene.kafka.end_offsets(&topic).unwrap();
    let markers = ends.iter().sum::<i64>() - waited as i64;
    assert!((1..=waited as i64 / 10).contains(&markers), "{markers} ends of transactions among {ends:?}");
    // All of it is read, and none is decided again.
    let mut last = vec![0; ends.len()];
    for record in &written {
        let end = &mut last[usize::try_from(record.partition).unwrap()];
        *end = record.offset.max(*end - 1) + 1;
    }
    let done = || committed(&post.scene, "email").iter().zip(&last).all(|(read, last)| read.unwrap_or(0) >= *last);
    wait_until(DEADLINE, "all that waited is read", done);
    // A lane counts a batch once it has committed it.
    let decided = || metric(&worker, "weir_decisions_total", "").unwrap_or(0.0);
    wait_until(DEADLINE, "all are counted", || decided() >= MAILS as f64);
    assert_eq!(decided(), MAILS as f64);
    assert_eq!(metric(&worker, "weir_waiting_total", "route=\"email\""), Some(waited as f64));
}
