//! `weir check`: what it finds, by which exit code, and that it changes nothing.

use std::process::{Command, Output};

use crate::support::{
    DEADLINE, POLICY, SEGMENTS, Scene, TOPICS, contains_all, ends, is_a_paragraph, outcome::intent, stop, weir,
};
use serde_json::{Value, json};
use testkit::{
    kafka::{Kafka, KafkaClient},
    redis::RedisServer,
    stack::Stack,
    wait_for,
};

fn run(scene: &Scene, config: &str, args: &[&str]) -> Output {
    run_with("weir.toml", scene, config, args)
}

/// With a configuration in a file of this name.
fn run_with(file: &str, scene: &Scene, config: &str, args: &[&str]) -> Output {
    std::fs::write(scene.path(file), config).unwrap();
    let mut command = Command::new(weir());
    command.args(["check", "--config", file]).args(args).current_dir(scene.folder.path());
    testkit::process::output(&mut command).unwrap()
}

pub struct Found {
    code: i32,
    findings: Vec<Value>,
    stderr: String,
}

impl Found {
    fn of_output(output: Output) -> Self {
        let stderr = String::from_utf8(output.stderr).unwrap();
        let findings = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        Self { code: output.status.code().unwrap(), findings, stderr }
    }

    /// Those of this kind, as `what: message`.
    pub fn of(&self, finding: &str) -> Vec<String> {
        let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
        let of_kind = self.findings.iter().filter(|line| line["finding"] == finding);
        of_kind.map(|line| format!("{}: {}", text(line, "what"), text(line, "message"))).collect()
    }

    /// What is wrong: one thing, of this kind, in these words; the exit code is that of its kind.
    #[track_caller]
    pub fn is_one(&self, finding: &str, words: &[&str]) {
        let found = [self.of("error"), self.of("invalid")].concat();
        assert_eq!((found.len(), self.of(finding).len()), (1, 1), "{found:?}");
        contains_all(&found[0], words);
        assert_eq!(self.code, if finding == "invalid" { 2 } else { 1 }, "{found:?} {}", self.stderr);
        is_a_paragraph(&self.stderr);
    }

    #[track_caller]
    pub fn is_fine(&self) {
        assert_eq!((self.code, [self.of("error"), self.of("invalid")].concat()), (0, vec![]), "{}", self.stderr);
        assert_eq!(self.stderr, "");
    }
}

pub fn check_with(scene: &Scene, config: &str, args: &[&str]) -> Found {
    Found::of_output(run(scene, config, &[&["--output", "json"], args].concat()))
}

pub fn check(scene: &Scene, config: &str) -> Found {
    check_with(scene, config, &[])
}

/// What is found where nothing is wrong.
#[track_caller]
pub fn fine(scene: &Scene, config: &str, args: &[&str]) -> Found {
    let found = check_with(scene, config, args);
    found.is_fine();
    found
}

/// What is found once it is so: the broker that is asked learns of a change after the controller has made it.
#[track_caller]
pub fn found_where(scene: &Scene, config: &str, is_so: impl Fn(&Found) -> bool) -> Found {
    let found = wait_for(DEADLINE, || Some(check(scene, config)).filter(&is_so));
    found.unwrap_or_else(|| panic!("it is found: {:?}", check(scene, config).findings))
}

/// A scene with a Redis of its own.
pub fn scene(name: &str) -> (Scene, RedisServer) {
    let (redis, scene) = Scene::with_redis(name, 3, POLICY);
    (scene, redis)
}

/// The same without topics.
fn bare(name: &str, partitions: i32) -> (Scene, RedisServer) {
    let redis = RedisServer::start::<&str>(&[]).unwrap();
    let scene = Scene::bare_on(Stack::shared().kafka().clone(), vec![redis.url()], name, partitions, POLICY);
    scene.build_segments(&SEGMENTS);
    (scene, redis)
}

/// What a check may change: keys and settings of Redis, and the topics of the scene with the ends of their partitions.
fn state(scene: &Scene, redis: &RedisServer) -> String {
    let keys: Vec<String> = redis.query(&["KEYS", "*"]).unwrap();
    let settings: Vec<String> = redis.query(&["CONFIG", "GET", "*"]).unwrap();
    let ends = TOPICS.map(|topic| scene.kafka.end_offsets(&scene.topic(topic)).ok());
    format!("{keys:?} {settings:?} {ends:?}")
}

