//! The arguments, and what they mean together.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{ArgGroup, Args};
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::document::value::length,
    history::{HistoryBounds, MAX_ENTRIES},
    intent::fields::FieldMap,
    policy::Policy,
    replay::ReplaySource,
    segment::{SegmentSet, UserIdKind, UserIds},
};
use weir_kafka::range::Between;

use super::PastSource;
use crate::{
    cli::{args::TimeArg, assemble, exit::invalid, output::OutputForm, segments::S3Args},
    config::Settings,
    object_store::{Location, StoredObject},
    policy_source::PolicySource,
    schemas,
    segments::SegmentSource,
};

/// How far back histories reach without a configuration: the default of redis.history.
const HISTORY: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// `weir policy simulate`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("who").args(["segments", "no_segments"])))]
pub struct SimulateArgs {
    /// The policy to try: a .toml or .json file, or s3://bucket/key
    #[arg(long, value_name = "FILE")]
    policy: String,
    /// A policy to compare it with, usually the one in force
    #[arg(long, value_name = "FILE")]
    against: Option<String>,
    /// The intents: a file with one per line (- is standard input), `topic` for the configured one, or topic:NAME
    #[arg(long, value_name = "FILE|topic")]
    intents: String,
    /// Approved records from before the first intent: a file, `topic` for the configured one, topic:NAME, or `none`
    /// [default: topic where the intents are one, else none]
    #[arg(long, value_name = "FILE|topic|none")]
    approved: Option<String>,
    /// Skip intents before this time: RFC 3339, or how long ago (7d)
    #[arg(long, value_name = "TIME")]
    since: Option<TimeArg>,
    /// Skip intents from this time on; deferred intents are decided until then [default: until the last intent]
    #[arg(long, value_name = "TIME")]
    until: Option<TimeArg>,
    /// The worker's configuration: brokers, topics, fields of intents, segments, history
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The segments' manifest: a path, or s3://bucket/key [default: the configured one]
    #[arg(long, value_name = "MANIFEST")]
    segments: Option<String>,
    /// Apply the policy's [default] to everybody
    #[arg(long)]
    no_segments: bool,
    /// Prefix to remove from user ids before they are read as numbers [default: the configured one]
    #[arg(long, value_name = "PREFIX")]
    user_id_prefix: Option<String>,
    /// How far back histories reach: no window may be longer [default: the configured redis.history, else 8d]
    #[arg(long, value_name = "DURATION", value_parser = length)]
    history: Option<Duration>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub(super) output: OutputForm,
    /// Also write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write all users for whom the policies differ to this file, as CSV
    #[arg(long, value_name = "FILE", requires = "against")]
    pub(super) changed_users: Option<PathBuf>,
    /// How many of these users to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(super) show_users: usize,
    #[command(flatten)]
    s3: S3Args,
}

/// What is to be done, with everything read but intents and history.
pub(super) struct Plan {
    pub(super) intents: PastSource,
    pub(super) approved: Option<PastSource>,
    pub(super) between: Between,
    pub(super) fields: Arc<FieldMap>,
    pub(super) approved_fields: Arc<FieldMap>,
    pub(super) segments: Arc<SegmentSet>,
    pub(super) policies: Vec<Arc<Policy>>,
    /// The policies' names, as they were asked for.
    pub(super) names: Vec<String>,
    pub(super) bounds: HistoryBounds,
    /// Whether the worker has topics to defer intents to; without a configuration, it does.
    pub(super) may_defer: bool,
}

impl SimulateArgs {
    pub(super) async fn plan(&self, stop: &CancellationToken) -> anyhow::Result<Plan> {
        let settings = self.config.as_deref().map(assemble::settings).transpose()?;
        let settings = settings.as_ref();
        let intents = source("--intents", &self.intents, settings, |settings| &settings.kafka.intents).await?;
        let not_given = if matches!(intents, PastSource::Topic(..)) { "topic" } else { "none" };
        let approved = match self.approved.as_deref().unwrap_or(not_given) {
            "none" => None,
            text => Some(source("--approved", text, settings, |settings| &settings.kafka.approved).await?),
        };
        if let (PastSource::File(one), Some(PastSource::File(other))) = (&intents, &approved)
            && one == Path::new("-")
            && one == other
        {
            return Err(invalid("--intents and --approved are both standard input: give one as a file".to_owned()));
        }
        let history = self.history.unwrap_or_else(|| settings.map_or(HISTORY, |settings| settings.redis.history));
        let retention_ms = i64::try_from(history.as_millis()).unwrap_or(i64::MAX);
        let max_entries = settings.map_or(MAX_ENTRIES, |settings| settings.redis.max_entries);
        let bounds = HistoryBounds { retention_ms, max_entries };
        let between = Between { from: self.since.map(TimeArg::time), to: self.until.map(TimeArg::time) };
        if let (Some(from), Some(to)) = (between.from, between.to)
            && from >= to
        {
            return Err(invalid(format!("--since {from} is not before --until {to}")));
        }
        let names: Vec<String> = [Some(&self.policy), self.against.as_ref()].into_iter().flatten().cloned().collect();
        let mut policies = Vec::with_capacity(names.len());
        for name in &names {
            policies.push(self.policy(name, settings, bounds).await?);
        }
        let map = settings.map_or_else(|| Ok(Arc::default()), assemble::fields)?;
        let fields_of = |source: &PastSource| match source {
            PastSource::File(_) => Arc::new(map.as_json()),
            PastSource::Topic(..) => schemas::when_needed(&map, stop),
        };
        let (fields, approved_fields) = (fields_of(&intents), approved.as_ref().map_or_else(Arc::default, fields_of));
        let segments = self.segments(settings).await?;
        let may_defer = settings.is_none_or(|settings| settings.kafka.deferred.is_some());
        Ok(Plan { intents, approved, between, fields, approved_fields, segments, policies, names, bounds, may_defer })
    }

