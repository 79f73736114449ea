//! The promise: nothing is decided, and nothing is trimmed, by a clock that is more than 5 minutes from those of Redis and
//! the brokers.

use std::{collections::BTreeMap, process::Output};

use crate::support::{
    DEADLINE, POLICY, Scene,
    http::{get, metric, send, wait_ready},
    model, said, workload,
};
use testkit::{clock::ProcessClock, process::output, redis::RedisServer, wait_until, worker::Worker};

const HOUR_S: i64 = 3_600;
const EIGHT_DAYS_S: i64 = 8 * 24 * HOUR_S;
/// How the reason begins, wherever it is reported.
const WRONG: &str = "this machine's clock shows";

struct Stage {
    redis: RedisServer,
    scene: Scene,
}

impl Stage {
    fn new(name: &str, redis: RedisServer) -> Self {
        let scene = Scene::on_redis(vec![redis.url()], name, 2, POLICY);
        Self { redis, scene }
    }

    fn worker(&self, clock: &ProcessClock) -> Worker {
        self.scene.worker_by("only", clock, &[])
    }

    fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let keys: Vec<String> = self.redis.query(&["KEYS", "*"]).unwrap();
        keys.into_iter().map(|key| (key.clone(), self.redis.query(&["DUMP", &key]).unwrap())).collect()
    }

    /// A command of weir on the scene's configuration, on a machine with this clock.
    fn command(&self, clock: &ProcessClock, args: &[&str]) -> Output {
        output(self.scene.command(args).envs(clock.env())).unwrap()
    }
}

/// Waits until the lane has intents that it does not decide: then the log says so.
fn wait_refusing(worker: &Worker) {
    wait_until(DEADLINE, "the lane refuses to decide", || worker.log().contains(WRONG));
    let (status, said) = get(worker, "/readyz");
    assert!(status == 503 && said.contains(WRONG), "{status} {said}");
    assert_eq!(metric(worker, "weir_clock_wrong", ""), Some(1.0));
}

fn decide(worker: &Worker, query: &str) -> (u16, String) {
    send(worker, "POST", &format!("/v1/decisions{query}"), &serde_json::json!({"id": "by-http", "user_id": 1}))
}

#[test]
fn a_clock_eight_days_ahead_decides_and_erases_nothing_and_continues_when_it_is_right() {
    let (clock, stage) =
        (ProcessClock::ahead(0).unwrap(), Stage::new("clock-ahead", RedisServer::start::<&str>(&[]).unwrap()));
    let intents = workload::intents(800, 20);
    let (before, while_wrong) = intents.split_at(400);
    let mut worker = stage.worker(&clock);
    stage.scene.decide_by(&mut worker, workload::records(before));
    let (contents, done) = (stage.contents(), stage.scene.done());
    assert_eq!(metric(&worker, "weir_clock_wrong", ""), Some(0.0));

    // It jumps while the worker runs; and then it is wrong from the start.
    clock.set(EIGHT_DAYS_S).unwrap();
    stage.scene.publish(workload::records(while_wrong));
    for killed in [false, true] {
        if killed {
            worker.kill();
            worker = stage.worker(&clock);
        }
        wait_refusing(&worker);
        for query in ["", "?dry_run=true"] {
            let (status, said) = decide(&worker, query);
            assert!(status == 503 && said.contains("\"clock_wrong\"") && said.contains(WRONG), "{status} {said}");
        }
        let (status, user) = get(&worker, "/v1/users/1");
        assert!(status == 200 && user.contains(WRONG), "{user}");
        assert_eq!(metric(&worker, "weir_clock_skew_seconds", "").unwrap().round() as i64, EIGHT_DAYS_S);
        assert_eq!((stage.contents(), stage.scene.done()), (contents.clone(), done), "nothing was written");
    }

    clock.set(0).unwrap();
    wait_ready(&worker);
    stage.scene.drain(&mut worker);
    assert_eq!(decide(&worker, "").0, 200);
    let decisions = stage.scene.decisions();
    assert_eq!(decisions.len(), intents.len());
    assert_eq!(model::differences(&intents, &decisions), [""; 0], "each verdict is the one of a right clock");
}

#[test]
fn commands_report_a_wrong_clock_and_rebuild_does_not_begin() {
    let right = ProcessClock::ahead(0).unwrap();
    let stage = Stage::new("clock-commands", RedisServer::start::<&str>(&[]).unwrap());
    let mut worker = stage.worker(&right);
    stage.scene.decide_by(&mut worker, workload::records(&workload::intents(200, 21)));
    let contents = stage.contents();
    for (ahead_s, way) in [(EIGHT_DAYS_S, "8days ahead of"), (-HOUR_S, "1h behind"), (4 * 60, "")] {
        let clock = ProcessClock::ahead(ahead_s).unwrap();
        let wrong = !way.is_empty();
        let checked = stage.command(&clock, &["check"]);
        let expected = format!("ERROR    clock: this machine's clock is {way} that of Redis node 127.0.0.1:");
        assert_eq!(said(&checked).contains(&expected), wrong, "{}", said(&checked));
        assert!(!wrong || checked.status.code() == Some(1), "{}", said(&checked));
        let explained = stage.command(&clock, &["explain", "1"]);
        assert!(explained.status.success(), "{}", said(&explained));
        assert_eq!(said(&explained).contains(&format!("WARNING: {WRONG}")), wrong, "{}", said(&explained));
        if wrong {
            let rebuilt = stage.command(&clock, &["rebuild", "--all", "--settle", "0s"]);
            assert_eq!(rebuilt.status.code(), Some(1), "{}", said(&rebuilt));
            assert!(said(&rebuilt).contains("nothing was changed"), "{}", said(&rebuilt));
            assert_eq!(stage.contents(), contents, "nothing was written");
        }
    }
}

#[test]
fn a_broker_whose_records_are_from_the_future_is_reported() {
    // Redis has the worker's wrong clock: only the broker contradicts it.
    let clock = ProcessClock::ahead(-HOUR_S).unwrap();
    for (kind, contradicts) in [("LogAppendTime", true), ("CreateTime", false)] {
        let stage = Stage::new("clock-broker", RedisServer::start_by(&clock).unwrap());
        let topic = stage.scene.topic("intents");
        stage.scene.kafka.configure_topic(&topic, &[("message.timestamp.type", kind)]).unwrap();
        let mut worker = stage.worker(&clock);
        stage.scene.decide_by(&mut worker, workload::records(&workload::intents(50, 22)));
        let (log, contradiction) = (worker.log(), "Kafka broker 1 is ");
        assert_eq!(log.contains(contradiction), contradicts, "{kind}: {log}");
    }
}