#[test]
fn an_installation_that_has_decided_nothing_yet_is_fine_and_is_not_changed() {
    let (scene, redis) = scene("check-new");
    let config = scene.config("i").replace("[redis]", "[redis]\ntune = true");
    let before = state(&scene, &redis);
    assert!(["listpack", "ziplist"].iter().any(|name| before.contains(&format!("\"hash-max-{name}-value\", \"64\""))));
    for _ in 0..2 {
        let found = fine(&scene, &config, &[]);
        let ok = found.of("ok").join("\n");
        contains_all(&ok, &["redis: there is no keyspace", "the first start of weir run creates it"]);
        assert!(found.of("warning").join("").contains("weir run sets it"), "{:?}", found.of("warning"));
    }
    assert_eq!(state(&scene, &redis), before, "it changed something");

    // The group decides something, and Redis loses everything.
    scene.publish([intent("one", "user-1", json!({}))]);
    stop(&mut scene.drained("i"));
    check(&scene, &config).is_fine();
    let lost = ["redis:", "has decided intents before", "weir rebuild --all", "--accept-lost-history"];
    // A slip makes nothing new, either: <https://github.com/cockroachdb/cockroach/issues/24118>.
    let elsewhere = config.replace(&format!("prefix = {:?}", scene.name), "prefix = \"elsewhere\"");
    check_with(&scene, &elsewhere, &["--create"]).is_one("error", &lost);
    assert_eq!(redis.query::<Vec<String>>(&["KEYS", "elsewhere*"]).unwrap(), [""; 0]);
    redis.query::<()>(&["FLUSHALL"]).unwrap();
    check(&scene, &config).is_one("error", &lost);
    // A pipeline repeats the command of the first start.
    check_with(&scene, &config, &["--create"]).is_one("error", &lost);
    assert_eq!(redis.query::<i64>(&["DBSIZE"]).unwrap(), 0, "an empty keyspace resets all caps");
    check_with(&scene, &config, &["--create", "--accept-lost-history"]).is_fine();
    assert!(redis.query::<i64>(&["DBSIZE"]).unwrap() > 64, "the keyspace is there");
    check_with(&scene, &config, &["--create"]).is_fine();
}

/// As in <https://github.com/restatedev/restate/pull/2734>; in <https://github.com/OT-CONTAINER-KIT/redis-operator/issues/1164> a
/// repair emptied what was left.
#[test]
fn create_makes_no_keyspace_before_kafka_says_whether_one_was_lost_and_nothing_anew_of_one_of_which_a_part_is_lost() {
    let (scene, redis) = scene("check-part");
    let config = scene.config("i");
    let found = check_with(&scene, &config.replace(scene.kafka.bootstrap(), "127.0.0.1:1"), &["--create"]);
    let errors = found.of("error");
    let refuses = |error: &String| error.starts_with("redis: there is no keyspace") && error.contains("Kafka");
    assert!(found.code == 1 && errors.iter().any(refuses), "{errors:?}");
    assert_eq!(redis.query::<i64>(&["DBSIZE"]).unwrap(), 0);

    check_with(&scene, &config, &["--create"]).is_fine();
    let epochs: Vec<String> = redis.query(&["KEYS", &format!("{}:*:e", scene.name)]).unwrap();
    let meta = format!("{0}:{{{0}}}:meta", scene.name);
    assert_eq!(epochs.len(), 64, "one a shard");
    let asked: [&[&str]; 3] = [&[], &["--create"], &["--create", "--accept-lost-history"]];
    for (key, words) in [
        (&epochs[0], ["redis: shards", "have lost their history", "weir rebuild"]),
        (&meta, ["redis:", "is gone, though 63 of 64 shards", "weir rebuild"]),
    ] {
        assert_eq!(redis.query::<i64>(&["DEL", key]).unwrap(), 1);
        for args in asked {
            check_with(&scene, &config, args).is_one("error", &words);
        }
        assert_eq!(redis.query::<i64>(&["EXISTS", key]).unwrap(), 0);
    }
}

