//! `weir segments build`: from files of ids to a set.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use clap::{ArgGroup, Args, ValueEnum};
use weir_core::segment::{Manifest, ManifestSegment, Members, Segment, SegmentSet, UserIdKind, UserIds};

use super::{
    AccessArgs,
    ids::Gatherer,
    overlaps, progress,
    spool::{Spooled, file_name, spool},
};
use crate::{
    cli::{
        exit::{UsageError, invalid},
        output::{OutputForm, print_json},
    },
    object_store::{Location, StoredObject, Upload},
};

const MANIFEST_NAME: &str = "manifest.json";

/// Type of the user ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UserIdArg {
    /// Numbers below 2^32
    U32,
    /// Numbers below 2^64
    U64,
    /// Any text, known by its 64-bit hash
    Hash64,
}

impl From<UserIdArg> for UserIdKind {
    fn from(arg: UserIdArg) -> Self {
        match arg {
            UserIdArg::U32 => Self::U32,
            UserIdArg::U64 => Self::U64,
            UserIdArg::Hash64 => Self::Hash64,
        }
    }
}

/// `weir segments build`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("input").required(true).args(["files", "csv"])))]
pub struct BuildArgs {
    /// Folder to put the set into: a path, or s3://bucket/prefix
    #[arg(long, value_name = "DIR|s3://...")]
    into: String,
    /// Type of the user ids
    #[arg(long, value_enum)]
    user_id: UserIdArg,
    /// Version of the set [default: the time]
    #[arg(long, value_name = "VERSION")]
    set_version: Option<String>,
    /// CSV file with the columns user_id and segment; - is standard input
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// A segment's name and a file of its user ids, one per line; - is standard input
    #[arg(value_name = "NAME=FILE")]
    files: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
    #[command(flatten)]
    access: AccessArgs,
}

pub(super) async fn run(args: &BuildArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let location =
        Location::in_folder(&args.into, MANIFEST_NAME).map_err(|error| invalid(format!("--into: {error}")))?;
    let access = args.access.resolve()?;
    let segments = gather(args, UserIds::new(args.user_id.into(), access.user_id_prefix.as_str()))?;
    warn_of_nobody(&segments);
    let version = args.set_version.clone().unwrap_or_else(now);
    let spooled = segments.iter().map(|(name, members)| spool(name, members)).collect::<anyhow::Result<Vec<_>>>()?;
    let manifest = Manifest {
        version,
        user_id: args.user_id.into(),
        segments: spooled.iter().map(|object| object.entry.clone()).collect(),
    };
    // The reader's own check: what it would refuse is not uploaded.
    Manifest::parse(manifest.to_json().as_bytes()).map_err(|problem| invalid(problem.to_string()))?;
    refuse_overlaps(&manifest, segments)?;
    store(&StoredObject::connect(&location, &access.s3).await, &manifest, spooled).await?;
    print(&manifest, &location, args.output, out)
}

/// Stores the objects first, under names that no other content has, and the manifest last, so that a reader sees the
/// old set or the new one and never half of it. A copy of the manifest that carries the version in its name stays when
/// the next set comes, to compare the two or to go back.
async fn store(target: &StoredObject, manifest: &Manifest, objects: Vec<Spooled>) -> anyhow::Result<()> {
    let progress = progress::storing(manifest.segments.iter().map(|segment| segment.bytes).sum());
    for object in objects {
        let path = object.file.path().to_owned();
        target.beside(object.entry.object.as_str()).put(Upload::File(path)).await?;
        progress.inc(object.entry.bytes);
    }
    progress.finish_and_clear();
    let json = Bytes::from(manifest.to_json());
    target.beside(&format!("manifest-{}.json", file_name(&manifest.version))).put(Upload::Bytes(json.clone())).await?;
    target.put(Upload::Bytes(json)).await?;
    Ok(())
}

fn print(manifest: &Manifest, location: &Location, form: OutputForm, out: &mut impl Write) -> anyhow::Result<()> {
    match form {
        OutputForm::Json => {
            let mut report: serde_json::Value = serde_json::from_str(&manifest.to_json())?;
            report["manifest"] = location.to_string().into();
            print_json(&report, out)
        }
        OutputForm::Text => {
            for ManifestSegment { name, cardinality, bytes, object, .. } in &manifest.segments {
                writeln!(out, "{name}: {cardinality} users, {bytes} bytes, {}", object.as_str())?;
            }
            Ok(writeln!(out, "version {} is in {location}", manifest.version)?)
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a command that ends at once has no batch whose clock it could use")]
fn now() -> String {
    // To the millisecond: sets built one after the other keep a copy of the manifest each.
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

fn gather(args: &BuildArgs, ids: UserIds) -> anyhow::Result<Vec<(String, Members)>> {
    let mut gatherer = Gatherer::new(ids);
    if let Some(path) = &args.csv {
        let progress = progress::reading(&[path]);
        gatherer.csv(path, &progress)?;
        progress.finish_and_clear();
    }
    let mut files = Vec::with_capacity(args.files.len());
    for file in &args.files {
        let Some((name, path)) = file.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty())
        else {
            return Err(invalid(format!("`{file}` is not NAME=FILE; give a segment's name and the file of its users")));
        };
        files.push((name, Path::new(path)));
    }
    let inputs = files.iter().map(|(_, path)| *path).chain(args.csv.as_deref());
    if inputs.filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(invalid("standard input (-) is given more than once, and can be read once: give files".to_owned()));
    }
    let progress = progress::reading(&files.iter().map(|(_, path)| *path).collect::<Vec<_>>());
    for (name, path) in files {
        let segment = gatherer.segment(name)?;
        gatherer.lines(segment, path, &progress)?;
    }
    progress.finish_and_clear();
    let segments = gatherer.finish();
    if segments.is_empty() {
        return Err(invalid("no segments in the input; a set needs at least one".to_owned()));
    }
    Ok(segments)
}

/// A job that failed leaves an empty file as a rule, and few segments are meant to have no users.
fn warn_of_nobody(segments: &[(String, Members)]) {
    for (name, _) in segments.iter().filter(|(_, members)| members.is_empty()) {
        // Where stderr is closed, the result says it.
        let _ = writeln!(io::stderr(), "weir: warning: segment `{name}` has no users; is its file meant to be empty?");
    }
}

fn refuse_overlaps(manifest: &Manifest, segments: Vec<(String, Members)>) -> Result<(), UsageError> {
    let segments = segments.into_iter().zip(&manifest.segments);
    let segments = segments.map(|((name, members), entry)| Segment {
        name,
        sha256: entry.sha256,
        bytes: entry.bytes,
        members: Arc::new(members),
    });
    let ids = UserIds::new(manifest.user_id, "");
    let set = SegmentSet::new(manifest.version.clone(), ids, segments.collect());
    overlaps::refusal(&set).map_or(Ok(()), |refusal| Err(UsageError(refusal)))
}
