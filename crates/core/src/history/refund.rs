//! A refund: the word that a send has not reached its user, so that it counts no longer.

use crate::{
    basis::{
        shard::{IdHash, UserHash},
        time::Time,
        words,
    },
    intent::{
        dead_letter::DeadLetter,
        decode::decode,
        fields::{FieldMap, IntentField},
    },
};

/// A refund with its place in the refunds topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refund {
    pub user: UserHash,
    /// Which one: the intent's id, for an event's own with its source.
    pub id: IdHash,
    /// The record's own time: it takes back a send that was decided at or before it. `None`: any.
    pub at: Option<Time>,
    pub partition: i32,
    pub offset: i64,
}

words! {
    /// What became of a refund; with the value of the metric's label.
    pub enum RefundOutcome {
        /// The send counts no longer.
        TakenBack = "taken_back",
        /// The user's history has no such send.
        Unknown = "unknown",
        /// There is one, but it was decided after the refund.
        Early = "early",
        /// It was taken before.
        Repeated = "repeated",
        /// The shard has lost its history; the refund waits.
        Waits = "waits",
    }
}

impl RefundOutcome {
    /// All that a metric counts: what waits is not counted yet.
    pub const COUNTED: [Self; 4] = [Self::TakenBack, Self::Unknown, Self::Early, Self::Repeated];
}

/// Reads refunds: `{"intent_id": "...", "user_id": ...}`, held to the rules of an intent's `id` and `user_id`; and `source`, where
/// the intent is a CloudEvent whose data had no id.
#[derive(Debug, Clone)]
pub struct RefundReader(FieldMap);

/// The field of an intent that a refund's source is read as: a text that may be absent.
const SOURCE: IntentField = IntentField::Campaign;

impl Default for RefundReader {
    fn default() -> Self {
        let places = [(IntentField::Id, "/intent_id"), (IntentField::UserId, "/user_id"), (SOURCE, "/source")];
        let name = |field: IntentField| if field == SOURCE { "source" } else { field.as_str() };
        Self(FieldMap::only(places, name).expect("these are pointers to different places"))
    }
}

impl RefundReader {
    pub fn read(&self, value: Option<&[u8]>) -> Result<(UserHash, IdHash), DeadLetter> {
        let read = decode(value, [], &self.0)?;
        let id = read.campaign.map_or(read.id_hash, |source| IdHash::of_event(&source, &read.id));
        Ok((read.user, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::{
        dead_letter::DeadLetterReason::{self, Empty, MissingField, NotJson, WrongType},
        decode::Header,
    };

    #[test]
    fn a_refund_of_an_event_names_its_source_too() {
        let reader = RefundReader::default();
        let event = r#"{"id":"1","source":"/a","subject":"42","data":{}}"#;
        let header = Header { key: b"content-type", value: Some(b"application/cloudevents+json") };
        let intent = decode(Some(event.as_bytes()), [header], &FieldMap::default()).unwrap();
        let refund = |rest: &str| {
            let value = format!(r#"{{"intent_id":"1","user_id":42{rest}}}"#);
            reader.read(Some(value.as_bytes()))
        };
        assert_eq!(refund(r#","source":"/a""#), Ok((intent.user, intent.id_hash)));
        for other in ["", r#","source":null"#, r#","source":"/b""#] {
            assert_ne!(refund(other).unwrap().1, intent.id_hash, "{other}");
        }
        let letter = refund(r#","source":7"#).unwrap_err();
        assert_eq!((letter.reason, &*letter.message), (WrongType, "source (/source) is a number, expected a string"));
    }

    #[test]
    fn what_is_no_refund_has_its_reason() {
        let reader = RefundReader::default();
        let cases: [(Option<&str>, DeadLetterReason); 6] = [
            (None, Empty),
            (Some(""), Empty),
            (Some("{"), NotJson),
            (Some("[]"), WrongType),
            (Some(r#"{"id":"i-1","user_id":"42"}"#), MissingField),
            (Some(r#"{"intent_id":1,"user_id":"42"}"#), WrongType),
        ];
        for (value, reason) in cases {
            let letter = reader.read(value.map(str::as_bytes)).unwrap_err();
            assert_eq!(letter.reason, reason, "{value:?}");
        }
    }
}