    async fn object(&self, option: &str, text: &str, settings: Option<&Settings>) -> anyhow::Result<StoredObject> {
        let location = Location::parse(text).map_err(|error| invalid(format!("{option}: {error}")))?;
        Ok(StoredObject::connect(&location, &self.s3.over(settings.map(|settings| &settings.s3))).await)
    }

    async fn policy(
        &self,
        name: &str,
        settings: Option<&Settings>,
        bounds: HistoryBounds,
    ) -> anyhow::Result<Arc<Policy>> {
        let object = self.object("--policy", name, settings).await?;
        assemble::read_once(PolicySource::new(object, bounds)).await
    }

    async fn segments(&self, settings: Option<&Settings>) -> anyhow::Result<Arc<SegmentSet>> {
        if self.no_segments {
            return Ok(Arc::new(SegmentSet::new(String::new(), UserIds::new(UserIdKind::U64, ""), Vec::new())));
        }
        let configured = settings.map(|settings| &settings.segments);
        let manifest = match (&self.segments, settings) {
            (Some(text), _) => self.object("--segments", text, settings).await?,
            (None, Some(settings)) => assemble::object(&settings.segments.source, &settings.s3).await,
            (None, None) => {
                return Err(invalid(
                    "whose users are in which segment? Give --segments MANIFEST or --config FILE, or --no-segments to hold everybody to the policy's [default]".to_owned(),
                ));
            }
        };
        let prefix = self.user_id_prefix.as_ref().or(configured.and_then(|segments| segments.user_id_prefix.as_ref()));
        let set = SegmentSource::new(manifest, prefix.map_or("", String::as_str)).load().await?;
        set.ok_or_else(|| anyhow::anyhow!("segments: gave no set at the first read"))
    }
}

/// What an argument names: a topic, or a file.
async fn source(
    option: &str,
    text: &str,
    settings: Option<&Settings>,
    configured: impl FnOnce(&Settings) -> &String,
) -> anyhow::Result<PastSource> {
    let topic = match text {
        "topic" => None,
        _ => match text.strip_prefix("topic:") {
            Some(name) => Some(name.to_owned()),
            None => return file(option, text),
        },
    };
    let Some(settings) = settings else {
        return Err(invalid(format!("{option} {text}: a topic needs --config FILE, which says where the brokers are")));
    };
    let topic = topic.unwrap_or_else(|| configured(settings).clone());
    Ok(PastSource::Topic(Arc::new(assemble::signed_kafka(&settings.kafka).await?), topic))
}

fn file(option: &str, text: &str) -> anyhow::Result<PastSource> {
    let path = PathBuf::from(text);
    if text != "-" && (!path.exists() || path.is_dir()) {
        return Err(invalid(format!(
            "{option} {text}: there is no such file; for a topic of this name write topic:{text} and give --config FILE"
        )));
    }
    Ok(PastSource::File(path))
}

impl Plan {
    /// What a reader should know before trusting the figures.
    pub(super) fn notes(&self, source: &mut ReplaySource) {
        let names: Vec<&str> = self.segments.segments().iter().map(|segment| segment.name.as_str()).collect();
        source.segments_version = (!names.is_empty()).then(|| self.segments.version().to_owned());
        if source.history.is_none() {
            source.notes.push(
                "every history began empty, so the first days approve more than a worker would have: give --approved"
                    .to_owned(),
            );
        }
        if source.without_time > 0 {
            source.notes.push(format!(
                "{} intents were skipped: they have no time (created_at, or {{\"at\": ..., \"intent\": ...}})",
                source.without_time
            ));
        }
        for (policy, name) in self.policies.iter().zip(&self.names) {
            if policy.defers() && !self.may_defer {
                source.notes.push(format!("{name} defers intents: weir run rejects it until kafka.deferred is set"));
            }
            for segment in policy.unnamed(&names) {
                source.notes.push(format!("{name} does not name the segment {segment}: its users are under [default]"));
            }
        }
    }
}
