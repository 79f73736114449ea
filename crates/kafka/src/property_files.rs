//! Properties whose files may be replaced while weir runs: passwords, certificates, keys.
//!
//! librdkafka reads them when a client is created, and never again. Each client therefore notes the edition of the files that it was
//! created from, and another one takes its place when there is a newer edition: of a consumer when nothing of it is being committed
//! (`source/rejoin.rs`), of a producer between two jobs (`sink.rs`), of a client that asks at its next question (`group_progress.rs`).

use std::{collections::BTreeMap, fmt, sync::Arc};

use arc_swap::ArcSwap;

/// The edition of the files that clients are created from. All options of an instance share it.
#[derive(Default)]
pub struct PropertyFiles(ArcSwap<Edition>);

#[derive(Default)]
struct Edition {
    number: u64,
    /// Values that replace those of the settings.
    values: BTreeMap<String, String>,
}

impl PropertyFiles {
    pub fn with(values: BTreeMap<String, String>) -> Self {
        Self(ArcSwap::from_pointee(Edition { number: 0, values }))
    }

    /// The number of the edition. A client of another edition is outdated. To be asked before a client is created: where files are
    /// replaced meanwhile, it counts as outdated too soon rather than never.
    pub fn edition(&self) -> u64 {
        self.0.load().number
    }

    /// Begins a new edition, with these values: all clients are outdated. Files that librdkafka reads itself have no value here.
    pub fn replace(&self, values: BTreeMap<String, String>) {
        self.0.rcu(|before| Arc::new(Edition { number: before.number + 1, values: values.clone() }));
    }

    /// These properties, with the values of this edition.
    pub(super) fn over(&self, properties: &BTreeMap<String, String>) -> Vec<(String, String)> {
        let edition = self.0.load();
        let current = |(key, value): (&String, &String)| {
            let value = edition.values.get(key).unwrap_or(value);
            (key.clone(), value.clone())
        };
        properties.iter().map(current).collect()
    }
}

/// Hides the values.
impl fmt::Debug for PropertyFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PropertyFiles(edition {})", self.edition())
    }
}
