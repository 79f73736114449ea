#[allow(dead_code, reason = "other limits use more of it")]
#[path = "../../../core/src/limit/share/tests.rs"]
mod network;
mod world;

use std::time::Duration;

use weir_core::limit::share::Silence;

use super::*;
use crate::service::{LEASE_MS, Total};

fn service() -> ServiceName {
    ServiceName::new("hedwig").unwrap()
}

fn reply(per_s: u64, concurrency: u64) -> ShareReply {
    let total = Total { instances: 1, per_s: 100, concurrency: 100, timeout_ms: 5_000 };
    ShareReply { per_s, concurrency, total, members: 1, ..ShareReply::default() }
}

/// An instance that has this share since the moment 0.
fn with_share(per_s: u64, concurrency: u64) -> Admissions {
    let mut admissions = Admissions::new("me", 0);
    assert_eq!(admissions.ask(&service(), 0, 0), None, "a turn comes first");
    assert!(admissions.begin(&service(), 0) && admissions.is_turning(&service(), 0));
    assert_eq!(admissions.due_turns(0).len(), 1);
    assert!(admissions.due_turns(0).is_empty(), "one at a time");
    assert_eq!(admissions.turned(&service(), &reply(per_s, concurrency), 0), Some(0));
    admissions
}

#[track_caller]
fn admitted(admissions: &mut Admissions, now_ms: u64) -> u64 {
    let asked = admissions.ask(&service(), now_ms, 0);
    let Some(Admission::Given { id, timeout_ms: 5_000 }) = asked else { panic!("{asked:?}") };
    id.number
}

#[track_caller]
fn denied(admissions: &mut Admissions, now_ms: u64) -> (Denial, u64) {
    let asked = admissions.ask(&service(), now_ms, 0);
    let Some(Admission::Denied(denial, after_s)) = asked else { panic!("{asked:?}") };
    (denial, after_s)
}

fn end_of(number: u64) -> End {
    End { number, took_ms: Some(10) }
}

#[test]
fn no_second_has_more_admissions_than_the_share_and_the_wait_grows_with_those_who_wait() {
    let mut admissions = with_share(2, 100);
    admitted(&mut admissions, 0);
    admitted(&mut admissions, 900);
    assert_eq!(denied(&mut admissions, 1_000), (Denial::Rate, 1));
    admitted(&mut admissions, 1_001);
    let waits: Vec<u64> = (0..9).map(|_| denied(&mut admissions, 1_100).1).collect();
    assert!(waits.is_sorted() && waits[8] >= 5, "{waits:?}");
    let Some(Admission::Denied(_, spread)) = admissions.ask(&service(), 1_100, 7) else { panic!("it is denied") };
    assert!(spread > waits[8]);
}

#[test]
fn an_end_and_a_timeout_free_an_admission_once() {
    let mut admissions = with_share(100, 2);
    let (first, second) = (admitted(&mut admissions, 0), admitted(&mut admissions, 10));
    assert_eq!(denied(&mut admissions, 10), (Denial::Concurrency, 1));
    let other = ServiceName::new("other").unwrap();
    assert_eq!(admissions.end(&other, "me", end_of(first), 20), Ended::Before, "of another service");
    assert_eq!(admissions.end(&service(), "me", end_of(first), 20), Ended::Now);
    assert_eq!(admissions.end(&service(), "me", end_of(first), 20), Ended::Before);
    let third = admitted(&mut admissions, 20);
    assert_eq!(admissions.outstanding(), 2);
    // 5 s after it began, and a millisecond for the clock.
    assert_eq!(admissions.look(5_010)[0].outstanding, 2);
    assert_eq!(admissions.look(5_011)[0].outstanding, 1);
    assert_eq!(admissions.take_timed_out(), [service()]);
    assert_eq!(admissions.end(&service(), "me", end_of(second), 5_011), Ended::Before);
    assert_eq!(admissions.end(&service(), "me", end_of(third), 5_011), Ended::Now);
}

