//! What docker-compose.yml creates is what `weir check` asks for.

use std::{path::Path, process::Command};

use testkit::{redis::RedisServer, unique};

use crate::{
    check::fine,
    support::{Scene, succeed, weir},
};

/// Kafka's default, which the tests' broker does not have.
const WEEK_MS: &str = "604800000";

fn repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap()
}

/// The topics that the compose file creates, under names that begin with a prefix.
fn create_topics(scene: &Scene, prefix: &str) -> usize {
    let compose = read("docker-compose.yml");
    let creations = compose.lines().filter_map(|line| line.trim().strip_prefix("create --topic "));
    let mut count = 0;
    for creation in creations {
        let words: Vec<&str> = creation.split(' ').collect();
        let [name, "--partitions", partitions, ref settings @ ..] = words[..] else { panic!("{creation}") };
        let settings = settings.iter().filter(|word| **word != "--config").map(|word| word.split_once('=').unwrap());
        let mut settings: Vec<(&str, &str)> = settings.collect();
        if !settings.iter().any(|(name, _)| *name == "retention.ms") {
            settings.push(("retention.ms", WEEK_MS));
        }
        scene.kafka.create_topic_with(&format!("{prefix}{name}"), partitions.parse().unwrap(), &settings).unwrap();
        count += 1;
    }
    count
}

#[test]
fn the_check_finds_nothing_to_complain_about_in_what_compose_creates() {
    let policy = read("deploy/policy.toml");
    let redis = RedisServer::start(&["--hash-max-ziplist-value", "1024"]).unwrap();
    let scene = Scene::on_redis(vec![redis.url()], "compose", 1, &policy);
    let prefix = format!("{}-", unique("compose"));
    let topics = create_topics(&scene, &prefix);

    let segments = scene.path("sample");
    let mut build = Command::new(weir());
    build.args(["segments", "build", "--user-id", "u32", "--into"]).arg(&segments);
    for name in ["new", "active", "dormant", "staff"] {
        build.arg(format!("{name}={}", repository(&format!("deploy/segments/{name}.txt")).display()));
    }
    succeed(&mut build);

    let mut config: toml::Table = read("deploy/weir.toml").parse().unwrap();
    let kafka = config["kafka"].as_table_mut().unwrap();
    let mut named = 0;
    for (key, value) in kafka.iter_mut().filter(|(key, _)| !["brokers", "group"].contains(&key.as_str())) {
        // The prefix of the deferred topics names two; that of waiting intents one, for the policy's only route.
        named += if key == "deferred" { 2 } else { 1 };
        *value = format!("{prefix}{}", value.as_str().unwrap()).into();
    }
    assert_eq!(named, topics, "compose creates the topics that deploy/weir.toml names");
    kafka.insert("brokers".into(), scene.kafka.bootstrap().into());
    config["redis"].as_table_mut().unwrap().insert("nodes".into(), vec![redis.url()].into());
    config["segments"]["source"] = segments.join("manifest.json").display().to_string().into();

    let found = fine(&scene, &config.to_string(), &[]);
    // The machine's time zones may be older than weir's.
    let warned: Vec<String> = found.of("warning").into_iter().filter(|line| !line.starts_with("time zones:")).collect();
    assert_eq!(warned, Vec::<String>::new());
}
