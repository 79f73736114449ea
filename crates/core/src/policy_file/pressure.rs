//! The pressure of a policy.

use super::{
    caps::{action, filter},
    check::elsewhere,
};
use crate::{
    activity::{LONGEST_WINDOW_MINUTES, MAX_ACTIVE_USERS},
    document::{
        Document, Node, Table,
        value::{self, Parsed, in_words},
    },
    pressure::PressureRule,
};

const MINUTE_MS: i64 = 60_000;
/// The window where the policy does not say: 30 minutes.
const WINDOW_MINUTES: u8 = 30;

/// The rule; `None` where something is wrong, which is noted.
pub(super) fn pressure(document: &Document<'_>, node: &Node, may_defer: bool) -> Option<PressureRule> {
    let mut table = Table::of(document, node, "pressure")?;
    let max_active_users = table.required("max_active_users", |node| value::whole(node, 1..=MAX_ACTIVE_USERS));
    let window_minutes = table.optional("window", window).unwrap_or(WINDOW_MINUTES);
    let filter = filter(&mut table);
    let action = table.optional("action", |node| action(node, may_defer)).unwrap_or_default();
    table.finish(elsewhere);
    Some(PressureRule { max_active_users: max_active_users?, window_minutes, filter, action })
}

fn window(node: &Node) -> Parsed<u8> {
    let length_ms = value::duration_ms(node)?;
    let minutes = u8::try_from(length_ms / MINUTE_MS).unwrap_or(u8::MAX);
    if length_ms % MINUTE_MS == 0 && (1..=LONGEST_WINDOW_MINUTES).contains(&minutes) {
        return Ok(minutes);
    }
    Err(format!(
        "must be whole minutes, from {} to {}, not {}",
        in_words(MINUTE_MS),
        in_words(i64::from(LONGEST_WINDOW_MINUTES) * MINUTE_MS),
        in_words(length_ms)
    ))
}
