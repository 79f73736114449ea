//! The bare loop: weir without decode, segments, policy and Redis.
//!
//! The same consumer, producer, settings and threads (`edge/kafka`), the same batches and the same overlap: while a batch
//! is committed in its transaction, the next one is read. Every record goes to the approved topic as it came. So what
//! weir costs beyond it is what weir adds; what `edge/kafka` itself costs is in both.

use std::{
    collections::BTreeMap,
    io::Write,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use weir::{
    cli::assemble,
    config::Settings,
    edge::kafka::{client::KafkaOptions, sink::KafkaSink, source::KafkaSource},
    worker::{
        ports::{Settled, Sink, Source},
        record::{Destination, Job, Output, OutputValue, Progress, Records},
    },
};

/// What it prints before the size of each batch that is committed.
const COMMITTED: &str = "committed ";
/// How long one wait for a commit lasts.
const WAIT: Duration = Duration::from_millis(250);

/// Drains until it is ended by a signal.
///
/// # Errors
/// Anything that goes wrong: it recovers from nothing.
pub fn run(config: &Path) -> Result<()> {
    let settings = assemble::settings(config)?;
    let kafka = Arc::new(assemble::kafka(&settings.kafka));
    let lanes = (0..assemble::lanes(&settings)?).map(|lane| {
        let (settings, kafka) = (settings.clone(), Arc::clone(&kafka));
        thread::Builder::new().name(format!("lane-{lane}")).spawn(move || Bare::join(&kafka, lane)?.turns(&settings))
    });
    let lanes = lanes.collect::<Result<Vec<_>, _>>().context("no thread for a lane")?;
    for lane in lanes {
        lane.join().map_err(|_| anyhow!("a lane panicked"))??;
    }
    Ok(())
}

/// The sizes of the batches that a bare loop has told of.
pub fn committed(log: &str) -> Vec<usize> {
    log.lines().filter_map(|line| line.strip_prefix(COMMITTED)?.parse().ok()).collect()
}

struct Bare {
    source: KafkaSource,
    sink: KafkaSink,
    in_flight: usize,
}

impl Bare {
    fn join(kafka: &Arc<KafkaOptions>, lane: usize) -> Result<Self> {
        let source = KafkaSource::join(kafka)?;
        let mut sink = KafkaSink::new(Arc::clone(kafka), lane);
        sink.recover()?;
        Ok(Self { source, sink, in_flight: 0 })
    }

    /// The turns of `worker/lane.rs`, with its pace.
    fn turns(mut self, settings: &Settings) -> Result<()> {
        let headers: Arc<[(&'static str, String)]> = Arc::new([]);
        let mut submitted_at = Instant::now();
        loop {
            let mut batch = self.source.batch();
            let pause = settings.worker.commit_interval.saturating_sub(submitted_at.elapsed());
            let wait = pause.max(Duration::from_millis(1));
            if self.source.poll(&mut batch, settings.worker.batch, wait)?.is_some() {
                self.collect()?;
                self.source.settle()?;
                continue;
            }
            if batch.is_empty() {
                self.look(Duration::ZERO)?;
                submitted_at = Instant::now();
                continue;
            }
            let output =
                Output { to: Destination::Approved, value: OutputValue::AsItCame, headers: Arc::clone(&headers) };
            let outputs = vec![output; batch.len()];
            self.collect()?;
            if self.source.poll(&mut self.source.batch(), 0, Duration::ZERO)?.is_some() {
                self.source.settle()?;
                continue;
            }
            let (progress, membership) = (progress_of(&batch), self.source.membership()?);
            submitted_at = Instant::now();
            self.in_flight = batch.len();
            self.sink.submit(Job { records: batch, outputs, progress, membership });
        }
    }

    /// Waits for the batch in flight.
    fn collect(&mut self) -> Result<()> {
        while !self.look(WAIT)? {}
        Ok(())
    }

    /// Whether no batch is in flight any more.
    fn look(&mut self, wait: Duration) -> Result<bool> {
        match self.sink.wait(wait) {
            Settled::Idle => Ok(true),
            Settled::Busy => Ok(false),
            Settled::Committed(_) => {
                writeln!(std::io::stdout(), "{COMMITTED}{}", self.in_flight)?;
                Ok(true)
            }
            Settled::Failed(error) => bail!("a commit failed: {error}"),
        }
    }
}

fn progress_of(records: &impl Records) -> Vec<Progress> {
    let mut next = BTreeMap::new();
    for index in 0..records.len() {
        let record = records.get(index);
        next.insert(record.partition, record.offset + 1);
    }
    next.into_iter().map(|(partition, next_offset)| Progress { partition, next_offset }).collect()
}
