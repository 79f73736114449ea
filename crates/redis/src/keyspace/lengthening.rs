//! A history that is being made longer, as the meta key says it.

/// The history was shorter, and what is older than that is not all there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lengthening {
    /// How long sends were remembered before, in milliseconds: all of these are there.
    pub from_ms: i64,
    /// The epoch before; empty where every shard has had a later one.
    pub epoch_before: String,
}

impl Lengthening {
    /// Whether a shard with this epoch has its history, and is to be given the new epoch.
    pub(crate) fn is_before(&self, epoch: Option<&str>) -> bool {
        epoch.is_some_and(|epoch| !epoch.is_empty() && epoch == self.epoch_before)
    }

    /// The same for a keyspace that gets another epoch, whose shards all have the present one.
    pub(super) fn renamed(&self) -> Self {
        Self { from_ms: self.from_ms, epoch_before: String::new() }
    }

    pub(super) fn to_text(&self) -> String {
        format!("{} {}", self.from_ms, self.epoch_before)
    }

    pub(super) fn of_text(text: &str) -> Option<Self> {
        let (from_ms, epoch_before) = text.split_once(' ')?;
        Some(Self { from_ms: from_ms.parse().ok()?, epoch_before: epoch_before.to_owned() })
    }
}
