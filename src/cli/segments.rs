//! `weir segments`: builds, inspects and queries sets.

mod build;
mod ids;
mod input;
mod inspect;
mod lookup;
mod members;
mod overlaps;
mod progress;
mod spool;

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use clap::{Args, Subcommand};
use weir_core::segment::{Members, SegmentSet};

use super::exit::UsageError;
use crate::{
    authorities::Authorities,
    config::{self, S3Settings},
    object_store::{Location, ObjectError, ObjectProblem, S3Options, StoredObject},
    segments::{SegmentSource, SegmentsError},
};
pub use build::BuildArgs;
pub use inspect::InspectArgs;
pub use lookup::LookupArgs;
pub use members::MembersArgs;

/// `weir segments ...`
#[derive(Debug, Subcommand)]
pub enum SegmentsCommand {
    /// Build a set from files of user ids, and store it in a folder or bucket
    Build(BuildArgs),
    /// Show the segments of a set, and what changed
    Inspect(InspectArgs),
    /// Look up the segments of users
    Lookup(LookupArgs),
    /// List the members of a segment, in ascending order
    Members(MembersArgs),
}

/// How S3 is reached and ids are read. What is not given comes from the configuration, if one is named, and from the
/// AWS default chain.
#[derive(Debug, Clone, Default, Args)]
pub struct AccessArgs {
    /// Configuration to read [s3] and segments.user_id_prefix from; the rest of it is optional
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Prefix to remove from user ids before they are read as numbers
    #[arg(long, env = "WEIR__SEGMENTS__USER_ID_PREFIX", value_name = "PREFIX")]
    user_id_prefix: Option<String>,
    #[command(flatten)]
    s3: S3Args,
}

/// How S3 is reached; what is not given comes from the configuration, and from the AWS default chain.
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
    /// Pay for requests to a bucket that charges the requester
    #[arg(long, env = "WEIR__S3__REQUESTER_PAYS")]
    s3_requester_pays: bool,
    /// Certificate authority of the store, a PEM file
    #[arg(long, env = "WEIR__S3__CA_FILE", value_name = "FILE", value_parser = authorities)]
    s3_ca_file: Option<Authorities>,
}

fn authorities(path: &str) -> Result<Authorities, String> {
    Authorities::read(Path::new(path)).map_err(|error| format!("the file {error}"))
}

impl S3Args {
    /// What is to be done, where a configuration says what is not given.
    pub(super) fn over(&self, settings: Option<&S3Settings>) -> S3Options {
        S3Options {
            endpoint: self.s3_endpoint.clone().or_else(|| settings?.endpoint.clone()),
            region: self.s3_region.clone().or_else(|| settings?.region.clone()),
            force_path_style: self.s3_path_style || settings.is_some_and(|settings| settings.force_path_style),
            requester_pays: self.s3_requester_pays || settings.is_some_and(|settings| settings.requester_pays),
            authorities: self.s3_ca_file.clone().or_else(|| settings?.ca_file.clone()),
            credentials: None,
        }
    }
}

struct Access {
    s3: S3Options,
    user_id_prefix: String,
}

impl AccessArgs {
    fn resolve(&self) -> anyhow::Result<Access> {
        let read = |path: &PathBuf| config::load_segment_access(path).map_err(|error| UsageError(error.to_string()));
        let configured = self.config.as_ref().map(read).transpose()?;
        let prefix = configured.as_ref().and_then(|access| access.user_id_prefix.clone());
        Ok(Access {
            s3: self.s3.over(configured.as_ref().map(|access| &access.s3)),
            user_id_prefix: self.user_id_prefix.clone().or(prefix).unwrap_or_default(),
        })
    }
}

/// Which set to read, and how.
#[derive(Debug, Clone, Args)]
pub struct SetArgs {
    /// The set's manifest: a path, or s3://bucket/key
    manifest: String,
    #[command(flatten)]
    access: AccessArgs,
}

pub async fn run(command: &SegmentsCommand, out: &mut impl Write) -> anyhow::Result<()> {
    match command {
        SegmentsCommand::Build(args) => build::run(args, out).await,
        SegmentsCommand::Inspect(args) => inspect::run(args, out).await,
        SegmentsCommand::Lookup(args) => lookup::run(args, out).await,
        SegmentsCommand::Members(args) => members::run(args, out).await,
    }
}

async fn load(args: &SetArgs) -> anyhow::Result<Arc<SegmentSet>> {
    load_from(&args.manifest, &args.access.resolve()?).await
}

async fn load_from(manifest: &str, access: &Access) -> anyhow::Result<Arc<SegmentSet>> {
    let location = Location::parse(manifest).map_err(|error| UsageError(format!("manifest: {error}")))?;
    let manifest = StoredObject::connect(&location, &access.s3).await;
    let set = match SegmentSource::new(manifest, access.user_id_prefix.as_str()).load().await {
        Ok(set) => set,
        Err(error) if is_missing(&error, &location) => return Err(UsageError(error.to_string()).into()),
        Err(error) => return Err(error.into()),
    };
    set.with_context(|| format!("segments: {location} gave no set at the first read"))
}

/// Whether there is no manifest: its name is wrong, or nothing was put there yet.
fn is_missing(error: &SegmentsError, manifest: &Location) -> bool {
    let SegmentsError::Object(ObjectError { location, problem, .. }) = error else { return false };
    location == manifest && matches!(problem, ObjectProblem::NotFound(_))
}

/// The members of a segment, or an error that names those there are.
fn members_of<'s>(set: &'s SegmentSet, name: &str) -> Result<&'s Arc<Members>, UsageError> {
    set.position(name).map(|at| &set.segments()[at].members).ok_or_else(|| {
        let names: Vec<&str> = set.segments().iter().map(|segment| segment.name.as_str()).collect();
        UsageError(format!("there is no segment `{name}`; the set has {}", names.join(", ")))
    })
}
