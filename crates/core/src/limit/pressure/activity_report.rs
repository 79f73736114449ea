//! A report that users are active, though weir has sent them nothing: over HTTP for many users at once, and on a topic for one.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    basis::{shard::UserHash, time::Time, words},
    intent::{
        MAX_ID_BYTES,
        dead_letter::{
            DeadLetter,
            DeadLetterReason::{BadTime, MissingField, NotJson, WrongType},
        },
        decode::{Header, decode_user_and_time},
        fields::{FieldMap, FieldMapError, IntentField},
    },
    limit::pressure::activity::ActivityHash,
};

/// The most users of one report over HTTP.
pub const MAX_USERS: usize = 10_000;
/// How far ahead of the clock a report may be, in milliseconds: publishers' clocks differ a little. It counts as of now.
pub const AHEAD_MS: i64 = 60_000;

words! {
    /// What became of a report; with the value of the metric's label.
    pub enum ReportOutcome {
        /// The user is active.
        Noted = "noted",
        /// The report is older than the window: without effect.
        Late = "late",
        /// The policy has no pressure, or its window has not been read yet: without effect.
        NoPressure = "no_pressure",
    }
}

/// A report over HTTP: `{"user_ids": [42, "anna"], "at": "2026-11-20T09:00:00Z"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityReport {
    /// Who was active, at most [`MAX_USERS`].
    pub users: Vec<ActivityHash>,
    /// When: never ahead of the clock.
    pub at: Time,
}

impl ActivityReport {
    /// Reads the body of a request. Ids are held to the rules of an intent's `user_id`, and `at` to those of its times; without `at`
    /// it is `now`.
    ///
    /// # Errors
    /// What is wrong; nothing of the report counts.
    pub fn parse(body: &[u8], now: Time) -> Result<Self, DeadLetter> {
        let ReportBody { user_ids, at } = serde_json::from_slice(body).map_err(|error| {
            let reason = if error.is_data() { WrongType } else { NotJson };
            DeadLetter::new(reason, format!("the report: {error}"))
        })?;
        let Some(ReportedUsers(users)) = user_ids else {
            return Err(DeadLetter::new(MissingField, "user_ids is required and absent: a list of user ids"));
        };
        let at = match at {
            None => now,
            Some(at) => not_ahead("at", time(at.get())?, now)?,
        };
        Ok(Self { users, at })
    }
}

/// Reads records of the topic of activity: `{"user_id": 42, "at": "2026-11-20T09:00:00Z"}`, or a CloudEvent.
#[derive(Debug, Clone)]
pub struct ActivityReader(FieldMap);

impl ActivityReader {
    /// With the JSON pointers to the fields `user_id` and `at`.
    ///
    /// # Errors
    /// A pointer is none, or one lies inside the other.
    pub fn new(user_id: &str, at: &str) -> Result<Self, FieldMapError> {
        let fields = [(IntentField::UserId, user_id), (IntentField::CreatedAt, at)];
        let name = |field: IntentField| if field == IntentField::CreatedAt { "at" } else { field.as_str() };
        Ok(Self(FieldMap::only(fields, name)?))
    }

    /// Who was active by a record that was published at this time, and when: never ahead of the clock. A record without `at` has its own
    /// time, or else `now`.
    ///
    /// # Errors
    /// The dead letter that the record becomes.
    pub fn read<'r>(
        &self,
        value: Option<&'r [u8]>,
        headers: impl IntoIterator<Item = Header<'r>>,
        published: Option<Time>,
        now: Time,
    ) -> Result<(ActivityHash, Time), DeadLetter> {
        let (user, at) = decode_user_and_time(value, headers, &self.0)?;
        let (what, at) = match at {
            Some(at) => ("at", at),
            None => ("the record's timestamp", published.unwrap_or(now)),
        };
        Ok((user.into(), not_ahead(what, at, now)?))
    }
}

/// The time, or now where it is a little ahead. Fails where it is further ahead than that.
fn not_ahead(what: &str, at: Time, now: Time) -> Result<Time, DeadLetter> {
    if at <= now.plus(AHEAD_MS) {
        return Ok(at.min(now));
    }
    let message = format!("{what} is {at}, more than a minute ahead of weir's clock ({now})");
    Err(DeadLetter::new(BadTime, message))
}

/// The body of a request, as it is written. A field of another name is meant for something, and refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportBody<'b> {
    user_ids: Option<ReportedUsers>,
    #[serde(borrow)]
    at: Option<&'b RawValue>,
}

/// A user by a value of JSON.
fn reported(id: &str) -> Option<ActivityHash> {
    let id = match id.parse::<u64>() {
        Ok(number) => number.to_string(),
        Err(_) => serde_json::from_str(id).ok()?,
    };
    (1..=MAX_ID_BYTES).contains(&id.len()).then(|| UserHash::of(&id).into())
}

/// The time in a value of JSON.
fn time(at: &str) -> Result<Time, DeadLetter> {
    let time = match (at.parse::<i128>(), serde_json::from_str::<String>(at)) {
        (Ok(millis), _) => i64::try_from(millis).ok().and_then(Time::from_millis),
        (_, Ok(text)) => Time::from_rfc3339(&text),
        (Err(_), Err(_)) => {
            let message = "at is no RFC 3339 string and no integer of milliseconds since 1970";
            return Err(DeadLetter::new(WrongType, message));
        }
    };
    let message = "at is no RFC 3339 time of the years 0 to 9999, such as 2026-11-20T09:00:00Z";
    time.ok_or_else(|| DeadLetter::new(BadTime, message))
}

/// Hashes instead of ids: a report takes no more memory than so many users.
struct ReportedUsers(Vec<ActivityHash>);

impl<'de> Deserialize<'de> for ReportedUsers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ids;
        impl<'de> Visitor<'de> for Ids {
            type Value = ReportedUsers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "user_ids, a list of at most {MAX_USERS} user ids")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut ids: A) -> Result<ReportedUsers, A::Error> {
                let mut users = Vec::new();
                while let Some(id) = ids.next_element::<&RawValue>()? {
                    if users.len() == MAX_USERS {
                        return Err(de::Error::custom(format!("user_ids has more than {MAX_USERS} user ids")));
                    }
                    users.push(reported(id.get()).ok_or_else(|| {
                        de::Error::custom(format!(
                            "a user id is a string of 1 to {MAX_ID_BYTES} bytes, or an integer from 0 to 2^64-1 without sign, \
                             fraction and exponent"
                        ))
                    })?);
                }
                Ok(ReportedUsers(users))
            }
        }
        deserializer.deserialize_seq(Ids)
    }
}

#[cfg(test)]
mod tests;