#[test]
fn a_share_ends_with_its_lease_and_a_turn_that_answers_brings_it_back() {
    let mut admissions = with_share(100, 100);
    let lease_ms = LEASE_MS as u64;
    admitted(&mut admissions, lease_ms - 1);
    assert_eq!([lease_ms - 1, lease_ms].map(|now_ms| admissions.look(now_ms)[0].members), [Some(1), None]);
    assert_eq!(denied(&mut admissions, lease_ms), (Denial::NoLease, 1));
    let (_, turn) = due(&mut admissions, lease_ms);
    let held = (turn.rate.held, turn.concurrency.held);
    assert_eq!(held, (100, 1), "the rate counts for a second, admissions until they end");
    assert_eq!(admissions.look(lease_ms + 500)[0].silence, None);
    admissions.not_turned(&service(), "no", lease_ms + 500);
    let silence = Silence { since: Duration::from_millis(lease_ms), why: "no".to_owned() };
    assert_eq!(admissions.look(lease_ms + 500)[0].silence, Some(silence));
    assert_eq!(admissions.next_turn_ms(), Some(lease_ms + 1_000));
    let (_, turn) = due(&mut admissions, lease_ms + 1_500);
    assert_eq!((turn.rate.held, turn.concurrency.held), (0, 1));
    admissions.turned(&service(), &reply(100, 100), lease_ms + 1_600);
    assert_eq!(admissions.look(lease_ms + 1_600)[0].silence, None);
    admitted(&mut admissions, lease_ms + 1_600);
    // The lease is counted from when the turn was made.
    admitted(&mut admissions, 2 * lease_ms + 1_499);
    assert_eq!(denied(&mut admissions, 2 * lease_ms + 1_500).0, Denial::NoLease);
}

/// The number and the turn that are due, one alone.
#[track_caller]
fn due(admissions: &mut Admissions, now_ms: u64) -> (TurnNumber, ShareTurn) {
    let mut due = admissions.due_turns(now_ms);
    assert_eq!(due.len(), 1);
    due.pop().map(|(_, number, turn)| (number, turn)).unwrap()
}

#[test]
fn a_turn_without_an_answer_is_made_again_while_its_share_lasts_and_the_next_one_follows_at_once() {
    let mut admissions = with_share(100, 100);
    let number = admitted(&mut admissions, 0);
    assert_eq!(admissions.end(&service(), "me", end_of(number), 10), Ended::Now);
    assert_eq!(admissions.end(&service(), "other", end_of(7), 10), Ended::HandedOn);
    let first = due(&mut admissions, 1_000);
    assert_eq!((first.1.took, &*first.1.ends), ((1, 10), &[(Holder::from("other"), end_of(7))][..]));
    let own = admitted(&mut admissions, 1_100);
    admissions.not_turned(&service(), "no", 2_000);
    assert_eq!(due(&mut admissions, 2_000), first);
    // Another instance was told the end of one.
    let ends = format!("999 {}", End { number: own, took_ms: None }.to_text());
    let taken_bytes = ends.len() as u64;
    assert_eq!(admissions.turned(&service(), &ShareReply { ends, ..reply(50, 100) }, 2_600), Some(1));
    assert_eq!((admissions.look(2_600)[0].per_s, admissions.outstanding()), (50, 0));
    let next = due(&mut admissions, 2_600);
    let told = (next.0.number, next.1.took, next.1.ends.len(), next.1.taken_bytes);
    assert_eq!(told, (first.0.number + 1, (0, 0), 0, taken_bytes), "what was told is known");
    assert_eq!(next.1.rate.held, 100, "its share of less than a second ago");

    // The share lasts for a lease from when the turn was made again.
    admissions.not_turned(&service(), "no", 3_600);
    assert_eq!(due(&mut admissions, 4_999), next);
    admissions.not_turned(&service(), "nor now", 4_999);
    let silence = Silence { since: Duration::from_millis(2_600), why: "nor now".to_owned() };
    assert_eq!(admissions.look(4_999)[0].silence, Some(silence), "since the first one began");
    let later = due(&mut admissions, 5_999);
    assert_eq!((later.0.number, later.1.rate.held), (next.0.number + 1, 50), "it ended less than a second ago");
}

