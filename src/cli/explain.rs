//! `weir explain`: why a user's intents were suppressed, and when the next one is allowed.

mod text;

use std::{
    io::{Read as _, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use weir_core::{
    basis::{current::Current, time::Time},
    batch::decider::Decider,
    intent::{MAX_ID_BYTES, MAX_INTENT_BYTES},
    ports::StoreError,
};
use weir_redis::RedisStore;
use weir_worker::clock::{ComparedClock, SystemClock};

use super::{
    args::ConfigFile,
    assemble, clocks,
    exit::UsageError,
    output::{OutputForm, print_json},
};
use crate::{
    config::Settings,
    limits::{LimitView, limits_in_words},
    metrics::Metrics,
    query::{Decision, EntryPoint, QueryError, QueryService, UserView},
};

/// Arguments of `weir explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// User id, as in the intents
    #[arg(value_name = "USER")]
    user: String,
    /// Also report how this intent would be decided now: a JSON file, - for stdin
    #[arg(long, value_name = "FILE")]
    intent: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputForm,
}

#[derive(Serialize)]
struct ExplainReport<'a> {
    #[serde(flatten)]
    user: &'a UserView,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'a Decision>,
    /// Until when the intent would be deferred; absent where the decision stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    deferred_until: Option<Time>,
    /// The limits that instances share and that the intent takes from; absent where from none.
    #[serde(skip_serializing_if = "<[LimitView]>::is_empty")]
    limits: &'a [LimitView],
}

/// Reads segments, policy and the user's history, and says what it all comes to. Changes nothing.
pub async fn run(args: &ExplainArgs, out: &mut impl Write) -> anyhow::Result<()> {
    if args.user.is_empty() || args.user.len() > MAX_ID_BYTES {
        return Err(UsageError(format!("USER: a user's id has 1 to {MAX_ID_BYTES} bytes")).into());
    }
    let settings = assemble::settings(&args.config.path)?;
    let intent = args.intent.as_deref().map(read_intent).transpose()?;
    let (mut query, has_limits) = query(&settings).await?;
    let (user, decision) = match &intent {
        None => (query.user(&args.user).await.map_err(QueryError::from), None),
        Some(intent) => match query.user_and_would(intent).await {
            Ok((user, decision)) => (Ok(user), Some(decision)),
            Err(error) => (Err(error), None),
        },
    };
    let user = user.map_err(|error| failed(error, args))?;
    if user.user_id != args.user {
        let message = format!("--intent: the intent is for user {}, not for {}", user.user_id, args.user);
        return Err(UsageError(message).into());
    }
    let may_defer = settings.kafka.deferred.is_some();
    match args.output {
        OutputForm::Json => {
            let deferred_until = decision.as_ref().filter(|_| may_defer).and_then(|decision| decision.deferred_until);
            let limits = decision.as_ref().map_or(&[][..], |decision| &decision.limits);
            print_json(&ExplainReport { user: &user, decision: decision.as_ref(), deferred_until, limits }, out)
        }
        OutputForm::Text => {
            write!(out, "{}", text::page(&user, decision.as_ref(), may_defer))?;
            if has_limits && decision.is_none() {
                write!(out, "\n{}", text::LIMITS)?;
            }
            Ok(())
        }
    }
}

fn failed(error: QueryError, args: &ExplainArgs) -> anyhow::Error {
    match error {
        QueryError::NotAnIntent(_) => UsageError(format!("--intent: not a valid intent: {error}")).into(),
        QueryError::Clock(error) => error.into(),
        QueryError::Closed(error) => error.into(),
        QueryError::Store(error) => {
            anyhow::Error::new(error).context(format!("the history of user {} cannot be read", args.user))
        }
    }
}

/// The file's bytes, `-` for stdin; of one that is too large as many as show it.
fn read_intent(path: &Path) -> anyhow::Result<Vec<u8>> {
    let limit = MAX_INTENT_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|error| UsageError(format!("--intent: {} cannot be read: {error}", path.display())))?;
    if bytes.starts_with(b"\xEF\xBB\xBF") {
        bytes.drain(..3);
    }
    Ok(bytes)
}

/// Who answers, and whether the policy has limits that instances share.
async fn query(settings: &Settings) -> anyhow::Result<(QueryService<RedisStore, ComparedClock<SystemClock>>, bool)> {
    let policy = Current::new(assemble::read_once(assemble::policy_source(settings).await).await?);
    let segments = Current::new(assemble::read_once(Ok(assemble::segment_source(settings).await)).await?);
    let (topic, fields) = (settings.kafka.intents.as_str(), assemble::fields(settings)?);
    let decider = Decider { fields, ..Decider::new(topic, segments, policy) };
    let keyspace = assemble::existing_keyspace(&settings.redis).await?;
    // A clock that was not compared is not to be relied on either, and the answer says so.
    let clock = match clocks::compared(&keyspace.options).await {
        Ok(clock) => clock,
        Err(denied @ StoreError::Fatal(_)) => return Err(denied).context("clocks cannot be compared"),
        Err(
            StoreError::Temporary(_)
            | StoreError::NotRecorded(_)
            | StoreError::TooSlow(_)
            | StoreError::LostHistory { .. },
        ) => ComparedClock::new(SystemClock),
    };
    let (store, metrics) = (keyspace.store(), Arc::new(Metrics::default()));
    let ledger = keyspace.ledger(clocks::of_ledger(&clock));
    let query = QueryService::new(&decider, EntryPoint::CommandLine, store, clock, metrics);
    let has_limits = limits_in_words(&decider.policy.get()).next().is_some();
    Ok((query.looking_at(Arc::new(ledger)), has_limits))
}