/// The group has committed offsets of the topic that was the intents then.
#[test]
fn a_keyspace_that_is_lost_is_not_made_anew_where_the_intents_are_another_topic_now() {
    let (scene, redis) = scene("check-renamed");
    scene.publish([intent("one", "user-1", json!({}))]);
    stop(&mut scene.drained("i"));
    redis.query::<()>(&["FLUSHALL"]).unwrap();
    let renamed = |topic: &str| {
        scene.config("i").replace(&format!("intents = {:?}", scene.topic("intents")), &format!("intents = {topic:?}"))
    };
    let lost = ["redis:", "has decided intents before", "weir rebuild --all", "--accept-lost-history"];
    let mistyped = check_with(&scene, &renamed(&scene.topic("intent")), &["--create"]);
    let errors = mistyped.of("error");
    let says_so = |error: &String| lost.iter().all(|word| error.contains(word));
    assert!(mistyped.code == 1 && errors.iter().any(says_so), "{errors:?}");
    let other = scene.topic("others");
    scene.kafka.create_topic(&other, 3).unwrap();
    check_with(&scene, &renamed(&other), &["--create"]).is_one("error", &lost);
    let mut worker = scene.worker_with("i", &[("WEIR__KAFKA__INTENTS", &other)]);
    worker.wait_exit(DEADLINE).unwrap();
    assert!(worker.log().contains("weir rebuild --all"), "{}", worker.log());
    assert_eq!(redis.query::<i64>(&["DBSIZE"]).unwrap(), 0, "an empty keyspace resets all caps");
}

#[test]
fn each_thing_that_is_wrong_is_found_and_the_exit_code_says_of_which_kind_it_is() {
    let (scene, redis) = scene("check-each");
    let good = scene.config("i");
    fine(&scene, &good, &["--create"]);
    check(&scene, &good).is_fine();
    let out = String::from_utf8(run(&scene, &good, &[]).stdout).unwrap();
    assert!(out.lines().all(|line| line.starts_with("ok ") || line.starts_with("warning")), "{out}");
    for topic in TOPICS {
        assert!(out.contains(&format!("{}: 3 partitions", scene.topic(topic))), "{out}");
    }

    // Files: 2.
    check(&scene, &good.replace("[redis]", "[rediss]")).is_one("invalid", &["configuration:", "weir.toml"]);
    check(&scene, &good.replace("redis://", "http://")).is_one("invalid", &["configuration:", "redis.nodes"]);
    check(&scene, &good.replace("manifest.json", "nowhere.json")).is_one("invalid", &["segments:", "nowhere.json"]);
    scene.write_policy(&POLICY.replace("[default]", "[defualt]"));
    let found = check(&scene, &good);
    let invalid = found.of("invalid");
    assert!(invalid.iter().all(|line| line.starts_with("policy: ") && line.contains("policy.toml")), "{invalid:?}");
    assert_eq!((found.code, invalid.is_empty()), (2, false));
    scene.write_policy(&POLICY.replace("segments.staff", "segments.stuff"));
    check(&scene, &good).is_one("invalid", &["policy:", "does not name the segment staff"]);
    scene.write_policy(POLICY);

    // Servers: 1.
    let gone = check(&scene, &good.replace("-dead\"", "-gone\""));
    gone.is_one("error", &["kafka:", "-gone", "weir check --create", "kafka-topics.sh"]);
    check(&scene, &good.replace(scene.kafka.bootstrap(), "127.0.0.1:1")).is_one("error", &["kafka:", "127.0.0.1:1"]);
    redis.cli(&["config", "set", "maxmemory-policy", "allkeys-lru"]).unwrap();
    check(&scene, &good).is_one("error", &["redis:", "allkeys-lru", "noeviction"]);
    redis.cli(&["config", "set", "maxmemory-policy", "noeviction"]).unwrap();
    check(&scene, &good).is_fine();
    let port = redis.port();
    drop(redis);
    let found = check(&scene, &good);
    let errors = found.of("error");
    assert!(found.code == 1 && !errors.is_empty() && found.of("invalid").is_empty(), "{errors:?}");
    assert!(errors.iter().all(|error| error.contains(&port.to_string())), "{errors:?}");

    // Users in two segments can only come from elsewhere: `segments build` rejects them. Both kinds together: 2.
    let manifest = scene.path("segments/manifest.json");
    let mut set: Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    for field in ["object", "bytes", "sha256", "cardinality"] {
        set["segments"][1][field] = set["segments"][0][field].clone();
    }
    std::fs::write(&manifest, set.to_string()).unwrap();
    let found = check(&scene, &good);
    let users = SEGMENTS[0].1.end;
    assert!(found.of("invalid").join("").contains(&format!("{users} users are in both")), "{:?}", found.findings);
    assert_eq!((found.code, found.of("error").is_empty()), (2, false));
}

