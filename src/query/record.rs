//! A record that is in no topic.

use weir_core::batch::record::{Headers, RecordView, Records};

/// One intent that is in no topic, as a batch.
#[derive(Debug, Clone, Copy)]
pub struct SingleRecord<'a> {
    /// What would be the record's value.
    pub value: &'a [u8],
    /// What would be its header `content-type`: `application/cloudevents+json` for an event in structured mode.
    pub content_type: Option<&'a [u8]>,
}

impl<'a, V: AsRef<[u8]> + ?Sized> From<&'a V> for SingleRecord<'a> {
    fn from(value: &'a V) -> Self {
        Self { value: value.as_ref(), content_type: None }
    }
}

impl Headers for SingleRecord<'_> {
    fn header(&self, index: usize) -> Option<(&[u8], Option<&[u8]>)> {
        let content_type = self.content_type.filter(|_| index == 0)?;
        Some((b"content-type", Some(content_type)))
    }
}

impl Records for SingleRecord<'_> {
    fn len(&self) -> usize {
        1
    }

    fn get(&self, _: usize) -> RecordView<'_> {
        let value = Some(self.value);
        RecordView { key: None, value, partition: 0, offset: 0, timestamp: None, headers: self, deferral: None }
    }
}
