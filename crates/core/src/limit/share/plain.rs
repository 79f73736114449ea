//! Limits whose scripts take and give texts and whole numbers alone.

use crate::limit::SharedLimit;

/// A limit that says by itself what its script takes and gives: an edge has to know no more of it than which script that is.
pub trait PlainLimit: SharedLimit {
    /// What a reply is called that cannot be read.
    const WHAT: &'static str;

    /// The name that says in which shard it is, and its keys there, each by its kind (unlike those of other limits) and its name.
    fn keys(key: &Self::Key) -> (&str, Vec<(&'static str, &str)>);

    /// What the script takes behind the member and the number of the turn.
    fn args(turn: &Self::Turn) -> Vec<String>;

    /// What a reply says that has something; `None` where it is none.
    fn reply(numbers: &[i64]) -> Option<Self::Reply>;
}
