//! An intent: a wish to send one message to one user.

use std::borrow::Cow;

use super::{
    class::ClassNames,
    shard::{IdHash, UserHash},
    time::Time,
    zone::Zone,
};

/// The largest value that is an intent, in bytes: 1 MiB.
pub const MAX_INTENT_BYTES: usize = 1 << 20;
/// How deep objects and arrays may be nested; the outermost object is level 1.
pub const MAX_DEPTH: usize = 64;
/// The longest intent or user id, in bytes.
pub const MAX_ID_BYTES: usize = 256;

/// What weir knows of an intent. [`super::decode::decode`] makes it; the text borrows from the record.
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
    /// The campaign's name.
    pub campaign: Option<Cow<'a, str>>,
    /// What the send takes from caps and budgets, 1 to 255.
    pub cost: u8,
    /// When it was made.
    pub created_at: Option<Time>,
    /// From when on it is not to be sent any more.
    pub expires_at: Option<Time>,
    /// Before when it is not to be sent.
    pub not_before: Option<Time>,
    /// The user's time zone.
    pub timezone: Option<Zone>,
    /// Of [`Intent::id`], as histories know it. Made where the intent is read, while its text is in the processor's cache;
    /// a batch later it is not.
    pub id_hash: IdHash,
    /// Of [`Intent::user_id`], likewise.
    pub user: UserHash,
    /// The value it was read from: JSON, known to be so.
    pub(super) value: &'a str,
}

impl<'a> Intent<'a> {
    /// Channel, category and campaign.
    #[must_use]
    pub fn class(&self) -> ClassNames<'_> {
        ClassNames {
            channel: self.channel.as_deref(),
            category: self.category.as_deref(),
            campaign: self.campaign.as_deref(),
        }
    }

    /// The value it was read from, as it came: JSON.
    #[must_use]
    pub const fn value(&self) -> &'a str {
        self.value
    }
}
