//! `weir segments build`: from files of ids to a set.

use std::{
    io::{BufWriter, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use bytes::Bytes;
use clap::{ArgGroup, Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sha2::Digest;
use tempfile::NamedTempFile;

use super::{InvalidInput, S3Args, ids::Gatherer};
use crate::{
    domain::segment::{
        Manifest, ManifestSegment, Members, ObjectKey, Segment, SegmentSet, Sha256, UserIdKind, UserIds,
    },
    edge::{
        object_store::{Location, StoredObject, Upload},
        segments::write_members,
    },
};

/// What the manifest is called in the folder.
const MANIFEST_NAME: &str = "manifest.json";
/// How many users of two segments an error names.
const EXAMPLES: usize = 5;
/// How many bytes of the checksum an object's name carries.
const NAME_HASH_BYTES: usize = 8;

/// What ids are.
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
    out: String,
    /// What user ids are
    #[arg(long, value_enum)]
    user_id: UserIdArg,
    /// What to take off user ids before they are read as numbers
    #[arg(long, value_name = "PREFIX", default_value = "")]
    user_id_prefix: String,
    /// Names this state of the set [default: the time]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// CSV file with the columns user_id and segment; - is standard input
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// A segment's name and a file of its user ids, one a line; - is standard input
    #[arg(value_name = "NAME=FILE")]
    files: Vec<String>,
    #[command(flatten)]
    s3: S3Args,
}

/// Makes the set and puts it there: the objects first, under names that no other content has, and the manifest
/// last, so that a reader sees the old set or the new one and never half of it.
pub(super) async fn run(args: &BuildArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let location = Location::in_folder(&args.out, MANIFEST_NAME).map_err(|error| invalid(format!("--out: {error}")))?;
    let segments = gather(args)?;
    let version = args.version.clone().unwrap_or_else(now);
    let spooled = segments.iter().map(|(name, members)| spool(name, members)).collect::<anyhow::Result<Vec<_>>>()?;
    let manifest = Manifest {
        version,
        user_id: args.user_id.into(),
        segments: spooled.iter().map(|object| object.entry.clone()).collect(),
    };
    let json = manifest.to_json();
    // The reader's own check: what it would refuse is not uploaded.
    Manifest::parse(json.as_bytes()).map_err(|problem| invalid(problem.to_string()))?;
    refuse_overlaps(&manifest, segments)?;

    let target = StoredObject::connect(&location, &args.s3.options()).await;
    for object in spooled {
        let path = object.file.path().to_owned();
        target.beside(object.entry.object.as_str()).put(Upload::File(path)).await?;
    }
    target.put(Upload::Bytes(Bytes::from(json))).await?;
    for segment in &manifest.segments {
        writeln!(
            out,
            "{}: {} users, {} bytes, {}",
            segment.name,
            segment.cardinality,
            segment.bytes,
            segment.object.as_str()
        )?;
    }
    writeln!(out, "version {} is in {location}", manifest.version)?;
    Ok(())
}

fn invalid(message: String) -> anyhow::Error {
    InvalidInput(message).into()
}

#[expect(clippy::disallowed_methods, reason = "a command that ends at once has no batch whose clock it could use")]
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn gather(args: &BuildArgs) -> anyhow::Result<Vec<(String, Members)>> {
    let mut gatherer = Gatherer::new(UserIds::new(args.user_id.into(), args.user_id_prefix.as_str()));
    if let Some(path) = &args.csv {
        let progress = progress_bar(&[path]);
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
    let progress = progress_bar(&files.iter().map(|(_, path)| path).collect::<Vec<_>>());
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

/// Bytes read of these files; drawn on a terminal alone.
fn progress_bar(paths: &[impl AsRef<Path>]) -> ProgressBar {
    let bytes = paths.iter().map(|path| std::fs::metadata(path).map_or(0, |metadata| metadata.len())).sum();
    let target = match std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let template = "reading {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(bytes), target).with_style(style)
}

/// An object on its way: written to a temporary file, because its name and the manifest want its checksum.
struct Spooled {
    entry: ManifestSegment,
    file: NamedTempFile,
}

fn spool(name: &str, members: &Members) -> anyhow::Result<Spooled> {
    let file = NamedTempFile::new().context("cannot make a temporary file; check TMPDIR")?;
    let mut writer = Hashing { inner: BufWriter::new(file), hasher: sha2::Sha256::new(), bytes: 0 };
    write_members(members, &mut writer).context("cannot write a temporary file; check the space in TMPDIR")?;
    let file =
        writer.inner.into_inner().map_err(|error| error.into_error()).context("cannot write a temporary file")?;
    let sha256 = Sha256(writer.hasher.finalize().into());
    let object = format!("{}-{}.roaring", file_name(name), hex::encode(&sha256.0[..NAME_HASH_BYTES]));
    let object = ObjectKey::parse(&object).map_err(|problem| invalid(format!("segment `{name}`: {problem}")))?;
    let entry =
        ManifestSegment { name: name.to_owned(), object, bytes: writer.bytes, sha256, cardinality: members.len() };
    Ok(Spooled { entry, file })
}

/// A segment's name as part of a file's: what a file system or URL may trip over becomes `_`, and the checksum
/// behind it keeps names apart.
fn file_name(segment: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    segment.chars().take(64).map(plain).collect()
}

struct Hashing<W> {
    inner: W,
    hasher: sha2::Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

fn refuse_overlaps(manifest: &Manifest, segments: Vec<(String, Members)>) -> anyhow::Result<()> {
    let segments = segments.into_iter().zip(&manifest.segments);
    let segments = segments.map(|((name, members), entry)| Segment {
        name,
        sha256: entry.sha256,
        bytes: entry.bytes,
        members: Arc::new(members),
    });
    let ids = UserIds::new(manifest.user_id, "");
    let set = SegmentSet::new(manifest.version.clone(), ids, segments.collect());
    if set.overlaps().is_empty() {
        return Ok(());
    }
    let pairs = set.overlaps().iter().map(|pair| {
        let (first, second) = (&set.segments()[pair.first], &set.segments()[pair.second]);
        let shown = |number| match manifest.user_id {
            UserIdKind::U32 | UserIdKind::U64 => format!("{number}"),
            UserIdKind::Hash64 => format!("hash {number:016x}"),
        };
        let examples: Vec<String> =
            first.members.intersection(&second.members, EXAMPLES).into_iter().map(shown).collect();
        format!("{} in `{}` and `{}` (such as {})", pair.users, first.name, second.name, examples.join(", "))
    });
    let pairs: Vec<String> = pairs.collect();
    Err(invalid(format!("users are in two segments: {}; put each user into one", pairs.join("; "))))
}
