//! `weir forget`: deletes what Redis knows of a user.

use std::io::Write;

use anyhow::Context as _;
use clap::Args;
use weir_core::{basis::shard::UserHash, intent::MAX_ID_BYTES, ports::Histories as _};

use super::{
    args::ConfigFile,
    assemble,
    exit::UsageError,
    output::{OutputForm, print_json},
};
use crate::query::{Forgotten, STAYS_IN_REDIS};

/// Arguments of `weir forget`.
#[derive(Debug, Args)]
pub struct ForgetArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// User id, as in the intents
    #[arg(value_name = "USER")]
    user: String,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

/// Deletes the user's history and prints how many sends it held, and what stays. May be run again.
pub async fn run(args: &ForgetArgs, out: &mut impl Write) -> anyhow::Result<()> {
    if args.user.is_empty() || args.user.len() > MAX_ID_BYTES {
        return Err(UsageError(format!("USER: a user's id has 1 to {MAX_ID_BYTES} bytes")).into());
    }
    let settings = assemble::settings(&args.config.path)?;
    let mut store = assemble::existing_keyspace(&settings.redis).await?.store();
    let deleted = store.forget(UserHash::of(&args.user)).await;
    let deleted = deleted.with_context(|| format!("the history of user {} is not deleted", args.user))?;
    let topics = settings.kafka.topics_of_users();
    match args.output {
        OutputForm::Json => print_json(&Forgotten::new(&args.user, deleted, &topics), out),
        OutputForm::Text => Ok(writeln!(
            out,
            "Deleted {deleted} sends of user {} from Redis. {STAYS_IN_REDIS} Nothing else of the user is \
             there.\n\nKafka keeps the user's records until retention deletes them, in {}. Until then weir rebuild brings the \
             sends on approved topics back: run weir forget again after it. Intents of the user that are deferred, wait or \
             come later are decided as usual and begin a new history.",
            args.user,
            topics.join(", "),
        )?),
    }
}
