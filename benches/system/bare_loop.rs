//! The bare loop: weir without decode, segments, policy and Redis; or, between consume and produce, the published way.
//!
//! The same consumer, producer, settings and threads (`crates/kafka`), the same batches and the same overlap: while a batch
//! is committed in its transaction, the next one is read. Every record goes out as it came. So what weir costs beyond it
//! is what weir adds; what `crates/kafka` itself costs is in both.
//!
//! Records without headers go to the client in runs, by one call for many, which no record with headers can. So another bare
//! loop writes the bytes that weir does.

use std::{
    io::Write,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use weir::{cli::assemble, config::Settings};
use weir_core::{
    basis::header::HeaderName,
    batch::record::{Destination, Job, OurHeaders, Output, OutputValue, Records, progress_of},
    ports::{Settled, Sink, Source},
};
use weir_kafka::{client::KafkaOptions, sink::KafkaSink, source::KafkaSource};
use weir_worker::lane::batch_timer::BatchTimer;

use crate::zset::SortedSets;

/// What it prints before the number of intents, and of those suppressed, of each batch that is committed.
const COMMITTED: &str = "committed ";
/// How long one wait for a commit lasts.
const WAIT: Duration = Duration::from_millis(250);

/// The work of a loop besides consuming, producing and committing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Bare,
    /// Writes what weir writes, and decides nothing: see [`envelope`].
    SameBytes,
    /// The published way.
    SortedSets,
}

