//! `weir run`: its start, its HTTP answers, its stop, and its behaviour while Kafka or Redis is unavailable.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use crate::support::{
    DEADLINE, Decision, POLICY, SEGMENTS, Scene, TOPICS, contains_all, ends,
    http::{address, described, get, metric, send, wait_degraded, wait_ready, wait_whole},
    is_a_paragraph,
    outcome::{OutcomeKind, case, intent},
    paragraph, stop, weir,
};
use serde_json::{Value, json};
use testkit::{
    kafka::{Kafka, KafkaClient, Record},
    process::{Exit, output},
    redis::RedisServer,
    s3::{Fault, S3},
    stack::Stack,
    wait_for, wait_until,
    worker::Worker,
};

/// Sends of users without a segment, whose limit is one: so many users, each so many sends.
fn sends(scene: &Scene, wave: &str, users: usize, each: usize) {
    let one = |number: usize| intent(&format!("{wave} {number}"), format!("user-{}", number % users), json!({}));
    scene.publish((0..users * each).map(one));
}

/// Of each user exactly one was approved, in whichever wave.
fn one_each(scene: &Scene, users: usize, sends: usize) {
    let outcomes = scene.outcomes();
    let mut approved: BTreeMap<String, usize> = BTreeMap::new();
    for (_, outcome) in outcomes.all().filter(|(_, outcome)| outcome.kind == OutcomeKind::Approved) {
        *approved.entry(outcome.record.key_text()).or_default() += 1;
    }
    assert_eq!(outcomes.all().count(), sends, "each intent has one record");
    assert_eq!(approved.len(), users);
    assert!(approved.values().all(|&count| count == 1), "{approved:?}");
}

#[test]
fn a_worker_that_has_ended_is_not_waited_for() {
    let worker = Worker::run(weir(), "no configuration").unwrap();
    let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| wait_ready(&worker)));
    let said = *waited.unwrap_err().downcast::<String>().unwrap();
    let log = worker.log();
    assert!(said.contains(&format!("the worker has ended: {log}")) && !log.is_empty(), "{said}");
}

#[test]
fn readyz_is_503_until_the_partitions_are_assigned_and_livez_200() {
    let scene = Scene::new("ready", 2, POLICY);
    let mut worker = scene.worker("ready");
    let (status, body) = get(&worker, "/readyz");
    let problem: Value = serde_json::from_str(&body).unwrap_or_default();
    // The group may have been quicker than this look.
    if status != 200 {
        assert_eq!((status, &problem["status"]), (503, &json!(503)), "{body}");
        assert!(problem["detail"].as_str().unwrap().contains("waits for its partitions"), "{body}");
    }
    assert_eq!(get(&worker, "/livez").0, 200);
    wait_ready(&worker);
    for question in [&["--ready"][..], &[]] {
        let url = format!("http://{}", address(&worker));
        let said = output(Command::new(weir()).args(["health", "--url", &url]).args(question)).unwrap();
        assert_eq!((said.status.code(), said.stderr.len()), (Some(0), 0), "{said:?}");
    }
    assert_eq!(metric(&worker, "weir_lanes_ready", ""), Some(1.0));
    let (status, body) = get(&worker, "/nowhere");
    let problem: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &problem["status"]), (404, &json!(404)), "{body}");

    // Another member: there are two partitions, and both are ready; of a third one nothing is left.
    let (second, third) = (scene.worker("second"), scene.worker("third"));
    for worker in [&worker, &second, &third] {
        wait_ready(worker);
    }
    stop(&mut worker);
}

/// They have a sample once there is a route, a service that asks, a delivery that failed, or an intent that was lost:
/// tests/worker/delivery.rs, tests/worker/retries.rs and tests/http/services.rs look at them.
fn comes_with_use(metric: &str) -> bool {
    let families = [
        "weir_route_",
        "weir_waiting",
        "weir_deleted_undecided",
        "weir_service_admissions",
        "weir_retried",
        "weir_undelivered",
    ];
    families.iter().any(|family| metric.starts_with(family))
}

