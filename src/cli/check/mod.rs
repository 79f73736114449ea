//! `weir check`: reads everything, connects to everything, changes nothing, says what is wrong and what to do.

mod files;
mod kafka;
mod redis;
mod report;

use std::{io::Write, path::PathBuf};

use clap::Args;

use self::report::{Finding, Report};
use super::{
    assemble::{self, Misconfigured},
    output::OutputForm,
};
use crate::edge::redis::WhenMissing;

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
    let policy = files::policy(&settings, &mut report).await;
    let set = files::segments(&settings, &mut report).await;
    if let (Some(policy), Some(set)) = (&policy, &set) {
        files::names(policy, set, &mut report);
    }
    kafka::look(&settings, &mut report).await;
    let when_missing = if args.create { WhenMissing::Create } else { WhenMissing::Refuse };
    redis::look(&settings, when_missing, &mut report).await;
    report::print(&report, args.output, out)?;
    match report.errors() {
        0 => Ok(()),
        errors => Err(Misconfigured(format!("{errors} of {} checks failed; see above", report.len())).into()),
    }
}
