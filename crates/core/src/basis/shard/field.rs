//! The field that a user has in the hash of its key.

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
pub(super) fn turn(step: u64, parts: u64) -> u64 {
    let (mut last_distance, mut distance) = (1_u128 << 64, u128::from(step));
    let (mut last, mut denominator) = (0_u128, 1_u128);
    while distance * u128::from(parts) >= 1 << 64 {
        let times = last_distance / distance;
        (last_distance, distance) = (distance, last_distance % distance);
        (last, denominator) = (denominator, times * denominator + last);
    }
    u64::try_from(denominator).unwrap_or(u64::MAX)
}