#[test]
fn every_metric_of_the_documentation_is_there_and_no_other() {
    let budget = "[[budgets]]\nname = \"all\"\nlimit = 1_000_000\ntotal = true\n";
    let mut scene = Scene::new("metrics", 2, &format!("{POLICY}\n[[bypass]]\ncategory = \"service\"\n{budget}"));
    scene.set("WEIR__WORKER__LANES", "2");
    scene.defer(1);
    let mut worker = scene.ready("metrics");
    sends(&scene, "wave", 20, 2);
    scene.decide_by(&mut worker, [case("dead", Record::keyless("no intent"))]);
    wait_until(DEADLINE, "all is counted", || metric(&worker, "weir_decisions_total", "") == Some(40.0));
    assert_eq!(metric(&worker, "weir_decisions_total", "verdict=\"approved\",reason=\"counted\""), Some(20.0));
    assert_eq!(metric(&worker, "weir_decisions_total", "verdict=\"suppressed\",reason=\"cap\""), Some(20.0));
    assert_eq!(metric(&worker, "weir_dead_letters_total", "reason=\"not_json\""), Some(1.0));
    assert_eq!(metric(&worker, "weir_lag_records", ""), Some(0.0));
    assert_eq!(metric(&worker, "weir_batch_intents_sum", ""), Some(41.0));
    wait_until(DEADLINE, "deferred intents are counted", || metric(&worker, "weir_deferred_waiting", "") == Some(0.0));
    let documented = include_str!("../../docs/metrics.md");
    let documented: BTreeSet<String> = documented
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
        .map(|name| name.strip_suffix("_total").unwrap_or(name).to_owned())
        .filter(|name| !comes_with_use(name))
        .collect();
    let found: BTreeSet<String> = described(&get(&worker, "/metrics").1).into_keys().collect();
    assert_eq!(found, documented, "/metrics and docs/metrics.md");
}

#[test]
fn sigterm_drains_and_exits_0() {
    let scene = Scene::new("terminate", 4, POLICY);
    let mut idle = scene.ready("idle");
    stop(&mut idle);
    sends(&scene, "first", 5_000, 4);
    let mut worker = scene.worker_with("busy", &[("WEIR__WORKER__BATCH", "500")]);
    wait_until(DEADLINE, "it works", || scene.done() > 0);
    let log = stop(&mut worker);
    assert!(log.contains("asked to stop"), "{log}");
    assert_eq!(paragraph(&log), "");
    assert!(scene.done() < 20_000, "it was stopped before all was done");
    let _next = scene.drained("next");
    one_each(&scene, 5_000, 20_000);
}

/// As asked for in <https://github.com/apollographql/router/issues/3233> and <https://github.com/PostgREST/postgrest/pull/4580>.
#[test]
fn http_answers_for_http_drain_after_sigterm_but_not_after_ctrl_c_and_readyz_is_503_at_once() {
    const DRAIN: Duration = Duration::from_secs(4);
    let scene = Scene::new("http-drain", 1, POLICY);
    let mut worker = scene.worker_with("i", &[("WEIR__HTTP__DRAIN", "4s")]);
    wait_ready(&worker);
    let begun = Instant::now();
    stop(&mut worker);
    assert!(begun.elapsed() >= DRAIN);

    // However slow this machine is, it does not end meanwhile, and Ctrl+C does not wait for callers.
    let endless = [("WEIR__HTTP__DRAIN", "10m")];
    let mut worker = scene.worker_with("i", &endless);
    wait_ready(&worker);
    worker.interrupt();
    ends(&mut worker, 0);
    let mut worker = scene.worker_with("i", &endless);
    wait_ready(&worker);
    worker.terminate();
    wait_until(DEADLINE, "/readyz is 503", || get(&worker, "/readyz").0 == 503);
    assert!(get(&worker, "/readyz").1.contains("asked to stop"), "{}", get(&worker, "/readyz").1);
    assert_eq!(get(&worker, "/livez").0, 200);
    let (status, said) = send(&worker, "POST", "/v1/decisions", &json!({"id": "late", "user_id": "user-1"}));
    assert_eq!(status, 200, "{said}");
    // The lanes go on, too.
    sends(&scene, "late", 10, 1);
    scene.drain(&mut worker);
}

