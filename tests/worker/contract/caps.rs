//! Section 4: what counts.

use serde_json::{Value, json};
use testkit::wait_until;

use crate::{
    contract::run::{DAY_MS, Earlier, HOUR_MS, RUN, Records, words},
    support::{
        DEADLINE, TOPICS, approval, header,
        outcome::{CASE, OutcomeKind, intent, time_ms},
    },
};

/// Sends of one user, one after the other: `{prefix}0`, `{prefix}1`, ...
fn series(prefix: &str, user: impl std::fmt::Display, more: impl IntoIterator<Item = Value>) -> Records {
    let one = |(number, more)| intent(&format!("{prefix}{number}"), &user, more);
    more.into_iter().enumerate().map(one).collect()
}

const MINUTE_MS: i64 = 60_000;

pub fn earlier() -> Vec<Earlier> {
    let send = |user, ago_ms| Earlier { user, ago_ms };
    vec![
        send(1, DAY_MS - 10 * MINUTE_MS),
        send(1, HOUR_MS),
        send(2, DAY_MS + 1_000),
        send(2, HOUR_MS),
        send(3, 6 * DAY_MS),
        send(3, 5 * DAY_MS),
        send(3, 4 * DAY_MS),
        send(3, 3 * DAY_MS),
        send(3, 2 * DAY_MS),
    ]
}

/// Bodies without fields of their own.
fn plain(count: usize) -> Vec<Value> {
    vec![json!({}); count]
}

pub fn records() -> Records {
    let class = |channel: Option<&str>, category: Option<&str>| json!({"channel": channel, "category": category});
    let filters = [
        class(Some("push"), Some("news")),
        class(Some("push"), None),
        class(Some("email"), Some("news")),
        class(None, None),
        class(Some("email"), Some("promo")),
        class(Some("email"), Some("partner")),
        class(Some("email"), Some("promo")),
        class(Some("email"), None),
    ];
    let campaign = |name: Option<&str>| json!({"campaign": name});
    let campaigns = [Some("a"), Some("a"), Some("b"), None, None, Some("b")].map(campaign);
    let costs = [4, 6, 1].map(|cost| json!({"cost": cost}));
    let same = |id: &str| json!({"id": id});
    let transactional = || json!({"category": "transactional", "id": "bypass-id"});
    let service = || json!({"category": "service"});
    [
        series("slide-", 0, plain(4)),
        series("slide-in-", 1, plain(1)),
        series("slide-out-", 2, plain(2)),
        series("slide-weekly-", 3, plain(1)),
        series("cost-", 200, costs),
        series("cost-over-", 201, [json!({"cost": 11})]),
        series("filter-", 300, filters),
        series("campaign-", 400, campaigns),
        series("never-", 500, plain(1)),
        series("unlimited-", 600, plain(40)),
        series("unlimited-same-", 601, [same("unlimited-id"), same("unlimited-id")]),
        series("several-", 700, plain(2)),
        series("same-id-", 702, [same("an-id"), same("an-id"), same("another-id")]),
        series("same-id-other-user-", 703, [same("an-id")]),
        series("same-id-denied-", 4, [same("d-1"), same("d-2"), same("d-3"), same("d-3"), same("d-1")]),
        series("bypass-", "nobody-1", [transactional(), transactional(), json!({}), transactional()]),
        series(
            "service-",
            "nobody-2",
            [service(), service(), json!({"category": "service", "id": "service-0"}), json!({})],
        ),
    ]
    .concat()
}

#[track_caller]
fn series_is(prefix: &str, expected: &[&str]) {
    assert_eq!(RUN.outcomes.series(prefix), words(expected), "{prefix}");
}

#[track_caller]
fn eligible_ms(name: &str) -> Option<i64> {
    time_ms(&RUN.outcomes.of(name).envelope()["eligible_at"])
}

pub fn a_sliding_window_counts_what_was_approved_in_it_and_no_more() {
    series_is("slide-", &["approved", "approved", "cap daily 2/2", "cap daily 2/2"]);
    series_is("slide-in-", &["cap daily 2/2"]);
    series_is("slide-out-", &["approved", "cap daily 2/2"]);
    series_is("slide-weekly-", &["cap weekly 5/5"]);
}

pub fn eligible_at_is_when_the_send_that_blocks_has_left_the_window() {
    let first_ms = RUN.outcomes.of("slide-0").decided_ms();
    assert_eq!(eligible_ms("slide-2"), Some(first_ms + DAY_MS));
    assert_eq!(eligible_ms("slide-in-0"), Some(RUN.seeded_ms + 10 * MINUTE_MS));
    assert_eq!(eligible_ms("slide-out-1"), Some(RUN.seeded_ms - HOUR_MS + DAY_MS));
    assert_eq!(eligible_ms("slide-weekly-0"), Some(RUN.seeded_ms + DAY_MS));
}

