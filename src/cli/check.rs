//! `weir check`: reads everything, connects to everything, changes nothing, says what is wrong and what to do.

use std::{io::Write, path::PathBuf, sync::Arc};

use clap::Args;
use serde::Serialize;

use super::{
    assemble::{self, Misconfigured},
    clocks,
    output::OutputForm,
};
use crate::{
    config::Settings,
    domain::{policy::Policy, segment::SegmentSet},
    edge::{
        kafka::topics,
        policy_file::source::PolicySource,
        redis::{self, Birth, RedisStats, WhenMissing},
        segments::SegmentSource,
    },
    worker::{
        clock::SystemClock,
        ports::{Clock as _, in_short},
        refresh::Source as _,
    },
};

/// What the envelope and weir's headers may add to an intent, in bytes: ids of 256 bytes each in JSON escapes (six bytes
/// a character at the worst), names and versions, with room to spare.
const ENVELOPE_BYTES: u64 = 16 * 1024;

/// Arguments of `weir check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration
    #[arg(long, value_name = "FILE", env = "WEIR_CONFIG", default_value = "weir.toml")]
    config: PathBuf,
    /// Create the keyspace in Redis, if there is none
    #[arg(long)]
    create: bool,
    /// In which form to print
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

/// How a thing was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Finding {
    Ok,
    Warning,
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Line {
    finding: Finding,
    what: &'static str,
    message: String,
}

#[derive(Debug, Default)]
struct Report(Vec<Line>);

impl Report {
    fn add(&mut self, finding: Finding, what: &'static str, message: impl Into<String>) {
        self.0.push(Line { finding, what, message: message.into() });
    }

    fn errors(&self) -> usize {
        self.0.iter().filter(|line| line.finding == Finding::Error).count()
    }
}

/// Checks and prints what was found.
///
/// # Errors
/// [`Misconfigured`] when something is wrong; all of it is printed before.
pub async fn run(args: &CheckArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let settings = assemble::settings(&args.config)?;
    let mut report = Report::default();
    report.add(Finding::Ok, "configuration", format!("{} is valid", args.config.display()));
    if let Err(error) = assemble::fields(&settings) {
        report.add(Finding::Error, "configuration", error.to_string());
    }
    if let Err(error) = assemble::lanes_and_memory(&settings) {
        report.add(Finding::Error, "configuration", error.to_string());
    }
    let policy = policy(&settings, &mut report).await;
    let set = segments(&settings, &mut report).await;
    if let (Some(policy), Some(set)) = (&policy, &set) {
        names(policy, set, &mut report);
    }
    kafka(&settings, &mut report).await;
    let when_missing = if args.create { WhenMissing::Create } else { WhenMissing::Refuse };
    redis(&settings, when_missing, &mut report).await;
    print(&report, args.output, out)?;
    match report.errors() {
        0 => Ok(()),
        errors => Err(Misconfigured(format!("{errors} of {} checks failed; see above", report.0.len())).into()),
    }
}

async fn policy(settings: &Settings, report: &mut Report) -> Option<Arc<Policy>> {
    let object = assemble::object(&settings.policy.source, &settings.s3).await;
    let read = match PolicySource::new(object, assemble::history_ms(&settings.redis)) {
        Ok(mut source) => source.load().await,
        Err(error) => Err(error),
    };
    match read {
        Ok(policy) => {
            let version = policy.as_ref().map_or("", |policy| policy.version.as_str());
            report.add(Finding::Ok, "policy", format!("{}: version {version}", settings.policy.source));
            policy
        }
        Err(error) => {
            report.add(Finding::Error, "policy", error.to_string());
            None
        }
    }
}

async fn segments(settings: &Settings, report: &mut Report) -> Option<Arc<SegmentSet>> {
    let object = assemble::object(&settings.segments.source, &settings.s3).await;
    let prefix = settings.segments.user_id_prefix.as_deref().unwrap_or_default();
    match SegmentSource::new(object, prefix).load().await {
        Ok(set) => {
            let users: u64 = set.iter().flat_map(|set| set.segments()).map(|segment| segment.members.len()).sum();
            let version = set.as_ref().map_or("", |set| set.version());
            let message = format!("{}: version {version}, {users} users", settings.segments.source);
            report.add(Finding::Ok, "segments", message);
            set
        }
        Err(error) => {
            report.add(Finding::Error, "segments", error.to_string());
            None
        }
    }
}

