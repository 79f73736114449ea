//! What tests of several modules need.

use weir_core::{
    basis::{document::Format, time::Time},
    batch::record::{NoHeaders, RecordView, Records},
    deferral::Deferral,
    policy::{Policy, file::parse_policy},
};

/// What this says, where histories reach back for two days.
pub(crate) fn parsed_policy(text: &str) -> Policy {
    parse_policy("p.toml", text, Format::Toml, 172_800_000).unwrap()
}

/// A policy without caps, with further rules.
pub(crate) fn policy(rules: &str) -> Policy {
    parsed_policy(&format!("version = \"1\"\ndefault = {{ caps = \"unlimited\" }}\n{rules}"))
}

/// A record without key, value and headers.
pub(crate) struct Row {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp: Option<Time>,
    pub(crate) deferral: Option<Deferral>,
}

pub(crate) struct Rows(pub(crate) Vec<Row>);

impl Records for Rows {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> RecordView<'_> {
        let Row { partition, offset, timestamp, ref deferral } = self.0[index];
        let deferral = deferral.as_ref();
        RecordView { key: None, value: None, partition, offset, timestamp, headers: &NoHeaders, deferral }
    }
}