/// Brokers of their own are slow to start: these rules share one.
#[test]
fn on_a_broker_of_ones_own_codecs_come_out_and_a_second_signal_ends_a_worker() {
    let mut kafka = Kafka::start(1).unwrap();
    intents_of_every_codec_come_out_and_outputs_are_compressed_where_that_is_set(&kafka);
    a_second_signal_ends_it_at_once_and_what_was_not_committed_is_decided_again(&mut kafka);
}

/// A scene on a Kafka of its own.
fn scene_on(kafka: &KafkaClient, name: &str) -> Scene {
    Scene::on(kafka.clone(), Stack::shared().redis_cluster().to_vec(), name, 1, POLICY)
}

fn a_second_signal_ends_it_at_once_and_what_was_not_committed_is_decided_again(kafka: &mut Kafka) {
    slow_down(kafka);
    // The shell that guards the worker reports its exit code 128 + n as the signal n.
    for number in [2, 15] {
        let stop = |worker: &mut Worker| if number == 2 { worker.interrupt() } else { worker.terminate() };
        let scene = scene_on(kafka.client(), "twice");
        large_intents(&scene, MANY);
        let env = [SLOW_BATCH[0], SLOW_BATCH[1], SLOW_CLIENT, ("WEIR__WORKER__DRAIN", "10m")];
        let mut worker = scene.worker_with("twice", &env);
        wait_until(DEADLINE, "a transaction is open", || scene.is_open("approved"));
        kafka.freeze(0).unwrap();
        stop(&mut worker);
        wait_until(DEADLINE, "it drains", || worker.log().contains("asked to stop: finishing"));
        assert_eq!(worker.exit(), None, "it cannot commit");
        stop(&mut worker);
        assert_eq!(worker.wait_exit(DEADLINE).unwrap(), Exit::Signal(number));
        assert!(worker.log().contains("a second signal: weir ends at once"), "{}", worker.log());
        kafka.thaw(0).unwrap();
        assert!(scene.done() < MANY as i64, "it was stopped before all was done");
        let mut next = scene.worker_with("twice", &SLOW_BATCH);
        scene.drain(&mut next);
        in_order(&scene, MANY);
    }
}

#[test]
fn while_redis_is_frozen_intents_wait_and_then_it_goes_on_by_itself() {
    const SECRET: &str = "MARKED-REDIS-PASSWORD";
    let mut redis = RedisServer::start(&["--requirepass", SECRET]).unwrap();
    let url = format!("redis://:{SECRET}@127.0.0.1:{}", redis.port());
    let mut scene = Scene::on_redis(vec![url], "frozen", 2, POLICY);
    scene.set("WEIR__REDIS__TIMEOUT", "200ms");
    sends(&scene, "before", 1_000, 1);
    let mut worker = scene.drained("frozen");
    wait_ready(&worker);

    redis.freeze();
    sends(&scene, "during", 1_000, 1);
    let entry = wait_degraded(&worker, "shards_unavailable");
    assert_eq!(entry["shards"].as_array().unwrap().len(), 64, "{entry}");
    assert_eq!(metric(&worker, "weir_shards_unavailable", ""), Some(64.0));
    wait_until(DEADLINE, "it asks again and again", || metric(&worker, "weir_store_failures_total", "") >= Some(2.0));
    assert_eq!(get(&worker, "/livez").0, 200);
    assert_eq!(scene.done(), 1_000, "nothing is decided without Redis");
    let rebalances = metric(&worker, "weir_rebalances_total", "");
    redis.thaw();
    sends(&scene, "after", 1_000, 1);
    scene.drain(&mut worker);
    wait_whole(&worker);
    assert_eq!(metric(&worker, "weir_rebalances_total", ""), rebalances, "it stayed a member");
    one_each(&scene, 1_000, 3_000);
    assert!(worker.log().contains("store did not answer"));
    assert!(!worker.log().contains(SECRET), "the password is in the log");
}

