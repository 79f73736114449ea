//! Where a user's history lives: shard, bucket and field, all from 128 bits made of the user id.

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

use super::{
    number,
    origin::{Topic, TopicId},
};

/// Hash slots of a Redis Cluster.
pub const SLOTS: u16 = 16_384;
/// Bits of a numeric user id that neighbours differ in: 32 of them share a key, so that a blast, which runs through a
/// segment in the order of ids, reads and writes whole keys.
const NEIGHBOUR_BITS: u32 = 5;
/// 2^64 over the golden ratio: multiples of it, modulo 2^64, fall evenly between those before them. So neighbourhoods one
/// after the other fill shards and keys evenly, and better than a hash would.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A user, as the store knows it: 64 bits that place it, and 64 bits that tell it from all others there.
///
/// For a user id that is a whole number (of 64 bits, as it is written without leading zeros), the latter are the number
/// itself, and the former depend on the number without its lowest 5 bits: no two numbers are taken for one. For all
/// others, both are of the 128-bit XXH3 of the id; two users are taken for one only when their shard, bucket and all 64
/// bits of the field agree: with 270 million users in 8.4 million buckets the odds that any two do are about 2e-10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserHash(pub u128);

impl UserHash {
    /// The hash of a user id's canonical text (`42` for both `42` and `"42"`).
    pub fn of(user_id: &str) -> Self {
        let Some(number) = number::canonical(user_id) else { return Self(xxh3_128(user_id.as_bytes())) };
        Self(u128::from(place_of(number)) << 64 | u128::from(number))
    }

    /// The number that the user id is, if it is one. A hash of another id passes for a number's at odds of 2^-64.
    pub fn number(self) -> Option<u64> {
        let [place, rest] = halves(self.0);
        (place == place_of(rest)).then_some(rest)
    }

    pub fn shard(self, shards: u16) -> u16 {
        let (shard, _) = scaled(halves(self.0)[0], u32::from(shards.max(1)));
        u16::try_from(shard).unwrap_or(0)
    }
}

/// The upper and the lower 64 bits. The upper bits of a user place it; the lower bits tell it from other users.
fn halves(bits: u128) -> [u64; 2] {
    [bits >> 64, bits & u128::from(u64::MAX)].map(|half| u64::try_from(half).unwrap_or(0))
}

/// The bits that place a number.
fn place_of(number: u64) -> u64 {
    (number >> NEIGHBOUR_BITS).wrapping_mul(GOLDEN)
}

/// The place of one user's history in a keyspace. Places are in the order of shards, then keys, then fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Which shard: decides the slot.
    pub shard: u16,
    /// Which key of the shard: some 32 users share one.
    pub bucket: u32,
    /// Which field of that key's hash.
    pub field: HashField,
}

/// What tells a user from all others of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashField {
    /// The turn of the id's neighbourhood, and the id's place in it: written as a decimal number, which Redis keeps in one or
    /// two bytes where it is small.
    Numbered(u64),
    /// 64 bits of a hash of the id.
    Hashed(u64),
}

impl HashField {
    /// The field as it is written. No two fields are written alike.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8);
        self.put(&mut out);
        out
    }

    /// Appends the field as it is written, 1 to 20 bytes.
    pub fn put(self, out: &mut Vec<u8>) {
        match self {
            Self::Numbered(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
            Self::Hashed(hash) => {
                let bytes = hash.to_be_bytes();
                out.extend_from_slice(&bytes);
                // A hash that reads as a number is told from it by one more byte.
                if bytes.iter().all(u8::is_ascii_digit) {
                    out.push(0);
                }
            }
        }
    }
}

/// How many neighbourhoods follow each other before a second one falls into the same one of `parts` equal parts of 2^64,
/// where neighbourhood `n` falls on `n * step` modulo 2^64: two in one part are at least so many apart. At least 1.
///
/// The distance of `d * step` from the multiples of 2^64 is smallest, for all `d` below the next denominator of the
/// continued fraction of `step / 2^64`, at the last one; so the first denominator whose distance is below the width of
/// a part is the answer.
fn turn(step: u64, parts: u64) -> u64 {
    let (mut last_distance, mut distance) = (1_u128 << 64, u128::from(step));
    let (mut last, mut denominator) = (0_u128, 1_u128);
    while distance * u128::from(parts) >= 1 << 64 {
        let times = last_distance / distance;
        (last_distance, distance) = (distance, last_distance % distance);
        (last, denominator) = (denominator, times * denominator + last);
    }
    u64::try_from(denominator).unwrap_or(u64::MAX)
}

/// Users that a key is made for: fewer cost more calls, and more take longer to be found in their key.
const USERS_A_KEY: u64 = 32;

/// The shape of a keyspace, fixed when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Shards, 1 to 16,384.
    pub shards: u16,
    /// Keys a shard, at least 1.
    pub buckets: u32,
    /// Neighbourhoods that follow each other before a key has a second one; follows from the others.
    turn: u64,
}

impl Layout {
    pub fn new(shards: u16, buckets: u32) -> Self {
        let (shards, buckets) = (shards.clamp(1, SLOTS), buckets.max(1));
        Self { shards, buckets, turn: turn(GOLDEN, u64::from(shards) * u64::from(buckets)) }
    }

    /// The layout for an expected number of users with some 32 of them a key.
    pub fn for_users(shards: u16, users: u64) -> Self {
        let shards = shards.clamp(1, SLOTS);
        let buckets = users.div_ceil(USERS_A_KEY * u64::from(shards)).clamp(1, u64::from(u32::MAX));
        Self::new(shards, u32::try_from(buckets).unwrap_or(u32::MAX))
    }

