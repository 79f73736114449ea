//! Instances that share a maximum through the log: no more users come in than it, and no fewer, whatever becomes of turns and instances.

mod instance;

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::limit::share::{Reference, TurnNumber};
use instance::{Instances, MAX};

#[derive(Debug, Clone)]
enum Step {
    /// So many users come to an instance, from this one on: some of them again.
    Come(usize, u64, u64),
    /// An instance takes a turn; `false`: its reply is lost.
    Turn(usize, bool),
    /// All take their turn, a second later.
    All,
    /// A minute ends, when all have told each other who was active in it.
    Minute,
    /// An instance is killed, and started again under its name or another.
    Restart(usize, bool),
    /// An instance stands still for longer than it is a member.
    Freeze(usize),
    /// An instance ends in order.
    Leave(usize),
    /// One more is started.
    Join,
    /// The server loses everything.
    Wipe,
}

fn steps(breaks: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..4_usize, 0..4_000_u64, 0..400_u64).prop_map(|(at, from, users)| Step::Come(at, from, users)),
        8 => (0..4_usize, prop::bool::weighted(0.8)).prop_map(|(at, answered)| Step::Turn(at, answered)),
        4 => Just(Step::All),
        1 => Just(Step::Minute),
        1 => Just(Step::Join),
        1 => (0..4_usize).prop_map(Step::Leave),
        u32::from(breaks) => (0..4_usize, any::<bool>()).prop_map(|(at, same)| Step::Restart(at, same)),
        u32::from(breaks) => (0..4_usize).prop_map(Step::Freeze),
        u32::from(breaks) => Just(Step::Wipe),
    ];
    prop::collection::vec(step, 1..100)
}

fn take(instances: &mut Instances, step: &Step) {
    match *step {
        Step::Come(at, from, users) => instances.come(at, from..from + users),
        Step::Turn(at, answered) => instances.turn(at, answered),
        Step::All => instances.all_turn(),
        Step::Minute => instances.end_minute(),
        Step::Restart(at, same_name) => instances.restart(at, same_name),
        Step::Freeze(at) => instances.freeze(at),
        Step::Leave(at) => instances.leave(at),
        Step::Join => instances.join(),
        Step::Wipe => instances.wipe(),
    }
}

fn check(steps: &[Step]) {
    let mut instances = Instances::new(2);
    for (place, step) in steps.iter().enumerate() {
        take(&mut instances, step);
        let (active, most) = (instances.truly_active(), instances.most());
        assert!(active <= most, "{active} users are active of {most} after step {place}, {step:?}");
    }
    instances.all_turn();
    instances.all_turn();
    let (estimates, conceded) = (instances.estimates(), instances.conceded);
    assert!(conceded > 0 || estimates.iter().all(|other| *other == estimates[0]), "{estimates:?} differ");
    let unknown = instances.most_unknown();
    assert!(unknown <= conceded, "an instance does not know {unknown} active users, more than {conceded}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_more_than_the_maximum_come_in(steps in steps(false)) {
        check(&steps);
    }

    #[test]
    fn no_more_come_in_than_are_conceded_where_instances_are_killed_or_frozen_and_the_log_is_lost(steps in steps(true)) {
        check(&steps);
    }
}

/// Users come until nobody comes in any more.
fn fill(instances: &mut Instances, users_at: impl Fn(usize) -> u64) {
    let (mut next, mut before, mut same) = (0, 0, 0);
    while same < 20 {
        for at in 0..instances.all.len() {
            instances.come(at, next..next + users_at(at));
            next += users_at(at);
        }
        instances.all_turn();
        let active = instances.truly_active();
        same = if active == before { same + 1 } else { 0 };
        before = active;
    }
}

#[test]
fn the_maximum_is_reached_wherever_users_come_in() {
    for members in [1, 2, 3, 10] {
        let at_one: fn(usize) -> u64 = |at| if at == 0 { 50 } else { 0 };
        for users_at in [|_| 50, at_one, |_| 3_000] {
            let mut instances = Instances::new(members);
            fill(&mut instances, users_at);
            // As exactly as users are counted.
            let (most, active) = (instances.truly_active(), instances.seen_active());
            assert!(active >= MAX * 98 / 100, "{active} of {MAX}");
            assert!(most <= MAX * 101 / 100, "{most} of {MAX}");
        }
    }
}

