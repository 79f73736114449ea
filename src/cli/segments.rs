//! `weir segments`: makes a set, shows it, asks it.

mod build;
mod ids;
mod show;

use std::{io::Write, sync::Arc};

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::{
    authorities::Authorities,
    domain::segment::SegmentSet,
    edge::{
        object_store::{Location, S3Credentials, S3Options, StoredObject},
        segments::SegmentSource,
    },
};

pub use build::BuildArgs;
pub use show::{InspectArgs, LookupArgs, MembersArgs};

/// The arguments or the input are wrong: exit code 2, where everything else that fails is 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidInput(pub String);

/// `weir segments ...`
#[derive(Debug, Subcommand)]
pub enum SegmentsCommand {
    /// Make a set from files of user ids, and put it into a folder or bucket
    // Its --version is the set's.
    #[command(disable_version_flag = true)]
    Build(BuildArgs),
    /// Show what a set consists of
    Inspect(InspectArgs),
    /// Show which segment users are in
    Lookup(LookupArgs),
    /// List the members of a segment, in ascending order
    Members(MembersArgs),
}

/// How S3 is reached; what is not given comes from the AWS default chain.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "S3")]
pub struct S3Args {
    /// URL of a store that is not AWS
    #[arg(long, env = "WEIR__S3__ENDPOINT", value_name = "URL")]
    s3_endpoint: Option<String>,
    /// Region
    #[arg(long, env = "WEIR__S3__REGION", value_name = "REGION")]
    s3_region: Option<String>,
    /// Name the bucket in the path rather than in the host name
    #[arg(long, env = "WEIR__S3__FORCE_PATH_STYLE")]
    s3_path_style: bool,
    /// Certificate authority of the store, a PEM file
    #[arg(long, env = "WEIR__S3__CA_FILE", value_name = "FILE", value_parser = authorities)]
    s3_ca_file: Option<Authorities>,
}

fn authorities(path: &str) -> Result<Authorities, String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    Authorities::parse(pem).map_err(|error| format!("the file {error}"))
}

impl S3Args {
    fn options(&self) -> S3Options {
        S3Options {
            endpoint: self.s3_endpoint.clone(),
            region: self.s3_region.clone(),
            force_path_style: self.s3_path_style,
            authorities: self.s3_ca_file.clone(),
            credentials: S3Credentials::DefaultChain,
        }
    }
}

/// Which set to read, and how.
#[derive(Debug, Clone, Args)]
pub struct SetArgs {
    /// The set's manifest: a path, or s3://bucket/key
    manifest: String,
    /// What to take off user ids before they are read as numbers
    #[arg(long, env = "WEIR__SEGMENTS__USER_ID_PREFIX", value_name = "PREFIX", default_value = "")]
    user_id_prefix: String,
    #[command(flatten)]
    s3: S3Args,
}

/// Runs the command and prints to `out`.
///
/// # Errors
/// [`InvalidInput`] for what the user has to correct; else what could not be read or written.
pub async fn run(command: &SegmentsCommand, out: &mut impl Write) -> anyhow::Result<()> {
    match command {
        SegmentsCommand::Build(args) => build::run(args, out).await,
        SegmentsCommand::Inspect(args) => show::inspect(args, out).await,
        SegmentsCommand::Lookup(args) => show::lookup(args, out).await,
        SegmentsCommand::Members(args) => show::members(args, out).await,
    }
}

async fn load(args: &SetArgs) -> anyhow::Result<Arc<SegmentSet>> {
    let location = Location::parse(&args.manifest).map_err(|error| InvalidInput(format!("manifest: {error}")))?;
    let manifest = StoredObject::connect(&location, &args.s3.options()).await;
    let set = SegmentSource::new(manifest, args.user_id_prefix.as_str()).load().await?;
    set.with_context(|| format!("segments: {location} gave no set at the first read"))
}