impl Kind {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Drains until it is ended by a signal, or something goes wrong: it recovers from nothing.
pub fn run(config: &Path, kind: Kind) -> Result<()> {
    let settings = assemble::settings(config)?;
    let mut kafka = assemble::kafka(&settings.kafka);
    kafka.commit_interval = settings.worker.commit_interval;
    let kafka = Arc::new(kafka);
    let lanes = (0..assemble::lanes(&settings)?).map(|lane| {
        let (settings, kafka) = (settings.clone(), Arc::clone(&kafka));
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let bare = async { Bare::join(&settings, &kafka, kind, lane).await?.turns(&settings).await };
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

#[derive(Debug, Clone, Copy, Default)]
pub struct Committed {
    pub intents: u32,
    pub suppressed: u32,
    pub batches: u32,
}

impl Committed {
    /// Reads them from its output.
    pub fn told(log: &str) -> Self {
        let batches = log.lines().filter_map(|line| line.strip_prefix(COMMITTED)?.split_once(' '));
        batches.fold(Self::default(), |sum, (intents, suppressed)| Self {
            intents: sum.intents + intents.parse::<u32>().unwrap_or(0),
            suppressed: sum.suppressed + suppressed.parse::<u32>().unwrap_or(0),
            batches: sum.batches + 1,
        })
    }
}

enum Capper {
    Nobody,
    SameBytes(OurHeaders),
    SortedSets(SortedSets),
}

struct Bare {
    source: KafkaSource,
    sink: KafkaSink,
    capper: Capper,
    pace: BatchTimer,
    /// How long the batch in flight was decided, from its close on.
    decided_in: Duration,
    /// Intents of the batch in flight, and those of them that are suppressed.
    in_flight: (usize, usize),
}

impl Bare {
    async fn join(settings: &Settings, kafka: &Arc<KafkaOptions>, kind: Kind, lane: usize) -> Result<Self> {
        let source = KafkaSource::join(kafka)?;
        let mut sink = KafkaSink::new(Arc::clone(kafka), lane);
        sink.recover().await?;
        let capper = match kind {
            Kind::Bare => Capper::Nobody,
            Kind::SameBytes => Capper::SameBytes(headers()),
            Kind::SortedSets => Capper::SortedSets(SortedSets::connect(&settings.redis)?),
        };
        let pace = BatchTimer::new(settings.worker.commit_interval);
        Ok(Self { source, sink, capper, pace, decided_in: Duration::ZERO, in_flight: (0, 0) })
    }

    /// The turns of `crates/worker/src/lane.rs`, with its pace.
    async fn turns(mut self, settings: &Settings) -> Result<()> {
        let none: OurHeaders = Arc::new([]);
        let mut closed_at = Instant::now();
        loop {
            let mut batch = self.source.batch();
            let pause = self.pace.open_for().saturating_sub(closed_at.elapsed());
            let wait = pause.max(Duration::from_millis(1));
            if self.source.poll(&mut batch, settings.worker.batch, wait).await?.is_some() {
                self.collect().await?;
                self.source.settle().await?;
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
                    self.source.settle().await?;
                    continue;
                }
                closed_at = Instant::now();
            }
            let same_bytes = matches!(self.capper, Capper::SameBytes(_));
            // As many as weir approves of this load, three of four; the fourth is suppressed.
            let way = |place: usize| if place % 4 == 3 { Destination::Suppressed } else { Destination::APPROVED };
            let (ways, headers) = match &mut self.capper {
                Capper::Nobody => (vec![Destination::APPROVED; batch.len()], &none),
                Capper::SameBytes(headers) => ((0..batch.len()).map(way).collect(), &*headers),
                Capper::SortedSets(caps) => (caps.decide(&batch)?, &none),
            };
            let suppressed = ways.iter().filter(|way| **way == Destination::Suppressed).count();
            let output = |(place, to)| {
                let (value, headers) = if same_bytes && to == Destination::Suppressed {
                    (OutputValue::Ours(envelope(batch.get(place).value)), &none)
                } else {
                    (OutputValue::AsItCame, headers)
                };
                Output { to, value, headers: Arc::clone(headers) }
            };
            let outputs = ways.into_iter().enumerate().map(output).collect();
            self.collect().await?;
            if self.source.poll(&mut self.source.batch(), 0, Duration::ZERO).await?.is_some() {
                self.source.settle().await?;
                continue;
            }
            let (progress, membership) = (progress_of(&batch), self.source.membership()?);
            self.in_flight = (batch.len(), suppressed);
            self.decided_in = closed_at.elapsed();
            self.sink.submit(Job { records: batch, outputs, progress, membership });
        }
    }

    async fn collect(&mut self) -> Result<()> {
        while !self.look(WAIT).await? {}
        Ok(())
    }

    /// Whether no batch is in flight any more.
    async fn look(&mut self, wait: Duration) -> Result<bool> {
        match self.sink.wait(wait).await {
            Settled::Idle => Ok(true),
            Settled::Busy => Ok(false),
            Settled::Committed(times) => {
                self.pace.took(self.decided_in + times.produce + times.flush + times.commit);
                let (intents, suppressed) = self.in_flight;
                writeln!(std::io::stdout(), "{COMMITTED}{intents} {suppressed}")?;
                Ok(true)
            }
            Settled::Failed(error) => bail!("a commit failed: {error}"),
        }
    }
}

/// The header of an approved record, with values as long as weir's.
fn headers() -> OurHeaders {
    let decision = concat!(
        r#"{"verdict":"approved","segment":"active","decided_at":"2026-01-01T00:00:00.000Z","policy_version":"bench-1","#,
        r#""segments_version":"bench-1","class":["push","promo","campaign-12"],"numbers":[12,12]}"#,
    );
    Arc::new([(HeaderName::Decision.as_str(), decision.to_owned())])
}

/// What an envelope holds beside the intent, as long as weir's.
const ENVELOPE: &str = concat!(
    r#"{"schema":"weir.decision/2","verdict":"suppressed","reason":"cap","intent_id":"0195c0de-0000-7000-8000-000000123456","#,
    r#""user_id":"12345","segment":"active","cap":{"name":"daily","limit":4,"window":"24h","used":4},"#,
    r#""eligible_at":"2026-01-02T00:00:00.000Z","decided_at":"2026-01-01T00:00:00.000Z","policy_version":"bench-1","#,
    r#""segments_version":"bench-1","origin":{"topic":"send-intents","partition":3,"offset":123456},"intent":"#,
);

/// The bytes that weir writes around a suppressed intent.
fn envelope(intent: Option<&[u8]>) -> Vec<u8> {
    [ENVELOPE.as_bytes(), intent.unwrap_or(b"null"), b"}"].concat()
}