#[test]
fn a_turn_that_comes_sooner_wants_what_was_asked_for_since_the_last_one_that_did_not() {
    let mut admissions = with_share(100, 100);
    let mut wanted = |at_ms: u64| {
        for _ in 0..20 {
            admitted(&mut admissions, at_ms);
        }
        admissions.hasten(&service());
        let (_, turn) = due(&mut admissions, at_ms);
        admissions.turned(&service(), &reply(100, 100), at_ms);
        turn.rate.wanted
    };
    assert_eq!([200, 400, 600, 1_000, 1_300].map(&mut wanted), [20, 40, 60, 80, 80]);
}

#[test]
fn who_is_denied_and_asks_again_after_a_second_counts_once() {
    let mut admissions = with_share(100, 1);
    admitted(&mut admissions, 0);
    let mut wanted_and_wait = |at_ms: u64| {
        let waits = [(); 5].map(|()| denied(&mut admissions, at_ms).1);
        admissions.hasten(&service());
        let (_, turn) = due(&mut admissions, at_ms);
        admissions.turned(&service(), &reply(100, 1), at_ms);
        (turn.concurrency.wanted, waits[4])
    };
    // The first turn comes early, so the next one covers about two seconds.
    assert_eq!([900, 2_000].map(&mut wanted_and_wait), [(6, 6), (6, 6)], "one works, and five are denied");
}

#[test]
fn a_service_whose_first_turn_has_no_answer_is_kept_while_somebody_asks_and_wants_an_admission() {
    let mut admissions = Admissions::new("me", 0);
    assert!(admissions.begin(&service(), 0));
    for now_ms in (0..=61_000).step_by(1_000) {
        assert_eq!(admissions.ask(&service(), now_ms, 0), None);
        let (number, turn) = due(&mut admissions, now_ms);
        assert_eq!((number.run, turn.rate.wanted), (1, 1), "at {now_ms}");
        admissions.not_turned(&service(), "no", now_ms + 10);
    }
    let silence = Silence { since: Duration::ZERO, why: "no".to_owned() };
    assert_eq!(admissions.look(61_010)[0].silence, Some(silence));
}

#[test]
fn turns_at_a_service_that_was_forgotten_are_of_a_later_run() {
    let mut admissions = with_share(10, 10);
    assert!(due(&mut admissions, 1_000).0 > TurnNumber { run: 1, number: 1 });
    assert_eq!(admissions.turned(&service(), &ShareReply::default(), 2_500), None, "nobody has registered it");
    assert!(admissions.due_turns(60_000).is_empty() && admissions.begin(&service(), 60_000));
    assert_eq!(due(&mut admissions, 60_000).0, TurnNumber { run: 2, number: 1 });
}

#[test]
fn one_more_admission_than_an_instance_holds_is_denied() {
    let most = MAX_OUTSTANDING as u64;
    let mut admissions = with_share(2 * most, 2 * most);
    let first = admitted(&mut admissions, 0);
    for _ in 1..most {
        admitted(&mut admissions, 0);
    }
    assert_eq!(denied(&mut admissions, 0), (Denial::Full, 1));
    admissions.end(&service(), "me", end_of(first), 0);
    admitted(&mut admissions, 0);
    assert_eq!(denied(&mut admissions, 0), (Denial::Full, 1));
}

#[test]
fn services_that_nobody_has_registered_or_asks_for_are_forgotten_and_others_bounded() {
    let mut admissions = Admissions::new("me", 0);
    let named = |number: usize| ServiceName::new(&format!("s{number}")).unwrap();
    for number in 0..MAX_SERVICES {
        assert!(admissions.begin(&named(number), 0));
    }
    assert!(!admissions.begin(&named(MAX_SERVICES), 0));
    assert_eq!(admissions.due_turns(0).len(), MAX_SERVICES);
    assert_eq!(admissions.turned(&named(0), &ShareReply::default(), 0), None, "nobody has registered it");
    assert!(admissions.begin(&named(MAX_SERVICES), 0));
    for number in 1..MAX_SERVICES {
        admissions.turned(&named(number), &reply(10, 10), 0);
    }
    assert_eq!(admissions.look(0).len(), MAX_SERVICES);
    admissions.ask(&named(1), 10_000, 0);
    admissions.due_turns(60_001);
    let left: Vec<String> = admissions.look(60_001).iter().map(|view| view.service.to_string()).collect();
    assert_eq!(left, ["s1"]);
}
