//! The history of a user: what was sent, oldest first, as it lies in the store.
//!
//! An entry is 20 bytes, big-endian: time 5 (ms since 2020-01-01, good until 2054), id 6, origin 3, kind 2,
//! campaign 3, cost 1. One more byte, 0, ends a history in which a cost is not 1 (or was not, before a refund): where it
//! is not there, entries need not be walked to know what they cost. `lua/admit.lua` reads and writes the same bytes.

pub mod admit;
pub mod decide;
pub mod deferred_send;
pub mod delivery_report;
pub mod found_names;
pub mod named;
pub mod refund;
pub mod reply;

use crate::{
    basis::{
        shard::{IdHash, OriginMark},
        time::Time,
    },
    intent::class::{Campaign, Kind},
};

pub const ENTRY_BYTES: usize = 20;
/// What ends a history in which a cost is not 1.
const OTHER_COSTS: u8 = 0;
/// 2020-01-01T00:00:00Z in milliseconds since 1970: the zero of an entry's time.
pub const EPOCH_MS: i64 = 1_577_836_800_000;
/// The highest time an entry can hold, in milliseconds since [`EPOCH_MS`].
pub const MAX_ENTRY_MS: i64 = (1 << 40) - 1;

/// The most entries of a user's history, where `redis.max_entries` is not set.
pub const MAX_ENTRIES: u32 = 10_000;

/// How much of a user is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryBounds {
    pub retention_ms: i64,
    /// The most entries: beyond, the oldest are dropped.
    pub max_entries: u32,
}

impl From<i64> for HistoryBounds {
    /// So many milliseconds, and the default number of entries.
    fn from(retention_ms: i64) -> Self {
        Self { retention_ms, max_entries: MAX_ENTRIES }
    }
}

/// One send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When it was decided.
    pub at: Time,
    pub id: IdHash,
    pub origin: OriginMark,
    pub kind: Kind,
    pub campaign: Campaign,
    /// What it takes from caps, 1 to 255.
    pub cost: u8,
}

impl Entry {
    /// The entry's bytes. A time outside the 34 years that fit is moved to the nearest one that does.
    pub fn to_bytes(&self) -> [u8; ENTRY_BYTES] {
        let at = (self.at.millis() - EPOCH_MS).clamp(0, MAX_ENTRY_MS).cast_unsigned();
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..5].copy_from_slice(&at.to_be_bytes()[3..]);
        bytes[5..11].copy_from_slice(&self.id.0.to_be_bytes()[2..]);
        bytes[11..14].copy_from_slice(&self.origin.0.to_be_bytes()[1..]);
        bytes[14..16].copy_from_slice(&self.kind.0.to_be_bytes());
        bytes[16..19].copy_from_slice(&self.campaign.0.to_be_bytes()[1..]);
        bytes[19] = self.cost;
        bytes
    }

    pub fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let number = |range: std::ops::Range<usize>| bytes[range].iter().fold(0_u64, |n, &b| n << 8 | u64::from(b));
        let small = |range| u32::try_from(number(range)).unwrap_or(u32::MAX);
        let at = i64::try_from(number(0..5)).unwrap_or(MAX_ENTRY_MS);
        Self {
            at: Time::default().plus(EPOCH_MS + at),
            id: IdHash(number(5..11)),
            origin: OriginMark(small(11..14)),
            kind: Kind(u16::from_be_bytes([bytes[14], bytes[15]])),
            campaign: Campaign(small(16..19)),
            cost: bytes[19],
        }
    }
}

/// A history that is not a whole number of entries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a history of {bytes} bytes is not a whole number of {ENTRY_BYTES}-byte entries: the key was written by something else"
)]
pub struct TornHistory {
    pub bytes: usize,
}

pub fn unpack(bytes: &[u8]) -> Result<Vec<Entry>, TornHistory> {
    let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() && rest != [OTHER_COSTS] {
        return Err(TornHistory { bytes: bytes.len() });
    }
    Ok(entries.iter().map(Entry::from_bytes).collect())
}

pub fn pack(entries: &[Entry]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(entries.len() * ENTRY_BYTES + 1);
    for entry in entries {
        packed.extend_from_slice(&entry.to_bytes());
    }
    packed.extend(entries.iter().any(|entry| entry.cost != 1).then_some(OTHER_COSTS));
    packed
}