pub fn a_send_takes_its_cost() {
    series_is("cost-", &["approved", "approved", "cap costs 10/10"]);
    series_is("cost-over-", &["cap costs 0/10"]);
    assert_eq!(eligible_ms("cost-over-0"), None, "what costs more than the limit never fits");
}

pub fn a_cap_asks_and_counts_only_its_channels_and_categories() {
    let push = "cap push 1/1";
    let promo = "cap promo 2/2";
    let yes = "approved";
    series_is("filter-", &[yes, push, yes, yes, yes, yes, promo, yes]);
}

pub fn each_campaign_counts_its_own_sends() {
    let (yes, no) = ("approved", "cap once 1/1");
    series_is("campaign-", &[yes, no, yes, yes, no, no]);
}

pub fn a_limit_of_0_means_never() {
    series_is("never-", &["cap never 0/0"]);
    assert_eq!(eligible_ms("never-0"), None);
}

pub fn of_several_caps_that_deny_the_one_that_frees_last_is_named() {
    series_is("several-", &["approved", "cap long 1/1"]);
    assert_eq!(eligible_ms("several-1"), Some(RUN.outcomes.of("several-0").decided_ms() + 7 * DAY_MS));
}

pub fn an_unlimited_segment_is_not_capped_and_recorded_all_the_same() {
    series_is("unlimited-", &["approved"; 40]);
    series_is("unlimited-same-", &["approved", "duplicate"]);
    assert_eq!(RUN.outcomes.of("unlimited-0").approval().get("counts"), None);
}

pub fn the_same_id_is_not_sent_twice_to_the_same_user() {
    series_is("same-id-", &["approved", "duplicate", "cap long 1/1"]);
    series_is("same-id-other-user-", &["approved"]);
    let envelope = RUN.outcomes.of("same-id-1").envelope();
    assert_eq!((&envelope["eligible_at"], envelope.get("cap")), (&Value::Null, None), "{envelope}");
}

pub fn a_denied_intent_is_not_recorded() {
    let (yes, cap) = ("approved", "cap daily 2/2");
    series_is("same-id-denied-", &[yes, yes, cap, cap, "duplicate"]);
}

pub fn a_bypass_that_does_not_count_is_neither_capped_nor_recorded_nor_a_duplicate() {
    series_is("bypass-", &["approved"; 4]);
    let counts = |name: &str| RUN.outcomes.of(name).approval().get("counts") != Some(&json!(false));
    assert_eq!(["bypass-0", "bypass-1", "bypass-2", "bypass-3"].map(counts), [false, false, true, false]);
}

pub fn a_bypass_that_counts_is_recorded_and_counts_against_later_sends() {
    series_is("service-", &["approved", "approved", "duplicate", "cap daily 2/1"]);
}

pub fn a_replay_gets_the_verdict_and_the_time_it_had() {
    // Another group reads the same intents from their beginning: the same ids from the same origins.
    let scene = &RUN.scene;
    let again = |topic: &str| format!("{}-again-{topic}", scene.name);
    for topic in &TOPICS[1..] {
        scene.kafka.create_topic_with(&again(topic), 2, &[("max.message.bytes", "9000000")]).unwrap();
    }
    let group = again("group");
    let _worker = scene.worker_with(
        "again",
        &[
            ("WEIR__KAFKA__GROUP", &group),
            ("WEIR__KAFKA__APPROVED", &again("approved")),
            ("WEIR__KAFKA__SUPPRESSED", &again("suppressed")),
            ("WEIR__KAFKA__DEAD_LETTERS", &again("dead")),
        ],
    );
    let ends = scene.kafka.end_offsets(&scene.topic("intents")).unwrap();
    wait_until(DEADLINE, "all is decided again", || {
        let done = scene.kafka.committed(&group, &scene.topic("intents")).unwrap_or_default();
        !done.is_empty() && done.iter().zip(&ends).all(|(done, end)| *end == 0 || *done == Some(*end))
    });
    let records = scene.kafka.read_committed(&again("approved")).unwrap();
    let mut seen = 0;
    for record in &records {
        let first = RUN.outcomes.of(&header(record, CASE).unwrap());
        assert_eq!(first.kind, OutcomeKind::Approved, "{record:?}");
        if approval(record).get("counts").is_none() {
            assert_eq!((&record.value, &record.headers), (&first.record.value, &first.record.headers));
            seen += 1;
        }
    }
    let approved = RUN.outcomes.all().filter(|(_, outcome)| outcome.kind == OutcomeKind::Approved).count();
    assert_eq!(records.len(), approved);
    assert!(seen > 100, "{seen}");
}
