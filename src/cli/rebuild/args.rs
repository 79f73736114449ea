//! What the arguments of `weir rebuild` look like.

use std::collections::BTreeSet;

use weir_core::{shard::SLOTS, time::Time};

/// Some shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards(pub BTreeSet<u16>);

/// Reads `1,5-9`.
pub(super) fn shards(text: &str) -> Result<Shards, String> {
    let number = |text: &str| {
        let number: u16 = text.trim().parse().map_err(|_| format!("{text:?} is not a shard's number"))?;
        if number < SLOTS { Ok(number) } else { Err(format!("there are at most {SLOTS} shards")) }
    };
    let mut shards = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("{part:?} ends before it begins"));
        }
        shards.extend(first..=last);
    }
    Ok(Shards(shards))
}

/// Reads a time.
pub(super) fn time(text: &str) -> Result<Time, String> {
    Time::from_rfc3339(text).ok_or_else(|| "write it as 2026-11-20T00:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_numbers_and_ranges() {
        assert_eq!(shards("1,5-7, 6"), Ok(Shards([1, 5, 6, 7].into())));
        for wrong in ["", "x", "1,", "7-5", "16384", "-1", "1-2-3"] {
            assert!(shards(wrong).is_err(), "{wrong}");
        }
    }
}
