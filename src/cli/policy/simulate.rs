//! `weir policy simulate`: replays past intents against one policy or two, and tells what would become of them.

mod args;
mod file;
mod history;
mod page;
mod past;
mod plots;
mod side;
mod text;
mod topic;

use std::{io::Write, path::Path, sync::Arc};

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::{time::Time, zone::Zone},
    batch::{decider::Undecided, record::Records as _},
    history::deferred_send::PastSend,
    replay::{ReplaySource, Replayed},
};
use weir_kafka::{client::KafkaOptions, range::Between};

use self::{args::Plan, history::History, past::Batch, side::Side};
use crate::cli::output::{OutputForm, print_json, progress};
pub use args::SimulateArgs;

#[derive(Debug, Clone)]
enum PastSource {
    /// A file of lines; `-` is standard input.
    File(std::path::PathBuf),
    Topic(Arc<KafkaOptions>, String),
}

impl std::fmt::Display for PastSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) if path == Path::new("-") => f.write_str("standard input"),
            Self::File(path) => path.display().fmt(f),
            Self::Topic(_, topic) => write!(f, "topic {topic}"),
        }
    }
}

/// Puts the next intents into a batch; none at the end.
type NextIntents = Box<dyn FnMut(&mut Batch) -> anyhow::Result<()>>;

/// The intents, batch by batch.
struct Input {
    /// The time of the first one.
    first: Option<Time>,
    /// How many there are, at most.
    records: u64,
    next: NextIntents,
}

/// Replays and reports; prints to `out`, and writes the files that were asked for.
pub async fn simulate(args: &SimulateArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let plan = args.plan(&stop).await?;
    let names = plan.names.clone();
    let working = tokio::task::spawn_blocking({
        let stop = stop.clone();
        move || replay(plan, &stop)
    });
    let (replayed, source) = tokio::select! {
        done = working => done.context("the replay")??,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("waiting for Ctrl-C")?;
            stop.cancel();
            anyhow::bail!("interrupted before the end: nothing was written");
        }
    };
    let report = replayed.report(source, &names, args.show_users);
    if let Some(path) = &args.html {
        std::fs::write(path, page::page(&report)?).with_context(|| cannot_write("--html", path))?;
    }
    if let Some(path) = &args.changed_users {
        write_users(path, &replayed).with_context(|| cannot_write("--changed-users", path))?;
    }
    match args.output {
        OutputForm::Text => Ok(write!(out, "{}", text::text(&report))?),
        OutputForm::Json => print_json(&report, out),
    }
}

fn cannot_write(option: &str, path: &Path) -> String {
    format!("{option} {}: cannot be written; check the folder and its rights", path.display())
}

/// All users for whom the policies differ, as CSV.
fn write_users(path: &Path, replayed: &Replayed) -> anyhow::Result<()> {
    let mut file = csv::Writer::from_path(path)?;
    file.write_record(["user_id", "segment", "approved", "approved_against"])?;
    for (user_id, segment, [policy, against]) in replayed.changed_users() {
        file.write_record([user_id, segment.unwrap_or(""), &policy.to_string(), &against.to_string()])?;
    }
    file.flush()?;
    Ok(())
}

/// Reads the history and the intents, and judges them.
fn replay(plan: Plan, stop: &CancellationToken) -> anyhow::Result<(Replayed, ReplaySource)> {
    let mut source = ReplaySource { intents: plan.intents.to_string(), ..ReplaySource::default() };
    let Input { first, records, mut next } = match &plan.intents {
        PastSource::File(path) => file::input(path, &plan, &mut source, stop)?,
        PastSource::Topic(kafka, topic) => topic::input(kafka, topic, plan.between)?,
    };
    let mut replay = Replay::new(&plan, first.unwrap_or_default());
    if let (Some(first), Some(approved)) = (first, &plan.approved) {
        let since = Between { from: Some(first.plus(-plan.bounds.retention_ms)), to: Some(first) };
        source.history_sends =
            History { from: approved, since, fields: &plan.approved_fields }.load(&mut replay, stop)?;
        source.history = Some(approved.to_string());
    }
    let bar = progress(Some(records), "replaying {wide_bar} {human_pos}/{human_len} intents {per_sec} {eta} left");
    let mut batch = Batch::default();
    loop {
        next(&mut batch)?;
        if batch.taken == 0 || stop.is_cancelled() {
            break;
        }
        bar.inc(batch.taken);
        replay.judge(&batch, &mut source);
    }
    bar.finish_and_clear();
    plan.notes(&mut source);
    Ok((replay.finish(&plan, &mut source), source))
}

/// Intents, judged by each policy side by side.
struct Replay {
    sides: Vec<Side>,
    /// What was read. The tallies follow at the end.
    replayed: Replayed,
    /// The time of the last intent that told one.
    last: Time,
}

impl Replay {
    /// `first`: the time of the first intent.
    fn new(plan: &Plan, first: Time) -> Self {
        let zone = plan.policies.first().map_or_else(Zone::utc, |policy| policy.timezone.clone());
        let sides = plan.policies.iter().map(|policy| Side::new(plan, policy, zone.clone(), first));
        let replayed = Replayed::new(Arc::clone(&plan.segments));
        Self { sides: sides.collect(), replayed, last: Time::default() }
    }

    /// Counts a send of before the first intent, under each policy.
    fn remember(&mut self, send: &PastSend<'_>) {
        for side in &mut self.sides {
            side.remember(send);
        }
    }

    fn judge(&mut self, batch: &Batch, source: &mut ReplaySource) {
        let records = batch.all();
        let Some(first) = self.sides.first() else { return };
        let decoded = first.decode(&records);
        source.records += decoded.len() as u64;
        let mut times = Vec::with_capacity(decoded.len());
        for (index, decoded) in decoded.iter().enumerate() {
            match decoded {
                Ok(intent) => {
                    self.last = records.get(index).timestamp.or(intent.created_at).unwrap_or(self.last);
                    self.replayed.read(intent, self.last);
                }
                Err(Undecided::Invalid(letter)) => source.dead_letter(letter.reason),
                // The records are intents.
                Err(Undecided::Retry(_)) => {}
            }
            times.push(self.last);
        }
        self.on_each_side(|side| side.judge(batch, &decoded, &times));
    }

    /// Each policy has its own histories, so they are judged side by side.
    fn on_each_side(&mut self, judge: impl Fn(&mut Side) + Sync) {
        let Some((first, others)) = self.sides.split_first_mut() else { return };
        std::thread::scope(|scope| {
            let judge = &judge;
            for side in others {
                scope.spawn(move || judge(side));
            }
            judge(first);
        });
    }

    /// What was counted. The replay ends with the last intent, or with `--to`: what is due later is still deferred.
    fn finish(mut self, plan: &Plan, source: &mut ReplaySource) -> Replayed {
        let until = plan.between.to.map_or(self.last, |to| to.plus(-1));
        self.on_each_side(|side| side.release(until));
        for (mut side, name) in self.sides.into_iter().zip(&plan.names) {
            source.notes.extend(side.tally.routes.notes().map(|note| format!("under {name}, {note}")));
            if let Some((count, due)) = side.still_deferred() {
                side.tally.deferred.intents += count;
                side.tally.deferred.waiting = count;
                source.notes.push(format!(
                    "under {name}, {count} intents are still deferred at the end and have no verdict; the last of them is \
                     due at {due}, so that an --until after that decides them, too"
                ));
            }
            self.replayed.tallies.push(side.tally);
        }
        self.replayed
    }
}
