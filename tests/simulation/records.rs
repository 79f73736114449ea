//! The records that weir reads: intents, deferred or not, refunds, and what comes back.

use std::time::Duration;

use weir_core::{
    basis::header::HeaderName,
    batch::record::{Headers, Output, OutputValue},
    deferral::Deferral,
};

use super::rings::Log;

/// A record of a topic that weir reads: an intent, deferred or not, or a refund.
#[derive(Debug)]
pub struct Intent {
    pub log: Log,
    pub partition: i32,
    pub offset: i64,
    pub key: String,
    pub value: String,
    /// When it becomes readable; of a deferred intent, when it was written.
    pub at: Duration,
    /// Its headers, without those of its deferral.
    pub headers: Vec<Header>,
    /// What weir wrote beside a deferred intent.
    pub deferral: Option<Deferral>,
    /// Partition and offset of the record that the intent first came in.
    pub first: (i32, i64),
    /// Partition and offset of the record that came back because its delivery failed; `None`: it is no retry.
    pub retry: Option<(i32, i64)>,
}

/// Name and value of a header.
pub type Header = (&'static str, String);

impl Intent {
    /// A record of an input topic.
    pub fn new((partition, offset): (i32, i64), key: String, value: String, at: Duration) -> Self {
        let first = (partition, offset);
        let (headers, deferral, retry) = (Vec::new(), None, None);
        Self { log: Log::Input, partition, offset, key, value, at, headers, deferral, first, retry }
    }

    /// The headers of an output of this record: those that it came with, and weir's behind them.
    pub fn headers_of(&self, Output { value, headers: ours, .. }: &Output) -> Vec<Header> {
        let mut headers = self.headers.clone();
        match value {
            OutputValue::AsItCame | OutputValue::Ours(_) => {}
            OutputValue::WithoutDecision => {
                let decision = headers.iter().rposition(|(name, _)| *name == HeaderName::Decision.as_str());
                if let Some(place) = decision {
                    headers.remove(place);
                }
            }
            OutputValue::Dropped(_) => headers.clear(),
        }
        headers.extend(ours.iter().cloned());
        headers
    }
}

impl Headers for Intent {
    fn header(&self, index: usize) -> Option<(&[u8], Option<&[u8]>)> {
        self.headers.get(index).map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())))
    }
}
