use super::*;
use crate::{batch::tests::Row, decision::decision_header::with_retry};

const DECISION: &str =
    r#"{"verdict":"approved","decided_at":"2026-11-20T09:00:00.000Z","policy_version":"1","segments_version":"1"}"#;
const POLICY: &str = "max_age = \"2h\"\n[[stop]]\ncampaign = \"spring\"\n\
                      [[routes]]\nname = \"email\"\nchannel = \"email\"\nrate = 5\nmax_attempts = 3\nwhen_full = \"suppress\"\n";

fn time(text: &str) -> Time {
    Time::from_rfc3339(text).unwrap()
}

fn decider(policy: &str) -> Decider {
    Decider { topic: "retries".into(), ..Decider::of(Policy::uncapped(policy)) }
}

fn approved(more: &str, retry: u32) -> Row {
    let decision = if retry == 0 { DECISION.to_owned() } else { with_retry(DECISION.as_bytes(), retry).unwrap() };
    let forged = ("weir-decision", with_retry(DECISION.as_bytes(), 99).unwrap());
    let value = format!(r#"{{"id":"i","user_id":"u"{more}}}"#);
    let headers = vec![forged, ("weir-decision", decision), ("trace", "t".to_owned())];
    Row { partition: 3, offset: 7, value, headers, ..Row::default() }
}

/// What becomes of a record.
fn tried(policy: &str, record: &Row, now: Time) -> Output {
    let (outputs, _) = try_again(&decider(policy), record, Wheel { shares: 1 }, now);
    let [output] = outputs.try_into().unwrap();
    output
}

fn why(policy: &str, record: &Row, now: Time) -> Option<String> {
    let Output { to, value, headers } = tried(policy, record, now);
    if to == Destination::Undelivered {
        assert_eq!((value, headers.len()), (OutputValue::AsItCame, 1));
        return Some(headers[0].1.clone());
    }
    assert!(matches!(to, Destination::Deferred(_)), "{to:?}");
    None
}

#[test]
fn waits_grow_from_a_minute_to_an_hour_and_are_spread() {
    for (retry, minutes) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (u32::MAX, 60)] {
        let waits: Vec<i64> = (0..2_000).map(|id| wait_ms(retry, IdHash(id))).collect();
        let bound = minutes * MINUTE_MS;
        assert!(waits.iter().all(|wait| (1..=bound).contains(wait)), "{retry}");
        let mean = waits.iter().sum::<i64>() / 2_000;
        assert!((mean - bound / 2).abs() < bound / 20, "{retry}: {mean}");
        assert_eq!(wait_ms(retry, IdHash(5)), waits[5]);
    }
}

#[test]
fn a_failed_delivery_is_deferred_since_its_decision_as_the_next_one_of_its_record() {
    for retry in [0, 3] {
        let Output { to, headers, .. } = tried(POLICY, &approved("", retry), time("2026-11-20T09:10:00Z"));
        let deferral = Deferral::read(&headers[1..]).unwrap();
        assert!(matches!(to, Destination::Deferred(_)) && deferral.is_until_retry(), "{to:?} {deferral:?}");
        assert_eq!((deferral.first_at, deferral.count), (time("2026-11-20T09:00:00Z"), retry + 1));
        assert_eq!((deferral.origin().topic, deferral.partition, deferral.offset), ("retries", 3, 7));
    }
}

#[test]
fn a_delivery_is_given_up_after_its_attempts_or_where_its_intent_has_ended() {
    let now = time("2026-11-20T09:10:00Z");
    let of = |more: &str, retry| why(POLICY, &approved(more, retry), now);
    let attempts = Some("attempts".to_owned());
    assert_eq!([of("", 3), of("", 4), of("", 9)], [None, attempts.clone(), attempts.clone()], "5 attempts");
    let email = r#","channel":"email""#;
    assert_eq!([of(email, 1), of(email, 2)], [None, attempts], "the route's 3");
    let (stopped, expired) = (Some("stopped".to_owned()), Some("expired".to_owned()));
    assert_eq!(of(r#","campaign":"spring""#, 0), stopped);
    assert_eq!(of(r#","expires_at":"2026-11-20T09:10:00Z""#, 0), expired, "before its retry");
    assert_eq!(of(r#","expires_at":"2026-11-20T09:12:01Z""#, 0), None);
    let late = time("2026-11-20T10:59:59Z");
    assert_eq!(why(POLICY, &approved("", 0), late), expired, "its age counts from its decision");
    let shadow = format!("shadow = true\n{POLICY}");
    assert_eq!(why(&shadow, &approved(r#","campaign":"spring""#, 0), late), None, "nothing is kept back");
    assert_eq!(why(&shadow, &approved("", 4), now), Some("attempts".to_owned()));
}

#[test]
fn each_failed_delivery_counts_for_its_route() {
    let now = time("2026-11-20T09:10:00Z");
    let failed = |more, retry| try_again(&decider(POLICY), &approved(more, retry), Wheel { shares: 1 }, now).1.failed;
    let email = r#","channel":"email""#;
    for retry in [0, 9] {
        assert_eq!(failed(email, retry), [(Arc::from("email"), 1)], "tried again, or given up");
        assert_eq!(failed("", retry), [], "no route");
    }
}

#[test]
fn what_is_no_approved_record_becomes_a_dead_letter() {
    let now = time("2026-11-20T09:10:00Z");
    let reason = |record: &Row| {
        let Output { to, headers, .. } = tried(POLICY, record, now);
        assert_eq!(to, Destination::DeadLetters);
        headers.iter().find(|(name, _)| *name == "weir-reason").unwrap().1.clone()
    };
    assert_eq!(reason(&Row { headers: vec![("trace", "t".to_owned())], ..approved("", 0) }), "missing_field");
    assert_eq!(reason(&Row { headers: vec![("weir-decision", "{}".to_owned())], ..approved("", 0) }), "wrong_type");
    assert_eq!(reason(&Row { value: r#"{"id":"i"}"#.to_owned(), ..approved("", 0) }), "missing_field");
}
