//! From layers to settings: ranges, names, URLs, and what must fit together.

mod http;
mod kafka;
mod parse;
mod redis;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use weir_core::{
    document::{
        Format, Node,
        value::{Parsed, flag, one_of, text, whole},
    },
    memory,
};

use self::parse::{authorities, between, bytes_between, pointer, source};
use super::{
    IntentFields, IntentSettings, LogFormat, LogSettings, PolicySettings, S3Settings, Secret, SegmentAccess,
    SegmentsSettings, Settings, Source, WorkerSettings, layers::Layers,
};

const MIB: u64 = 1024 * 1024;
/// What one lane can do with.
const LEAST_MEMORY: u64 = memory::BASE_BYTES + memory::LEAST_LANE_BYTES;
const MOST_MEMORY: u64 = 1024 * 1024 * MIB;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Checks everything; `None` where something is wrong, which is noted.
pub(super) fn settings(layers: &Layers<'_>, folder: &Path) -> Option<Settings> {
    // Each part is checked before the first `?`, so that all problems are noted.
    let kafka = kafka::settings(layers);
    let redis = redis::settings(layers, folder);
    let segments = segments(layers, folder);
    let policy = policy(layers, folder);
    let s3 = s3(layers, folder);
    let fields = fields(layers);
    let worker = worker(layers);
    let http = http::settings(layers, folder);
    let log = log(layers);
    Some(Settings {
        kafka: kafka?,
        redis: redis?,
        segments: segments?,
        policy: policy?,
        s3: s3?,
        intent: IntentSettings { fields: fields? },
        worker: worker?,
        http: http?,
        log: log?,
    })
}

fn segments(layers: &Layers<'_>, folder: &Path) -> Option<SegmentsSettings> {
    let source = layers.get("segments.source", |node| source(node, folder));
    let refresh = layers.get("segments.refresh", |node| between(node, SECOND, DAY));
    let user_id_prefix = layers.optional("segments.user_id_prefix", text_owned);
    Some(SegmentsSettings { source: source?, refresh: refresh?, user_id_prefix })
}

fn policy(layers: &Layers<'_>, folder: &Path) -> Option<PolicySettings> {
    let known_format = |node: &Node| {
        let found = source(node, folder)?;
        let name = match &found {
            Source::File(path) => path.display().to_string(),
            Source::S3 { key, .. } => key.clone(),
        };
        let format = Format::of_name(&name).map(|_| found);
        format.ok_or_else(|| format!("must end in .toml or .json, which says how it is read; {name:?} does not"))
    };
    let source = layers.get("policy.source", known_format);
    let refresh = layers.get("policy.refresh", |node| between(node, SECOND, DAY));
    Some(PolicySettings { source: source?, refresh: refresh? })
}

/// Checks what is needed to reach and read a set of segments, and nothing else.
pub(super) fn segment_access(layers: &Layers<'_>, folder: &Path) -> Option<SegmentAccess> {
    let user_id_prefix = layers.optional("segments.user_id_prefix", text_owned);
    Some(SegmentAccess { s3: s3(layers, folder)?, user_id_prefix })
}

fn s3(layers: &Layers<'_>, folder: &Path) -> Option<S3Settings> {
    let endpoint = layers.optional("s3.endpoint", http_url);
    let region = layers.optional("s3.region", text_owned);
    let force_path_style = layers.get("s3.force_path_style", flag);
    let authorities = layers.optional("s3.ca_file", |node| authorities(&path(node, folder)?));
    Some(S3Settings { endpoint, region, force_path_style: force_path_style?, authorities })
}

fn fields(layers: &Layers<'_>) -> Option<IntentFields> {
    let at = |key| layers.get(key, pointer);
    let fields = (
        [at("intent.fields.id"), at("intent.fields.user_id"), at("intent.fields.channel")],
        [at("intent.fields.category"), at("intent.fields.campaign"), at("intent.fields.cost")],
        [at("intent.fields.created_at"), at("intent.fields.expires_at"), at("intent.fields.not_before")],
        at("intent.fields.timezone"),
    );
    let ([id, user_id, channel], [category, campaign, cost], [created_at, expires_at, not_before], timezone) = fields;
    Some(IntentFields {
        id: id?,
        user_id: user_id?,
        channel: channel?,
        category: category?,
        campaign: campaign?,
        cost: cost?,
        created_at: created_at?,
        expires_at: expires_at?,
        not_before: not_before?,
        timezone: timezone?,
    })
}

fn worker(layers: &Layers<'_>) -> Option<WorkerSettings> {
    let lanes = layers.get("worker.lanes", |node| whole(node, 0..=256_u16));
    let batch = layers.get("worker.batch", |node| whole(node, 1..=100_000_u32));
    let millisecond = Duration::from_millis(1);
    let commit_interval = layers.get("worker.commit_interval", |node| between(node, millisecond, 10 * SECOND));
    let drain = layers.get("worker.drain", |node| between(node, SECOND, 10 * MINUTE));
    let memory_bytes = layers.get("worker.memory", |node| bytes_between(node, LEAST_MEMORY..=MOST_MEMORY));
    Some(WorkerSettings {
        lanes: usize::from(lanes?),
        batch: usize::try_from(batch?).ok()?,
        commit_interval: commit_interval?,
        drain: drain?,
        memory_bytes: memory_bytes?,
    })
}

fn log(layers: &Layers<'_>) -> Option<LogSettings> {
    let formats = [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
    let format = layers.get("log.format", |node| one_of(node, &formats));
    let filter = |node: &Node| {
        let text = text(node)?;
        let parsed = tracing_subscriber::EnvFilter::builder().parse(text);
        parsed
            .map(|_| text.to_owned())
            .map_err(|error| format!("must be a level or a filter such as \"info\": {error}"))
    };
    let level = layers.get("log.level", filter);
    Some(LogSettings { format: format?, level: level? })
}

fn text_owned(node: &Node) -> Parsed<String> {
    text(node).map(str::to_owned)
}

fn http_url(node: &Node) -> Parsed<String> {
    let text = text(node)?;
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() => Ok(text.to_owned()),
        Some(_) | None => Err(format!("must be a URL that begins with http:// or https://, not {text:?}")),
    }
}

/// A path, a relative one from the configuration's folder.
fn path(node: &Node, folder: &Path) -> Parsed<PathBuf> {
    text(node).map(|path| folder.join(path))
}

/// A secret that is given itself or by a file; never both.
fn secret(layers: &Layers<'_>, key: &'static str, file_key: &'static str, folder: &Path) -> Option<Secret> {
    let hidden = |node: &Node| match text(node) {
        Ok(text) => Ok(Secret::new(text)),
        Err(_) => Err("must be a string, not empty and without control characters".into()),
    };
    let given = layers.optional(key, hidden);
    let file = layers.optional(file_key, |node| path(node, folder));
    if given.is_some() && file.is_some() {
        layers.note(file_key, &format!("and {key} are both set: keep one"));
    }
    let read = file.and_then(|file| parse::secret_file(&file).map_err(|reason| layers.note(file_key, &reason)).ok());
    given.or(read)
}

#[cfg(test)]
mod tests;
