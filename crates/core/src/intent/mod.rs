//! An intent: a wish to send one message to one user.

pub mod class;
pub mod dead_letter;
pub mod decode;
pub mod fields;
pub mod reason;
pub mod selection;

use std::borrow::Cow;

use crate::{
    basis::{
        shard::{IdHash, UserHash},
        time::Time,
        zone::Zone,
    },
    intent::class::ClassNames,
};

/// The largest value that is an intent, in bytes: 1 MiB.
pub const MAX_INTENT_BYTES: usize = 1 << 20;
/// How deep objects and arrays may be nested; the outermost object is level 1.
pub const MAX_DEPTH: usize = 64;
/// The longest intent or user id, in bytes.
pub const MAX_ID_BYTES: usize = 256;

/// 1971-01-01T00:00:00Z, in milliseconds since 1970.
const YEAR_1971_MS: i64 = 365 * 24 * 60 * 60 * 1000;

/// What weir knows of an intent. [`decode::decode`] makes it; the text borrows from the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent<'a> {
    /// Names the intent; 1 to [`MAX_ID_BYTES`] bytes.
    pub id: Cow<'a, str>,
    /// The user, in canonical text (`42` for both `42` and `"42"`); 1 to [`MAX_ID_BYTES`] bytes.
    pub user_id: Cow<'a, str>,
    /// `push`, `email`, ...
    pub channel: Option<Cow<'a, str>>,
    /// `marketing`, `transactional`, ...
    pub category: Option<Cow<'a, str>>,
    pub campaign: Option<Cow<'a, str>>,
    /// What the send takes from caps and budgets, 1 to 255.
    pub cost: u8,
    pub created_at: Option<Time>,
    /// From when on it is not to be sent any more.
    pub expires_at: Option<Time>,
    /// Before when it is not to be sent.
    pub not_before: Option<Time>,
    pub timezone: Option<Zone>,
    /// Of [`Intent::id`], as histories know it, and of the source where a CloudEvent gave the id. Made where the intent is
    /// read, while its text is in the processor's cache; a batch later it is not.
    pub id_hash: IdHash,
    /// Of [`Intent::user_id`], likewise.
    pub user: UserHash,
    pub(super) value: IntentValue<'a>,
}

/// The value of an intent, as the envelope carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentValue<'a> {
    /// JSON, known to be so, without the frame of a Schema Registry.
    Json(&'a str),
    /// A whole value in another format.
    Bytes(&'a [u8]),
}

impl<'a> IntentValue<'a> {
    /// JSON; `None` for another format.
    pub const fn json(self) -> Option<&'a str> {
        match self {
            Self::Json(text) => Some(text),
            Self::Bytes(_) => None,
        }
    }

    /// How many bytes it takes in an envelope: JSON as it is, others in base64.
    pub const fn envelope_bytes(self) -> usize {
        match self {
            Self::Json(text) => text.len(),
            Self::Bytes(bytes) => bytes.len().div_ceil(3) * 4,
        }
    }
}

impl<'a> Intent<'a> {
    #[inline]
    pub fn class(&self) -> ClassNames<'_> {
        ClassNames {
            channel: self.channel.as_deref(),
            category: self.category.as_deref(),
            campaign: self.campaign.as_deref(),
        }
    }

    /// Whether one of its times is before 1971, which hardly anybody means: seconds in the place of milliseconds are in
    /// January 1970, and some languages write the year 1 for a time that is not set.
    pub fn has_early_time(&self) -> bool {
        // Each intent is asked, so without a branch per time.
        let times = [self.created_at, self.expires_at, self.not_before].map(|time| time.map_or(i64::MAX, Time::millis));
        times[0].min(times[1]).min(times[2]) < YEAR_1971_MS
    }

    /// The value it was read from, as it came.
    pub const fn value(&self) -> IntentValue<'a> {
        self.value
    }
}
