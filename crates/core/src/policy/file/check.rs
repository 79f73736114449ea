//! The whole policy: from the tree to the domain's type.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use jiff::civil::Time as CivilTime;

use super::{
    budgets::BudgetOptions,
    caps::{SegmentOptions, action, selection},
    forms::{Check, Form, between, duration, flag, list, names, table, text, word},
    options::{Declared, ValueAt, options},
    pressure::PressureOptions,
    routes::routes,
};
use crate::{
    basis::{
        document::{
            Node, Value,
            value::{self, Parsed, in_words},
        },
        zone::Zone,
    },
    deferral::wheel::LONGEST_MS,
    intent::class::Filter,
    limit::budget::MAX_BUDGETS,
    policy::{Action, Bypass, Caps, Counts, Mode, OnUnavailable, Policy, QuietHours, Selection, Unavailable},
};

/// The longest deferral where the policy does not say: 72 hours.
const DEFER_MAX_MS: i64 = 72 * 60 * 60 * 1000;
/// The longest time that intents may be spread over: what comes back later than a day after quiet hours comes in the next ones.
const LONGEST_SPREAD_MS: i64 = 12 * 60 * 60 * 1000;

const UNAVAILABLE: &[(&str, Unavailable)] =
    &[("wait", Unavailable::Wait), ("approve", Unavailable::Approve), ("suppress", Unavailable::Suppress)];

options! {
    PolicyOptions -> Policy, "Policy", "A policy: each segment's caps, bypasses, and quiet hours." {
        version: required, text(), "The policy's version; every decision names it.";
        timezone: or(Zone::utc()), Check { form: Form::Zone, ..text() }.and(zone),
            "IANA time zone for intents that name none, for calendar windows and quiet hours. Default: UTC.";
        segments: or_default, Check { form: Form::ByName(SegmentOptions::declared), read: segments },
            "Each segment's caps, by the segment's name.";
        default: required("`[default]`: the caps of users who are in no segment"), table::<SegmentOptions>(),
            "Users in no segment, or in one that is not named here.";
        bypass: or_default, list::<BypassOptions>("rules", None, None),
            "Intents that are never capped; the first matching rule decides whether they count.";
        on_unavailable: or_default, list::<UnavailableOptions>("rules", None, None),
            "Actions for intents whose history is unavailable for longer than redis.unavailable_after. The first matching rule\n\
             decides; intents without one wait.";
        quiet_hours: optional, table::<QuietOptions>(), "Hours without messages, by the user's clock.";
        stop: or_default, list::<StopOptions>("rules", None, None),
            "Intents that are not sent any more: they are suppressed as stopped, deferred intents at the latest when they are due.";
        budgets: or_default,
            list::<BudgetOptions>("budgets", Some(MAX_BUDGETS), Some("decisions name the budget that denied")),
            "The most that may be approved in a window, over all users and instances.";
        pressure: optional, table::<PressureOptions>(), "The most users that may be active at a time.";
        routes: or_default, routes(),
            "Where approved intents are delivered, and how fast; the first matching route counts. Intents without one are not paced.";
        defer: optional, table::<DeferOptions>(), "Bounds of deferral.";
        max_age: optional, duration(),
            r#"Older intents (by created_at, else Kafka's time) are suppressed as expired: "6h"."#;
        shadow: or_default, flag(), "true: decide and report, but approve every intent. Default: false.";
    }
    |at| Some(Policy {
        version: version?.to_string(),
        timezone,
        segments,
        default: default?,
        bypass,
        on_unavailable,
        quiet_hours,
        stops: stop,
        pressure,
        budgets,
        routes,
        defer_max_ms: defer.unwrap_or(DEFER_MAX_MS.min(at.bounds.history.retention_ms)),
        max_age_ms: max_age,
        mode: if shadow { Mode::Shadow } else { Mode::Enforce },
    })
}

options! {
    BypassOptions -> Bypass, "BypassRule",
    "Intents that are never capped. At least one of channel, category and campaign; an intent must fit all that are given.",
    anyOf(channel, category, campaign)
    "needs at least one of `channel`, `category` and `campaign`: which intents are never capped" {
        channel: optional, names(), "The channels.";
        category: optional, names(), "The categories.";
        campaign: optional, names(), "The campaigns.";
        counts: or(true), flag(),
            "true (default): recorded, and counts against later intents. false: not recorded, no duplicate check.";
    }
    |at| Some(Bypass {
        selection: selection(channel, category, campaign),
        counts: if counts { Counts::Yes } else { Counts::No },
    })
}

options! {
    StopOptions -> Selection, "StopRule",
    "Intents that are not sent any more. At least one of channel, category and campaign; an intent must fit all that are given.",
    anyOf(channel, category, campaign)
    "needs at least one of `channel`, `category` and `campaign`: which intents are not sent any more" {
        channel: optional, names(), "The channels.";
        category: optional, names(), "The categories.";
        campaign: optional, names(), "The campaigns.";
    }
    |at| Some(selection(channel, category, campaign))
}

