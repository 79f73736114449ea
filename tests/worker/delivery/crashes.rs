//! Workers that are killed, or freeze and wake, while intents wait.

use testkit::wait_until;

use super::{PER_S, Post, all_approved, committed, mails, wait_looked, waits};
use crate::support::{
    DEADLINE,
    http::{metric, wait_ready},
};

#[test]
fn workers_killed_while_intents_wait_lose_none_and_approve_none_twice() {
    const MAILS: usize = 6_000;
    let mut post = Post::new("killed", "rate = 2000");
    post.scene.end_sessions_soon();
    let env = [("WEIR__WORKER__BATCH", "200")];
    let steady = post.scene.worker_with("steady", &env);
    wait_looked(&steady);
    let mut delivery = post.delivery_by_record(4 * PER_S);
    let end = |topic: &str| post.scene.kafka.end_offsets(&post.scene.topic(topic)).unwrap().into_iter().sum::<i64>();
    let (written, approved) = (|| end("waiting-email"), || end("approved"));
    let read = || committed(&post.scene, "email").into_iter().flatten().sum::<i64>();
    // While it writes what waits, while it reads it, and while it approves.
    let steps: [(&str, &dyn Fn() -> i64); 3] = [("writes", &written), ("reads", &read), ("approves", &approved)];
    for (number, (step, progress)) in steps.into_iter().enumerate() {
        let mut victim = post.scene.worker_with("victim", &env);
        wait_ready(&victim);
        let third = MAILS / 3;
        let part = mails("blast", MAILS).skip(number * third).take(third);
        let before = progress();
        post.scene.publish(part);
        wait_until(DEADLINE, step, || progress() > before);
        victim.kill();
    }
    wait_until(DEADLINE, "all are delivered", || delivery.delivered().len() >= MAILS);
    all_approved(&post.scene, MAILS);
    // What the victims left open was aborted, and waits no more.
    wait_until(DEADLINE, "nothing seems to wait", || waits(&steady) == 0);
}

#[test]
fn a_worker_that_wakes_past_its_session_approves_nothing_twice() {
    const MAILS: usize = 4_000;
    // By user, so that both read partitions where intents wait.
    let post = Post::new("zombie", "rate = 500\nfair_by = \"user\"");
    let env = [("WEIR__WORKER__BATCH", "100")];
    let steady = post.scene.worker_with("steady", &env);
    let mut zombie = post.scene.worker_with("zombie", &env);
    for worker in [&steady, &zombie] {
        wait_looked(worker);
    }
    let mut delivery = post.delivery(4 * PER_S);
    post.scene.publish(mails("blast", MAILS));
    wait_until(DEADLINE, "both approve what waited", || {
        [&steady, &zombie].into_iter().all(|worker| metric(worker, "weir_stage_seconds_count", "commit") > Some(20.0))
    });
    zombie.freeze();
    wait_until(DEADLINE, "the other one has its partitions", || waits(&steady) < 1_000);
    zombie.thaw();
    wait_until(DEADLINE, "all are delivered", || delivery.delivered().len() >= MAILS);
    all_approved(&post.scene, MAILS);
    wait_until(DEADLINE, "nothing seems to wait", || waits(&steady) == 0);
}
