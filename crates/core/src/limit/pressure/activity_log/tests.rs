//! Instances that share a maximum through the log: no more users come in than it, and no fewer, whatever becomes of turns and instances.

mod instance;

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::limit::share::{Reference, TurnNumber};
use instance::{Instances, MAX, WINDOW_MINUTES};

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

/// Whether the maximum is reached, as exactly as users are counted, and not exceeded.
fn assert_reached(instances: &Instances, max: u64) {
    let (most, active) = (instances.truly_active(), instances.seen_active());
    assert!(active >= max * 98 / 100, "{active} of {max}");
    assert!(most <= max * 101 / 100, "{most} of {max}");
}

#[test]
fn the_maximum_is_reached_wherever_users_come_in() {
    for members in [1, 2, 3, 10] {
        let at_one: fn(usize) -> u64 = |at| if at == 0 { 50 } else { 0 };
        for users_at in [|_| 50, at_one, |_| 3_000] {
            let mut instances = Instances::new(members);
            fill(&mut instances, users_at);
            assert_reached(&instances, MAX);
        }
    }
}

#[test]
fn places_that_a_loss_of_the_members_hides_are_not_given_twice() {
    let mut instances = Instances::new(3);
    // All hold a third of what is left, and use half of it.
    instances.all_turn();
    for at in 0..3_u64 {
        instances.come(usize::try_from(at).unwrap(), at * 1_000..at * 1_000 + 200);
    }
    instances.all_turn();
    instances.all_turn();
    instances.wipe();
    (0..5).for_each(|_| instances.all_turn());
    for at in 0..3_u64 {
        instances.come(usize::try_from(at).unwrap(), 10_000 + at * 1_000..11_000 + at * 1_000);
    }
    instances.all_turn();
    assert!(instances.truly_active() <= MAX * 101 / 100, "{} of {MAX}", instances.truly_active());
}

#[test]
fn whoever_joins_after_the_log_was_lost_lets_no_more_in_than_others_have_room_for() {
    for filled in [300, 1_500, MAX] {
        let mut instances = Instances::new(3);
        instances.all_turn();
        (0..3).for_each(|at| instances.come(at, at as u64 * 1_000..at as u64 * 1_000 + filled / 3));
        (0..3).for_each(|_| instances.all_turn());
        instances.wipe();
        instances.all_turn();
        instances.join();
        for next in 0..30 {
            let from = 10_000 + next * 1_000;
            (0..4).for_each(|at| instances.come(at, from + at as u64 * 200..from + at as u64 * 200 + 200));
            instances.all_turn();
        }
        let active = instances.truly_active();
        assert!(active <= MAX * 101 / 100, "{active} of {MAX}, {filled} before");
        assert!(active >= MAX * 97 / 100, "{active} of {MAX}, {filled} before");
    }
}

#[test]
fn the_room_that_an_instance_told_of_is_less_by_those_who_have_come_in_since() {
    for (knowing, turns_every) in [(1, 1), (3, 1), (1, 3), (3, 5)] {
        let mut instances = Instances::new(knowing);
        instances.all_turn();
        (0..knowing).for_each(|at| instances.come(at, at as u64 * 1_000..at as u64 * 1_000 + 300 / knowing as u64));
        (0..3).for_each(|_| instances.all_turn());
        instances.wipe();
        instances.all_turn();
        (0..3).for_each(|_| instances.join());
        // Each holds its share of what it takes for the room.
        (0..3).for_each(|_| instances.all_turn());
        for second in 0..30 {
            let from = 10_000 + second * 10_000;
            // More than there are places. Whoever knows of all who came before takes fewer turns.
            (0..instances.all.len())
                .for_each(|at| instances.come(at, from + at as u64 * 1_000..from + (at as u64 + 1) * 1_000));
            let turned = if second % turns_every == 0 { 0 } else { knowing };
            instances.turn_from(turned);
        }
        let active = instances.truly_active();
        assert!(active <= MAX * 101 / 100, "{active} of {MAX}, {knowing} know, and turn each {turns_every} s");
        assert!(active >= MAX * 97 / 100, "{active} of {MAX}, {knowing} know, and turn each {turns_every} s");
    }
}