options! {
    UnavailableOptions -> OnUnavailable, "UnavailableRule",
    "The action for intents whose history is unavailable. An intent must fit all that is given; without channel and category, every intent does." {
        channel: optional, names(), "The channels.";
        category: optional, names(), "The categories.";
        action: required, word(UNAVAILABLE),
            "wait: until the shard is available; with kafka.deferred, intents of other shards continue. approve: approved without\n\
             evaluating a cap, and recorded once the shard is available. suppress: suppressed as unavailable.";
    }
    |at| Some(OnUnavailable { filter: Filter { channels: channel, categories: category }, action: action? })
}

options! {
    QuietOptions -> QuietHours, "QuietHours",
    "From one time of day until before another, over midnight if the second is earlier." {
        from: required, Check { form: Form::TimeOfDay, read: time_of_day }, r#"Their begin: "22:00"."#;
        to: required, Check { form: Form::TimeOfDay, read: time_of_day }, r#"Their end: "08:00"."#;
        action: required, action(), "The action for intents in quiet hours.";
        spread: optional, between(0..=LONGEST_SPREAD_MS),
            r#"Deferred intents return within this time after the end, spread by user: "30m". At most "12h"."#;
        channel: optional, names(), "Only for intents of these channels.";
        category: optional, names(),
            "Only for intents of these categories. A bypass does not exempt from quiet hours; this does.";
    }
    |at| {
        if spread.is_some() && action == Some(Action::Suppress) {
            at.note_option("spread", "needs action = \"defer\": what is suppressed does not return");
        }
        let quiet = QuietHours::new(from?, to?, Filter { channels: channel, categories: category });
        if quiet.is_none() {
            let reason = "and quiet_hours.to must not be the same: leave [quiet_hours] out for never; for always, use a cap with \
                          limit = 0";
            at.note_option("from", reason);
        }
        match action? {
            Action::Suppress => quiet,
            Action::Defer => quiet.map(|quiet| quiet.deferring(spread.unwrap_or(0))),
        }
    }
}

options! {
    DeferOptions -> i64, "Defer", "Bounds of deferral." {
        max: required, duration().and(kept),
            "The longest time that an intent is deferred: \"72h\" (the default), at most \"94h\" and redis.history. What may be sent\n\
             only later is suppressed.";
    }
    |at| max
}

/// Keys of the document itself: in TOML they must stand before the first table, which is easily missed.
static TOP_LEVEL: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let options = PolicyOptions::declared().options.into_iter();
    let options = options.filter(|option| !matches!(option.form, Form::Table(_) | Form::ByName(_)));
    options.map(|option| option.key).collect()
});

/// Where a key that is unknown here belongs.
pub(super) fn elsewhere(key: &str) -> Option<String> {
    TOP_LEVEL.contains(&key).then(|| {
        format!("`{key}` belongs to the policy itself: in TOML, write it above the first line that begins with `[`")
    })
}

fn segments(at: &ValueAt<'_>) -> Option<BTreeMap<String, Arc<Caps>>> {
    let mut segments = BTreeMap::new();
    for entry in at.entries()? {
        let name = Node { origin: entry.origin.clone(), value: Value::Text(entry.key.clone()) };
        match value::text(&name) {
            Ok(_) => segments.extend(SegmentOptions::read(&at.entry(entry)).map(|caps| (entry.key.clone(), caps))),
            // The name is in the path of each problem of the segment, however long it is: the segment is not read.
            Err(reason) => at.document.note(&entry.origin, format!("the segment's name {:?} {reason}", entry.key)),
        }
    }
    Some(segments)
}

fn zone(name: Arc<str>, _: &ValueAt<'_>) -> Parsed<Zone> {
    Zone::named(&name).ok_or_else(|| {
        format!("must be the IANA name of a time zone, such as \"Asia/Singapore\" or \"UTC\", not {name:?}")
    })
}

/// A time of deferral that the history and the topics reach.
fn kept(max_ms: i64, at: &ValueAt<'_>) -> Parsed<i64> {
    let history_ms = at.bounds.history.retention_ms;
    let (longest, why) = if history_ms < LONGEST_MS {
        (history_ms, "redis.history: a replay must still be recognized")
    } else {
        (LONGEST_MS, "the hours that the topics have buckets for")
    };
    if max_ms <= longest { Ok(max_ms) } else { Err(format!("must be at most {} ({why})", in_words(longest))) }
}

fn time_of_day(at: &ValueAt<'_>) -> Option<CivilTime> {
    at.parse(|node| {
        let text = if let Value::Text(text) = &node.value { text.as_str() } else { "" };
        let is_shaped = |(byte, shape): (u8, u8)| if shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
        let has_shape = text.len() == 5 && text.bytes().zip(*b"00:00").all(is_shaped);
        let time = if has_shape { text.parse().ok() } else { None };
        time.ok_or_else(|| value::must_be("a time of day as \"HH:MM\", from \"00:00\" to \"23:59\"", node))
    })
}
