//! From a user id as it came to the number that a bitmap holds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::basis::{number, shard::UserHash, words};

words! {
    /// The kind of ids in a set's bitmaps.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum UserIdKind {
        /// Ids are numbers below 2^32, in 32-bit RoaringBitmaps.
        U32 = "u32",
        /// Ids are numbers below 2^64, in 64-bit RoaringBitmaps.
        U64 = "u64",
        /// Ids are any text; 64-bit RoaringBitmaps hold the hash of their bytes.
        Hash64 = "hash64",
    }
}

impl std::fmt::Display for UserIdKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How user ids are read as members of a set: the set's kind, and the prefix that numbers may carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserIds {
    kind: UserIdKind,
    prefix: String,
}

impl UserIds {
    /// Ids of this kind; `prefix` (`segments.user_id_prefix`, empty for none) is taken off before a number is read.
    pub fn new(kind: UserIdKind, prefix: impl Into<String>) -> Self {
        Self { kind, prefix: prefix.into() }
    }

    pub const fn kind(&self) -> UserIdKind {
        self.kind
    }

    /// The number by which a bitmap knows this user; `None` for one that is in no segment by its form.
    ///
    /// Only the canonical decimal form is a number: `042` and `+42` are other users than `42`. A hash is of the
    /// whole id, prefix included, because a prefix only tells how to find the number.
    pub fn number(&self, user_id: &str) -> Option<u64> {
        match self.kind {
            UserIdKind::U32 | UserIdKind::U64 => self.fitting(number::canonical(self.without_prefix(user_id))),
            UserIdKind::Hash64 => Some(xxh3_64(user_id.as_bytes())),
        }
    }

    /// The same of a user whose hash is known: where no prefix is set, the number is taken from it, and the text is not read again.
    pub fn number_of(&self, user_id: &str, user: UserHash) -> Option<u64> {
        match self.kind {
            UserIdKind::U32 | UserIdKind::U64 if self.prefix.is_empty() => self.fitting(user.number()),
            UserIdKind::U32 | UserIdKind::U64 | UserIdKind::Hash64 => self.number(user_id),
        }
    }

    /// The number, if a bitmap of this kind can hold it.
    fn fitting(&self, number: Option<u64>) -> Option<u64> {
        number.filter(|&number| self.kind != UserIdKind::U32 || number <= u64::from(u32::MAX))
    }

    fn without_prefix<'a>(&self, user_id: &'a str) -> &'a str {
        user_id.strip_prefix(self.prefix.as_str()).unwrap_or(user_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_decimal_ids_within_the_range_are_numbers() {
        let cases = [
            ("0", Some(0), Some(0)),
            ("42", Some(42), Some(42)),
            ("4294967295", Some(4_294_967_295), Some(4_294_967_295)),
            ("4294967296", None, Some(4_294_967_296)),
            ("18446744073709551615", None, Some(u64::MAX)),
            ("18446744073709551616", None, None),
            ("042", None, None),
            ("", None, None),
            ("4 2", None, None),
            ("4２", None, None),
            ("alice", None, None),
        ];
        for (id, narrow, wide) in cases {
            assert_eq!(UserIds::new(UserIdKind::U32, "").number(id), narrow, "{id:?} as u32");
            assert_eq!(UserIds::new(UserIdKind::U64, "").number(id), wide, "{id:?} as u64");
            for (kind, prefix) in [(UserIdKind::U32, ""), (UserIdKind::U64, ""), (UserIdKind::U32, "4")] {
                let ids = UserIds::new(kind, prefix);
                assert_eq!(ids.number_of(id, UserHash::of(id)), ids.number(id), "{id:?} as {kind} behind {prefix:?}");
            }
        }
    }

    #[test]
    fn a_prefix_is_taken_off_and_ids_without_it_are_taken_as_they_are() {
        let ids = UserIds::new(UserIdKind::U32, "u");
        let cases = [("u42", Some(42)), ("42", Some(42)), ("uu42", None), ("u042", None), ("u", None), ("U42", None)];
        for (id, number) in cases {
            assert_eq!(ids.number(id), number, "{id:?}");
        }
    }

    #[test]
    fn a_hashed_id_is_the_xxh3_of_all_its_bytes() {
        // XXH3_64bits of the empty input with seed 0, from the algorithm's own sanity tests.
        let ids = UserIds::new(UserIdKind::Hash64, "");
        assert_eq!(ids.number(""), Some(0x2D06_8005_38D3_94C2));
        // What xxhash gives in Python.
        assert_eq!(ids.number("user-7"), Some(0xB1DE_7A36_4DEF_053E));
        let prefixed = UserIds::new(UserIdKind::Hash64, "u");
        assert_ne!(prefixed.number("u42"), prefixed.number("42"));
    }
}
