//! How long an intent takes to come out: `cargo xtask bench latency`.
//!
//! Intents are published at an even pace by a client with its own defaults (it gathers records for 5 ms), and read back
//! from approved and suppressed by a `read_committed` consumer. Each case is measured of the bare loop and of weir, which
//! take turns in being first. An intent's time counts from the moment at which it was due to be published, which is its
//! record's timestamp, so that a publisher that falls behind does not hide it. Each case has topics, a group and a
//! keyspace of its own.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rdkafka::{Message, Offset, TopicPartitionList, consumer::Consumer};
use testkit::{kafka::BoundedConsumer, unique, wait_for, worker::Worker};
use weir_core::ports::Clock;
use weir_worker::clock::SystemClock;

use crate::{
    Settings,
    bare_loop::Kind,
    drain,
    report::{median, quantile, table},
    rounds,
    servers::{OUTPUTS, Run, Servers, WEIR},
    workload::{Workload, id},
};

/// How long a start, and the last intents, may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Intents of this long after the start are seen, but not among the figures: a worker that has just started takes up to 4 s until
/// its tail is what it stays.
const WARM_UP: Duration = Duration::from_secs(6);
/// Between two looks of the publisher at the clock.
const TICK: Duration = Duration::from_millis(1);
/// An intent's id ends in its number, of so many digits.
const NUMBER_DIGITS: usize = 12;

/// What is measured: weir as it is started, with a lane per core.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("lanes", |lanes| lanes.default_value("0")))]
pub struct Load {
    /// Intents per second, a case each
    #[arg(long, value_delimiter = ',', default_values_t = [2_000, 5_000], value_parser = clap::value_parser!(u32).range(100..=50_000))]
    rates: Vec<u32>,
    /// worker.commit_interval in milliseconds, a case each
    #[arg(long, value_delimiter = ',', default_values_t = [20, 50, 100], value_parser = clap::value_parser!(u32).range(1..=10_000))]
    intervals_ms: Vec<u32>,
    /// How long intents are published in each case and round, without the warm-up
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How long intents are published before the first case: a broker that has just started interprets its code, and takes
    /// cores to compile it
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=600))]
    warm_up_seconds: u32,
    #[command(flatten)]
    pub settings: Settings,
}

/// p99 that goal 5 allows for a commit interval, both in milliseconds.
const GOALS_MS: [(u32, f64); 3] = [(20, 60.0), (50, 80.0), (100, 120.0)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    /// The bare loop, at weir's pace: what the brokers and the clients take.
    BareLoop,
    Weir,
}

#[derive(Debug, Clone)]
struct Case {
    between: Between,
    commit_interval_ms: u32,
    per_s: u32,
    sent: usize,
    p50_ms: f64,
    p99_ms: f64,
}

/// Fails also where not every intent comes out once.
pub fn run(load: &Load) -> Result<String> {
    let servers = Servers::start_as_shipped(&load.settings, load.settings.workload())?;
    warm_up(&servers, load)?;
    let mut rounds = Vec::new();
    for round in 1..=load.settings.rounds {
        for &rate in &load.rates {
            for &interval_ms in &load.intervals_ms {
                eprintln!("round {round}: {rate} intents/s, commit_interval {interval_ms} ms");
                let mut both = [Between::BareLoop, Between::Weir];
                // Who comes second finds a broker that has compiled more of its code, and more records behind.
                if round % 2 == 0 {
                    both.reverse();
                }
                for between in both {
                    rounds.push(case(&servers, load, (rate, interval_ms), between)?);
                }
            }
        }
    }
    let mut cases = Vec::new();
    for &per_s in &load.rates {
        for &commit_interval_ms in &load.intervals_ms {
            for between in [Between::BareLoop, Between::Weir] {
                let of = |case: &&Case| {
                    (case.per_s, case.commit_interval_ms, case.between) == (per_s, commit_interval_ms, between)
                };
                cases.extend(Case::median(&rounds.iter().filter(of).collect::<Vec<_>>()));
            }
        }
    }
    Ok(format!("{}\n{}", servers.machine, text(load, &cases)))
}

impl Case {
    /// The medians of the rounds of one case; none of none.
    fn median(rounds: &[&Self]) -> Option<Self> {
        let of = |figure: fn(&Self) -> f64| median(&rounds.iter().map(|round| figure(round)).collect::<Vec<_>>());
        let first = (*rounds.first()?).clone();
        Some(Self { p50_ms: of(|case| case.p50_ms), p99_ms: of(|case| case.p99_ms), ..first })
    }
}