#[test]
fn histories_that_are_gone_stop_their_intents_are_told_and_are_not_made_anew() {
    let (redis, scene) = Scene::with_redis("gone", 1, POLICY);
    sends(&scene, "before", 100, 1);
    let mut worker = scene.drained("gone");
    wait_ready(&worker);

    redis.query::<()>(&["FLUSHALL"]).unwrap();
    sends(&scene, "after", 100, 1);
    wait_until(DEADLINE, "lost shards are counted", || metric(&worker, "weir_shards_lost", "") > Some(0.0));
    wait_until(DEADLINE, "the lag is told", || metric(&worker, "weir_lag_records", "partition=\"0\"") == Some(100.0));
    let entry = wait_degraded(&worker, "shards_lost");
    assert!(entry["message"].as_str().unwrap().contains("weir rebuild"), "{entry}");
    assert_eq!(scene.done(), 100, "nothing is decided on a history that is gone");
    stop(&mut worker);

    let mut again = scene.worker("gone");
    let log = ends(&mut again, 1);
    assert!(log.contains("there is no keyspace here") && log.contains("weir check --create"), "{log}");
}

#[test]
fn a_worker_that_is_asked_to_stop_while_it_starts_ends_at_once() {
    let (mut redis, scene) = Scene::with_redis("starting", 1, POLICY);
    redis.kill();
    // The command line's level goes before the configuration's.
    let args = |config: PathBuf| {
        ["run", "--log-level", "info", "--config"].map(Into::into).into_iter().chain([config.into()]).collect()
    };
    let mut worker = Worker::start(weir(), &scene.config("starting"), args, &[("WEIR__LOG__LEVEL", "error")]).unwrap();
    wait_until(DEADLINE, "it waits for Redis", || worker.log().contains("trying again"));
    assert!(stop(&mut worker).contains("asked to stop while starting"));
}

/// Intents of 2.5 kB for one partition, two a user: of 1,000 in a batch, 1.3 MB go to approved and more to suppressed, so both are
/// written in several requests, one after the other.
fn large_intents(scene: &Scene, count: usize) {
    let filling = "x".repeat(2_500);
    let one =
        |number: usize| intent(&number.to_string(), format!("user-{}", number / 2), json!({ "payload": filling }));
    scene.publish((0..count).map(one));
}

/// Of each user's two the first is approved and the second is not; each came out once, in order.
fn in_order(scene: &Scene, count: usize) {
    let every_other = |first| (first..count).step_by(2).map(|number| number.to_string()).collect::<Vec<_>>();
    let approved: Vec<String> = scene.output("approved").into_iter().map(|it| Decision::approval(it).0).collect();
    assert_eq!(approved, every_other(0));
    let suppressed: Vec<String> =
        scene.output("suppressed").into_iter().map(|it| Decision::suppression(it).0).collect();
    assert_eq!(suppressed, every_other(1));
}

/// A worker whose batches are of so many intents, however long they take to come.
const LARGE_BATCH: [(&str, &str); 2] = [("WEIR__WORKER__BATCH", "3000"), ("WEIR__WORKER__COMMIT_INTERVAL", "5s")];

/// The client that `slow_down` slows down.
const SLOW_CLIENT: (&str, &str) = ("WEIR__KAFKA__PROPERTIES__CLIENT_ID", "slow");

/// Large intents for that client, and its batches of them.
const MANY: usize = 6_000;
const SLOW_BATCH: [(&str, &str); 2] = [("WEIR__WORKER__BATCH", "1500"), LARGE_BATCH[1]];

/// Lets `SLOW_CLIENT` write 1 MB/s: of 18 MB of outputs the broker takes the first 11 MB at once, and transactions with
/// the others stay open for seconds, so that a test surely sees one.
fn slow_down(kafka: &Kafka) {
    kafka.client().throttle_producers(SLOW_CLIENT.1, 1_000_000).unwrap();
}

