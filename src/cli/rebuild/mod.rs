//! `weir rebuild`: restores lost histories from the approved and the refunds topic.
//!
//! The order matters (docs/decisions.md): mark the shards, so that nothing more is decided on them; read the approved
//! records; wait until all that was decided before is visible, or void; read up to the end that the topic has then; take
//! the refunds; give the shards their epoch back.

mod approved;
mod args;
mod budgets;
mod commits;
mod count;
mod fill;
mod lengthen;
mod named_budgets;
mod names;
mod patient;
mod progress;
mod read;
mod readers;
mod summary;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use backon::{ConstantBuilder, Retryable};
use clap::Args;
use weir_core::{
    basis::{document::value::length, origin::Topic, time::Time},
    ports::{Clock, StoreError},
};
use weir_kafka::{
    client::KafkaOptions,
    extents::{Extent, Span, extents},
    sink, topics,
};
use weir_redis::{
    RedisOptions,
    rebuild::{self, LOCK_MS, NamesRepair, Rebuild, RebuildError, Scope},
};
use weir_worker::{
    clock::{ComparedClock, SystemClock},
    lane::ANSWERS_HOLD,
};

use self::{
    budgets::RebuildBudgets,
    fill::{Fill, RebuildTopic, ToRead, keep_lock},
    named_budgets::NamedBudgets,
    progress::Progress,
    summary::Summary,
};
use super::{
    args::{ConfigFile, TimeArg},
    assemble, clocks,
    exit::UsageError,
    output::OutputForm,
};

/// Records older than the history by up to so much are read too: their send may have been decided at a later clock than
/// the one that stamped them.
const CLOCKS_DIFFER_MS: i64 = 24 * 3600 * 1000;
/// How long a transaction may go on after its worker was last heard of.
const LAST_TRANSACTION: Duration = weir_kafka::client::TRANSACTION_TIMEOUT;

/// Arguments of `weir rebuild`.
#[derive(Debug, Args)]
pub struct RebuildArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Restore these shards, even if they have their history: 1,5-9
    #[arg(long, value_name = "LIST", value_parser = args::shards, conflicts_with = "all")]
    pub shards: Option<BTreeSet<u16>>,
    /// Restore all shards; recreate the keyspace if it was lost entirely
    #[arg(long)]
    pub all: bool,
    /// Make the history this long in a keyspace that is in use: 32d. weir goes on deciding; set redis.history afterwards
    #[arg(long, value_name = "DURATION", value_parser = length,
        conflicts_with_all = ["shards", "all", "since", "settle", "budget", "budget_used", "new_campaigns"])]
    pub history: Option<Duration>,
    /// Read from this time on instead of one history ago: RFC 3339, or how long ago (30d)
    #[arg(long, value_name = "TIME")]
    pub since: Option<TimeArg>,
    /// Parallel readers [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub readers: Option<u16>,
    /// How long earlier decisions may take to become visible: change it only if no worker runs, or none can hang
    /// [default: 80s, or more with a long session.timeout.ms]
    #[arg(long, value_name = "DURATION", value_parser = length)]
    pub settle: Option<Duration>,
    /// Skip approved records that cannot be read instead of stopping: their sends are forgotten
    #[arg(long)]
    pub skip_unreadable: bool,
    /// Count this budget again from Kafka, though it was not lost: NAME, or NAME/CAMPAIGN of one with each = "campaign". It
    /// grants nothing meanwhile. May be repeated
    #[arg(long, value_name = "NAME")]
    pub budget: Vec<String>,
    /// The cost that was approved before the approved topic begins: opens a budget that stays closed because the topic does
    /// not reach back to the start of its window. NAME or NAME/CAMPAIGN. May be repeated
    #[arg(long, value_name = "NAME=N", value_parser = args::budget_used)]
    pub budget_used: Vec<args::BudgetUsed>,
    /// Opens a budget with each = "campaign" for all campaigns that it is closed for because nothing is left that names them: they
    /// are new, and have used nothing. May be repeated
    #[arg(long, value_name = "NAME")]
    pub new_campaigns: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub output: OutputForm,
}

