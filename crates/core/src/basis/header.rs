//! The headers that weir writes: each name stands here and nowhere else.

use std::sync::Arc;

use super::words;

/// Headers of ours: names of [`HeaderName`], values as text. Shared by the records of a batch that have the same.
pub type OurHeaders = Arc<[(&'static str, String)]>;

words! {
    /// A header that weir writes, in the order in which they are written. Its value is text. The names of those of dead letters are
    /// Kafka Connect's own (`DeadLetterQueueReporter`).
    ///
    /// A record that came with headers of these names keeps them, in front of weir's: the last one is weir's, as is
    /// Kafka's rule for headers given twice.
    pub enum HeaderName {
        Decision = "weir-decision",
        Due = "weir-due",
        Origin = "weir-origin",
        FirstAt = "weir-first-at",
        Why = "weir-why",
        Count = "weir-count",
        Reason = "weir-reason",
        ErrorTopic = "__connect.errors.topic",
        ErrorPartition = "__connect.errors.partition",
        ErrorOffset = "__connect.errors.offset",
        ErrorStage = "__connect.errors.stage",
        ErrorMessage = "__connect.errors.exception.message",
    }
}

/// The topics of deferred and of waiting intents.
const QUEUED: &str = "deferred, waiting";

impl HeaderName {
    /// The topic whose records carry it, and what its value says: a row of the table in the docs.
    pub const fn meaning(self) -> (&'static str, &'static str) {
        match self {
            Self::Decision => ("approved", "the decision, as compact JSON: the table below"),
            Self::Due => (
                QUEUED,
                "when the intent is due, in milliseconds since 1970: a full minute; on a waiting topic, `weir-first-at`",
            ),
            Self::Origin => {
                (QUEUED, "topic, partition, offset and topic id of the intent's first record, separated by `/`")
            }
            Self::FirstAt => (
                QUEUED,
                "Kafka's time of the intent's first record (of a retry: its decision's), in milliseconds since 1970",
            ),
            Self::Why => (
                QUEUED,
                "`too_early`, `quiet_hours`, `cap`, `budget`, `pressure`, `capacity`, `retry` or `unavailable`",
            ),
            Self::Count => (QUEUED, "how often the intent has been deferred or sent to wait; of a retry, its number"),
            Self::Reason => (
                "dead_letters, undelivered",
                "one of the reasons of a dead letter; `attempts`, `capacity`, `stopped` or `expired`",
            ),
            Self::ErrorTopic => ("dead_letters", "topic of the intent"),
            Self::ErrorPartition => ("dead_letters", "partition of the intent"),
            Self::ErrorOffset => ("dead_letters", "offset of the intent"),
            Self::ErrorStage => ("dead_letters", "`VALUE_CONVERTER`, Connect's name for the step that reads a value"),
            Self::ErrorMessage => ("dead_letters", "what is wrong and where, for people; never a part of the value"),
        }
    }
}
