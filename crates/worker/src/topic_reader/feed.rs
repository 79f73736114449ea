//! What is done with the records of a topic that is read beside the intents.

use weir_core::{
    basis::{origin::Topic, time::Time},
    batch::record::RecordView,
    intent::dead_letter::DeadLetter,
    ports::StoreError,
};

use crate::observer::BesideTopic;

/// What is done with the records of a topic.
pub trait Feed {
    const TOPIC: BesideTopic;
    /// A valid record.
    type Item;
    type Outcome: Copy;

    /// Reads a record. `now` is the clock, read once for each batch.
    ///
    /// # Errors
    /// The dead letter that the record becomes.
    fn read(&self, record: &RecordView<'_>, now: Time) -> Result<Self::Item, DeadLetter>;

    /// Takes the records whose place in `outcomes` (as long as `items`) is still empty. Safe to call again, and to drop half way.
    ///
    /// # Errors
    /// Some places are still empty; the error says why.
    fn take(
        &mut self,
        topic: &Topic,
        items: &[Self::Item],
        outcomes: &mut [Option<Self::Outcome>],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The metric's label of an outcome; `None`: the record waits, and holds its partition back.
    fn label(outcome: Self::Outcome) -> Option<&'static str>;

    /// Whether a record that waits can be taken now. Safe to drop half way.
    fn any_back(&mut self) -> impl Future<Output = bool> + Send;
}
