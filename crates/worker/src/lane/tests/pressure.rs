//! The places by which users come in.

use weir_core::limit::pressure::PressureState;

use super::*;

/// A world whose policy has pressure, with so many places of a thousand, and until when these are usable.
fn with_places(places: u64, usable_until: Duration) -> (World, Arc<PressureState>) {
    let rules = "[pressure]\nmax_active_users = 1000\nwindow = \"30m\"\naction = \"suppress\"\n".to_owned();
    let (pressure, _inbox) = Pressure::new();
    let state = Arc::new(PressureState::new(policy_with(&rules).pressure.as_ref().unwrap()));
    state.places.add(places);
    state.places.renew(usable_until);
    pressure.replace(Some(Arc::clone(&state)));
    (World { rules, pressed: Some(pressure), ..World::default() }, state)
}

/// A world whose policy has pressure that denies nobody.
pub(super) fn pressed() -> World {
    with_places(1_000, Duration::MAX).0
}

#[test]
fn nobody_comes_in_by_places_that_others_may_have() {
    let all = RECORDS.unsigned_abs();
    for (usable_until, come_in, left) in [(Duration::MAX, all, 500 - all), (Duration::ZERO, 0, 500)] {
        let (world, state) = with_places(500, usable_until);
        done(run(world));
        assert_eq!((state.places.left(), state.places.held()), (left, left), "usable until {usable_until:?}");
        let active = state.users.estimate();
        assert!(active.abs_diff(come_in) <= come_in / 50, "{active} of {come_in} are active");
    }
}

#[test]
fn others_are_told_before_partitions_are_given_up_and_a_turn_is_asked_for_with_each_assignment() {
    let world = done(run_at_once(answers(), World { revoke_every: Some(8), ..pressed() }));
    let changes = world.settled.len() as u64;
    assert!(changes >= 5, "{:?}", world.settled);
    for (change, (event, asked, taken)) in (0..).zip(&world.settled) {
        let expected = if change % 2 == 0 { GroupEvent::Assigned } else { GroupEvent::Revoked };
        assert_eq!(*event, Some(expected), "{:?}", world.settled);
        // One with each assignment, and one before each revocation.
        let turns = change + change % 2;
        assert_eq!((*asked, *taken), (turns, turns), "{:?}", world.settled);
    }
    // The last change is an assignment, and the end asks for one more.
    assert_eq!((world.turns.count(), world.turns.count_taken()), (changes + 1, changes + 1));
}

#[test]
fn a_turn_is_waited_for_at_both_ends_of_a_move_and_for_two_seconds_at_the_most() {
    let passed = |world: World| {
        let world = done(run_at_once(answers(), world));
        (world.clock.passed(), world.turns.count())
    };
    for revoke_every in [None, Some(8)] {
        let (without, asked) = passed(World { revoke_every, no_turns: true, ..World::default() });
        assert_eq!(asked, 0, "where the policy has no pressure");
        let (with, asked) = passed(World { revoke_every, no_turns: true, ..pressed() });
        // All but the last one, which has only what is left of the time to end, are waited for in full.
        let waited = with.saturating_sub(without);
        let [least, most] = [asked - 1, asked].map(|turns| Duration::from_secs(2 * turns));
        assert!(asked >= 2 && (least..=most).contains(&waited), "{waited:?} for {asked} turns");
    }
}

#[test]
fn others_are_told_by_a_lane_that_fails_too() {
    let (end, world) = run_at_once(answers(), World { commits: [Fate::Fenced].into(), ..pressed() });
    end.unwrap_err();
    assert_eq!((world.turns.count(), world.turns.count_taken()), (2, 2), "with the assignment, and at the end");
}

/// Runs a lane whose turns nobody takes, while this happens at its polls. A long wait takes no time from the short ones beside it: time moves
/// on to the first moment that is waited for.
///
/// It has its partitions with the second poll, waits for a turn for two seconds, with seven polls in them, and takes two polls a batch from
/// then on.
fn without_turns(at_polls: impl IntoIterator<Item = (usize, Happens)>) -> World {
    let at_polls = at_polls.into_iter().collect();
    let (end, world) = run(World { no_turns: true, is_paused: true, at_polls, ..pressed() });
    end.unwrap();
    world
}

const REVOKED: Happens = Happens::Change(Some(GroupEvent::Revoked));

/// The changes that were taken up, each with how many turns were asked for by then.
fn changes(world: &World) -> Vec<(GroupEvent, u64)> {
    world.settled.iter().map(|(event, asked, _)| (event.unwrap(), *asked)).collect()
}

#[test]
fn a_stop_is_heard_while_a_turn_is_waited_for_before_partitions_are_given_up() {
    let world = without_turns([(13, REVOKED), (15, Happens::Stop)]);
    assert_eq!(changes(&world), [(GroupEvent::Assigned, 0)], "the other one is not taken up any more");
    assert_eq!(world.turns.count(), 3, "one more is asked for at the end");
    assert_eq!(world.visible, (0..world.committed).collect::<Vec<_>>());
    assert!(world.committed > 0);
}

#[test]
fn a_stop_is_heard_while_the_first_batch_waits_for_a_turn() {
    let world = without_turns([(4, Happens::Stop)]);
    assert_eq!(changes(&world), [(GroupEvent::Assigned, 0)]);
    assert_eq!((world.turns.count(), world.committed), (2, 0), "nothing is read any more");
    // A part of the wait, and what is left of the time to end.
    assert!(world.took < Duration::from_secs(3), "{:?}", world.took);
}

#[test]
fn a_change_that_is_another_one_once_the_turn_was_waited_for_is_taken_up_as_it_is_then() {
    for event in [None, Some(GroupEvent::Assigned)] {
        let world = without_turns([(13, REVOKED), (15, Happens::Change(event))]);
        each_once(&world);
        let first = (GroupEvent::Assigned, 0);
        let (expected, turns) = match event {
            Some(event) => (vec![first, (event, 2)], 4),
            None => (vec![first], 3),
        };
        assert_eq!(changes(&world), expected);
        assert_eq!(world.turns.count(), turns);
        assert_eq!(world.trace.contains(&"rewind"), event.is_none(), "{:?}", world.trace);
    }
}

#[test]
fn partitions_that_are_taken_before_their_first_batch_are_given_up_and_the_next_ones_wait_anew() {
    let world = without_turns([(5, REVOKED)]);
    each_once(&world);
    let expected = [(GroupEvent::Assigned, 0), (GroupEvent::Revoked, 2), (GroupEvent::Assigned, 2)];
    assert_eq!(changes(&world), expected);
    assert_eq!(world.turns.count(), 4);
    // A part of the first wait, and two in full; the last one has only what is left of the time to end.
    let [least, most] = [6, 7].map(Duration::from_secs);
    assert!((least..most).contains(&world.took), "{:?}", world.took);
}
