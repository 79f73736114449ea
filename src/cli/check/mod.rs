//! `weir check`: reads everything, connects to everything, changes nothing, reports what is wrong and what to do.

mod files;
mod kafka;
mod limits;
mod redis;
mod registry;
mod report;

use std::io::Write;

use clap::Args;

use self::report::{CheckReport, Finding};
use super::{args::ConfigFile, assemble, output::OutputForm};

/// Arguments of `weir check`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 if nothing is wrong (warnings are allowed), 2 if a file is written incorrectly \
                        (configuration, policy, segments), 1 if a server is unreachable or not as required.")]
pub struct CheckArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Create what is missing: the keyspace in Redis, and the topics that weir owns (all but the intents
    /// topic), which keep their records for as long as they must
    #[arg(long)]
    create: bool,
    /// With --create: create an empty keyspace even though the group has decided intents before, and their histories are lost.
    /// Every user can then be sent messages as if for the first time
    #[arg(long, requires = "create")]
    accept_lost_history: bool,
    /// Read files only and connect to nothing, for CI: configuration, and policy and segments that are files
    #[arg(long, conflicts_with = "create")]
    offline: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

/// Checks and prints what was found.
pub async fn run(args: &CheckArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let mut report = CheckReport::default();
    let settings = match assemble::settings(&args.config.path) {
        Ok(settings) => settings,
        Err(error) => {
            // Programs find it where they find all others; people find it once, on stderr.
            if args.output == OutputForm::Json {
                report.add(Finding::Invalid, "configuration", error.to_string());
                // Whether anybody reads it or not, the configuration is wrong.
                let _ = report.print(args.output, out);
            }
            return Err(error);
        }
    };
    report.add(Finding::Ok, "configuration", format!("{} is valid", args.config.path.display()));
    files::time_zones(&mut report);
    let makes_clients = files::settings(&settings, &mut report);
    let policy = files::policy(&settings, args, &mut report).await;
    let set = files::segments(&settings, args, &mut report).await;
    if let (Some(policy), Some(set)) = (&policy, &set) {
        files::names(policy, set, &mut report);
    }
    registry::look(&settings, args, &mut report).await;
    if args.offline {
        for server in ["kafka", "redis"] {
            report.add(Finding::Skipped, server, "not connected to (--offline)");
        }
    } else {
        let has_decided = if makes_clients {
            kafka::look(&settings, args, policy.as_deref(), &mut report).await
        } else {
            report.add(Finding::Skipped, "kafka", "not connected to: no client can be made");
            None
        };
        redis::look(&settings, args, has_decided, &mut report).await;
    }
    let printed = report.print(args.output, out);
    // What was found counts, also where nobody reads it.
    report.outcome()?;
    printed
}
