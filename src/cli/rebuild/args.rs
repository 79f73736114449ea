//! What the arguments of `weir rebuild` look like.

use std::collections::BTreeSet;

use weir_core::{basis::shard::SLOTS, limit::budget::MAX_LIMIT};

/// Reads `1,5-9`.
pub(super) fn shards(text: &str) -> Result<BTreeSet<u16>, String> {
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
    Ok(shards)
}

/// What was used of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetUsed {
    /// `NAME` or `NAME/CAMPAIGN`.
    pub budget: String,
    /// The cost.
    pub tokens: u64,
}

/// Reads `NAME=N`.
pub(super) fn budget_used(text: &str) -> Result<BudgetUsed, String> {
    let (budget, number) = text.rsplit_once('=').ok_or("write it as NAME=N")?;
    let tokens = number.parse().ok().filter(|tokens| *tokens <= MAX_LIMIT);
    let tokens = tokens.ok_or_else(|| format!("{number:?} is not a number from 0 to {MAX_LIMIT}"))?;
    Ok(BudgetUsed { budget: budget.to_owned(), tokens })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_a_budget_is_behind_the_last_equals_sign() {
        let used = |budget: &str, tokens| Ok(BudgetUsed { budget: budget.to_owned(), tokens });
        assert_eq!(budget_used("spring=0"), used("spring", 0));
        assert_eq!(budget_used("money/a=b=1000000000000000"), used("money/a=b", 1_000_000_000_000_000));
        for wrong in ["spring", "spring=", "spring=N", "spring=-1", "spring=1.5", "spring=1000000000000001"] {
            assert!(budget_used(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shards_are_numbers_and_ranges() {
        assert_eq!(shards("1,5-7, 6"), Ok([1, 5, 6, 7].into()));
        for wrong in ["", "x", "1,", "7-5", "16384", "-1", "1-2-3"] {
            assert!(shards(wrong).is_err(), "{wrong}");
        }
    }
}
