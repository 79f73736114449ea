//! The caps of one segment.

use std::sync::Arc;

use super::{
    forms::{Check, Form, Names, Read, duration, names, text, whole, word},
    options::{Declared, ValueAt, options},
};
use crate::{
    basis::document::{
        Value,
        value::{self, MAX_TEXT_BYTES, Parsed, in_words},
    },
    history::{admit::MAX_CAPS, decide::Scope},
    intent::class::{Filter, MAX_NAME_BYTES},
    policy::{Action, Cap, CapWindow, Caps, Period, Selection},
};

const _: () = assert!(MAX_TEXT_BYTES <= MAX_NAME_BYTES, "a name of a policy is numbered as it is");

const ACTIONS: &[(&str, Action)] = &[("suppress", Action::Suppress), ("defer", Action::Defer)];
pub(super) const PERIODS: &[(&str, Period)] = &[("day", Period::Day), ("week", Period::Week), ("month", Period::Month)];
pub(super) const EACH: &[(&str, Scope)] = &[("campaign", Scope::SameCampaign)];

options! {
    SegmentOptions -> Arc<Caps>, "Segment", "One segment." {
        caps: required("`caps`: a list of caps, or caps = \"unlimited\" where nothing is to be counted against its users"),
            Check { form: Form::Caps(CapOptions::declared), read: caps },
            r#"They must all allow an intent; "unlimited": nothing is counted against its users."#;
    }
    |at| caps.map(Arc::new)
}

options! {
    CapOptions -> Cap, "Cap", "One cap.",
    oneOf(window, per) "needs `window` (such as \"24h\") or `per` (\"day\", \"week\" or \"month\")" {
        name: required, text(), "Its name, unique in the segment; decisions name the cap that denied.";
        limit: required, whole(0..=u32::MAX).and(within_entries),
            "The largest sum of costs in the window (an intent's cost is 1 by default). 0: never. At most redis.max_entries.";
        window: optional, duration().and(sliding), r#"Sliding window: "24h". Not longer than redis.history."#;
        per: optional, word(PERIODS).and(calendar), "Calendar window in the user's time zone; weeks begin on Monday.";
        channel: optional, names(), "The cap applies only to intents of these channels, and only these count.";
        category: optional, names(), "The cap applies only to intents of these categories, and only these count.";
        each: or(Scope::Every), word(EACH), r#""campaign": only approved intents of the same campaign count."#;
        action: or_default, action(), "The action for intents that the cap denies. Default: suppress.";
    }
    |at| Some(Cap {
        name: name?,
        limit: limit?,
        window: window.or(per)?,
        filter: Arc::new(Filter { channels: channel, categories: category }),
        scope: each,
        action,
    })
}

fn caps(at: &ValueAt<'_>) -> Option<Caps> {
    if at.node.value == Value::Text("unlimited".to_owned()) {
        return Some(Caps::Unlimited);
    }
    let Value::List(items) = &at.node.value else {
        at.note(&value::must_be("a list of caps, or \"unlimited\"", at.node));
        return None;
    };
    if items.is_empty() {
        at.note("must not be an empty list: write caps = \"unlimited\" for no caps, or a cap with limit = 0");
        return None;
    }
    at.each("caps", MAX_CAPS, CapOptions::read, Some("decisions name the cap that denied")).map(Caps::Limited)
}

/// What becomes of an intent that may be sent later.
pub(super) fn action() -> Check<impl Read<Action>> {
    word(ACTIONS).and(with_topics)
}

/// `defer` needs topics to defer to.
fn with_topics(action: Action, at: &ValueAt<'_>) -> Parsed<Action> {
    match action {
        Action::Defer if !at.bounds.may_defer => Err("= \"defer\" needs topics to defer intents to: set kafka.deferred in the \
                                                      configuration (such as deferred = \"send-deferred\"), or write \"suppress\""
            .into()),
        Action::Suppress | Action::Defer => Ok(action),
    }
}

/// A limit above the entries that a history may have would never be reached.
fn within_entries(limit: u32, at: &ValueAt<'_>) -> Parsed<u32> {
    let most = at.bounds.history.max_entries;
    if limit <= most {
        return Ok(limit);
    }
    Err(format!(
        "is {limit}, but redis.max_entries keeps the newest {most} sends of a user: choose a lower one, or raise \
         redis.max_entries"
    ))
}

fn sliding(length_ms: i64, at: &ValueAt<'_>) -> Parsed<CapWindow> {
    within_history(CapWindow::Sliding { length_ms, text: value::text(at.node)?.into() }, at)
}

fn calendar(period: Period, at: &ValueAt<'_>) -> Parsed<CapWindow> {
    within_history(CapWindow::Per(period), at)
}

fn within_history(window: CapWindow, at: &ValueAt<'_>) -> Parsed<CapWindow> {
    let [longest_ms, kept_ms] = [window.longest_ms(), at.bounds.history.retention_ms];
    if longest_ms <= kept_ms {
        return Ok(window);
    }
    Err(format!(
        "looks back up to {}, but redis.history keeps {}: choose a shorter one, or raise redis.history",
        in_words(longest_ms),
        in_words(kept_ms)
    ))
}

/// The intents that fit all that is given.
pub(super) fn selection(channels: Names, categories: Names, campaigns: Names) -> Selection {
    Selection { filter: Filter { channels, categories }, campaigns }
}