/// Restores and prints what was done. Run again after an error, it goes on where it stopped.
pub async fn run(args: &RebuildArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let settings = assemble::settings(&args.config.path)?;
    let kafka = Arc::new(assemble::signed_kafka(&settings.kafka).await?);
    let redis = lengthen::with_kept_history(assemble::signed_redis(&settings.redis).await?).await?;
    let fields = assemble::fields(&settings)?;
    let readers = readers(args)?;
    let begun = Instant::now();
    let now = SystemClock.now();
    let given_since = args.since.map(TimeArg::time);
    let history_ms = lengthen::history_ms(args)?.unwrap_or(redis.history_ms);
    let since = given_since.unwrap_or_else(|| now.plus(-history_ms - CLOCKS_DIFFER_MS));
    // All topics must be there before anything is marked.
    let approved = approved::extents(&kafka, since).await?;
    let refunds = there(&kafka, kafka.refunds.as_deref(), since).await?;
    let delivery_reports = there(&kafka, kafka.delivery_reports.as_deref(), since).await?;
    let clock = right_clock(&redis).await?;
    let mut fill = Fill {
        kafka: Arc::clone(&kafka),
        clock,
        fields,
        refunds,
        delivery_reports,
        readers,
        skip_unreadable: args.skip_unreadable,
        before: None,
        since,
        settle: args.settle.unwrap_or_else(|| settle_of(&kafka)),
    };
    if args.history.is_some() {
        let summary = lengthen::run(&redis, &mut fill, history_ms, now).await?;
        return summary.print(args.output, begun.elapsed(), out);
    }
    let scope = scope(args);
    let policy = assemble::read_once(assemble::policy_source(&settings).await).await?;
    let named_budgets = NamedBudgets::find(&args.budget, &args.budget_used, &args.new_campaigns, &policy)?;
    let names = match under_lock(|| begin_names(&redis, &scope)).await? {
        Some(repair) => names::repair(repair, &fill, now.plus(-redis.history_ms)).await?,
        None => 0,
    };
    let mut rebuild = under_lock(|| begin(&redis, &scope)).await?;
    let mut summary = Summary::new(&rebuild.shards, rebuild.beginning);
    summary.names_repaired = names;
    let restored = async {
        commits::restore(&mut rebuild, &kafka).await?;
        let mut budgets = RebuildBudgets::begin(&rebuild, &fill, policy, named_budgets).await?;
        restore(&mut rebuild, &fill, approved, &mut budgets, &mut summary).await?;
        Ok((budgets.has_counted, budgets.into_lines()))
    };
    let (has_counted, lines) = match restored.await {
        Ok(done) => done,
        Err(error) => {
            rebuild.leave().await;
            let why = "not all is restored, and the shards and budgets still wait: run weir rebuild again, it goes on";
            return Err(unfinished(error, why));
        }
    };
    summary.budgets = lines;
    let is_restoring = !rebuild.shards.is_empty();
    if !is_restoring && !has_counted {
        rebuild.leave().await;
        return summary.print(args.output, begun.elapsed(), out);
    }
    if is_restoring {
        summary.warn_of_gaps((now.plus(-redis.history_ms), now), given_since);
    }
    let lost = rebuild.finish().await?;
    anyhow::ensure!(lost.is_empty(), "shards {lost:?} lost their history again meanwhile: run weir rebuild again");
    summary.print(args.output, begun.elapsed(), out)
}

fn readers(args: &RebuildArgs) -> anyhow::Result<usize> {
    Ok(match args.readers {
        Some(readers) => usize::from(readers),
        None => std::thread::available_parallelism().context("the number of cores; give --readers")?.get(),
    })
}

/// Why a run stops before all is restored.
fn unfinished(error: anyhow::Error, why: &'static str) -> anyhow::Error {
    if let Some(RebuildError::TakenOver) = error.downcast_ref() {
        return error;
    }
    error.context(why)
}

fn scope(args: &RebuildArgs) -> Scope {
    match (&args.shards, args.all) {
        (Some(shards), _) => Scope::Shards(shards.clone()),
        (None, true) => Scope::All,
        (None, false) => Scope::Lost,
    }
}

/// How long Redis, or the lock of a run that was killed, is waited for.
fn patience() -> ConstantBuilder {
    ConstantBuilder::default()
        .with_delay(Duration::from_secs(1))
        .with_max_times(usize::try_from(LOCK_MS / 1000 + 10).unwrap_or(30))
}

/// The clock by which sends past the history are left out: a run does not begin by one that is wrong.
async fn right_clock(redis: &Arc<RedisOptions>) -> anyhow::Result<ComparedClock<SystemClock>> {
    let compared = (|| clocks::compared(redis)).retry(patience());
    let clock = compared.when(|error| matches!(error, StoreError::Temporary(_))).await?;
    clock.check().context("nothing was changed: weir rebuild trims histories by the clock")?;
    Ok(clock)
}

/// Does what takes the lock; waits for the lock of a run that was killed.
async fn under_lock<T, F: Future<Output = Result<T, RebuildError>>>(begin: impl FnMut() -> F) -> anyhow::Result<T> {
    let begun = begin.retry(patience());
    let begun = begun.when(|error| matches!(error, RebuildError::Store(StoreError::Temporary(_)))).await;
    begun.map_err(|error| match error {
        RebuildError::Store(StoreError::Fatal(message)) => UsageError(message).into(),
        RebuildError::Store(
            error @ (StoreError::Temporary(_)
            | StoreError::NotRecorded(_)
            | StoreError::TooSlow(_)
            | StoreError::LostHistory { .. }),
        ) => error.into(),
        RebuildError::TakenOver => error.into(),
    })
}

async fn begin_names(redis: &Arc<RedisOptions>, scope: &Scope) -> Result<Option<NamesRepair>, RebuildError> {
    rebuild::begin_names(redis, &Arc::default(), scope, assemble::new_epoch(), assemble::keyspace_seed()).await
}