#[test]
fn what_would_delete_records_that_a_rebuild_needs_is_found_with_the_command_that_repairs_it() {
    let (scene, _redis) = scene("check-kept");
    let (approved, refunds) = (scene.topic("approved"), scene.topic("refunds"));
    // Kafka's default is 7 days, below the history's 8; the tests' broker keeps everything.
    let default = [("max.message.bytes", "9000000"), ("retention.ms", "604800000")];
    scene.kafka.create_topic_with(&refunds, 1, &default).unwrap();
    scene.kafka.configure_topic(&approved, &default).unwrap();
    let config = scene.config("i").replace("[kafka]", &format!("[kafka]\nrefunds = {refunds:?}"));
    let found = check(&scene, &config);
    assert_eq!(found.code, 1, "{}", found.stderr);
    let of = |topic: &str, found: &Found| -> Vec<Value> {
        found.findings.iter().filter(|line| line["topic"] == topic).cloned().collect()
    };
    for topic in [&approved, &refunds] {
        let [line] = of(topic, &found).try_into().unwrap();
        assert_eq!((&line["finding"], &line["setting"]), (&json!("error"), &json!("retention.ms")), "{line}");
        assert_eq!((&line["value"], &line["required"]), (&json!("604800000"), &json!("691200000")), "{line}");
        let command = line["command"].as_str().unwrap();
        assert!(command.ends_with("--add-config retention.ms=691200000"), "{line}");
        contains_all(command, &["--entity-name"]);
        contains_all(line["message"].as_str().unwrap(), &[command]);
        scene.kafka.configure_topic(topic, &[("max.message.bytes", "9000000"), ("retention.ms", "691200000")]).unwrap();
    }
    check(&scene, &config).is_fine();
    let settings = [
        ("max.message.bytes", "9000000"),
        ("retention.ms", "-1"),
        ("retention.bytes", "1048576"),
        ("cleanup.policy", "compact"),
    ];
    scene.kafka.configure_topic(&approved, &settings).unwrap();
    let found = check(&scene, &config);
    let mut wrong: Vec<(Value, Value)> =
        of(&approved, &found).iter().map(|line| (line["setting"].clone(), line["required"].clone())).collect();
    wrong.sort_by_key(|(setting, _)| setting.to_string());
    assert_eq!(wrong, [(json!("cleanup.policy"), json!("delete")), (json!("retention.bytes"), json!("-1"))]);
    // A history that is shorter needs less.
    [&approved, &refunds].into_iter().for_each(|topic| scene.kafka.configure_topic(topic, &default).unwrap());
    check(&scene, &config.replace("[redis]", "[redis]\nhistory = \"7d\"")).is_fine();
}

fn retention(scene: &Scene, topic: &str) -> String {
    let settings = scene.kafka.topic_settings(&scene.topic(topic)).unwrap();
    settings.into_iter().find(|(name, _)| name == "retention.ms").unwrap().1
}

#[test]
fn a_start_that_creates_topics_keeps_what_is_approved_for_as_long_as_the_history() {
    let (mut scene, _redis) = bare("check-start", 1);
    scene.set("WEIR__KAFKA__CREATE_TOPICS", "true");
    scene.set("WEIR__REDIS__HISTORY", "9d");
    scene.ready("i");
    assert_eq!(retention(&scene, "approved"), "777600000");
}

#[test]
fn create_makes_the_keyspace_and_the_topics_that_weir_owns_and_they_keep_what_a_rebuild_needs() {
    let (scene, redis) = bare("check-create", 3);
    let refunds = scene.topic("refunds");
    let config =
        scene.config("i").replace("[kafka]", &format!("[kafka]\nrefunds = {refunds:?}\ncreate_partitions = 2"));
    check(&scene, &config).is_one("error", &["kafka:", &scene.topic("intents"), "weir check --create"]);

    let created = check_with(&scene, &config, &["--create"]);
    created.is_one("error", &[&scene.topic("intents"), "kafka-topics.sh"]);
    let ok = created.of("ok").join("\n");
    for topic in ["approved", "suppressed", "dead", "refunds"] {
        assert!(ok.contains(&scene.topic(topic)), "{ok}");
        assert_eq!(scene.kafka.wait_topic(&scene.topic(topic)).unwrap(), 2);
    }
    assert!(scene.kafka.partitions(&scene.topic("intents")).is_err(), "the intents topic belongs to its publishers");
    for topic in ["approved", "refunds"] {
        assert_eq!(retention(&scene, topic), "691200000", "{topic} is kept for redis.history");
    }
    assert!(redis.query::<i64>(&["DBSIZE"]).unwrap() > 64, "the keyspace is there");
    scene.kafka.create_topic(&scene.topic("intents"), 3).unwrap();
    check(&scene, &config).is_fine();
    check_with(&scene, &config, &["--create"]).is_fine();
}