fn names(policy: &Policy, set: &SegmentSet, report: &mut Report) {
    let names: Vec<&str> = set.segments().iter().map(|segment| segment.name.as_str()).collect();
    for name in policy.unnamed(&names) {
        let message = format!(
            "the policy does not name the segment {name}: add [segments.{name}], or its users are under [default]"
        );
        report.add(Finding::Error, "policy", message);
    }
    for name in policy.absent(&names) {
        let message =
            format!("the policy names the segment {name}, which the set does not have: build it, or take it out");
        report.add(Finding::Warning, "policy", message);
    }
    for overlap in set.overlaps() {
        let (first, second) = (names[overlap.first], names[overlap.second]);
        let message =
            format!("{} users are in both {first} and {second}: build the set anew, each user in one", overlap.users);
        report.add(Finding::Error, "segments", message);
    }
}

async fn kafka(settings: &Settings, report: &mut Report) {
    let options = Arc::new(assemble::kafka(&settings.kafka));
    let asked = Arc::clone(&options);
    match tokio::task::spawn_blocking(move || topics::verify(&asked)).await {
        Err(error) => report.add(Finding::Error, "kafka", error.to_string()),
        Ok(Err(topics::TopicError::Missing { topics, .. })) if settings.kafka.create_topics => {
            return report.add(Finding::Warning, "kafka", format!("weir run will create {}", topics.join(", ")));
        }
        Ok(Err(error)) => return report.add(Finding::Error, "kafka", error.to_string()),
        Ok(Ok(partitions)) => {
            for (topic, count) in partitions {
                report.add(Finding::Ok, "kafka", format!("{topic}: {count} partitions"));
            }
        }
    }
    let sizes = match topics::max_message_bytes(&options).await {
        Ok(sizes) => sizes,
        Err(error) => {
            let message = format!("the topics' max.message.bytes are not known: {error}");
            return report.add(Finding::Warning, "kafka", message);
        }
    };
    let [intents, outputs @ ..] = options.topics();
    let Some(largest) = sizes.get(intents) else { return };
    for topic in outputs {
        let needed = largest + ENVELOPE_BYTES;
        if sizes.get(topic).is_some_and(|size| *size < needed) {
            let message = format!(
                "{topic} takes records of {} bytes, {intents} of {largest}: an intent of that size would stop its lane. \
                 Set max.message.bytes of {topic} to {needed} or more",
                sizes[topic]
            );
            report.add(Finding::Warning, "kafka", message);
        }
    }
}

async fn redis(settings: &Settings, when_missing: WhenMissing, report: &mut Report) {
    let options = match assemble::redis(&settings.redis) {
        Ok(options) => Arc::new(options),
        Err(error) => return report.add(Finding::Error, "redis", error.to_string()),
    };
    let differences = match clocks::compared(&options).await {
        Ok(clock) => clocks::differences(&clock),
        Err(error) => Err(format!("this machine's clock cannot be compared: {error}")),
    };
    match differences {
        Ok(within) => report.add(Finding::Ok, "clock", within),
        Err(apart) => report.add(Finding::Error, "clock", apart),
    }
    let birth = Birth { epoch: assemble::new_epoch(), now: SystemClock.now() };
    match redis::open(&options, &Arc::new(RedisStats::default()), when_missing, birth).await {
        Err(error) => report.add(Finding::Error, "redis", error.to_string()),
        Ok(opened) => {
            let layout = opened.keyspace.meta().layout;
            let message =
                format!("the keyspace {} has {} shards of {} keys", options.prefix, layout.shards, layout.buckets);
            report.add(Finding::Ok, "redis", message);
            for warning in opened.warnings {
                report.add(Finding::Warning, "redis", warning);
            }
            if !opened.lost.is_empty() {
                let message = format!(
                    "shards {} have lost their history: their intents wait for a rebuild",
                    in_short(&opened.lost)
                );
                report.add(Finding::Error, "redis", message);
            }
        }
    }
}

fn print(report: &Report, form: OutputForm, out: &mut impl Write) -> anyhow::Result<()> {
    match form {
        OutputForm::Json => writeln!(out, "{}", serde_json::to_string_pretty(&report.0)?)?,
        OutputForm::Text => {
            for Line { finding, what, message } in &report.0 {
                let sign = match finding {
                    Finding::Ok => "ok     ",
                    Finding::Warning => "warning",
                    Finding::Error => "ERROR  ",
                };
                writeln!(out, "{sign}  {what}: {message}")?;
            }
        }
    }
    Ok(())
}
