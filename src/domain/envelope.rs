//! The envelope that reports a decision: JSON, `weir.decision/1`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    intent::Intent,
    origin::Origin,
    time::Time,
    verdict::{Cause, Decision, DenyingCap, SuppressReason, Suppressed},
};

/// Name and version of the envelope's shape.
pub const SCHEMA: &str = "weir.decision/1";

/// The most bytes that an envelope adds to its intent's value, given names (topic, segment, cap, versions) of at most
/// `names_bytes` bytes together. Ids have at most 256 bytes each, and JSON writes a byte in at most six.
#[must_use]
pub const fn overhead_bytes(names_bytes: usize) -> usize {
    1024 + 6 * (2 * super::intent::MAX_ID_BYTES + names_bytes)
}

/// Reports a decision on an intent: the value of a suppressed record.
#[must_use]
pub fn envelope(decision: &Decision<'_>, intent: &Intent<'_>) -> Vec<u8> {
    let suppressed = decision.verdict.suppressed();
    let cap = suppressed.and_then(|suppressed| match suppressed.cause {
        Cause::Cap(cap) => Some(cap),
        Cause::Duplicate | Cause::Expired | Cause::TooEarly | Cause::QuietHours => None,
    });
    let envelope = Envelope {
        schema: SCHEMA,
        verdict: decision.verdict.as_str(),
        reason: suppressed.map(Suppressed::reason),
        intent_id: &intent.id,
        user_id: &intent.user_id,
        segment: decision.segment,
        cap,
        eligible_at: suppressed.and_then(|suppressed| suppressed.eligible_at),
        decided_at: decision.decided_at,
        policy_version: decision.policy_version,
        segments_version: decision.segments_version,
        origin: decision.origin,
        intent: serde_json::from_str(intent.value()).expect("an intent's value was decoded, so it is JSON"),
    };
    let mut bytes = Vec::with_capacity(intent.value().len() + 512);
    serde_json::to_writer(&mut bytes, &envelope).expect("an envelope has names as keys, and memory takes every write");
    bytes
}

/// That a cap is named for reason `cap` and for no other.
fn cap_and_reason() -> serde_json::Value {
    let reason_is_cap = serde_json::json!({"properties": {"reason": {"const": "cap"}}, "required": ["reason"]});
    serde_json::json!([
        {"if": reason_is_cap, "then": {"required": ["cap"]}, "else": {"properties": {"cap": false}}},
        {
            "if": {"properties": {"verdict": {"const": "approved"}}},
            "then": {"properties": {"reason": false}},
            "else": {"required": ["reason"]}
        }
    ])
}

/// A decision on one intent. A reader lets members pass that it does not know.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "weir decision", extend("$id" = "weir.decision/1", "allOf" = cap_and_reason()))]
pub(super) struct Envelope<'a> {
    /// Name and version of this shape.
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// What became of the intent. The suppressed topic has `suppressed` only.
    #[schemars(extend("enum" = ["approved", "shadow-suppressed", "suppressed"]))]
    verdict: &'static str,
    /// Why it is not sent; absent where it is approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<SuppressReason>,
    /// The intent's id.
    #[schemars(length(min = 1, max = 256))]
    intent_id: &'a str,
    /// The user. A string, also where the intent has a number.
    #[schemars(length(min = 1, max = 256))]
    user_id: &'a str,
    /// The user's segment; null for a user in none.
    #[schemars(required)]
    segment: Option<&'a str>,
    /// The cap that denied; there for reason `cap` alone. Where several denied, the one that frees last.
    #[serde(skip_serializing_if = "Option::is_none")]
    cap: Option<DenyingCap<'a>>,
    /// The first moment at which this reason would let the same intent through, if nothing else is sent; null where
    /// there is none.
    #[schemars(required)]
    eligible_at: Option<Time>,
    /// The time by which it was judged.
    decided_at: Time,
    /// Which policy decided.
    policy_version: &'a str,
    /// By which segments.
    segments_version: &'a str,
    /// The record that the intent first came in.
    origin: Origin<'a>,
    /// The intent as it came.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    intent: &'a RawValue,
}