/// The first `weir check --create` of an installation that has every topic that weir makes.
fn first_run(kafka: &KafkaClient, redis: &RedisServer) {
    let policy = format!("{POLICY}\n[[routes]]\nname = \"email\"\nchannel = \"email\"\nrate = 500\n");
    let scene = Scene::bare_on(kafka.clone(), vec![redis.url()], "check-first", 1, &policy);
    scene.build_segments(&SEGMENTS);
    scene.kafka.create_topic(&scene.topic("intents"), 1).unwrap();
    let own = ["deferred", "waiting"].map(|setting| format!("{setting} = {:?}\n", scene.topic(setting))).concat();
    let config = scene.config("i").replace("[kafka]\n", &format!("[kafka]\n{own}"));
    let found = fine(&scene, &config, &["--create"]);
    // Nothing is refused here, and what was just created is known.
    let warned = found.of("warning").join("\n");
    assert!(!warned.contains("grant") && !warned.contains("not known"), "{warned}");
}

/// <https://github.com/specmesh/specmesh-build/issues/323>
#[test]
fn two_first_checks_at_once_create_everything_once() {
    let (scene, _redis) = bare("check-twins", 1);
    scene.kafka.create_topic(&scene.topic("intents"), 1).unwrap();
    let deferred = format!("[kafka]\ndeferred = {:?}\n", scene.topic("deferred"));
    let config = |instance: &str| scene.config(instance).replace("[kafka]\n", &deferred);
    std::thread::scope(|threads| {
        for instance in ["one", "two"] {
            let (scene, config) = (&scene, config(instance));
            threads.spawn(move || {
                let file = format!("{instance}.toml");
                Found::of_output(run_with(&file, scene, &config, &["--create", "--output", "json"])).is_fine();
            });
        }
    });
    check(&scene, &config("one")).is_fine();
}

/// On a slow broker in <https://github.com/tchiotludo/akhq/issues/403>.
#[test]
fn the_first_check_that_creates_topics_knows_them_afterwards() {
    first_run(Stack::shared().kafka(), &RedisServer::start::<&str>(&[]).unwrap());
}

#[test]
#[ignore = "fifty brokers and their first checks, minutes: cargo xtask ci --extent everything"]
fn fifty_first_checks_on_fresh_brokers_know_what_they_have_created() {
    let redis = RedisServer::start::<&str>(&[]).unwrap();
    for _ in 0..50 {
        first_run(Kafka::start(1).unwrap().client(), &redis);
    }
}

#[test]
fn offline_reads_files_alone() {
    let (scene, redis) = bare("check-offline", 1);
    let config =
        scene.config("i").replace(scene.kafka.bootstrap(), "127.0.0.1:1").replace(&redis.url(), "redis://127.0.0.1:1");
    drop(redis);
    let found = fine(&scene, &config, &["--offline"]);
    assert_eq!(found.of("skipped").len(), 2, "{:?}", found.findings);
    assert!(found.of("ok").len() >= 4, "{:?}", found.findings);
    let s3 = config.replace(&scene.policy, "s3://nowhere/policy.toml");
    assert_eq!(check_with(&scene, &s3, &["--offline"]).of("skipped").len(), 3);
    scene.write_policy("version = 1");
    check_with(&scene, &config, &["--offline"]).is_one("invalid", &["policy:"]);
}

