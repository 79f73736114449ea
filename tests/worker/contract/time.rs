//! Section 4, calendar windows, and section 3, suppression before caps are evaluated.

use serde_json::{Value, json};
use weir_core::ports::Clock;
use weir_worker::clock::SystemClock;

use crate::{
    contract::run::{DAY_MS, Earlier, HOUR_MS, RUN, Records, of},
    support::outcome::{OutcomeKind, intent, time_ms},
};

/// Zones of whole hours without summer time, from 12 h behind UTC to 14 h ahead; POSIX writes the sign the other way.
fn zones() -> impl Iterator<Item = (i64, String)> {
    (-12..=14).map(|hours: i64| (hours * HOUR_MS, format!("Etc/GMT{:+}", -hours)))
}

/// So long ago were the earlier sends of `days`: some zones have had a midnight since.
const EARLIER_TODAY_MS: i64 = 3 * HOUR_MS;
const EARLIER_THIS_WEEK_MS: i64 = 3 * DAY_MS;
const EARLIER_THIS_MONTH_MS: i64 = 15 * DAY_MS;

pub fn earlier() -> Vec<Earlier> {
    let days = (100..).zip(zones()).map(|(user, _)| Earlier { user, ago_ms: EARLIER_TODAY_MS });
    let days = days.chain([Earlier { user: 190, ago_ms: EARLIER_TODAY_MS }]);
    let weeks = [Earlier { user: 800, ago_ms: EARLIER_THIS_WEEK_MS }];
    let months = [Earlier { user: 900, ago_ms: EARLIER_THIS_MONTH_MS }];
    days.chain(weeks).chain(months).collect()
}

fn rfc3339(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap().to_string()
}

pub fn records() -> Records {
    let now_ms = SystemClock.now().millis();
    let in_a_zone =
        |(user, (_, zone)): (u64, (i64, String))| intent(&format!("day {zone}"), user, json!({"timezone": zone}));
    let mut records: Records = (100..).zip(zones()).map(in_a_zone).collect();
    let held = |name: &str, more| intent(name, format!("nobody-{name}"), more);
    let old_ms = now_ms - 3 * DAY_MS;
    records.extend([
        intent("day by the policy's zone", 190, json!({})),
        intent("week", 800, json!({"timezone": "UTC"})),
        intent("week again", 800, json!({"timezone": "UTC"})),
        intent("month", 900, json!({"timezone": "UTC"})),
        intent("month again", 900, json!({"timezone": "UTC"})),
        held("expires now past", json!({"expires_at": rfc3339(now_ms - 1)})),
        held("expires in ms, past", json!({"expires_at": now_ms - 1})),
        held("expires later", json!({"expires_at": now_ms + HOUR_MS})),
        held("made long ago", json!({"created_at": old_ms})),
        held("published long ago", json!({})).timestamp_ms(old_ms),
        held("made now, published long ago", json!({"created_at": rfc3339(now_ms)})).timestamp_ms(old_ms),
        held("made within max_age", json!({"created_at": now_ms - DAY_MS})),
        held("due later", json!({"not_before": rfc3339(now_ms + 2 * HOUR_MS)})),
        held("due before", json!({"not_before": now_ms - 1})),
        held("due later and expired", json!({"not_before": now_ms + HOUR_MS, "expires_at": now_ms - 1})),
        intent("expired and capped", 501, json!({"expires_at": now_ms - 1})),
        held("expired bypass", json!({"expires_at": now_ms - 1, "category": "transactional"})),
    ]);
    records
}

fn day_of(ms: i64, offset_ms: i64) -> i64 {
    (ms + offset_ms).div_euclid(DAY_MS)
}

