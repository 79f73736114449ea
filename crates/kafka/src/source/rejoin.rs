//! Replaces a consumer that has lost its brokers, or whose property files were replaced.

use super::{KafkaSource, SourceError};
use crate::client_end::drop_elsewhere;

impl KafkaSource {
    /// Whether files of properties were replaced since the client was created.
    pub(super) fn is_outdated(&self) -> bool {
        self.edition != self.options.files.edition()
    }

    /// Joins the group with another client. This one leaves it.
    ///
    /// # Errors
    /// `Temporary` where the client cannot be created: its settings were right before, so a file is not complete yet.
    pub(super) fn rejoin(&mut self) -> Result<(), SourceError> {
        let other = Self::join(&self.options).map_err(|error| SourceError::Temporary(error.to_string()))?;
        let mut other = other.noting_in(self.table.clone());
        other.on_deleted = self.on_deleted.take();
        other.identity.succeed(&self.identity);
        let old = std::mem::replace(self, other);
        drop_elsewhere(old).map_err(|error| SourceError::Fatal(format!("no thread for the end of a consumer: {error}")))
    }
}