#[test]
fn what_of_a_partition_takes_several_requests_comes_out_once_and_in_order() {
    for delivery in ["exactly_once", "at_least_once"] {
        let mut scene = Scene::new("waves", 1, POLICY);
        scene.delivery = delivery;
        large_intents(&scene, 3_000);
        let mut worker = scene.worker_with("waves", &LARGE_BATCH);
        wait_until(DEADLINE, "all is committed", || scene.done() == 3_000);
        let commits = || metric(&worker, "weir_stage_seconds_count", "stage=\"commit\"").unwrap_or(0.0);
        wait_until(DEADLINE, "commits are counted", || commits() > 0.0);
        assert!(commits() <= 3.0, "{delivery}: one of them had at least 1,000 intents");
        scene.drain(&mut worker);
        in_order(&scene, 3_000);
    }
}

fn intents_of_every_codec_come_out_and_outputs_are_compressed_where_that_is_set(kafka: &Kafka) {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let scene = scene_on(&kafka.client().compressing(codec), codec);
        large_intents(&scene, 1_000);
        let set = [("WEIR__KAFKA__PROPERTIES__COMPRESSION_TYPE", codec)];
        // Nothing is compressed unless it is set.
        let mut worker = scene.worker_with(codec, if codec == "none" { &[] } else { &set });
        scene.drain(&mut worker);
        in_order(&scene, 1_000);
        for (which, records) in [("intents", 1_000), ("approved", 500), ("suppressed", 500)] {
            let bytes = kafka.bytes_on_disk(&scene.topic(which)).unwrap();
            assert_eq!(bytes >= records * 2_500, codec == "none", "{codec}, {which}: {bytes} bytes");
        }
    }
}

#[test]
fn a_broker_that_dies_between_the_requests_of_a_batch_costs_nothing_but_time() {
    let mut kafka = Kafka::start(1).unwrap();
    slow_down(&kafka);
    let scene = scene_on(kafka.client(), "between");
    large_intents(&scene, MANY);
    let mut worker = scene.worker_with("between", &[SLOW_BATCH[0], SLOW_BATCH[1], SLOW_CLIENT]);
    wait_until(DEADLINE, "a transaction is open", || scene.is_open("approved"));
    kafka.kill(0).unwrap();
    kafka.restart(0).unwrap();
    assert!(scene.done() < MANY as i64, "the broker was unavailable before everything was done");
    kafka.client().throttle_producers(SLOW_CLIENT.1, 1_000_000_000).unwrap();
    scene.drain(&mut worker);
    in_order(&scene, MANY);
}

#[test]
fn a_worker_whose_transaction_timed_out_goes_back_and_on() {
    let scene = Scene::new("timed-out", 2, POLICY);
    // A long session, so that no rebalance makes the lane start again.
    let session = ("WEIR__KAFKA__PROPERTIES__SESSION_TIMEOUT_MS", "120000");
    let mut worker = scene.worker_with("timed-out", &[("WEIR__WORKER__BATCH", "50"), session]);
    wait_ready(&worker);
    sends(&scene, "wave", 5_000, 4);
    let is_open = || scene.is_open("approved") || scene.is_open("suppressed");
    wait_until(DEADLINE, "it is frozen within a transaction", || {
        worker.freeze();
        // What it sent before may still end the transaction.
        let caught = is_open() && wait_for(Duration::from_secs(1), || (!is_open()).then_some(())).is_none();
        if !caught {
            worker.thaw();
        }
        caught
    });
    wait_until(DEADLINE, "the broker ends the transaction", || !is_open());
    assert!(scene.done() < 20_000, "it was frozen before all was done");
    worker.thaw();
    scene.drain(&mut worker);
    wait_ready(&worker);
    assert!(worker.log().contains("back to the committed offsets"));
    assert_eq!(metric(&worker, "weir_commit_failures_total", ""), Some(1.0));
    one_each(&scene, 5_000, 20_000);
}

#[test]
fn of_two_workers_with_one_instance_name_the_older_stops_and_the_newer_goes_on() {
    let scene = Scene::new("twins", 4, POLICY);
    sends(&scene, "wave 0", 100, 1);
    let mut older = scene.drained("twin");
    let mut newer = scene.ready("twin");
    let mut wave = 0;
    wait_until(DEADLINE, "one of them stops", || {
        wave += 1;
        sends(&scene, &format!("wave {wave}"), 100, 1);
        older.exit().is_some() || newer.exit().is_some()
    });
    let log = ends(&mut older, 1);
    let said = paragraph(&log);
    assert!(said.contains("took over the transactional id") && said.contains("kafka.instance"), "{said}");
    scene.drain(&mut newer);
    assert_eq!(newer.exit(), None, "no ping-pong");
    one_each(&scene, 100, 100 * (wave + 1));
}

