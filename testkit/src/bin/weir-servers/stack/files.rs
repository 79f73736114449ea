//! The files of the stack for its user: a configuration, two scripts, and instructions.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use anyhow::{Context, Result};
use testkit::{
    kafka::{Kafka, libs_folder},
    redis::RedisCluster,
    s3::S3,
};

use super::{CLUSTER_NODES, SEGMENTS_FOLDER, StackArgs};

/// Writes weir.toml, env, publish and read into the stack's folder.
pub(super) fn write(args: &StackArgs, kafka: &Kafka, cluster: &RedisCluster, s3: &S3) -> Result<()> {
    let env: Vec<String> = s3.bucket().env().iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    for (name, mode, text) in [
        ("weir.toml", 0o644, weir_toml(args, kafka, cluster, s3)),
        ("env", 0o644, env.concat()),
        ("publish", 0o755, publish(kafka)),
        ("read", 0o755, read(kafka)),
    ] {
        let file = args.folder.join(name);
        write_file(&file, mode, &text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn write_file(file: &Path, mode: u32, text: &str) -> std::io::Result<()> {
    fs::write(file, text)?;
    fs::set_permissions(file, fs::Permissions::from_mode(mode))
}

fn weir_toml(args: &StackArgs, kafka: &Kafka, cluster: &RedisCluster, s3: &S3) -> String {
    let brokers = kafka.bootstrap();
    let nodes: Vec<String> = cluster.nodes().iter().map(|url| format!("\"{url}\"")).collect();
    let (nodes, segments) = (nodes.join(", "), s3.bucket().url(&format!("{SEGMENTS_FOLDER}/manifest.json")));
    let (s3, http) = (s3.bucket().config(), args.http_port);
    format!(
        r#"# Written by `cargo xtask stack`; the next start writes it again.
[kafka]
brokers = "{brokers}"
group = "weir"
intents = "send-intents"
approved = "send-approved"
suppressed = "send-suppressed"
dead_letters = "send-dead-letters"
deferred = "send-deferred"
waiting = "send-waiting"
refunds = "send-refunds"
delivery_reports = "send-reports"
retries = "send-retries"
undelivered = "send-undelivered"
activity = "user-activity"
instance = "weir-0"

[redis]
nodes = [{nodes}]

[worker]
# More than the default: each of the topics above takes its part.
memory = "512MiB"

[segments]
source = "{segments}"

[policy]
source = "policy.toml"

{s3}
[http]
listen = "127.0.0.1:{http}"
"#
    )
}

fn publish(kafka: &Kafka) -> String {
    let (java, brokers) = (java(), kafka.bootstrap());
    format!(
        "#!/bin/sh\n# Publishes lines of stdin, key|value, to send-intents or the topic given.\n{java} \
         org.apache.kafka.tools.ConsoleProducer --bootstrap-server {brokers} --topic \"${{1:-send-intents}}\" \
         --property parse.key=true --property 'key.separator=|'\n"
    )
}

fn read(kafka: &Kafka) -> String {
    let (java, brokers) = (java(), kafka.bootstrap());
    format!(
        "#!/bin/sh\n# Prints headers, key and value of all committed records of send-approved, or of the topic given, \
         and goes on.\n{java} \
         org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server {brokers} --topic \"${{1:-send-approved}}\" \
         --from-beginning --isolation-level read_committed --property print.headers=true --property print.key=true\n"
    )
}

/// Kafka's own tools, from the broker's jars; their log is not what the person wants to see.
fn java() -> String {
    format!("exec java -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp '{}/*'", libs_folder().display())
}

/// Instructions for the stack.
pub(super) fn instructions(args: &StackArgs, kafka: &Kafka, s3: &S3) -> String {
    let folder = args.folder.display();
    let run = if args.with_worker {
        format!("weir runs; log: {folder}/weir.log, health: http://127.0.0.1:{}/readyz", args.http_port)
    } else {
        format!("run weir:            env $(cat {folder}/env) cargo run --release -- run --config {folder}/weir.toml")
    };
    format!(
        r#"
the stack is up; nothing in it outlives it
Kafka {brokers}, Redis Cluster 127.0.0.1:{redis} to {last}, S3 {endpoint}

{run}
publish an intent:   echo '42|{{"id": "i-1", "user_id": "42", "channel": "push", "category": "promo"}}' | {folder}/publish
read the approved:   {folder}/read
and the suppressed:  {folder}/read send-suppressed
change the caps:     edit {folder}/policy.toml
end everything:      Ctrl-C"#,
        brokers = kafka.bootstrap(),
        redis = args.redis_port,
        last = usize::from(args.redis_port) + CLUSTER_NODES - 1,
        endpoint = s3.endpoint(),
    )
}