    pub fn place(&self, user: UserHash) -> Place {
        let [place, rest] = halves(user.0);
        // The keyspace is a line that `place` points into; its integer part is the shard, and that of the rest the bucket.
        let (shard, behind) = scaled(place, u32::from(self.shards));
        let (bucket, _) = scaled(behind, self.buckets);
        // A hash that is taken for a number's is all 128 bits of that, so it has been the same user before.
        let field = match user.number() {
            Some(number) => {
                // Neighbourhoods of one key are of different turns.
                let turns = (number >> NEIGHBOUR_BITS) / self.turn;
                HashField::Numbered(turns << NEIGHBOUR_BITS | (number & ((1 << NEIGHBOUR_BITS) - 1)))
            }
            None => HashField::Hashed(rest),
        };
        Place { shard: u16::try_from(shard).unwrap_or(0), bucket, field }
    }
}

/// A fraction of 2^64, times `parts`: what is before the point, and what is behind it.
fn scaled(fraction: u64, parts: u32) -> (u32, u64) {
    let product = u128::from(fraction) * u128::from(parts);
    let rest = u64::try_from(product & u128::from(u64::MAX)).unwrap_or(0);
    (u32::try_from(product >> 64).unwrap_or(0), rest)
}

/// The shard of something that is not a user's, by its name.
pub fn shard_of_name(name: &str, shards: u16) -> u16 {
    let (shard, _) = scaled(xxh3_64_with_seed(name.as_bytes(), 0), u32::from(shards.max(1)));
    u16::try_from(shard).unwrap_or(0)
}

/// Four of so many places for something that is not a user's, by its name: its bits in a Bloom filter.
pub fn filter_places(name: &str, places: u32) -> [u32; 4] {
    let hash = xxh3_128(name.as_bytes());
    [0, 32, 64, 96].map(|shift| {
        let part = u32::try_from((hash >> shift) & u128::from(u32::MAX)).unwrap_or(0);
        part % places.max(1)
    })
}

/// The hash slot of a shard: shards fall evenly over the slots, in order.
pub fn slot_of_shard(shard: u16, shards: u16) -> u16 {
    let slot = u32::from(shard) * u32::from(SLOTS) / u32::from(shards.max(1));
    u16::try_from(slot).unwrap_or(SLOTS - 1)
}

/// The hash tags of all shards: the shortest, first decimal number whose CRC16 is the shard's slot.
pub fn shard_tags(shards: u16) -> Vec<String> {
    let mut wanted = vec![None; usize::from(SLOTS)];
    for shard in 0..shards {
        wanted[usize::from(slot_of_shard(shard, shards))] = Some(shard);
    }
    let (mut tags, mut missing) = (vec![String::new(); usize::from(shards)], shards);
    // The sum of a number is that of the number without its last digit, and the digit.
    let mut sums: Vec<crc16::State<crc16::XMODEM>> = Vec::new();
    for number in 0_usize.. {
        if missing == 0 {
            break;
        }
        let mut sum = if number < 10 { crc16::State::new() } else { sums[number / 10] };
        sum.update(&[b"0123456789"[number % 10]]);
        sums.push(sum);
        if let Some(shard) = wanted[usize::from(sum.get() % SLOTS)].take() {
            tags[usize::from(shard)] = number.to_string();
            missing -= 1;
        }
    }
    tags
}

/// What an intent's id is known by in a history: 48 bits of its XXH3.
///
/// Odds: that a new id is taken for one of the 50 sends in a user's history is 50 / 2^48, one in 5.6e12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdHash(pub u64);

impl IdHash {
    pub fn of(id: &str) -> Self {
        Self(xxh3_64_with_seed(id.as_bytes(), 0) & 0xFFFF_FFFF_FFFF)
    }

    /// The hash of a CloudEvent's own id, which tells it from the others of its source alone.
    pub fn of_event(source: &str, id: &str) -> Self {
        let seed = xxh3_64_with_seed(source.as_bytes(), 0);
        Self(xxh3_64_with_seed(id.as_bytes(), seed) & 0xFFFF_FFFF_FFFF)
    }
}

/// Where an intent first came from, in 24 bits: its offset, moved by a hash of its topic's name and id, and its partition.
/// So records of a topic that was deleted and recreated are never taken for those of the same offsets before.
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

    /// The mark of every intent that is in no record ([`TopicId::NO_TOPIC`]): the same id again is a replay.
    pub const NO_RECORD: Self = Self(0x00FF_FFFF);

    pub fn of(topic: &Topic, partition: i32, offset: i64) -> Self {
        PartitionMarks::of(topic, partition).at(offset)
    }
}

/// The marks of a partition's records: what they have in common, `None` where none is of a record.
#[derive(Debug, Clone, Copy)]
pub struct PartitionMarks(Option<u64>);

impl PartitionMarks {
    #[must_use]
    pub fn of(topic: &Topic, partition: i32) -> Self {
        if topic.id == TopicId::NO_TOPIC {
            return Self(None);
        }
        // Ids are random, so that their halves tell them apart.
        let [high, low] = halves(topic.id.0);
        let seed = high ^ low ^ u64::from(partition.cast_unsigned());
        Self(Some(xxh3_64_with_seed(topic.name.as_bytes(), seed)))
    }

    /// The mark of the record at this offset.
    #[must_use]
    #[inline]
    pub fn at(self, offset: i64) -> OriginMark {
        let Some(base) = self.0 else { return OriginMark::NO_RECORD };
        let mark = base.wrapping_add(offset.cast_unsigned()) & 0x00FF_FFFF;
        OriginMark(u32::try_from(mark).unwrap_or(1).clamp(1, OriginMark::NO_RECORD.0 - 1))
    }
}

#[cfg(test)]
mod tests;
