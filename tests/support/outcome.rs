//! The outcome of records that carry their case's name in a header.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use testkit::kafka::{Consumed, Record};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use super::{Decision, Scene, approval, header};

pub const CASE: &str = "case";

pub fn case(name: &str, record: Record) -> Record {
    record.header(CASE, name)
}

/// An intent of a case, whose id is the case's name; `more` are further fields.
pub fn intent(name: &str, user: impl std::fmt::Display, more: Value) -> Record {
    let mut value = serde_json::json!({"id": name, "user_id": user.to_string()});
    for (field, content) in more.as_object().unwrap() {
        value[field] = content.clone();
    }
    case(name, Record::new(user.to_string(), value.to_string()))
}

/// The cases of records; fails where two records have one.
#[track_caller]
pub fn cases(records: &[Consumed]) -> BTreeSet<String> {
    let cases: BTreeSet<String> = records.iter().map(|record| header(record, CASE).unwrap()).collect();
    assert_eq!(cases.len(), records.len(), "each has one record");
    cases
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeKind {
    Approved,
    Suppressed,
    Dead,
}

#[derive(Debug, Clone)]
pub struct Outcome {
    pub kind: OutcomeKind,
    pub input: Consumed,
    pub record: Consumed,
}

impl Outcome {
    #[track_caller]
    pub fn envelope(&self) -> Value {
        assert_eq!(self.kind, OutcomeKind::Suppressed, "{:?}", self.record);
        serde_json::from_slice(self.record.value.as_deref().unwrap()).unwrap()
    }

    #[track_caller]
    pub fn approval(&self) -> Value {
        assert_eq!(self.kind, OutcomeKind::Approved, "{:?}", self.record);
        approval(&self.record)
    }

    /// In a word or two: `approved`, `duplicate`, `cap daily 2/2`, `dead not_json`.
    pub fn verdict(&self) -> String {
        match self.kind {
            OutcomeKind::Approved => self.approval()["verdict"].as_str().unwrap().to_owned(),
            OutcomeKind::Dead => format!("dead {}", header(&self.record, "weir-reason").unwrap()),
            OutcomeKind::Suppressed => {
                let envelope = self.envelope();
                let cap = &envelope["cap"];
                match envelope["reason"].as_str().unwrap() {
                    "cap" => format!("cap {} {}/{}", cap["name"].as_str().unwrap(), cap["used"], cap["limit"]),
                    other => other.to_owned(),
                }
            }
        }
    }

    /// Its `decided_at`, in milliseconds since 1970.
    #[track_caller]
    pub fn decided_ms(&self) -> i64 {
        match self.kind {
            OutcomeKind::Approved => time_ms(&self.approval()["decided_at"]).unwrap(),
            OutcomeKind::Suppressed => time_ms(&self.envelope()["decided_at"]).unwrap(),
            OutcomeKind::Dead => panic!("a dead letter is not decided"),
        }
    }

    /// The headers after the record's own; fails if the record's own are not first and unchanged.
    #[track_caller]
    pub fn ours(&self) -> Vec<(String, String)> {
        let (theirs, ours) = self.record.headers.split_at(self.input.headers.len());
        assert_eq!(theirs, self.input.headers);
        let text = |value: &Option<Vec<u8>>| String::from_utf8(value.clone().unwrap()).unwrap();
        ours.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    }
}

/// An RFC 3339 time in milliseconds since 1970; `None` for null.
pub fn time_ms(value: &Value) -> Option<i64> {
    let time: jiff::Timestamp = value.as_str()?.parse().unwrap();
    Some(time.as_millisecond())
}

/// A time zone in which it is noon: what is counted by the day, the week or the month is not counted anew within a test.
pub fn zone_of_noon() -> String {
    let hour = SystemClock.now().millis().div_euclid(3_600_000).rem_euclid(24);
    // POSIX writes the sign the other way: at 7 in UTC, `Etc/GMT-5` is 5 hours ahead.
    format!("Etc/GMT{:+}", hour - 12)
}

#[derive(Debug)]
pub struct Outcomes(BTreeMap<String, Outcome>);

impl Outcomes {
    #[track_caller]
    pub fn of(&self, name: &str) -> &Outcome {
        self.0.get(name).unwrap_or_else(|| panic!("nothing became of {name}"))
    }

    pub fn all(&self) -> impl Iterator<Item = (&String, &Outcome)> {
        self.0.iter()
    }

    /// The verdicts of `{prefix}0`, `{prefix}1`, ...
    pub fn series(&self, prefix: &str) -> Vec<String> {
        (0..).map_while(|number| self.0.get(&format!("{prefix}{number}"))).map(Outcome::verdict).collect()
    }
}

impl Scene {
    /// Publishes an intent for each of these users, whose id is the wave and the user; `more` are further fields.
    pub fn publish_wave(&self, wave: &str, users: impl IntoIterator<Item = impl std::fmt::Display>, more: &Value) {
        self.publish(users.into_iter().map(|user| intent(&format!("{wave} {user}"), user, more.clone())));
    }

    /// The same, and waits until all of them are decided.
    pub fn decide_wave(&self, wave: &str, users: impl IntoIterator<Item = impl std::fmt::Display>, more: &Value) {
        self.publish_wave(wave, users, more);
        self.wait_until_drained();
    }

    /// By case, `approved` or for which reason it was suppressed; fails where a case has two such records. Others name no case.
    pub fn reasons(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for topic in ["approved", "suppressed"] {
            for record in self.slim_output(topic) {
                let Some(case) = header(&record, CASE) else { continue };
                let decided =
                    if topic == "approved" { Decision::approval(record) } else { Decision::suppression(record) };
                let before = all.insert(case.clone(), decided.1.reason().to_owned());
                assert_eq!(before, None, "{case} has two records");
            }
        }
        all
    }

    /// The outcomes of all published records; fails unless each has exactly one.
    pub fn outcomes(&self) -> Outcomes {
        let named = |record: Consumed| (header(&record, CASE).expect("every record names its case"), record);
        let mut inputs: BTreeMap<String, Consumed> = BTreeMap::new();
        for (name, record) in self.output("intents").into_iter().map(named) {
            assert!(inputs.insert(name.clone(), record).is_none(), "two cases are called {name}");
        }
        let mut all = BTreeMap::new();
        for (topic, kind) in
            [("approved", OutcomeKind::Approved), ("suppressed", OutcomeKind::Suppressed), ("dead", OutcomeKind::Dead)]
        {
            for (name, record) in self.output(topic).into_iter().map(named) {
                let input = inputs.get(&name).unwrap_or_else(|| panic!("{name} was never published")).clone();
                let before = all.insert(name.clone(), Outcome { kind, input, record });
                assert!(before.is_none(), "{name} has two records");
            }
        }
        let lost: Vec<&String> = inputs.keys().filter(|name| !all.contains_key(*name)).collect();
        assert!(lost.is_empty(), "without a record: {lost:?}");
        Outcomes(all)
    }
}
