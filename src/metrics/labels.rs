//! What metrics are told apart by.

use prometheus_client::encoding::EncodeLabelSet;

/// Declares sets of labels.
macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
            pub struct $name {
                $(pub $field: $type,)*
            }
        )*
    };
}

labels! {
    StageLabel { stage: &'static str }
    BuildLabels { version: &'static str, librdkafka: String }
    PartitionLabel { partition: i32 }
    /// A node of the store, `host:port`.
    NodeLabel { node: String }
    /// A decision: `approved`, `suppressed` or `shadow-suppressed`, and why it was suppressed; for an approved one
    /// `counted` or `not-counted`.
    DecisionLabels { verdict: &'static str, reason: &'static str }
    TopicLabel { topic: String }
    /// Why an intent is deferred: a word of [`weir_core::deferral::DeferReason`].
    WhyLabel { why: &'static str }
    ReasonLabel { reason: &'static str }
    /// The outcome of a refund: `taken_back`, `unknown`, `early` or `repeated`.
    OutcomeLabel { outcome: &'static str }
    /// How a user was reported to be active, `http` or `kafka`, and the outcome: `noted`, `late` or `no_pressure`.
    ReportLabels { by: &'static str, outcome: &'static str }
    /// A cap of a segment; the segment is empty for users in none.
    CapLabels { segment: String, cap: String }
    /// A budget, and what became of its tokens.
    BudgetTokenLabels { budget: String, outcome: &'static str }
    BudgetLabel { budget: String }
    /// A service, and what became of its admissions.
    ServiceOutcomeLabels { service: String, outcome: &'static str }
    /// The policy's action, `approve` or `suppress`.
    ActionLabel { action: &'static str }
    /// A refreshed source, `segments` or `policy`.
    SourceLabel { source: &'static str }
    VersionLabels { source: &'static str, version: String }
    SegmentLabel { segment: String }
    /// A route's template: `/v1/users/{id}`.
    RouteLabel { route: String }
    /// A route of the policy.
    OfRouteLabel { route: String }
    /// A route of the policy, and why it takes less than its ceiling: `lag`, `lag_unknown`, `signal` or `stopped`.
    ThrottledLabels { route: String, why: &'static str }
    /// A route of the policy, and why a delivery was given up.
    UndeliveredLabels { route: String, why: &'static str }
    /// An HTTP request: its route's template, and the status of the answer.
    RequestLabels { route: String, status: u16 }
}
