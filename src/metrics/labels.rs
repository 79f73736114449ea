//! What metrics are told apart by.

use prometheus_client::encoding::EncodeLabelSet;

/// Label of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StageLabel {
    /// The stage.
    pub stage: &'static str,
}

/// Label of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PartitionLabel {
    /// Its number.
    pub partition: i32,
}

/// Label of a node of the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct NodeLabel {
    /// `host:port`.
    pub node: String,
}

/// Labels of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DecisionLabels {
    /// `approved`, `suppressed` or `shadow-suppressed`.
    pub verdict: &'static str,
    /// Why it was suppressed; for an approved one `counted` or `not-counted`.
    pub reason: &'static str,
}

/// Label of a reason.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    /// The reason.
    pub reason: &'static str,
}

/// Label of what became of a refund.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabel {
    /// `taken_back`, `unknown`, `early` or `repeated`.
    pub outcome: &'static str,
}

/// Labels of a cap.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CapLabels {
    /// The user's segment; empty for users in none.
    pub segment: String,
    /// The cap's name.
    pub cap: String,
}

/// Label of what a policy says to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ActionLabel {
    /// `approve` or `suppress`.
    pub action: &'static str,
}

/// Label of what is refreshed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SourceLabel {
    /// `segments` or `policy`.
    pub source: &'static str,
}

/// Labels of a version in force.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct VersionLabels {
    /// `segments` or `policy`.
    pub source: &'static str,
    /// Its version.
    pub version: String,
}

/// Label of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SegmentLabel {
    /// Its name.
    pub segment: String,
}

/// Label of a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RouteLabel {
    /// Its template: `/v1/users/{id}`.
    pub route: String,
}

/// Labels of an HTTP request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// The route's template: `/v1/users/{id}`.
    pub route: String,
    /// The status that it was answered with.
    pub status: u16,
}