#[test]
fn a_session_that_the_brokers_do_not_allow_and_properties_that_do_not_go_together_are_found_and_fetches_may_be_small() {
    let (scene, _redis) = scene("check-properties");
    let config = |properties: &str| scene.config("i").replace("\"session.timeout.ms\" = \"6000\"", properties);
    let with = |property: &str| config(&format!("\"session.timeout.ms\" = 6000\n{property}"));
    for fine in [
        config("\"session.timeout.ms\" = 500"),
        with("\"fetch.max.bytes\" = 500_000"),
        with("\"receive.message.max.bytes\" = 5_000_000"),
    ] {
        check(&scene, &fine).is_fine();
    }
    let found = check(&scene, &with("\"socket.timeout.ms\" = 60_000"));
    found.is_one("invalid", &["configuration: kafka.properties.socket.timeout.ms must be 15100 or less"]);
    assert_eq!(found.of("skipped"), ["kafka: not connected to: no client can be made"]);
    let words = ["kafka:", &scene.name, "session.timeout.ms", "[kafka.properties]", "500 to 1800000"];
    for properties in
        ["\"session.timeout.ms\" = 499", "\"session.timeout.ms\" = 1_800_001\n\"max.poll.interval.ms\" = 1_800_001"]
    {
        check(&scene, &config(properties)).is_one("error", &words);
    }
}

#[test]
fn a_worker_that_runs_is_not_disturbed() {
    let (scene, _redis) = scene("check-beside");
    let mut worker = scene.ready("i");
    let config = scene.config("i");
    for wave in 0..2 {
        check(&scene, &config).is_fine();
        scene.decide_by(&mut worker, [intent(&format!("{wave}"), format!("user-{wave}"), json!({}))]);
    }
    assert_eq!(scene.count("approved"), 2);
}

#[test]
fn each_limit_has_a_line_and_routes_need_their_topics_and_one_of_their_own_for_their_lag() {
    let (mut scene, _redis) = scene("check-routes");
    let route = |name: &str, more: &str| format!("[[routes]]\nname = {name:?}\nchannel = {name:?}\n{more}\n");
    let policy = |routes: &[String]| format!("version = \"1\"\n[default]\ncaps = \"unlimited\"\n{}", routes.concat());
    let waiting = scene.topic("waiting");
    let config = scene.config("i").replace("[kafka]", &format!("[kafka]\nwaiting = {waiting:?}"));
    let suppresses = |group: &str| format!("consumer_group = {group:?}\nwhen_full = \"suppress\"");
    for (one, other) in [("hedwig", "errol"), ("hedwig", "hedwig")] {
        let routes = [route("email", &suppresses(one)), route("push", &suppresses(other))];
        let more = "[pressure]\nmax_active_users = 9\nwindow = \"30m\"\naction = \"suppress\"\n[[budgets]]\nname = \"b\"\nlimit = 7\ntotal = true\n";
        let sms = route("sms", &format!("rate = 1\nwhen_full = \"suppress\"\n{more}"));
        scene.write_policy(&policy(&[routes.as_slice(), &[sms]].concat()));
        let found = check(&scene, &config);
        let (ok, warned) = (found.of("ok"), found.of("warning"));
        for line in [
            "limits: Route sms: channel sms, at most 1 per second",
            "limits: Pressure: at most 9 users are active in 30m",
            "limits: Budget b: at most 7 in total",
        ] {
            assert!(ok.iter().any(|text| text.starts_with(line)), "{line}: {ok:?}");
        }
        let budget = format!("limits: budget b: {} may delete", scene.topic("approved"));
        assert!(warned.iter().any(|text| text.starts_with(&budget)), "{budget}: {warned:?}");
        let shares: Vec<&String> = warned.iter().filter(|text| text.contains("share the lag")).collect();
        assert_eq!(shares.len(), 1, "{one} {other}: {shares:?}");
        let approved = scene.topic("approved");
        assert!(shares[0].contains(&format!("email and push share the lag of {approved}")), "{shares:?}");
        assert!(found.of("error").iter().all(|text| !text.contains("waiting")), "{:?}", found.of("error"));
    }
    let own = scene.topic("approved-push");
    scene.kafka.create_topic(&own, 3).unwrap();
    let found = check(&scene, &format!("{config}\n[kafka.approved_by_channel]\npush = {own:?}\n"));
    assert!(!found.of("warning").concat().contains("share the lag"), "{:?}", found.of("warning"));

    scene.write_policy(&policy(&[route("email", "rate = 500")]));
    let found = check(&scene, &config).of("error").concat();
    let missing = format!("{waiting}-email");
    assert!(found.contains(&missing) && found.contains("weir check --create"), "{found}");
    // The topic of a route is no other one of weir's.
    let called = scene.config("i").replace("[kafka]", &format!("[kafka]\nwaiting = {:?}", scene.name));
    scene.write_policy(&policy(&[route("approved", "rate = 500")]));
    let found = check(&scene, &called).of("error").concat();
    assert!(found.contains(&format!("{}, which the configuration names", scene.topic("approved"))), "{found}");
    scene.write_policy(&policy(&[route("email", "rate = 500")]));
    scene.wait_for_routes(&["email"]);
    let found = check(&scene, &config);
    assert!(!found.of("error").concat().contains(&missing), "{:?}", found.of("error"));
    assert!(found.of("ok").concat().contains(&format!("{missing}: 32 partitions")), "{:?}", found.of("ok"));
}

