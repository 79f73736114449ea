//! How large records are: what comes in, and what weir makes of it.

use anyhow::{Context, Result};
use serde::Serialize;
use testkit::kafka::Consumed;

use crate::servers::Servers;

/// Bytes of a record in the mean: key, value and headers, without Kafka's own frame.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sizes {
    pub intent_bytes: f64,
    /// The headers that weir adds to an approved one.
    pub approved_headers_bytes: f64,
    /// What the envelope of a suppressed one has around its intent.
    pub envelope_bytes: f64,
}

impl Sizes {
    /// Looks at what the rounds have written.
    pub fn measure(servers: &Servers) -> Result<Self> {
        let [approved, suppressed, _] = servers.outputs();
        let client = servers.kafka.client();
        let intent = mean(&client.read_committed(servers.intents())?, |_| true)?;
        // The bare loop and the published way write to these topics, too, but neither headers nor envelopes.
        let of_weir = |record: &Consumed| record.header("weir-decision").is_some();
        let approved = mean(&client.read_committed(approved)?, of_weir)?;
        let envelope = |record: &Consumed| record.value_text().contains("weir.decision/2");
        let suppressed = mean(&client.read_committed(suppressed)?, envelope)?;
        let (approved_headers_bytes, envelope_bytes) = (approved - intent, suppressed - intent);
        Ok(Self { intent_bytes: intent, approved_headers_bytes, envelope_bytes })
    }
}

fn mean(records: &[Consumed], of: impl Fn(&Consumed) -> bool) -> Result<f64> {
    let sizes: Vec<f64> = records.iter().filter(|record| of(record)).map(|record| bytes(record) as f64).collect();
    let count = (!sizes.is_empty()).then_some(sizes.len() as f64).context("no such record")?;
    Ok(sizes.iter().sum::<f64>() / count)
}

fn bytes(record: &Consumed) -> usize {
    let length = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
    let headers = record.headers.iter().map(|(name, value)| name.len() + length(value));
    length(&record.key) + length(&record.value) + headers.sum::<usize>()
}