/// Drains the backlog, and then runs one case and discards its figures.
fn warm_up(servers: &Servers, load: &Load) -> Result<()> {
    eprintln!("a drain and {} s of intents to warm up", load.warm_up_seconds);
    let (run, mut process) = servers.weir("warm", |config| config)?;
    drain::watch(servers, &run, &mut process, || Ok(()))?;
    drain::end(process)?;
    let (Some(rate), Some(interval_ms)) = (load.rates.iter().max(), load.intervals_ms.iter().min()) else {
        return Ok(());
    };
    let longer = Load { seconds: load.warm_up_seconds, ..load.clone() };
    case(servers, &longer, (*rate, *interval_ms), Between::Weir).map(drop)
}

fn case(servers: &Servers, load: &Load, (rate, interval_ms): (u32, u32), between: Between) -> Result<Case> {
    servers.flush_redis()?;
    let mut run = servers.run("latency")?;
    let prefix = unique("paced-");
    let topic = |name: &str| name.replacen("send-", &prefix, 1);
    let worker = format!("[worker]\ncommit_interval = \"{interval_ms}ms\"\n");
    run.config = topic_names(&run, servers, &topic).replacen("[worker]\n", &worker, 1);
    let outputs: Vec<String> = OUTPUTS.iter().map(|name| topic(name)).collect();
    let intents = topic(servers.intents());
    for name in outputs.iter().chain([&intents]) {
        servers.kafka.create_topic(name, load.settings.partitions)?;
    }
    servers.create_keyspace(&run, WEIR)?;
    let process = match between {
        Between::BareLoop => rounds::start_loop(&run, Kind::Bare)?,
        Between::Weir => Worker::run(Path::new(WEIR), &run.config)?,
    };
    wait_joined(servers, &run)?;
    let pace = Pace::of(load, servers, rate);
    let seen = paced(servers, &pace, &intents, &outputs)?;
    drain::end(process)?;

    let mut times_ms = seen[pace.warm_up()..].to_vec();
    times_ms.sort_by(f64::total_cmp);
    let [p50_ms, p99_ms] = [0.5, 0.99].map(|share| quantile(&times_ms, share));
    Ok(Case { between, commit_interval_ms: interval_ms, per_s: rate, sent: seen.len(), p50_ms, p99_ms })
}

/// The run's configuration with other topics.
fn topic_names(run: &Run, servers: &Servers, topic: &impl Fn(&str) -> String) -> String {
    let quoted = |name: &str| format!("\"{name}\"");
    let names = OUTPUTS.into_iter().chain([servers.intents()]);
    names.fold(run.config.clone(), |config, name| config.replacen(&quoted(name), &quoted(&topic(name)), 1))
}

/// Waits until all lanes are in the run's group and have their partitions.
fn wait_joined(servers: &Servers, run: &Run) -> Result<()> {
    let asking: BoundedConsumer = servers.kafka.client().config().create()?;
    let lanes = servers.settings().lane_count();
    let joined = wait_for(PATIENCE, || {
        let groups = asking.fetch_group_list(Some(&run.group), PATIENCE).ok()?;
        groups.groups().iter().find(|group| group.state() == "Stable" && group.members().len() == lanes).map(|_| ())
    });
    joined.context("not all lanes join the group")
}

/// What is published, and when.
struct Pace {
    workload: Workload,
    partitions: i32,
    rate: u32,
}

impl Pace {
    fn of(load: &Load, servers: &Servers, rate: u32) -> Self {
        let seconds = load.seconds + u32::try_from(WARM_UP.as_secs()).unwrap_or(u32::MAX);
        let workload = Workload { intents: rate * seconds, ..servers.workload };
        Self { workload, partitions: load.settings.partitions, rate }
    }

    /// How many of them are not among the figures.
    fn warm_up(&self) -> usize {
        self.rate as usize * WARM_UP.as_secs() as usize
    }

    /// When one is due, from the first on.
    fn due(&self, number: usize) -> Duration {
        Duration::from_secs_f64(number as f64 / f64::from(self.rate))
    }
}

/// Publishes and reads back; the milliseconds that each took, in the order of publishing.
fn paced(servers: &Servers, pace: &Pace, intents: &str, outputs: &[String]) -> Result<Vec<f64>> {
    let consumer = reader(servers, outputs)?;
    let began = Instant::now();
    let gone = AtomicBool::new(false);
    let arrived = thread::scope(|scope| {
        let reading = scope.spawn(|| read(&consumer, pace, began, &gone));
        let published = publish(servers, pace, intents, began);
        gone.store(true, Ordering::Relaxed);
        let read = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        published.and(read)
    })?;
    let times = arrived.iter().enumerate().map(|(number, at)| at.saturating_sub(pace.due(number)).as_secs_f64() * 1e3);
    Ok(times.collect())
}