#[test]
fn create_makes_a_wheel_s_topics_and_each_thing_that_is_wrong_with_them_is_found_and_ends_the_start() {
    let (_redis, scene) = Scene::with_redis("check-wheel", 1, POLICY);
    let config = |prefix: &str| {
        let prefix = scene.topic(prefix);
        scene.config("i").replace("[kafka]", &format!("[kafka]\ndeferred = {prefix:?}\ncreate_shares = 2"))
    };
    let good = config("later");
    check(&scene, &good).is_one("error", &["-later-hours", "-later-minutes", "weir check --create"]);
    check_with(&scene, &good, &["--create"]).is_fine();
    for (topic, partitions) in [("later-hours", 192), ("later-minutes", 240)] {
        assert_eq!(scene.kafka.wait_topic(&scene.topic(topic)).unwrap(), partitions);
        assert_eq!(retention(&scene, topic), "424800000", "{topic} is kept for 94 h and a day");
    }
    let found = fine(&scene, &good, &[]);
    assert!(found.of("ok").join("\n").contains("-later-*: 2 partition(s) a bucket"), "{:?}", found.of("ok"));
    let hours = scene.topic("later-hours");
    // 72 h is the longest deferral where the policy does not say.
    for (setting, value, required) in [
        ("retention.ms", "345599999", "345600000"),
        ("retention.bytes", "1000000", "-1"),
        ("cleanup.policy", "compact", "delete"),
    ] {
        let enough = [("retention.ms", "345600000")].into_iter().filter(|(name, _)| *name != setting);
        scene.kafka.configure_topic(&hours, &enough.chain([(setting, value)]).collect::<Vec<_>>()).unwrap();
        let is_set = |line: &&Value| line["setting"] == setting;
        let found = found_where(&scene, &good, |found| found.findings.iter().any(|line| is_set(&line)));
        let line = found.findings.iter().find(is_set).unwrap();
        assert_eq!((&line["topic"], found.of("error").len()), (&json!(hours), 1), "{:?}", found.findings);
        assert_eq!((&line["setting"], &line["value"]), (&json!(setting), &json!(value)));
        assert_eq!(line["required"], json!(required));
        assert!(line["command"].as_str().unwrap().ends_with(&format!("{setting}={required}")), "{line}");
        assert_eq!(found.code, 1);
    }
    let log = ends(&mut scene.worker_with("i", &[("WEIR__KAFKA__DEFERRED", &scene.topic("later"))]), 2);
    contains_all(&log, &[hours.as_str(), "cleanup.policy is compact, and must be delete"]);

    let kept: &[(&str, &str)] = &[("retention.ms", "424800000")];
    for (prefix, [hours, minutes], words) in [
        (
            "seven",
            [96, 7],
            ["-seven-minutes has 7 partitions, and must have 120, or a multiple", "weir check --create"],
        ),
        ("unlike", [192, 120], ["-unlike-hours has 2 partitions a bucket and", "-unlike-minutes 1"]),
    ] {
        for (ring, partitions) in [("hours", hours), ("minutes", minutes)] {
            scene.kafka.create_topic_with(&scene.topic(&format!("{prefix}-{ring}")), partitions, kept).unwrap();
        }
        check(&scene, &config(prefix)).is_one("error", &words);
        let log = ends(&mut scene.worker_with("i", &[("WEIR__KAFKA__DEFERRED", &scene.topic(prefix))]), 2);
        assert!(log.contains(words[0]), "{log}");
    }

    // A policy that defers needs topics to defer to: the error shows the line.
    let quiet = "[quiet_hours]\nfrom = \"22:00\"\nto = \"08:00\"\naction = \"defer\"\n";
    scene.write_policy(&format!("{POLICY}\n{quiet}"));
    check(&scene, &scene.config("i"))
        .is_one("invalid", &["policy:", "quiet_hours.action", "kafka.deferred", "deferred = \"send-deferred\""]);
}
