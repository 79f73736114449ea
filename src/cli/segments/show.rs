//! `weir segments inspect`, `lookup` and `members`: a set and its answers.

use std::{collections::BTreeMap, io::Write};

use anyhow::Context;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use roaring::RoaringBitmap;
use serde::Serialize;

use super::{InvalidInput, SetArgs, load};
use crate::cli::output::OutputForm;
use crate::domain::segment::{Members, Membership, SegmentSet, UserIdKind};

/// The most members that one call lists.
const MAX_PAGE: usize = 1_000_000;

/// `weir segments inspect`
#[derive(Debug, Args)]
pub struct InspectArgs {
    #[command(flatten)]
    set: SetArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

/// `weir segments lookup`
#[derive(Debug, Args)]
pub struct LookupArgs {
    #[command(flatten)]
    set: SetArgs,
    /// The users' ids
    #[arg(required = true, value_name = "USER")]
    users: Vec<String>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

/// `weir segments members`
#[derive(Debug, Args)]
pub struct MembersArgs {
    #[command(flatten)]
    set: SetArgs,
    /// The segment's name
    name: String,
    /// List those above this one
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
    /// List this many at most, up to 1000000
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

/// A set as a program reads it.
#[derive(Debug, Serialize)]
struct SetReport<'a> {
    version: &'a str,
    user_id: UserIdKind,
    segments: Vec<SegmentReport<'a>>,
    overlaps: Vec<OverlapReport<'a>>,
}

#[derive(Debug, Serialize)]
struct SegmentReport<'a> {
    name: &'a str,
    cardinality: u64,
    bytes: u64,
    sha256: String,
    containers: Containers,
}

#[derive(Debug, Serialize)]
struct OverlapReport<'a> {
    segments: [&'a str; 2],
    users: u64,
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
            Members::U32(ids) => add(ids),
            Members::U64(ids) => ids.bitmaps().for_each(|(_, part)| add(part)),
            Members::Hash64(_) => {}
        }
        all
    }
}

impl<'a> SetReport<'a> {
    fn of(set: &'a SegmentSet) -> Self {
        let name = |at: usize| set.segments()[at].name.as_str();
        let segments = set.segments().iter().map(|segment| SegmentReport {
            name: &segment.name,
            cardinality: segment.members.len(),
            bytes: segment.bytes,
            sha256: segment.sha256.to_string(),
            containers: Containers::of(&segment.members),
        });
        let overlaps = set
            .overlaps()
            .iter()
            .map(|pair| OverlapReport { segments: [name(pair.first), name(pair.second)], users: pair.users });
        Self {
            version: set.version(),
            user_id: set.user_id(),
            segments: segments.collect(),
            overlaps: overlaps.collect(),
        }
    }
}

pub(super) async fn inspect(args: &InspectArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let set = load(&args.set).await?;
    let report = SetReport::of(&set);
    if args.output == OutputForm::Json {
        return print_json(&report, out);
    }
    writeln!(out, "version {}, user ids are {}", report.version, report.user_id)?;
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["segment", "users", "bytes", "array", "run", "bitset containers", "sha256"]);
    for segment in &report.segments {
        let Containers { array, run, bitset } = segment.containers;
        let numbers = [segment.cardinality, segment.bytes, array, run, bitset].map(|number| number.to_string());
        let cells = [segment.name.to_owned()].into_iter().chain(numbers).chain([segment.sha256[..16].to_owned()]);
        table.add_row(cells);
    }
    for column in 1..=5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(out, "{}", table.trim_fmt())?;
    for OverlapReport { segments: [first, second], users } in &report.overlaps {
        writeln!(out, "{users} users are in `{first}` and `{second}`; `{first}` wins")?;
    }
    Ok(())
}

#[derive(Debug, Serialize)]
struct LookupReport<'a> {
    user_id: &'a str,
    segment: Option<&'a str>,
    in_several: bool,
}

pub(super) async fn lookup(args: &LookupArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let set = load(&args.set).await?;
    let reports = args.users.iter().map(|user| {
        let found = set.lookup(user);
        LookupReport {
            user_id: user,
            segment: found.segment().map(|at| set.segments()[at].name.as_str()),
            in_several: matches!(found, Membership::InSeveral(_)),
        }
    });
    let reports: Vec<LookupReport<'_>> = reports.collect();
    if args.output == OutputForm::Json {
        return print_json(&reports, out);
    }
    for report in reports {
        let also = if report.in_several { " (and in a later one)" } else { "" };
        writeln!(out, "{}: {}{also}", report.user_id, report.segment.unwrap_or("in no segment"))?;
    }
    Ok(())
}

pub(super) async fn members(args: &MembersArgs, out: &mut impl Write) -> anyhow::Result<()> {
    if args.limit == 0 || args.limit > MAX_PAGE {
        return Err(InvalidInput(format!("--limit {}: give 1 to {MAX_PAGE}", args.limit)).into());
    }
    let set = load(&args.set).await?;
    let Some(at) = set.position(&args.name) else {
        let names: Vec<&str> = set.segments().iter().map(|segment| segment.name.as_str()).collect();
        let known = names.join(", ");
        return Err(InvalidInput(format!("there is no segment `{}`; the set has {known}", args.name)).into());
    };
    let page = set.segments()[at].members.page(args.after, args.limit);
    match args.output {
        OutputForm::Json => {
            let text = |number: u64| serde_json::Value::from(number.to_string());
            let members: Vec<_> = page.members.into_iter().map(text).collect();
            let next = page.next.map_or(serde_json::Value::Null, text);
            print_json(&BTreeMap::from([("members", serde_json::Value::from(members)), ("next", next)]), out)
        }
        OutputForm::Text => {
            for member in page.members {
                writeln!(out, "{member}")?;
            }
            Ok(())
        }
    }
}

fn print_json(report: &impl Serialize, out: &mut impl Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report).context("cannot print")?;
    writeln!(out)?;
    Ok(())
}
