//! `weir segments members`: who is in a segment, or in what is made of several.

use std::{
    borrow::Cow,
    io::{BufWriter, Write},
};

use anyhow::Context;
use clap::Args;
use weir_core::segment::{Members, SegmentSet, SetOperation};

use super::{SetArgs, load, members_of};
use crate::cli::{
    exit::UsageError,
    output::{OutputForm, print_json},
};

/// How many members are taken from the bitmap at once.
const PAGE: usize = 10_000;

/// `weir segments members`
#[derive(Debug, Args)]
pub struct MembersArgs {
    #[command(flatten)]
    set: SetArgs,
    /// The segment's name
    name: String,
    /// Add the members of this segment; repeatable
    #[arg(long, value_name = "NAME")]
    union: Vec<String>,
    /// Keep only those also in this segment; repeatable
    #[arg(long, value_name = "NAME")]
    intersect: Vec<String>,
    /// Remove the members of this segment; repeatable
    #[arg(long, value_name = "NAME")]
    minus: Vec<String>,
    /// Print their number only
    #[arg(long, conflicts_with_all = ["after", "limit"])]
    count: bool,
    /// List the members above this id
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
    /// Maximum number of members to list [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

pub(super) async fn run(args: &MembersArgs, out: &mut impl Write) -> anyhow::Result<()> {
    if args.limit == Some(0) {
        return Err(UsageError("--limit 0: give 1 or more, or leave it out for all".to_owned()).into());
    }
    let set = load(&args.set).await?;
    let members = chosen(args, &set)?;
    match (args.count, args.output) {
        (true, OutputForm::Text) => Ok(writeln!(out, "{}", members.len())?),
        (true, OutputForm::Json) => print_json(&serde_json::json!({ "count": members.len() }), out),
        (false, form) => list(&members, args.after, args.limit, form, BufWriter::new(out)),
    }
}

/// First all that is put together, then what they must be in, then what they must not be in, whatever the order of
/// the arguments.
fn chosen<'s>(args: &MembersArgs, set: &'s SegmentSet) -> anyhow::Result<Cow<'s, Members>> {
    let mut chosen = Cow::Borrowed(members_of(set, &args.name)?.as_ref());
    let operations = [
        (SetOperation::Union, &args.union),
        (SetOperation::Intersect, &args.intersect),
        (SetOperation::Minus, &args.minus),
    ];
    for (operation, names) in operations {
        for name in names {
            let other = members_of(set, name)?;
            chosen = Cow::Owned(chosen.combined(operation, other).context("a set has ids of one kind")?);
        }
    }
    Ok(chosen)
}

/// Lists a page at a time, so that the list of all is never in memory.
fn list(
    members: &Members,
    mut after: Option<u64>,
    limit: Option<usize>,
    form: OutputForm,
    mut out: impl Write,
) -> anyhow::Result<()> {
    let json = form == OutputForm::Json;
    let mut left = limit.unwrap_or(usize::MAX);
    let mut printed = 0_u64;
    if json {
        write!(out, "{{\"members\":[")?;
    }
    let next = loop {
        let page = members.page(after, left.min(PAGE));
        left -= page.members.len();
        for member in page.members {
            match (form, printed) {
                (OutputForm::Text, _) => writeln!(out, "{member}")?,
                (OutputForm::Json, 0) => write!(out, "\"{member}\"")?,
                (OutputForm::Json, _) => write!(out, ",\"{member}\"")?,
            }
            printed += 1;
        }
        after = page.next;
        if after.is_none() || left == 0 {
            break after;
        }
    };
    if json {
        let next = next.map_or_else(|| "null".to_owned(), |next| format!("\"{next}\""));
        writeln!(out, "],\"next\":{next}}}")?;
    }
    Ok(out.flush()?)
}
