//! The bare loop: weir without decode, segments, policy and Redis; or, between consume and produce, the published way.
//!
//! The same consumer, producer, settings and threads (`edge/kafka`), the same batches and the same overlap: while a batch
//! is committed in its transaction, the next one is read. Every record goes out as it came. So what weir costs beyond it
//! is what weir adds; what `edge/kafka` itself costs is in both.

use std::{
    io::Write,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use weir::{
    cli::assemble,
    config::Settings,
    edge::kafka::{client::KafkaOptions, sink::KafkaSink, source::KafkaSource},
    worker::{
        ports::{Settled, Sink, Source, where_committed},
        record::{Destination, Job, Output, OutputValue, Records, progress_of},
    },
};

use crate::{async_client::AsyncClient, zset::SortedSets};

/// What it prints before the number of intents, and of those suppressed, of each batch that is committed.
const COMMITTED: &str = "committed ";
/// How long one wait for a commit lasts.
const WAIT: Duration = Duration::from_millis(250);

/// What is between consume and produce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Caps {
    /// Nothing.
    None,
    /// The published way.
    SortedSets,
    /// The same script, one call at a time over an async client.
    AsyncClient,
}

/// Drains until it is ended by a signal.
///
/// # Errors
/// Anything that goes wrong: it recovers from nothing.
pub fn run(config: &Path, caps: Caps) -> Result<()> {
    let settings = assemble::settings(config)?;
    let kafka = Arc::new(assemble::kafka(&settings.kafka));
    let lanes = (0..assemble::lanes(&settings)?).map(|lane| {
        let (settings, kafka) = (settings.clone(), Arc::clone(&kafka));
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let bare = async { Bare::join(&settings, &kafka, caps, lane).await?.turns(&settings).await };
            runtime.block_on(bare)
        };
        thread::Builder::new().name(format!("lane-{lane}")).spawn(work)
    });
    let lanes = lanes.collect::<Result<Vec<_>, _>>().context("no thread for a lane")?;
    for lane in lanes {
        lane.join().map_err(|_| anyhow!("a lane panicked"))??;
    }
    Ok(())
}

/// What a loop has committed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Committed {
    /// Intents.
    pub intents: u32,
    /// Those of them that were suppressed.
    pub suppressed: u32,
    /// Batches.
    pub batches: u32,
}

impl Committed {
    /// What its output says.
    pub fn told(log: &str) -> Self {
        let batches = log.lines().filter_map(|line| line.strip_prefix(COMMITTED)?.split_once(' '));
        batches.fold(Self::default(), |sum, (intents, suppressed)| Self {
            intents: sum.intents + intents.parse::<u32>().unwrap_or(0),
            suppressed: sum.suppressed + suppressed.parse::<u32>().unwrap_or(0),
            batches: sum.batches + 1,
        })
    }
}

/// Who decides.
enum Capper {
    Nobody,
    SortedSets(SortedSets),
    AsyncClient(AsyncClient),
}

struct Bare {
    source: KafkaSource,
    sink: KafkaSink,
    capper: Capper,
    /// Intents of the batch in flight, and those of them that are suppressed.
    in_flight: (usize, usize),
}

impl Bare {
    async fn join(settings: &Settings, kafka: &Arc<KafkaOptions>, caps: Caps, lane: usize) -> Result<Self> {
        let source = KafkaSource::join(kafka)?;
        let mut sink = KafkaSink::new(Arc::clone(kafka), lane);
        sink.recover().await?;
        let capper = match caps {
            Caps::None => Capper::Nobody,
            Caps::SortedSets => Capper::SortedSets(SortedSets::connect(&settings.redis)?),
            Caps::AsyncClient => Capper::AsyncClient(AsyncClient::connect(&settings.redis).await?),
        };
        Ok(Self { source, sink, capper, in_flight: (0, 0) })
    }

    /// The turns of `worker/lane.rs`, with its pace.
    async fn turns(mut self, settings: &Settings) -> Result<()> {
        let headers: Arc<[(&'static str, String)]> = Arc::new([]);
        let mut closed_at = Instant::now();
        loop {
            let mut batch = self.source.batch();
            let pause = settings.worker.commit_interval.saturating_sub(closed_at.elapsed());
            let wait = pause.max(Duration::from_millis(1));
            if self.source.poll(&mut batch, settings.worker.batch, wait).await?.is_some() {
                self.collect().await?;
                self.source.settle(&where_committed).await?;
                continue;
            }
            closed_at = Instant::now();
            if batch.is_empty() {
                self.look(Duration::ZERO).await?;
                continue;
            }
            if !self.source.is_full(&batch, settings.worker.batch) && !self.look(Duration::ZERO).await? {
                self.collect().await?;
                if self.source.poll(&mut batch, settings.worker.batch, Duration::ZERO).await?.is_some() {
                    self.source.settle(&where_committed).await?;
                    continue;
                }
                closed_at = Instant::now();
            }
            let ways = match &mut self.capper {
                Capper::Nobody => vec![Destination::Approved; batch.len()],
                Capper::SortedSets(caps) => caps.decide(&batch)?,
                Capper::AsyncClient(caps) => caps.decide(&batch).await?,
            };
            let suppressed = ways.iter().filter(|way| **way == Destination::Suppressed).count();
            let output = |to| Output { to, value: OutputValue::AsItCame, headers: Arc::clone(&headers) };
            let outputs = ways.into_iter().map(output).collect();
            self.collect().await?;
            if self.source.poll(&mut self.source.batch(), 0, Duration::ZERO).await?.is_some() {
                self.source.settle(&where_committed).await?;
                continue;
            }
            let (progress, membership) = (progress_of(&batch), self.source.membership()?);
            self.in_flight = (batch.len(), suppressed);
            self.sink.submit(Job { records: batch, outputs, progress, membership });
        }
    }

    /// Waits for the batch in flight.
    async fn collect(&mut self) -> Result<()> {
        while !self.look(WAIT).await? {}
        Ok(())
    }

    /// Whether no batch is in flight any more.
    async fn look(&mut self, wait: Duration) -> Result<bool> {
        match self.sink.wait(wait).await {
            Settled::Idle => Ok(true),
            Settled::Busy => Ok(false),
            Settled::Committed(_) => {
                let (intents, suppressed) = self.in_flight;
                writeln!(std::io::stdout(), "{COMMITTED}{intents} {suppressed}")?;
                Ok(true)
            }
            Settled::Failed(error) => bail!("a commit failed: {error}"),
        }
    }
}
