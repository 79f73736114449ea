//! Users who are in two segments, as people and programs read of them.

use serde::Serialize;
use weir_core::segment::{SegmentSet, UserIdKind};

/// How many users of two segments are named.
const EXAMPLES: usize = 5;
/// How many pairs of segments an error tells of.
const MAX_PAIRS: usize = 20;

#[derive(Debug, Serialize)]
pub(super) struct OverlapReport<'s> {
    /// The one that wins, and the other.
    pub(super) segments: [&'s str; 2],
    pub(super) users: u64,
    /// Some of them: their ids, or the hashes of their ids.
    pub(super) examples: Vec<String>,
}

pub(super) fn of(set: &SegmentSet) -> impl Iterator<Item = OverlapReport<'_>> {
    set.overlaps().iter().map(|pair| {
        let (first, second) = (&set.segments()[pair.first], &set.segments()[pair.second]);
        let examples = first.members.intersection(&second.members, EXAMPLES);
        OverlapReport {
            segments: [&first.name, &second.name],
            users: pair.users,
            examples: examples.into_iter().map(|number| number.to_string()).collect(),
        }
    })
}

/// Why a set with overlaps is not made; `None` for one without.
pub(super) fn refusal(set: &SegmentSet) -> Option<String> {
    let all = set.overlaps().len();
    let word = match set.user_id() {
        UserIdKind::U32 | UserIdKind::U64 => "such as",
        UserIdKind::Hash64 => "whose ids have hashes such as",
    };
    let pair = |OverlapReport { segments: [first, second], users, examples }: OverlapReport<'_>| {
        format!("{users} in `{first}` and `{second}` ({word} {})", examples.join(", "))
    };
    let mut pairs: Vec<String> = of(set).take(MAX_PAIRS).map(pair).collect();
    if all > MAX_PAIRS {
        pairs.push(format!("and {} more pairs of segments", all - MAX_PAIRS));
    }
    (all > 0).then(|| format!("users are in two segments: {}; put each user into one", pairs.join("; ")))
}
