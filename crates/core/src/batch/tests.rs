//! The records of tests.

use super::record::{Headers, RecordView, Records};
use crate::{basis::time::Time, deferral::Deferral};

/// A record without a key, and a batch of it alone.
#[derive(Clone, Default)]
pub(crate) struct Row {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) value: String,
    pub(crate) timestamp: Option<Time>,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) deferral: Option<Deferral>,
}

impl Headers for Row {
    fn header(&self, index: usize) -> Option<(&[u8], Option<&[u8]>)> {
        self.headers.get(index).map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())))
    }
}

impl Records for Row {
    fn len(&self) -> usize {
        1
    }

    fn get(&self, _: usize) -> RecordView<'_> {
        let (value, deferral) = (Some(self.value.as_bytes()), self.deferral.as_ref());
        let Self { partition, offset, timestamp, .. } = *self;
        RecordView { key: None, value, partition, offset, timestamp, headers: self, deferral }
    }
}

pub(crate) struct Rows(pub(crate) Vec<Row>);

impl Rows {
    /// Values, at the offsets of their places.
    pub(crate) fn of(values: impl IntoIterator<Item = String>) -> Self {
        Self((0..).zip(values).map(|(offset, value)| Row { offset, value, ..Row::default() }).collect())
    }
}

impl Records for Rows {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> RecordView<'_> {
        self.0[index].get(0)
    }
}