fn publish(servers: &Servers, pace: &Pace, intents: &str, began: Instant) -> Result<()> {
    let publisher = servers.kafka.client().publisher(intents)?;
    // From the clock by which they are due to that of the record.
    let began_at_ms = SystemClock.now().millis() - i64::try_from(began.elapsed().as_millis())?;
    for (number, intent) in pace.workload.records(pace.partitions).enumerate() {
        let due = pace.due(number);
        while began.elapsed() < due {
            publisher.serve(Instant::now());
            thread::park_timeout(TICK.min(due.saturating_sub(began.elapsed())));
        }
        let at_ms = began_at_ms + i64::try_from(due.as_millis())?;
        publisher.send(&intent.timestamp_ms(at_ms))?;
    }
    publisher.finish()
}

/// Reads all that comes out to these topics.
fn reader(servers: &Servers, outputs: &[String]) -> Result<BoundedConsumer> {
    let client = servers.kafka.client();
    let mut config = client.config();
    config
        .set("group.id", unique("reader"))
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed");
    let consumer: BoundedConsumer = config.set("fetch.wait.max.ms", "100").create()?;
    let mut partitions = TopicPartitionList::new();
    for topic in outputs {
        for partition in 0..client.partitions(topic)? {
            partitions.add_partition_offset(topic, partition, Offset::Beginning)?;
        }
    }
    consumer.assign(&partitions)?;
    Ok(consumer)
}

/// When each came, from `began` on, in the order of publishing. It gives up some time after the last was published.
fn read(consumer: &BoundedConsumer, pace: &Pace, began: Instant, gone: &AtomicBool) -> Result<Vec<Duration>> {
    let count = pace.workload.intents as usize;
    let mark = id(0);
    let mark = &mark[..mark.len() - NUMBER_DIGITS];
    let mut arrived: Vec<Option<Duration>> = vec![None; count];
    let (mut seen, mut last_at) = (0, Instant::now());
    while seen < count {
        let may_come = !gone.load(Ordering::Relaxed) || last_at.elapsed() < PATIENCE;
        ensure!(may_come, "{seen} of {count} intents came out, and then none for {PATIENCE:?}");
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message?;
        let value = String::from_utf8_lossy(message.payload().unwrap_or_default());
        let (_, rest) = value.split_once(mark).with_context(|| format!("what came out is of no intent: {value}"))?;
        let number: usize = rest.get(..NUMBER_DIGITS).unwrap_or_default().parse()?;
        let place = arrived.get_mut(number).with_context(|| format!("nobody sent intent {number}"))?;
        ensure!(place.replace(began.elapsed()).is_none(), "intent {number} came out twice");
        (seen, last_at) = (seen + 1, Instant::now());
    }
    Ok(arrived.into_iter().flatten().collect())
}

fn text(load: &Load, cases: &[Case]) -> String {
    let Settings { partitions, rounds, .. } = load.settings;
    let (seconds, lanes) = (load.seconds, load.settings.lane_count());
    let head = ["intents/s", "commit_interval, ms", "", "sent = seen", "p50, ms", "p99, ms"];
    let row = |&Case { between, commit_interval_ms, per_s, sent, p50_ms, p99_ms }: &Case| {
        let between = if between == Between::Weir { "weir" } else { "bare loop" };
        let [per_s, interval, sent] = [per_s.to_string(), commit_interval_ms.to_string(), sent.to_string()];
        [per_s, interval, between.to_owned(), sent, format!("{p50_ms:.1}"), format!("{p99_ms:.1}")]
    };
    let goals = cases.chunks(2).filter_map(|both| if let [bare, weir] = both { goal(bare, weir) } else { None });
    format!(
        "load: {seconds} s per case and round after {WARM_UP:?} of warm-up, medians of {rounds} round(s), {partitions} partitions, \
         {lanes} lane(s)\n\n{}\n\n{}",
        table(head, cases.iter().map(row)),
        goals.collect::<String>()
    )
}

/// What goal 5 says of a case, where it says something, and of the bare loop beside it.
fn goal(bare: &Case, weir: &Case) -> Option<String> {
    let Case { per_s, commit_interval_ms, p99_ms, .. } = weir;
    let (_, most) = GOALS_MS.iter().find(|(interval, _)| interval == commit_interval_ms)?;
    let verdict = if p99_ms <= most { "met" } else { "not met" };
    Some(format!(
        "goal 5: p99 at {per_s} intents/s and {commit_interval_ms} ms, ms: {p99_ms:.0}, wanted at most {most:.0}: {verdict}; \
         the bare loop takes {:.0}\n",
        bare.p99_ms
    ))
}