async fn begin(redis: &Arc<RedisOptions>, scope: &Scope) -> Result<Rebuild, RebuildError> {
    rebuild::begin(redis, &Arc::default(), scope, assemble::new_epoch(), assemble::keyspace_seed()).await
}

/// How long a decision taken before the shards were marked may take to become visible: its answer holds for a while, its
/// commit has its time, or its worker hangs until the group has given it up, and wakes to a last transaction.
fn settle_of(kafka: &KafkaOptions) -> Duration {
    let session = Duration::from_millis(kafka.session_timeout_ms());
    ANSWERS_HOLD + session.max(sink::COMMIT_WATCHDOG) + LAST_TRANSACTION
}

async fn extents_of(kafka: &Arc<KafkaOptions>, topic: &str, since: Time) -> anyhow::Result<Vec<Extent>> {
    let topic = topic.to_owned();
    assemble::ask_kafka(kafka, move |kafka| extents(kafka, &topic, since)).await
}

/// A topic that is read beside the approved ones, if there is one: it can be read.
async fn there(kafka: &Arc<KafkaOptions>, topic: Option<&str>, since: Time) -> anyhow::Result<Option<Topic>> {
    let Some(topic) = topic else { return Ok(None) };
    extents_of(kafka, topic, since).await?;
    Ok(Some(identify(kafka, topic).await?.0))
}

async fn identify(kafka: &Arc<KafkaOptions>, topic: &str) -> anyhow::Result<(Topic, Vec<i32>)> {
    let topic = topic.to_owned();
    assemble::ask_kafka(kafka, move |kafka| topics::identify(kafka, &topic)).await
}

fn spans(extents: &[Extent], next: &BTreeMap<i32, i64>) -> Vec<Span> {
    let span = |extent: &Extent| {
        let from = next.get(&extent.partition).map_or(extent.since, |next| extent.low.max(*next));
        Span { partition: extent.partition, from, to: extent.high }
    };
    extents.iter().map(span).collect()
}

/// From the marked shards to all that they have to hold. `approved`: what was on the approved topics before they were marked.
async fn restore(
    rebuild: &mut Rebuild,
    fill: &Fill,
    approved: Vec<Extent>,
    budgets: &mut RebuildBudgets,
    summary: &mut Summary,
) -> anyhow::Result<()> {
    let is_restoring = !rebuild.shards.is_empty();
    if !is_restoring && !budgets.is_counting() {
        return Ok(());
    }
    let mut progress = Progress::new("sends");
    if is_restoring {
        summary.begins(&approved, (&rebuild.progress, &rebuild.first));
        let first = ToRead { source: RebuildTopic::Approved, spans: spans(&approved, &rebuild.progress) };
        fill.run(rebuild, first, &mut progress, summary).await?;
    }
    budgets.count(rebuild, fill).await?;

    let settled = budgets.settled_at(is_restoring.then_some(rebuild.marked_at), fill.settle);
    wait_until(rebuild, &fill.clock, settled, &mut progress).await?;
    if is_restoring {
        let spans = spans(&approved::extents(&fill.kafka, fill.since).await?, &rebuild.progress);
        let last = ToRead { source: RebuildTopic::Approved, spans };
        fill.run(rebuild, last, &mut progress, summary).await?;
    }
    progress.done();
    budgets.count(rebuild, fill).await?;
    budgets.write(rebuild, fill).await?;
    summary.warn_of_gone(budgets.gone);
    if !is_restoring {
        return Ok(());
    }

    take_refunds(rebuild, fill, summary).await
}

/// Takes all refunds. From here on nothing is put back any more, in this run or one that goes on with it: what a refund takes stays taken.
async fn take_refunds(rebuild: &mut Rebuild, fill: &Fill, summary: &mut Summary) -> anyhow::Result<()> {
    let kafka = &fill.kafka;
    for (source, topic, what) in [
        (RebuildTopic::Refunds, &kafka.refunds, "refunds"),
        (RebuildTopic::DeliveryReports, &kafka.delivery_reports, "reports"),
    ] {
        let Some(topic) = topic else { continue };
        let mut progress = Progress::new(what);
        let spans = spans(&extents_of(kafka, topic, fill.since).await?, &BTreeMap::new());
        fill.run(rebuild, ToRead { source, spans }, &mut progress, summary).await?;
        progress.done();
    }
    Ok(())
}

/// Waits for a time, keeping the lock.
async fn wait_until(
    rebuild: &mut Rebuild,
    clock: &impl Clock,
    time: Time,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    loop {
        let left_ms = time.millis() - clock.time_to_decide(&[])?.millis();
        if left_ms <= 0 {
            return Ok(());
        }
        progress.waiting(Duration::from_millis(left_ms.unsigned_abs()));
        keep_lock(rebuild).await?;
        tokio::time::sleep(Duration::from_millis(left_ms.unsigned_abs().min(1000))).await;
    }
}
