//! What it costs that intents wait: one write and one read each, and few calls of Redis.

use std::time::{Duration, Instant};

use testkit::{kafka::Delivery, wait_until};

use super::{PER_S, Post, all_approved, committed, mails, wait_looked, wait_members, waited, waits};
use crate::support::{
    DEADLINE, Scene,
    http::{metric, wait_ready},
    outcome::{cases, intent},
    unlimited,
};

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

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn an_instance_calls_redis_at_most_twice_a_second_for_a_route() {
    const ROUTES: [&str; 2] = ["email", "push"];
    const LOOK: Duration = Duration::from_secs(10);
    let (redis, mut scene) = Scene::with_redis("calls", 4, "");
    let group = format!("{}-hedwig", scene.name);
    let route = |name: &&str| {
        format!("[[routes]]\nname = \"{name}\"\nchannel = \"{name}\"\nconsumer_group = \"{group}\"\nahead = \"5s\"\n")
    };
    let routes: String = ROUTES.iter().map(route).collect();
    scene.write_policy(&unlimited(1, &routes));
    scene.wait_for_routes(&ROUTES);
    let workers = ["weir-0", "weir-1"].map(|instance| scene.worker(instance));
    for worker in &workers {
        wait_ready(worker);
        wait_members(worker, 2);
    }
    let _delivery = Delivery::start(&scene.kafka, &group, &scene.topic("approved"), PER_S).unwrap();
    let blast = |channel: &'static str| {
        (0..10_000)
            .map(move |number| intent(&format!("{channel}-{number}"), number, serde_json::json!({"channel": channel})))
    };
    scene.publish(ROUTES.into_iter().flat_map(blast));
    wait_until(DEADLINE, "the blast waits", || waits(&workers[0]) > 5_000);
    // The log of slow commands, where none is too fast.
    for (setting, value) in [("slowlog-max-len", "1000000"), ("slowlog-log-slower-than", "0")] {
        redis.query::<()>(&["CONFIG", "SET", setting, value]).unwrap();
    }
    let began = Instant::now();
    redis.query::<()>(&["SLOWLOG", "RESET"]).unwrap();
    wait_until(DEADLINE, "some time has passed", || began.elapsed() >= LOOK);
    type Entry = (u64, u64, u64, Vec<Vec<u8>>, String, String);
    let log: Vec<Entry> = redis.query(&["SLOWLOG", "GET", "-1"]).unwrap();
    let seconds = began.elapsed().as_secs_f64();
    assert!(waits(&workers[0]) > 0, "the blast lasts");
    for route in ROUTES {
        let key = format!("p{route}");
        let is_turn =
            |entry: &&Entry| entry.3[0].eq_ignore_ascii_case(b"EVALSHA") && entry.3[3].ends_with(key.as_bytes());
        let calls = log.iter().filter(is_turn).count() as f64 / workers.len() as f64;
        eprintln!("{route}: {calls} calls an instance in {seconds:.1} s, {} of all kinds", log.len());
        // Turns are seldom late, and one more may be among them where the seconds do not begin together.
        assert!((seconds..=2.0 * seconds + 1.0).contains(&calls), "{calls} calls an instance in {seconds} s");
    }
}