pub fn a_calendar_day_begins_at_midnight_in_the_intents_zone() {
    let earlier_ms = RUN.seeded_ms - EARLIER_TODAY_MS;
    let mut fresh = 0;
    for (offset_ms, zone) in zones() {
        let outcome = of(&format!("day {zone}"));
        let today = day_of(outcome.decided_ms(), offset_ms);
        if today == day_of(earlier_ms, offset_ms) {
            let envelope = outcome.envelope();
            assert_eq!(envelope["cap"], json!({"name": "today", "limit": 1, "per": "day", "used": 1}), "{zone}");
            assert_eq!(time_ms(&envelope["eligible_at"]), Some((today + 1) * DAY_MS - offset_ms), "{zone}");
        } else {
            assert_eq!(outcome.kind, OutcomeKind::Approved, "{zone}: {:?}", outcome.record);
            fresh += 1;
        }
    }
    assert!((2..=6).contains(&fresh), "{fresh} zones have had a midnight in three hours");
}

pub fn a_user_without_a_zone_has_the_policys() {
    let (outcome, singapore_ms) = (of("day by the policy's zone"), 8 * HOUR_MS);
    let today = day_of(outcome.decided_ms(), singapore_ms);
    let counted = today == day_of(RUN.seeded_ms - EARLIER_TODAY_MS, singapore_ms);
    assert_eq!(outcome.kind == OutcomeKind::Suppressed, counted);
    if counted {
        let next_ms = (today + 1) * DAY_MS - singapore_ms;
        assert_eq!(time_ms(&outcome.envelope()["eligible_at"]), Some(next_ms));
    }
}

pub fn a_calendar_week_begins_on_monday() {
    // 1970-01-01 was a Thursday.
    let week_of = |ms: i64| (day_of(ms, 0) + 3).div_euclid(7);
    let first = of("week");
    let decided_ms = first.decided_ms();
    let counted = week_of(decided_ms) == week_of(RUN.seeded_ms - EARLIER_THIS_WEEK_MS);
    assert_eq!(first.kind == OutcomeKind::Suppressed, counted);
    let envelope = of("week again").envelope();
    assert_eq!(envelope["cap"]["per"], "week");
    let monday_ms = ((week_of(decided_ms) + 1) * 7 - 3) * DAY_MS;
    assert_eq!(time_ms(&envelope["eligible_at"]), Some(monday_ms));
}

pub fn a_calendar_month_begins_on_its_first_day() {
    let date = |ms: i64| jiff::Timestamp::from_millisecond(ms).unwrap().to_zoned(jiff::tz::TimeZone::UTC).date();
    let first = of("month");
    let decided_ms = first.decided_ms();
    let counted = date(decided_ms).month() == date(RUN.seeded_ms - EARLIER_THIS_MONTH_MS).month();
    assert_eq!(first.kind == OutcomeKind::Suppressed, counted);
    let envelope = of("month again").envelope();
    assert_eq!(envelope["cap"]["per"], "month");
    let first_of_next = date(decided_ms).last_of_month().tomorrow().unwrap();
    assert_eq!(envelope["eligible_at"], Value::from(format!("{first_of_next}T00:00:00.000Z")));
}

pub fn an_intent_past_its_expiry_or_older_than_max_age_has_expired() {
    let cases = [
        ("expires now past", "expired"),
        ("expires in ms, past", "expired"),
        ("expires later", "approved"),
        ("made long ago", "expired"),
        ("published long ago", "expired"),
        ("made now, published long ago", "approved"),
        ("made within max_age", "approved"),
        ("due later and expired", "expired"),
        ("expired and capped", "expired"),
        ("expired bypass", "expired"),
    ];
    for (name, verdict) in cases {
        assert_eq!(of(name).verdict(), verdict, "{name}");
    }
    assert_eq!(of("expires now past").envelope()["eligible_at"], Value::Null);
}

pub fn an_intent_that_is_not_due_is_too_early_until_then() {
    let outcome = of("due later");
    assert_eq!(outcome.verdict(), "too_early");
    let intent: Value = serde_json::from_slice(outcome.input.value.as_deref().unwrap()).unwrap();
    assert_eq!(time_ms(&outcome.envelope()["eligible_at"]), time_ms(&intent["not_before"]));
    assert_eq!(of("due before").verdict(), "approved");
}
