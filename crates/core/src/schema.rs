//! JSON Schemas (2020-12) of what weir reads and writes, made from the types. `schemas/` holds them, checked in.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};

use super::replay::Report;
use crate::{
    basis::time::Time,
    decision::{decision_header::HeaderShape, envelope::Envelope},
};

pub fn decision() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Envelope<'_>>()
}

pub fn decision_header() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<HeaderShape<'_>>()
}

/// The schema of the report of `weir policy simulate`.
pub fn simulation() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Report>()
}

/// The schema of an intent whose fields are by their names at the top.
///
/// It never refuses what weir takes. Weir refuses more, which no schema can say: fields given twice, ids of over 256
/// bytes in fewer characters, names of time zones that do not exist, strings that are no times, `1.0` as an integer.
pub fn intent() -> Schema {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<IntentShape>()
}

/// A request to send one message to one user. Other members are allowed and pass through; null is the same as absent.
#[derive(JsonSchema)]
#[schemars(title = "weir intent", extend("$id" = "weir.intent/1"))]
#[expect(dead_code, reason = "an intent is read by `decode`; this is its shape for others")]
struct IntentShape {
    /// Identifies the intent: the same id is never approved twice for the same user within the history. At most 256 bytes.
    #[schemars(length(min = 1, max = 256))]
    id: String,
    /// The user. `42` and `"42"` are the same user. At most 256 bytes.
    user_id: UserIdShape,
    /// The channel: `push`, `email`, ...
    channel: Option<String>,
    /// The category: `marketing`, `transactional`, ...
    category: Option<String>,
    /// The campaign's name.
    campaign: Option<String>,
    /// The amount that the intent takes from caps and budgets; 1 if absent.
    #[schemars(range(min = 1, max = 255))]
    cost: Option<u8>,
    /// When it was created.
    created_at: Option<TimeShape>,
    /// When it expires: from then on it is suppressed.
    expires_at: Option<TimeShape>,
    /// The earliest time at which it may be approved.
    not_before: Option<TimeShape>,
    /// The user's time zone, by its IANA name, for calendar windows and quiet hours.
    timezone: Option<String>,
    /// The message. weir does not interpret it.
    payload: Option<serde_json::Value>,
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
#[expect(dead_code, reason = "see `IntentShape`")]
enum UserIdShape {
    Text(#[schemars(length(min = 1, max = 256))] String),
    Number(#[schemars(range(max = u64::MAX))] u64),
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
#[expect(dead_code, reason = "see `IntentShape`")]
enum TimeShape {
    /// RFC 3339.
    Text(Time),
    /// Milliseconds since 1970.
    Millis(i64),
}
