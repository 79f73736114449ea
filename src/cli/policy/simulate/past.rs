//! Records of the past, as the decider reads them.

use std::{borrow::Cow, ops::Range, sync::Arc};

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use weir_core::{
    basis::time::Time,
    batch::record::{Headers, RecordView, Records},
    deferral::Deferral,
    intent::dead_letter::DeadLetterReason,
};

/// The most intents that are judged together.
pub(super) const BATCH: usize = 10_000;
/// The most bytes of them, above which a batch is closed.
pub(super) const BATCH_BYTES: usize = 32 * 1024 * 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) timestamp: Option<Time>,
}

impl Past {
    pub(super) fn of(record: &RecordView<'_>) -> Self {
        let headers = record.header_pairs().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)));
        Self {
            value: record.value.map(<[u8]>::to_vec),
            headers: headers.collect(),
            partition: record.partition,
            offset: record.offset,
            timestamp: record.timestamp,
        }
    }
}

impl Headers for Past {
    fn header(&self, index: usize) -> Option<(&[u8], Option<&[u8]>)> {
        self.headers.get(index).map(|(key, value)| (key.as_slice(), value.as_deref()))
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Batch {
    records: Vec<Arc<Past>>,
    bytes: usize,
    /// How many were read, whether they are in the batch or were left out.
    pub(super) taken: u64,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        *self = Self { records: std::mem::take(&mut self.records), bytes: 0, taken: 0 };
        self.records.clear();
    }

    pub(super) fn push(&mut self, record: Past) {
        self.bytes += record.value.as_ref().map_or(0, Vec::len);
        self.records.push(Arc::new(record));
    }

    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= BATCH || self.bytes >= BATCH_BYTES
    }

    pub(super) fn all(&self) -> Piece<'_> {
        Piece { records: &self.records, deferrals: &[] }
    }
}

/// Records that are judged together.
#[derive(Clone, Copy)]
pub(super) struct Piece<'p> {
    pub(super) records: &'p [Arc<Past>],
    /// Their deferrals; none where they have not been deferred.
    pub(super) deferrals: &'p [Deferral],
}

impl Piece<'_> {
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        Self { records: &self.records[range.clone()], deferrals: self.deferrals.get(range).unwrap_or_default() }
    }
}

impl Records for Piece<'_> {
    fn len(&self) -> usize {
        self.records.len()
    }

    fn get(&self, index: usize) -> RecordView<'_> {
        let record = &*self.records[index];
        RecordView {
            key: None,
            value: record.value.as_deref(),
            partition: record.partition,
            offset: record.offset,
            timestamp: record.timestamp,
            headers: record,
            deferral: self.deferrals.get(index),
        }
    }
}

/// A line with an intent inside: `{"at": ..., "intent": {...}}`, or a decision's envelope.
#[derive(Debug, Deserialize)]
struct Wrapped<'l> {
    #[serde(default, borrow)]
    schema: Option<Cow<'l, str>>,
    #[serde(default, borrow)]
    verdict: Option<Cow<'l, str>>,
    #[serde(default, borrow)]
    at: Option<&'l RawValue>,
    #[serde(default, borrow)]
    decided_at: Option<&'l RawValue>,
    #[serde(default)]
    counts: Option<bool>,
    #[serde(borrow)]
    intent: &'l RawValue,
}

/// A time, as intents have it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Written<'l> {
    Millis(i64),
    #[serde(borrow)]
    Text(Cow<'l, str>),
}

fn read_time(written: &RawValue) -> Result<Time, DeadLetterReason> {
    let time = match serde_json::from_str(written.get()) {
        Ok(Written::Millis(millis)) => Time::from_millis(millis),
        Ok(Written::Text(text)) => Time::from_rfc3339(&text),
        Err(_) => return Err(DeadLetterReason::WrongType),
    };
    time.ok_or(DeadLetterReason::BadTime)
}

/// A line of a file: the intent in it, and when it came where the line says so around it.
pub(super) struct Unwrapped<'l> {
    pub(super) intent: &'l [u8],
    pub(super) at: Option<Time>,
    /// What is wrong with the time around it. The line is then read as the intent, for an intent may have members of these names itself.
    pub(super) wrong_time: Option<DeadLetterReason>,
    /// Unless the line says that it was not sent, or does not count.
    pub(super) counts: bool,
}

/// Takes an intent out of what is around it.
pub(super) fn unwrap_line(line: &[u8]) -> Unwrapped<'_> {
    let plain = Unwrapped { intent: line, at: None, wrong_time: None, counts: true };
    if memmem::find(line, b"\"intent\"").is_none() {
        return plain;
    }
    let Ok(wrapped) = serde_json::from_slice::<Wrapped<'_>>(line) else { return plain };
    let decision = wrapped.schema.is_some_and(|schema| schema.starts_with("weir.decision/"));
    let Some(written) = wrapped.at.or(wrapped.decided_at.filter(|_| decision)) else { return plain };
    let intent = wrapped.intent.get();
    match read_time(written) {
        Ok(at) => {
            let suppressed = wrapped.verdict.is_some_and(|verdict| verdict == "suppressed");
            let counts = !suppressed && wrapped.counts != Some(false);
            Unwrapped { intent: intent.as_bytes(), at: Some(at), wrong_time: None, counts }
        }
        Err(wrong) => Unwrapped { wrong_time: intent.starts_with('{').then_some(wrong), ..plain },
    }
}
