//! Where a user's history lives: shard, bucket and field, all from one 128-bit hash of the user id.

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// Hash slots of a Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// A user, as the store knows it: the 128-bit XXH3 of the canonical text of the user id.
///
/// Shard, bucket and field use separate bits of it (32, 32 and 64), so two users are taken for one only when
/// their shard, bucket and all 64 bits of the field agree. With 270 million users in 1,024 shards of 11,000
/// buckets the odds that any two do are about 2e-10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserHash(pub u128);

impl UserHash {
    /// The hash of a user id's canonical text (`42` for both `42` and `"42"`).
    #[must_use]
    pub fn of(user_id: &str) -> Self {
        Self(xxh3_128(user_id.as_bytes()))
    }
}

/// The place of one user's history in a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Which shard: decides the slot.
    pub shard: u16,
    /// Which key of the shard: some 16 to 32 users share one.
    pub bucket: u32,
    /// Which field of that key's hash.
    pub field: [u8; 8],
}

/// The shape of a keyspace, fixed when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Shards, 1 to 16,384.
    pub shards: u16,
    /// Keys a shard, at least 1.
    pub buckets: u32,
}

impl Layout {
    /// The layout for an expected number of users with some 24 of them a key.
    #[must_use]
    pub fn for_users(shards: u16, users: u64) -> Self {
        let shards = shards.clamp(1, SLOTS);
        let buckets = users.div_ceil(24 * u64::from(shards)).clamp(1, u64::from(u32::MAX));
        Self { shards, buckets: u32::try_from(buckets).unwrap_or(u32::MAX) }
    }

    /// Where a user's history lives.
    #[must_use]
    pub fn place(&self, user: UserHash) -> Place {
        let bits = user.0.to_be_bytes();
        let word = |at: usize| u32::from_be_bytes([bits[at], bits[at + 1], bits[at + 2], bits[at + 3]]);
        let mut field = [0; 8];
        field.copy_from_slice(&bits[8..]);
        let shard = word(0) % u32::from(self.shards.max(1));
        Place { shard: u16::try_from(shard).unwrap_or(0), bucket: word(4) % self.buckets.max(1), field }
    }
}

/// The hash slot of a shard: shards fall evenly over the slots, in order.
#[must_use]
pub fn slot_of_shard(shard: u16, shards: u16) -> u16 {
    let slot = u32::from(shard) * u32::from(SLOTS) / u32::from(shards.max(1));
    u16::try_from(slot).unwrap_or(SLOTS - 1)
}

/// The hash tags of all shards: the shortest, first decimal number whose CRC16 is the shard's slot.
#[must_use]
pub fn shard_tags(shards: u16) -> Vec<String> {
    let mut by_slot: Vec<Option<String>> = vec![None; usize::from(SLOTS)];
    let mut missing = by_slot.len();
    for number in 0_u32.. {
        if missing == 0 {
            break;
        }
        let tag = number.to_string();
        let slot = usize::from(crc16::State::<crc16::XMODEM>::calculate(tag.as_bytes()) % SLOTS);
        if by_slot[slot].is_none() {
            by_slot[slot] = Some(tag);
            missing -= 1;
        }
    }
    (0..shards).map(|shard| by_slot[usize::from(slot_of_shard(shard, shards))].clone().unwrap_or_default()).collect()
}

/// What an intent's id is known by in a history: 48 bits of its XXH3.
///
/// Odds: that a new id is taken for one of the 50 sends in a user's history is 50 / 2^48, one in 5.6e12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdHash(pub u64);

impl IdHash {
    /// The hash of an intent id.
    #[must_use]
    pub fn of(id: &str) -> Self {
        Self(xxh3_64_with_seed(id.as_bytes(), 0) & 0xFFFF_FFFF_FFFF)
    }
}

/// Where an intent first came from, in 24 bits: its offset, moved by a hash of its topic and partition.
///
/// Two records of one partition have the same mark only when their offsets differ by a multiple of 2^24;
/// for records of two partitions the odds are 1 in 16.8 million, and it matters only where they carry the
/// same id for the same user (then a duplicate would pass for a replay).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginMark(pub u32);

impl OriginMark {
    /// The mark of a send that was restored from its approved record, which does not tell its origin. No record has it,
    /// so a restored send is never taken for a replay.
    pub const RESTORED: Self = Self(0);

    /// The mark of a record's origin.
    #[must_use]
    pub fn of(topic: &str, partition: i32, offset: i64) -> Self {
        let base = xxh3_64_with_seed(topic.as_bytes(), u64::from(partition.cast_unsigned()));
        let mark = base.wrapping_add(offset.cast_unsigned()) & 0x00FF_FFFF;
        Self(u32::try_from(mark).unwrap_or(1).max(1))
    }
}