#[test]
fn a_killed_instance_gives_its_places_up_after_its_membership() {
    let mut instances = Instances::new(2);
    instances.all_turn();
    instances.kill(1);
    fill(&mut instances, |_| 300);
    assert_reached(&instances, MAX / 2);
    instances.pass_seconds(10);
    fill(&mut instances, |_| 300);
    assert_reached(&instances, MAX);
}

#[test]
fn whoever_joins_knows_who_is_active() {
    let mut instances = Instances::new(2);
    fill(&mut instances, |_| 100);
    (0..WINDOW_MINUTES - 1).for_each(|_| instances.end_minute());
    instances.join();
    instances.restart(0, true);
    let estimates = instances.estimates();
    assert!(estimates.iter().all(|estimate| *estimate == estimates[0]), "{estimates:?}");
    assert!(estimates[0] > MAX * 98 / 100);
    instances.end_minute();
    assert_eq!(instances.estimates(), vec![0; 3], "the window has passed");
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
fn a_turn_reads_what_others_told_and_what_one_told_before_it_was_started() {
    let (mut book, new) = (Book::default(), Cursor::None);
    let first = take_turn(&mut book, "a", &request(&new, &[told(1, 2, 0..3)]), at(0));
    assert_eq!((first.active, first.cursor.as_deref()), (vec![], Some("1795132800000-0")));
    let second = take_turn(&mut book, "b", &request(&new, &[told(1, 1, 5..6), told(2, 0, 6..7)]), at(0));
    assert_eq!((second.active, second.cursor.as_deref()), (vec![told(1, 2, 0..3)], Some("1795132800000-2")));
    let read = take_turn(&mut book, "a", &request(&first.cursor.as_deref().map(Into::into), &[]), at(1));
    assert_eq!(read.active, [told(1, 1, 5..6), told(2, 0, 6..7)]);
    let again = take_turn(&mut book, "a", &request(&read.cursor, &[]), at(1));
    assert_eq!((again.active, &again.cursor), (vec![], &read.cursor));
    let restarted = take_turn(&mut book, "a", &request(&new, &[]), at(2));
    assert_eq!(restarted.active, [told(1, 2, 0..3), told(1, 1, 5..6), told(2, 0, 6..7)]);
}

#[test]
fn entries_hold_so_many_users_and_a_turn_reads_so_many_bytes() {
    let (mut book, new) = (Book::default(), Cursor::None);
    let most = USERS_AN_ENTRY as u64;
    for _ in 0..20 {
        take_turn(&mut book, "a", &request(&new, &[told(1, most + 1, 0..2 * most + 1)]), at(0));
    }
    // 60 entries: 16 are read at once, and 48 of them are more than 1 MiB.
    let first = take_turn(&mut book, "a", &request(&new, &[told(1, 0, 0..1)]), at(1));
    assert_eq!((first.active.len(), first.more), (48, true));
    assert_eq!(
        first.active[..3],
        [told(1, most, 0..most), told(1, 1, most..2 * most), told(1, 0, 2 * most..2 * most + 1)]
    );
    assert!(first.cursor.as_deref().unwrap().starts_with('*'), "its own ones are still to be read");
    let rest = take_turn(&mut book, "a", &request(&first.cursor, &[]), at(2));
    assert_eq!((rest.active.len(), rest.more), (13, false));
    assert!(take_turn(&mut book, "a", &request(&rest.cursor, &[]), at(3)).active.is_empty());
    assert_eq!(
        take_turn(&mut book, "b", &SyncRequest { room: Some(9), ..request(&new, &[]) }, at(3)).held,
        0,
        "there is more"
    );
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
fn entries_are_removed_behind_the_window() {
    let (mut book, new) = (Book::default(), Cursor::None);
    take_turn(&mut book, "a", &request(&new, &[told(1, 1, 0..1)]), at(0));
    let mut read_at =
        |millis, tells: &[ActiveIn]| take_turn(&mut book, "b", &request(&new, tells), at(millis)).active.len();
    assert_eq!(read_at(180_000, &[]), 1, "they stay for two minutes more");
    assert_eq!(read_at(180_001, &[told(2, 1, 1..2)]), 0);
    assert_eq!(read_at(180_001 + 299_999, &[]), 0);
    assert_eq!(read_at(180_001 + 180_000, &[]), 1, "clocks go back, too");
    assert_eq!(
        take_turn(&mut book, "b", &request(&new, &[]), at(180_001 + 300_000)),
        take_turn(&mut book.clone(), "b", &request(&new, &[]), at(480_001))
    );
}

#[test]
fn room_is_shared_evenly_by_those_who_want_more_and_never_twice() {
    let (mut book, new) = (Book::default(), Cursor::None);
    let mut turn = |instance: &str, held, room, tells: &[ActiveIn], millis| {
        let cursor = Some("1-0".into());
        let request = SyncRequest { held, room, wanted: 1_000, ..request(&cursor, tells) };
        let reply = take_turn(&mut book, instance, &request, at(millis));
        (reply.held, reply.members)
    };
    assert_eq!(turn("a", 0, Some(101), &[], 0), (0, 1), "it was no member");
    assert_eq!(turn("a", 0, Some(101), &[], 0), (101, 1));
    assert_eq!(turn("b", 0, Some(101), &[], 0), (0, 2));
    assert_eq!(turn("b", 0, Some(101), &[], 0), (0, 2), "nothing is free");
    assert_eq!(turn("a", 51, None, &[], 1), (51, 2), "it wants no more");
    assert_eq!(turn("b", 0, Some(101), &[], 1), (50, 2));
    assert_eq!(turn("a", 60, Some(101), &[], 1), (60, 2), "never fewer than it held");
    assert_eq!(turn("a", 0, Some(101), &[], 2), (51, 2), "with the remainder, for now");
    assert_eq!(turn("a", 0, Some(101), &[], 10_000), (50, 2), "which is another's later");
    assert_eq!(turn("a", 0, Some(91), &[told(1, 30, 0..40)], 10_000), (21, 2), "b knows less of who came before");
    assert_eq!(turn("b", 0, Some(101), &[], 10_000), (36, 2), "what the log tells takes of the room");
    assert_eq!(turn("a", 0, Some(50), &[], 10_000), (14, 2), "b holds 36 of the 50");
    assert_eq!(turn("a", 0, Some(30), &[], 10_000), (0, 2), "b holds more than that");
    assert_eq!(turn("b", 0, Some(101), &[], 10_000), (15, 2), "a knows of more users");
    assert_eq!(turn("a", 0, Some(0), &[], 10_000), (0, 2));
    assert_eq!(turn("b", 0, Some(101), &[], 10_000), (0, 2), "a says that nobody is to come in");
    assert_eq!(turn("a", 0, None, &[], 10_000), (0, 2));
    assert_eq!(turn("b", 0, Some(101), &[], 10_000), (36, 2), "a says nothing of the room");
    assert_eq!(turn("c", 0, Some(0), &[], 10_001), (0, 3));
    assert_eq!(turn("c", 0, Some(0), &[], 10_001), (0, 3));
    assert_eq!(turn("c", 5, Some(0), &[], 20_000), (5, 1), "the others are members for ten seconds");
    let leave = SyncRequest { member_for_ms: 0, held: 5, room: Some(100), ..request(&new, &[]) };
    let left = take_turn(&mut book, "c", &leave, at(20_001));
    assert_eq!((left.held, left.members), (5, 0));
}

#[test]
fn whoever_is_asked_for_more_places_gets_those_that_others_are_not_asked_for() {
    let (mut book, cursor) = (Book::default(), Some("1-0".into()));
    let mut turn = |instance: &str, held, wanted| {
        let request = SyncRequest { held, room: Some(100), wanted, ..request(&cursor, &[]) };
        let reply = take_turn(&mut book, instance, &request, at(0));
        (reply.held, reply.part)
    };
    for (instance, wanted) in [("a", 90), ("b", 10), ("c", 0)] {
        assert_eq!(turn(instance, 0, wanted).0, 0, "{instance} was no member");
    }
    assert_eq!([turn("a", 0, 90), turn("b", 0, 10), turn("c", 0, 0)], [(90, 90), (10, 10), (0, 0)]);
    assert_eq!(turn("c", 0, 40), (0, 40), "nothing is free");
    assert_eq!(turn("a", 90, 90), (90, 50), "it keeps its places, and knows of its part");
    assert_eq!([turn("a", 50, 90), turn("c", 0, 40)], [(50, 50), (40, 40)]);
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