#[test]
fn missing_topics_are_named_or_made_where_that_is_allowed() {
    let mut scene = Scene::bare("missing", 3, POLICY);
    scene.build_segments(&SEGMENTS);
    scene.kafka.create_topic(&scene.topic("intents"), 3).unwrap();
    scene.kafka.create_topic(&scene.topic("approved"), 3).unwrap();
    let said = paragraph(&ends(&mut scene.worker("missing"), 2));
    let named = TOPICS.map(|topic| said.contains(&scene.topic(topic)));
    assert_eq!(named, [false, false, true, true], "{said}");

    scene.set("WEIR__KAFKA__CREATE_TOPICS", "true");
    scene.set("WEIR__KAFKA__CREATE_PARTITIONS", "5");
    sends(&scene, "wave", 10, 2);
    let _worker = scene.drained("makes");
    assert_eq!(scene.kafka.wait_topic(&scene.topic("suppressed")).unwrap(), 5);
    one_each(&scene, 10, 20);
}

#[test]
fn a_wrong_configuration_ends_with_2_and_one_paragraph() {
    let scene = Scene::bare("wrong", 1, POLICY);
    scene.build_segments(&SEGMENTS);
    let good = scene.config("wrong");
    let token = "MARKED-TOKEN\u{7}";
    /// What is wrong, what is appended to the configuration, the environment, and what stderr says.
    type Case<'c> = (&'c str, &'c str, &'c [(&'c str, &'c str)], &'c [&'c str]);
    let cases: [Case<'_>; 9] = [
        ("group = ", "gruop = ", &[], &["weir.toml:4:", "gruop", "`group`"]),
        ("[redis]", "[redis", &[], &["weir.toml:"]),
        ("lanes = 1", "lanes = -1", &[], &["worker.lanes"]),
        ("refresh = \"1s\"", "refresh = 1", &[], &["refresh"]),
        ("", "", &[("WEIR__WORKER__LANES", "many")], &["WEIR__WORKER__LANES"]),
        ("", "", &[("WEIR__WORKER__LANE", "1")], &["WEIR__WORKER__LANE", "WEIR__WORKER__LANES"]),
        ("", "", &[("WEIR__HTTP__TOKEN", token)], &["WEIR__HTTP__TOKEN"]),
        ("redis://", "http://", &[], &["redis.nodes"]),
        ("", "", &[("WEIR__KAFKA__PROPERTIES__GROUP_ID", "x")], &["group.id", "kafka.group"]),
    ];
    for (from, to, env, expected) in cases {
        let config = if from.is_empty() { good.clone() } else { good.replace(from, to) };
        let mut worker = Worker::run_with(weir(), &config, env).unwrap();
        let log = ends(&mut worker, 2);
        assert_eq!(log.trim_end(), paragraph(&log), "nothing was started");
        is_a_paragraph(&log);
        contains_all(&log, expected);
        assert!(!log.contains("MARKED-TOKEN"), "{log}");
    }
}

#[test]
fn a_start_waits_for_an_s3_that_says_it_cannot_now() {
    let s3 = S3::start().unwrap();
    let mut scene = Scene::new("s3-away", 1, POLICY);
    scene.put_segments(s3.bucket(), "segments");
    for (key, value) in s3.bucket().env() {
        scene.set(key, value);
    }
    scene.set("WEIR__S3__ENDPOINT", s3.endpoint().to_owned());
    scene.set("WEIR__S3__FORCE_PATH_STYLE", "true");
    // More than the requests of one read, each of which is sent three times.
    s3.fail_next(8, Fault::SlowDown);
    let mut worker = scene.ready("waits");
    assert!(worker.log().contains("trying again in"), "{}", worker.log());
    sends(&scene, "wave", 10, 2);
    scene.drain(&mut worker);
    one_each(&scene, 10, 20);
}
