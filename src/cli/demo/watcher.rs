//! Reads what comes out of the demo's worker, as any consumer would.

use std::time::Duration;

use anyhow::Context as _;
use rdkafka::{
    Message,
    consumer::{BaseConsumer, Consumer},
    message::Headers as _,
};
use serde_json::Value;
use weir_core::{
    basis::{header::HeaderName, time::Time},
    decision::decision_header::DecisionHeader,
    deferral::wheel::Ring,
    intent::decode::Header,
};
use weir_kafka::client::KafkaOptions;

use super::{
    gateway, reader,
    summary::{RecordKind, Summary},
};

/// How long one look waits for records.
const POLL: Duration = Duration::from_millis(100);
/// The most records of one look, so that the progress bar moves.
const LOOK: usize = 1_000;

/// A read-committed consumer of the outputs, and of the intents that are deferred by some hours.
pub(super) struct Watcher {
    consumer: BaseConsumer,
    suppressed: String,
    dead_letters: String,
    deferred: Option<String>,
}

impl Watcher {
    pub(super) fn start(options: &KafkaOptions) -> anyhow::Result<Self> {
        let mut reader = reader(options, "demo-watcher");
        let consumer: BaseConsumer =
            reader.set("enable.auto.commit", "false").create().context("the demo's consumer")?;
        let deferred = options.deferred.as_ref().map(|wheel| wheel.topic(Ring::Hours).to_owned());
        let decided = [&*options.suppressed, &options.dead_letters].into_iter().chain(deferred.as_deref());
        let topics: Vec<&str> = options.approved_topics().into_iter().chain(decided).collect();
        consumer.subscribe(&topics)?;
        let (suppressed, dead_letters) = (options.suppressed.clone(), options.dead_letters.clone());
        Ok(Self { consumer, suppressed, dead_letters, deferred })
    }

    /// Adds what has come since the last look.
    pub(super) fn read_into(&mut self, summary: &mut Summary) -> anyhow::Result<()> {
        for _ in 0..LOOK {
            let Some(message) = self.consumer.poll(POLL) else { break };
            let message = message.context("reading the demo's outputs")?;
            let value = message.payload().unwrap_or_default();
            let text = || String::from_utf8_lossy(value).into_owned();
            let header = |name: HeaderName| {
                let headers = message.headers()?;
                let found = headers.iter().find(|header| header.key == name.as_str())?;
                Some(String::from_utf8_lossy(found.value?).into_owned())
            };
            let with_headers = || match message.headers() {
                None => text(),
                Some(headers) => {
                    let shown = |name: &str, value: Option<&[u8]>| {
                        format!("  {name}: {}\n", String::from_utf8_lossy(value.unwrap_or_default()))
                    };
                    let lines: String = headers.iter().map(|header| shown(header.key, header.value)).collect();
                    format!("{}\n{}", text(), lines.trim_end())
                }
            };
            if message.topic() == self.dead_letters {
                summary.add(RecordKind::DeadLetter, "", &header(HeaderName::Reason).unwrap_or_default(), text);
            } else if Some(message.topic()) == self.deferred.as_deref() {
                let due = header(HeaderName::Due).and_then(|due| Time::from_millis(due.parse().ok()?));
                let due = due.context("a deferred record without its due time")?;
                summary.add(RecordKind::Deferred, "", &format!("until {}", shown(due)), with_headers);
            } else if message.topic() == self.suppressed {
                let envelope: Value = serde_json::from_slice(value).context("a decision envelope")?;
                let segment = envelope["segment"].as_str().unwrap_or("(none)");
                let reason = envelope["reason"].as_str().unwrap_or_default();
                let named = |what: &str| Some(format!("{what} {}", envelope[what]["name"].as_str()?));
                let why = named("cap").or_else(|| named("budget")).unwrap_or_else(|| reason.to_owned());
                summary.add(RecordKind::Suppressed, segment, &why, text);
                if let Some(budget) = envelope["budget"]["name"].as_str() {
                    summary.budget(budget).suppressed += 1;
                }
            } else {
                let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
                let headers = headers.map(|header| Header { key: header.key.as_bytes(), value: header.value });
                let decision = DecisionHeader::of(headers).context("an approved record without its decision")??;
                let segment = decision.segment.as_deref().unwrap_or("(none)");
                summary.add(RecordKind::Approved, segment, "approved", with_headers);
                for budget in decision.budgets() {
                    summary.budget(budget).approved += 1;
                }
                if message.topic() == gateway::TOPIC {
                    let decision = header(HeaderName::Decision).unwrap_or_default();
                    let decision: Value = serde_json::from_str(&decision).context("a decision")?;
                    summary.texts.approved(decision["deferred"]["why"] == "capacity");
                }
            }
        }
        Ok(())
    }
}

/// A due time, which is a full minute.
fn shown(due: Time) -> String {
    due.timestamp().strftime("%Y-%m-%d %H:%M UTC").to_string()
}
