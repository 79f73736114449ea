//! `weir segments inspect`: what a set consists of, and what changed since another version.

use std::io::Write;

use clap::Args;
use roaring::RoaringBitmap;
use serde::Serialize;
use weir_core::segment::{Members, Move, SegmentSet, SetChange, UserIdKind};

use super::{
    SetArgs, load_from,
    overlaps::{self, OverlapReport},
};
use crate::cli::{
    exit::UsageError,
    output::{OutputForm, aligned, lines, print_json},
};

/// `weir segments inspect`
#[derive(Debug, Args)]
pub struct InspectArgs {
    #[command(flatten)]
    set: SetArgs,
    /// Manifest of an earlier version: shows who was added, removed and moved since
    #[arg(long, value_name = "FILE")]
    against: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

#[derive(Debug, Serialize)]
struct SetReport<'s> {
    version: &'s str,
    user_id: UserIdKind,
    segments: Vec<SegmentReport<'s>>,
    overlaps: Vec<OverlapReport<'s>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<SetChange>,
}

#[derive(Debug, Serialize)]
struct SegmentReport<'s> {
    name: &'s str,
    cardinality: u64,
    bytes: u64,
    sha256: String,
    containers: Containers,
}

/// How many containers of each kind the bitmaps have; none for hashes, which are not held as bitmaps.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Containers {
    array: u64,
    run: u64,
    bitset: u64,
}

impl Containers {
    fn of(members: &Members) -> Self {
        let mut all = Self::default();
        let mut add = |part: &RoaringBitmap| {
            let part = part.statistics();
            all.array += u64::from(part.n_array_containers);
            all.run += u64::from(part.n_run_containers);
            all.bitset += u64::from(part.n_bitset_containers);
        };
        match members {
            Members::U32(ids) => ids.bitmaps().for_each(add),
            Members::U64(ids) => ids.bitmaps().for_each(|(_, part)| add(part)),
            Members::Hash64(_) => {}
        }
        all
    }
}

impl<'s> SetReport<'s> {
    fn of(set: &'s SegmentSet) -> Self {
        let segments = set.segments().iter().map(|segment| SegmentReport {
            name: &segment.name,
            cardinality: segment.members.len(),
            bytes: segment.bytes,
            sha256: segment.sha256.to_string(),
            containers: Containers::of(&segment.members),
        });
        Self {
            version: set.version(),
            user_id: set.user_id(),
            segments: segments.collect(),
            overlaps: overlaps::of(set).collect(),
            diff: None,
        }
    }
}

fn compare(before: &SegmentSet, after: &SegmentSet) -> Result<SetChange, UsageError> {
    SetChange::between(before, after).ok_or_else(|| {
        let (old, new) = (before.user_id(), after.user_id());
        UsageError(format!("--against: that set has ids of kind {old}, this one {new}; they cannot be compared"))
    })
}

pub(super) async fn run(args: &InspectArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let access = args.set.access.resolve()?;
    let set = load_from(&args.set.manifest, &access).await?;
    let mut report = SetReport::of(&set);
    if let Some(earlier) = &args.against {
        report.diff = Some(compare(&*load_from(earlier, &access).await?, &set)?);
    }
    match args.output {
        OutputForm::Json => print_json(&report, out),
        OutputForm::Text => print(&report, out),
    }
}

fn print(report: &SetReport<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "version {}, user ids are {}", report.version, report.user_id)?;
    let header = ["segment", "users", "bytes", "array", "run", "bitset containers", "sha256"];
    let rows = report.segments.iter().map(|segment| {
        let Containers { array, run, bitset } = segment.containers;
        let numbers = [segment.cardinality, segment.bytes, array, run, bitset].map(|number| number.to_string());
        let name = [segment.name.to_owned()].into_iter();
        name.chain(numbers).chain([segment.sha256[..16].to_owned()])
    });
    write!(out, "{}", lines(aligned(rows, 1..6).set_header(header)))?;
    for OverlapReport { segments: [first, second], users, examples } in &report.overlaps {
        let examples = examples.join(", ");
        writeln!(out, "{users} users are in `{first}` and `{second}` (such as {examples}); `{first}` wins")?;
    }
    report.diff.as_ref().map_or(Ok(()), |diff| print_diff(diff, out))
}

fn print_diff(diff: &SetChange, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "\nsince version {}:", diff.since)?;
    let header = ["segment", "before", "after", "added", "removed", "moved in", "moved out"];
    let count = |users: Option<u64>| users.map_or_else(|| "-".to_owned(), |users| users.to_string());
    let rows = diff.segments.iter().map(|change| {
        let flows = [change.added, change.removed, change.moved_in, change.moved_out].map(|users| users.to_string());
        let known = [change.name.clone(), count(change.before), count(change.after)];
        known.into_iter().chain(flows)
    });
    write!(out, "{}", lines(aligned(rows, 1..7).set_header(header)))?;
    for Move { from, to, users } in &diff.moves {
        writeln!(out, "{users} users went from `{from}` to `{to}`")?;
    }
    Ok(())
}
