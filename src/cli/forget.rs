//! `weir forget`: deletes what Redis knows of a user.

use std::{io::Write, path::PathBuf, sync::Arc};

use anyhow::Context as _;
use clap::Args;
use weir_core::{
    intent::MAX_ID_BYTES,
    ports::{Clock as _, Histories as _},
    shard::UserHash,
};
use weir_redis::{Birth, RedisOptions, RedisStats, RedisStore, Tuning, WhenMissing};
use weir_worker::clock::SystemClock;

use super::{assemble, output::OutputForm, segments::InvalidInput};
use crate::inquiry::Forgotten;

/// Arguments of `weir forget`.
#[derive(Debug, Args)]
pub struct ForgetArgs {
    /// The configuration
    #[arg(long, value_name = "FILE", env = "WEIR_CONFIG", default_value = "weir.toml")]
    config: PathBuf,
    /// The user's id, as intents have it
    #[arg(value_name = "USER")]
    user: String,
    /// In which form to print
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

/// Deletes the user's history and prints how many sends it held, and what stays in Kafka. May be run again.
///
/// # Errors
/// What the user has to correct; or the history cannot be deleted now.
pub async fn run(args: &ForgetArgs, out: &mut impl Write) -> anyhow::Result<()> {
    if args.user.is_empty() || args.user.len() > MAX_ID_BYTES {
        return Err(InvalidInput(format!("USER: a user's id has 1 to {MAX_ID_BYTES} bytes")).into());
    }
    let settings = assemble::settings(&args.config)?;
    let options = Arc::new(RedisOptions { tuning: Tuning::Advise, ..assemble::redis(&settings.redis)? });
    let stats = Arc::new(RedisStats::default());
    let birth = Birth { epoch: assemble::new_epoch(), now: SystemClock.now() };
    let opened = weir_redis::open(&options, &stats, WhenMissing::Refuse, birth).await?;
    let mut store = RedisStore::new(&options, &stats, &opened);
    let deleted = store.forget(UserHash::of(&args.user)).await;
    let deleted = deleted.with_context(|| format!("the history of user {} is not deleted", args.user))?;
    let kafka = &settings.kafka;
    let topics: Vec<String> =
        [&kafka.intents, &kafka.approved, &kafka.suppressed, &kafka.dead_letters].into_iter().cloned().collect();
    match args.output {
        OutputForm::Json => {
            serde_json::to_writer_pretty(&mut *out, &Forgotten::new(&args.user, deleted))?;
            writeln!(out)?;
        }
        OutputForm::Text => writeln!(
            out,
            "Deleted {deleted} sends of user {} from Redis; it holds nothing else about them.\n\nKafka keeps the user's records \
             until retention deletes them, in {} and the refunds topic. Until then weir rebuild brings the sends of {} \
             back: run weir forget again after it. Intents of the user that come later begin a new history.",
            args.user,
            topics.join(", "),
            kafka.approved
        )?,
    }
    Ok(())
}
