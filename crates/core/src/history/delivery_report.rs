//! A report of a delivery: whether it reached its user, and how long it took. One that failed for good is a refund.

use serde::Deserialize;
use serde_json::Value;

use super::refund::{RefundOutcome, RefundReader};
use crate::{
    basis::shard::{IdHash, UserHash},
    intent::dead_letter::{
        DeadLetter,
        DeadLetterReason::{MissingField, WrongType},
    },
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// It succeeded; with its route and how long it took, where the report names both.
    Ok(Option<Took>),
    /// It failed, and never will succeed.
    Permanent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Took {
    /// The name of its route, which no policy may have.
    pub route: String,
    /// In milliseconds, at most an hour.
    pub ms: u64,
}

/// The longest time that a delivery takes, in milliseconds; a longer one counts as this.
const LONGEST_MS: u64 = 3_600_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryReport {
    pub user: UserHash,
    pub id: IdHash,
    pub outcome: Delivery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryReported {
    /// The delivery succeeded: at most its time is noted.
    Ok,
    /// It failed for good: a refund.
    Refund(RefundOutcome),
}

impl DeliveryReported {
    /// All that a metric counts.
    pub const COUNTED: [Self; 5] = [
        Self::Ok,
        Self::Refund(RefundOutcome::TakenBack),
        Self::Refund(RefundOutcome::Unknown),
        Self::Refund(RefundOutcome::Early),
        Self::Refund(RefundOutcome::Repeated),
    ];

    /// The value of the metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refund(outcome) => outcome.as_str(),
        }
    }
}

/// Reads reports: `{"intent_id": "...", "user_id": ..., "outcome": "ok", "route": "email", "took_ms": 12}`, the first two held to the
/// rules of an intent's `id` and `user_id`.
#[derive(Debug, Clone, Default)]
pub struct DeliveryReportReader(RefundReader);

/// What a report has beside a refund.
#[derive(Deserialize)]
struct Rest {
    outcome: Option<Value>,
    route: Option<Value>,
    took_ms: Option<Value>,
}

impl DeliveryReportReader {
    pub fn read(&self, value: Option<&[u8]>) -> Result<DeliveryReport, DeadLetter> {
        let (user, id) = self.0.read(value)?;
        // The error of a parser may hold a part of the value.
        let Rest { outcome, route, took_ms } = serde_json::from_slice(value.unwrap_or_default())
            .map_err(|_| DeadLetter::new(WrongType, "outcome, route or took_ms is given twice"))?;
        let took_ms = match took_ms.map(|took_ms| took_ms.as_u64()) {
            Some(None) => return Err(DeadLetter::new(WrongType, "took_ms must be a whole number of milliseconds")),
            took_ms => took_ms.flatten(),
        };
        let route = match route {
            None => None,
            Some(Value::String(route)) => Some(route),
            Some(_) => return Err(DeadLetter::new(WrongType, "route must be a string")),
        };
        let took = route.zip(took_ms).map(|(route, ms)| Took { route, ms: ms.min(LONGEST_MS) });
        let outcome = match outcome {
            None => {
                return Err(DeadLetter::new(MissingField, "outcome is required and absent: \"ok\" or \"permanent\""));
            }
            Some(outcome) if outcome == "ok" => Delivery::Ok(took),
            Some(outcome) if outcome == "permanent" => Delivery::Permanent,
            Some(_) => return Err(DeadLetter::new(WrongType, "outcome must be \"ok\" or \"permanent\"")),
        };
        Ok(DeliveryReport { user, id, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::dead_letter::DeadLetterReason::{self, NotJson};

    #[test]
    fn a_report_names_intent_user_and_outcome() {
        let reader = DeliveryReportReader::default();
        let (user, id) = (UserHash::of("42"), IdHash::of("i-1"));
        let took = |ms| Delivery::Ok(Some(Took { route: "email".to_owned(), ms }));
        let an_hour = took(3_600_000);
        for (value, outcome) in [
            (r#"{"intent_id":"i-1","user_id":"42","outcome":"ok","took_ms":12}"#, Delivery::Ok(None)),
            (r#"{"intent_id":"i-1","user_id":"42","outcome":"ok","route":"email"}"#, Delivery::Ok(None)),
            (r#"{"intent_id":"i-1","user_id":"42","outcome":"ok","route":null,"took_ms":12}"#, Delivery::Ok(None)),
            (r#"{"intent_id":"i-1","user_id":"42","outcome":"ok","route":"email","took_ms":12}"#, took(12)),
            (r#"{"intent_id":"i-1","user_id":"42","outcome":"ok","route":"email","took_ms":9999999999}"#, an_hour),
            (r#"{"took_ms":null,"outcome":"permanent","user_id":42,"more":[],"intent_id":"i-1"}"#, Delivery::Permanent),
        ] {
            assert_eq!(reader.read(Some(value.as_bytes())), Ok(DeliveryReport { user, id, outcome }), "{value}");
        }
    }

    #[test]
    fn what_is_no_report_has_its_reason() {
        let reader = DeliveryReportReader::default();
        let cases: [(&str, DeadLetterReason); 8] = [
            ("{", NotJson),
            (r#"{"intent_id":"i-1","outcome":"ok"}"#, MissingField),
            (r#"{"intent_id":"i-1","user_id":"42"}"#, MissingField),
            (r#"{"intent_id":"i-1","user_id":"42","outcome":"temporary"}"#, WrongType),
            (r#"{"intent_id":"i-1","user_id":"42","outcome":1}"#, WrongType),
            (r#"{"intent_id":"i-1","user_id":"42","outcome":"ok","outcome":"permanent"}"#, WrongType),
            (r#"{"intent_id":"i-1","user_id":"42","outcome":"ok","took_ms":-1}"#, WrongType),
            (r#"{"intent_id":"i-1","user_id":"42","outcome":"ok","route":7}"#, WrongType),
        ];
        for (value, reason) in cases {
            let letter = reader.read(Some(value.as_bytes())).unwrap_err();
            assert_eq!(letter.reason, reason, "{value}");
            assert!(!letter.message.contains("temporary"), "no part of the value: {}", letter.message);
        }
    }
}
