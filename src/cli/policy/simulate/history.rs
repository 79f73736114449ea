//! What was sent before the first intent: from a file, or from the approved topic.

use std::sync::Arc;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::{shard::OriginMark, time::Time},
    batch::record::RecordView,
    decision::approved::{self, ApprovedRecord},
    history::deferred_send::PastSend,
    intent::{
        decode::{Header, decode},
        fields::FieldMap,
    },
};
use weir_kafka::{
    client::KafkaOptions,
    range::{Between, RangeReader},
};

use super::{
    PastSource, Replay,
    file::LineReader,
    past::{Unwrapped, unwrap_line},
};
use crate::cli::output::progress;

/// How far the time at which a record was produced may be from the time of its decision, in milliseconds: a worker's
/// clock may be as much ahead of the user's as a decision may be ahead of the clock, and a commit takes its time.
const SLACK_MS: i64 = 10 * 60 * 1000;

/// Where the history is, and which part of it is wanted.
pub(super) struct History<'h> {
    pub(super) from: &'h PastSource,
    pub(super) since: Between,
    pub(super) fields: &'h Arc<FieldMap>,
}

impl History<'_> {
    /// Has the replay remember the sends; tells how many there were.
    pub(super) fn load(&self, replay: &mut Replay, stop: &CancellationToken) -> anyhow::Result<u64> {
        match self.from {
            PastSource::File(path) => {
                let name = || format!("--approved {}: cannot be read", path.display());
                let mut reader = LineReader::open(path, stop).with_context(name)?;
                let mut sends = 0;
                while let Some(line) = reader.next().with_context(name)?
                    && !stop.is_cancelled()
                {
                    sends += self.line(line.text, replay);
                }
                Ok(sends)
            }
            PastSource::Topic(kafka, topic) => self.topic(kafka, topic, replay, stop),
        }
    }

    fn line(&self, line: &[u8], replay: &mut Replay) -> u64 {
        let Unwrapped { intent, at: decided, counts, .. } = unwrap_line(line);
        let Ok(intent) = decode(Some(intent), [], self.fields) else { return 0 };
        let time = decided.or(intent.created_at).filter(|time| counts && self.since.covers(*time));
        let Some(time) = time else { return 0 };
        let id = intent.id_hash;
        let (user, origin, cost) = (intent.user, OriginMark::RESTORED, intent.cost);
        replay.remember(&PastSend { user, id, origin, at: time, class: intent.class(), cost });
        1
    }

    fn topic(
        &self,
        kafka: &KafkaOptions,
        topic: &str,
        replay: &mut Replay,
        stop: &CancellationToken,
    ) -> anyhow::Result<u64> {
        let with_slack = |time: Option<Time>, slack_ms| time.map(|time: Time| time.plus(slack_ms));
        let Between { from, to } = self.since;
        let between = Between { from: with_slack(from, -SLACK_MS), to: with_slack(to, SLACK_MS) };
        let mut reader = RangeReader::open(kafka, topic, between)?;
        let bar =
            progress(Some(reader.records), "history {wide_bar} {human_pos}/{human_len} sends {per_sec} {eta} left");
        let mut sends = 0;
        while let Some(record) = reader.read()?
            && !stop.is_cancelled()
        {
            sends += self.record(&record, replay);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(sends)
    }

    fn record(&self, record: &RecordView<'_>, replay: &mut Replay) -> u64 {
        let headers: Vec<_> = record.header_pairs().map(|(key, value)| Header { key, value }).collect();
        let Ok(ApprovedRecord::Counts(sent)) = approved::read(record.value, headers, self.fields) else { return 0 };
        if !self.since.covers(sent.at) {
            return 0;
        }
        replay.remember(&sent.past());
        1
    }
}