#[test]
fn after_a_loss_of_the_log_no_more_come_in_than_those_who_know_of_all_have_room_for() {
    // Who knows of how many, and how often they take a turn, in seconds; who joins, and how often all take a turn before users come; and how
    // many of them come to each in a second: in the end more than there are places.
    for ((knowing, known, turns_every), (joining, turns), users) in [
        ((3, 300, 1), (1, 0), 200),
        ((3, 1_500, 1), (1, 0), 200),
        ((3, MAX, 1), (1, 0), 200),
        ((1, 300, 1), (3, 3), 1_000),
        ((3, 300, 1), (3, 3), 1_000),
        ((1, 300, 3), (3, 3), 1_000),
        ((3, 300, 5), (3, 3), 1_000),
    ] {
        let mut instances = Instances::new(knowing);
        instances.all_turn();
        instances.come_to_each(0, known / knowing as u64);
        (0..3).for_each(|_| instances.all_turn());
        instances.wipe();
        instances.all_turn();
        (0..joining).for_each(|_| instances.join());
        (0..turns).for_each(|_| instances.all_turn());
        for second in 0..30 {
            instances.come_to_each(10_000 * (second + 1), users);
            instances.turn_from(if second % turns_every == 0 { 0 } else { knowing });
        }
        let (active, expected) = (instances.truly_active(), MAX * 97 / 100..=MAX * 101 / 100);
        assert!(expected.contains(&active), "{active} of {MAX}: {knowing} know {known}, and turn each {turns_every} s");
    }
}

fn at(millis: i64) -> Time {
    Time::default().plus(1_795_132_800_000 + millis)
}

fn told(minute: i64, new: u64, users: std::ops::Range<u64>) -> ActiveIn {
    ActiveIn { minute: Minute(minute), new, users: users.map(ActivityHash).collect() }
}

/// A turn after all others.
fn turn() -> TurnNumber {
    static LAST: AtomicU64 = AtomicU64::new(0);
    TurnNumber { run: 1, number: LAST.fetch_add(1, Ordering::Relaxed) + 1 }
}

fn request(cursor: &Cursor, active: &[ActiveIn]) -> SyncRequest {
    let (cursor, active, window_ms, member_for_ms) = (cursor.clone(), active.to_vec(), 60_000, 10_000);
    SyncRequest { cursor, active, window_ms, member_for_ms, held: 0, wanted: 0, room: None }
}

/// A new turn.
fn take_turn(book: &mut Book, instance: &str, request: &SyncRequest, at: Time) -> SyncReply {
    book.turn(instance, turn(), request, at).unwrap()
}

#[test]
fn of_more_users_than_an_entry_holds_each_new_one_counts_once() {
    let (mut book, most) = (Book::default(), USERS_AN_ENTRY as u64);
    take_turn(&mut book, "a", &request(&None, &[told(1, most + 1, 0..2 * most + 1)]), at(0));
    let read = take_turn(&mut book, "b", &request(&None, &[]), at(1)).active;
    assert_eq!(read, [told(1, most, 0..most), told(1, 1, most..2 * most), told(1, 0, 2 * most..2 * most + 1)]);
}

#[test]
fn whoever_is_started_anew_reads_all_in_parts_with_its_own_users_and_gets_no_places_before() {
    let (mut book, most) = (Book::default(), USERS_AN_ENTRY as u64);
    for _ in 0..20 {
        take_turn(&mut book, "a", &request(&None, &[told(1, 0, 0..2 * most + 1)]), at(0));
    }
    // 60 entries: 16 are read at once, and 48 of them are more than 1 MiB.
    let first = take_turn(&mut book, "a", &request(&None, &[told(1, 0, 0..1)]), at(1));
    assert_eq!((first.active.len(), first.more), (48, true));
    let rest = take_turn(&mut book, "a", &request(&first.cursor, &[]), at(2));
    assert_eq!((rest.active.len(), rest.more), (13, false), "with what it told meanwhile");
    assert!(take_turn(&mut book, "a", &request(&rest.cursor, &[]), at(3)).active.is_empty());

    let asked = SyncRequest { room: Some(9), wanted: 9, ..request(&None, &[]) };
    assert_eq!(take_turn(&mut book, "b", &asked, at(3)).held, 0, "it was no member");
    let reply = take_turn(&mut book, "b", &asked, at(3));
    assert_eq!((reply.held, reply.more), (0, true), "it has not read all");
    let last = take_turn(&mut book, "b", &SyncRequest { cursor: reply.cursor, ..asked }, at(3));
    assert_eq!((last.held, last.more), (9, false));
}

