//! The servers for trying weir, with everything that weir needs in them.

mod files;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};
use clap::Args;
use testkit::{
    POLL_INTERVAL,
    kafka::Kafka,
    ports::Port,
    process::{Guarded, printed},
    redis::RedisCluster,
    s3::S3,
};

/// The topic of intents in the sample configuration, with its partitions.
const INTENTS: (&str, i32) = ("send-intents", 8);
/// The topics of outputs, refunds and deliveries, with their partitions.
const OUTPUTS: [(&str, i32); 8] = [
    ("send-approved", 8),
    ("send-suppressed", 8),
    ("send-dead-letters", 1),
    ("send-refunds", 8),
    ("send-reports", 1),
    ("send-retries", 8),
    ("send-undelivered", 1),
    ("user-activity", 1),
];
/// The topics of deferred intents, with their partitions: a bucket is one. And that of intents that wait for the sample policy's route.
const LATER: [(&str, i32); 3] =
    [("send-deferred-hours", 96), ("send-deferred-minutes", 120), ("send-waiting-email", 32)];
/// How long these are kept: as long as the longest deferral (94 h), and a day.
const LATER_MS: &str = "424800000";
/// Their largest record: an intent of the broker's 10 MiB, and what weir puts around it.
const OUTPUT_BYTES: &str = "11534336";
/// How long these are kept: as long as the default of redis.history, because weir rebuild reads approved records and refunds.
const HISTORY_MS: &str = "691200000";
/// More than four sends a user would otherwise make a key half as large again. The name that Redis 6 knows as well.
const REDIS_ARGS: [&str; 2] = ["--hash-max-ziplist-value", "1024"];
/// Three primaries with a replica each.
const CLUSTER_NODES: usize = 6;
/// The segments of the sample, each a file of ids in deploy/segments.
const SEGMENTS: [&str; 4] = ["new", "active", "dormant", "staff"];
/// Where the sample segments are put, in the bucket.
const SEGMENTS_FOLDER: &str = "segments";

#[derive(Debug, Args)]
pub struct StackArgs {
    /// Port of the Kafka broker
    #[arg(long, default_value_t = 9092, env = "WEIR_STACK_KAFKA_PORT")]
    kafka_port: u16,
    /// Port of the first of six Redis nodes; the others follow
    #[arg(long, default_value_t = 7000, env = "WEIR_STACK_REDIS_PORT")]
    redis_port: u16,
    /// Port of the S3
    #[arg(long, default_value_t = 9000, env = "WEIR_STACK_S3_PORT")]
    s3_port: u16,
    /// Port of weir's HTTP
    #[arg(long, default_value_t = 8080, env = "WEIR_STACK_HTTP_PORT")]
    http_port: u16,
    /// Start weir as well
    #[arg(long)]
    with_worker: bool,
    /// The weir binary
    #[arg(long, default_value = "target/debug/weir")]
    weir: PathBuf,
    /// The folder of the sample policy and segments
    #[arg(long, default_value = "deploy")]
    samples: PathBuf,
    /// The folder to write the configuration to
    #[arg(long, default_value = ".weir/stack")]
    folder: PathBuf,
}

/// Starts everything and keeps it up until Ctrl-C or SIGTERM.
pub fn run(args: &StackArgs) -> Result<ExitCode> {
    std::fs::create_dir_all(&args.folder).with_context(|| format!("cannot make {}", args.folder.display()))?;
    let policy = args.folder.join("policy.toml");
    std::fs::copy(args.samples.join("policy.toml"), &policy).context("cannot copy the sample policy")?;

    println!("starting Kafka, a Redis Cluster of {CLUSTER_NODES} and an S3 ...");
    let kafka = Kafka::start_on(vec![Port::fixed(args.kafka_port)?])?;
    kafka.create_topic(INTENTS.0, INTENTS.1)?;
    let outputs = OUTPUTS.map(|topic| (topic, HISTORY_MS));
    for ((topic, partitions), kept_ms) in outputs.into_iter().chain(LATER.map(|topic| (topic, LATER_MS))) {
        let settings = [("max.message.bytes", OUTPUT_BYTES), ("retention.ms", kept_ms)];
        kafka.client().create_topic_with(topic, partitions, &settings)?;
    }
    let ports = (args.redis_port..).take(CLUSTER_NODES).map(Port::fixed).collect::<Result<_>>()?;
    let cluster = RedisCluster::start_on(ports, 1, &REDIS_ARGS)?;
    let s3 = S3::start_on(&Port::fixed(args.s3_port)?)?;
    build_segments(args, &s3)?;
    files::write(args, &kafka, &cluster, &s3)?;

    let worker = if args.with_worker { Some(start_worker(args, &s3)?) } else { None };
    println!("{}", files::instructions(args, &kafka, &s3));
    wait_for_end(worker, &args.folder)
}

fn build_segments(args: &StackArgs, s3: &S3) -> Result<()> {
    let out = s3.bucket().url(SEGMENTS_FOLDER);
    let mut build = weir(args, s3);
    build.args(["segments", "build", "--into", &out, "--user-id", "u32"]);
    for segment in SEGMENTS {
        let file = args.samples.join(format!("segments/{segment}.txt"));
        build.arg(format!("{segment}={}", file.display()));
    }
    printed(&mut build)?;
    s3.bucket().get(&format!("{SEGMENTS_FOLDER}/manifest.json")).context("`weir segments build` wrote no manifest")?;
    Ok(())
}

/// The binary with what it needs to reach the S3.
fn weir(args: &StackArgs, s3: &S3) -> Command {
    let mut weir = Command::new(&args.weir);
    weir.envs(s3.bucket().env()).env("WEIR__S3__ENDPOINT", s3.endpoint()).env("WEIR__S3__FORCE_PATH_STYLE", "true");
    weir
}

fn start_worker(args: &StackArgs, s3: &S3) -> Result<Guarded> {
    let mut run = weir(args, s3);
    run.args(["run", "--config"]).arg(args.folder.join("weir.toml"));
    let log = args.folder.join("weir.log");
    // Guards append; the log of the last stack would mislead.
    std::fs::write(&log, "").with_context(|| format!("cannot write {}", log.display()))?;
    Guarded::spawn("weir", &run, &log)
}

/// Waits for Ctrl-C or SIGTERM; a worker that ends by itself ends the stack, with what it said.
fn wait_for_end(mut worker: Option<Guarded>, folder: &Path) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let mut look = tokio::time::interval(POLL_INTERVAL);
        loop {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
                _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
                _ = look.tick() => {}
            }
            if let Some(weir) = &mut worker
                && let Some(exit) = weir.exit()
            {
                let tail = weir.log_tail();
                anyhow::bail!("weir has ended ({exit:?}); {} ends: {tail}", folder.join("weir.log").display());
            }
        }
    })
}
