//! The pressure of a policy.

use super::{
    caps::action,
    forms::{duration, names, whole},
    options::{Declared, ValueAt, options},
};
use crate::{
    basis::document::value::{Parsed, in_words},
    intent::class::Filter,
    limit::pressure::{
        PressureRule,
        activity::{LONGEST_WINDOW_MINUTES, MAX_ACTIVE_USERS},
    },
};

const MINUTE_MS: i64 = 60_000;
/// The window where the policy does not say: 30 minutes.
const WINDOW_MINUTES: u8 = 30;

options! {
    PressureOptions -> PressureRule, "Pressure",
    "Pressure: active users still get messages, and others only while fewer than the maximum are active. A user is active who had\n\
     an approved intent of any kind in the window, or was reported as active. Without channel and category, it applies to all intents." {
        max_active_users: required, whole(1..=MAX_ACTIVE_USERS),
            "The most users that may be active. weir takes 24 bytes of memory for each.";
        window: or(WINDOW_MINUTES), duration().and(minutes),
            r#"For how long a user is active: whole minutes, "30m" (the default), at most "2h"."#;
        channel: optional, names(), "Only intents of these channels.";
        category: optional, names(), "Only intents of these categories.";
        action: or_default, action(), "The action for intents of users who may not become active now. Default: suppress.";
    }
    |at| Some(PressureRule {
        max_active_users: max_active_users?,
        window_minutes: window,
        filter: Filter { channels: channel, categories: category },
        action,
    })
}

fn minutes(length_ms: i64, _: &ValueAt<'_>) -> Parsed<u8> {
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