#[test]
fn a_lost_entry_is_noticed_while_it_is_in_the_window() {
    let (mut book, new) = (Book::default(), Cursor::None);
    let old = take_turn(&mut book, "a", &request(&new, &[told(1, 1, 0..1)]), at(0)).cursor;
    let mut lost = Book::default();
    take_turn(&mut lost, "b", &request(&new, &[told(1, 1, 1..2)]), at(1));
    let found = take_turn(&mut lost.clone(), "a", &request(&old, &[]), at(60_000));
    assert_eq!((found.lost, found.active), (true, vec![told(1, 1, 1..2)]));
    assert!(!take_turn(&mut lost, "a", &request(&old, &[]), at(60_001)).lost, "it has left the window");
    assert!(!take_turn(&mut book, "a", &request(&old, &[]), at(60_000)).lost);
}

#[test]
fn whoever_tells_of_no_room_bounds_nobody_and_whoever_leaves_is_no_member() {
    let (mut book, cursor) = (Book::default(), Some("1-0".into()));
    let mut turn = |instance: &str, held, room, member_for_ms| {
        let request = SyncRequest { held, room, wanted: 1_000, member_for_ms, ..request(&cursor, &[]) };
        let reply = take_turn(&mut book, instance, &request, at(0));
        (reply.held, reply.members)
    };
    let room = Some(100);
    assert_eq!([turn("a", 0, None, 10_000), turn("b", 0, room, 10_000)], [(0, 1), (0, 2)], "they were no members");
    assert_eq!(turn("b", 0, room, 10_000), (50, 2), "its part");
    assert_eq!(turn("a", 0, None, 0), (0, 1));
    assert_eq!(turn("b", 50, room, 10_000), (100, 1));
}

#[test]
fn what_one_held_that_has_ended_counts_until_it_tells_whom_it_brought_in_or_for_10_s() {
    for returns in [true, false] {
        let (mut book, cursor) = (Book::default(), Some("1-0".into()));
        let mut turn = |instance: &str, active: &[ActiveIn], room, millis| {
            let asked = SyncRequest { room: Some(room), wanted: 100, ..request(&cursor, active) };
            take_turn(&mut book, instance, &asked, at(millis)).held
        };
        assert_eq!([0, 0].map(|millis| turn("a", &[], 100, millis)), [0, 100]);
        // Nobody has an answer for a minute.
        assert_eq!([60_000, 60_001, 69_999].map(|millis| turn("b", &[], 100, millis)), [0; 3]);
        if returns {
            assert_eq!(turn("a", &[told(1, 60, 0..60)], 40, 69_999), 0, "it was no member");
        }
        let others_have = if returns { 20 } else { 100 };
        assert_eq!(turn("b", &[], 100, 70_000), others_have, "returns: {returns}");
    }
}

#[test]
fn a_turn_that_is_repeated_gets_the_same_places_and_tells_nobody_again() {
    let (mut book, cursor) = (Book::default(), Some("1-0".into()));
    for instance in ["a", "b"] {
        take_turn(&mut book, instance, &request(&cursor, &[]), at(0));
    }
    let tells = [told(1, 2, 0..3)];
    let asked = SyncRequest { held: 5, wanted: 100, room: Some(100), ..request(&cursor, &tells) };
    let turn = turn();
    let mut again = |turn: TurnNumber, millis| book.turn("a", turn, &asked, at(millis));
    assert_eq!(again(turn, 1).unwrap().held, 100, "nobody else wants any");
    for millis in [2, 9_000] {
        let reply = again(turn, millis).unwrap();
        assert_eq!((reply.held, reply.active), (100, vec![]));
    }
    assert_eq!(take_turn(&mut book, "b", &request(&cursor, &[]), at(9_001)).active, tells, "once");

    let (before, TurnNumber { run, number }) = (book.clone(), turn);
    for late in [TurnNumber { run, number: number - 1 }, TurnNumber { run: run - 1, number: number + 1 }] {
        assert_eq!(book.turn("a", late, &asked, at(9_002)), None, "{late:?}");
    }
    assert_eq!(book, before);
    assert_eq!(book.turn("a", turn, &asked, at(19_000)).unwrap().held, 5, "its membership is over: it is new");
}
