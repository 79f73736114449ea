//! The headers that weir writes: each name stands here and nowhere else.

/// A header that weir writes. Its value is text.
///
/// A record that came with headers of these names keeps them, in front of weir's: the last one is weir's, as is
/// Kafka's rule for headers given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeaderName {
    /// What was decided.
    Verdict,
    /// Why a record would have been suppressed, were it not for shadow mode.
    ShadowReason,
    /// The time it was judged by.
    DecidedAt,
    /// The user's segment.
    Segment,
    /// Which policy decided.
    Policy,
    /// By which segments.
    Segments,
    /// What the send takes from caps.
    Cost,
    /// Whether the send is in the user's history.
    Counts,
    /// What the send was.
    Class,
    /// That the send was not yet in the user's history when it was approved.
    Recorded,
    /// Why a record is a dead letter, in one word.
    Reason,
    /// Topic of a dead letter's origin.
    ErrorTopic,
    /// Partition of a dead letter's origin.
    ErrorPartition,
    /// Offset of a dead letter's origin.
    ErrorOffset,
    /// The step that failed.
    ErrorStage,
    /// Why a record is a dead letter, for people.
    ErrorMessage,
}

impl HeaderName {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 16] = [
        Self::Verdict,
        Self::ShadowReason,
        Self::DecidedAt,
        Self::Segment,
        Self::Policy,
        Self::Segments,
        Self::Cost,
        Self::Counts,
        Self::Class,
        Self::Recorded,
        Self::Reason,
        Self::ErrorTopic,
        Self::ErrorPartition,
        Self::ErrorOffset,
        Self::ErrorStage,
        Self::ErrorMessage,
    ];

    /// The name as it stands on the record. Those of dead letters are Kafka Connect's own (`DeadLetterQueueReporter`).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Verdict => "weir-verdict",
            Self::ShadowReason => "weir-shadow-reason",
            Self::DecidedAt => "weir-decided-at",
            Self::Segment => "weir-segment",
            Self::Policy => "weir-policy",
            Self::Segments => "weir-segments",
            Self::Cost => "weir-cost",
            Self::Counts => "weir-counts",
            Self::Class => "weir-class",
            Self::Recorded => "weir-recorded",
            Self::Reason => "weir-reason",
            Self::ErrorTopic => "__connect.errors.topic",
            Self::ErrorPartition => "__connect.errors.partition",
            Self::ErrorOffset => "__connect.errors.offset",
            Self::ErrorStage => "__connect.errors.stage",
            Self::ErrorMessage => "__connect.errors.exception.message",
        }
    }

    /// The topic whose records carry it, and what its value says: a row of the table in the docs.
    #[must_use]
    pub const fn meaning(self) -> (&'static str, &'static str) {
        match self {
            Self::Verdict => {
                ("approved", "`approved`, or `shadow-suppressed`: suppressed, were it not for shadow mode")
            }
            Self::ShadowReason => {
                ("approved", "the reason of a `shadow-suppressed` record, as in an envelope; else left out")
            }
            Self::DecidedAt => ("approved", "the time it was judged by, in milliseconds since 1970"),
            Self::Segment => ("approved", "the user's segment; left out for a user in none"),
            Self::Policy => ("approved", "version of the policy"),
            Self::Segments => ("approved", "version of the segments"),
            Self::Cost => ("approved", "what the send takes from caps, 1 to 255"),
            Self::Counts => ("approved", "`true`, or `false` where the send is not recorded in the user's history"),
            Self::Class => {
                ("approved", "channel, category and campaign: a JSON array of three, null for what was not given")
            }
            Self::Recorded => (
                "approved",
                "`later` where it was approved without its history, which was away: no cap was asked, and the send is \
                 recorded once the history is back; else left out",
            ),
            Self::Reason => ("dead_letters", "one of the reasons of a dead letter"),
            Self::ErrorTopic => ("dead_letters", "topic of the intent"),
            Self::ErrorPartition => ("dead_letters", "partition of the intent"),
            Self::ErrorOffset => ("dead_letters", "offset of the intent"),
            Self::ErrorStage => ("dead_letters", "`VALUE_CONVERTER`, Connect's name for the step that reads a value"),
            Self::ErrorMessage => ("dead_letters", "what is wrong and where, for people; never a part of the value"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_header_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = HeaderName::ALL.iter().map(|name| name.as_str()).collect();
        assert_eq!(names.len(), HeaderName::ALL.len());
    }
}
