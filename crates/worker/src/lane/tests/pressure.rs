//! The places by which users come in.

use weir_core::pressure::PressureState;

use super::*;

#[test]
fn nobody_comes_in_by_places_that_others_may_have() {
    let all = RECORDS.unsigned_abs();
    for (usable_until, come_in, left) in [(Duration::MAX, all, 500 - all), (Duration::ZERO, 0, 500)] {
        let (filter, action) = (Filter::default(), Action::Suppress);
        let rule = PressureRule { max_active_users: 1_000, window_minutes: 30, filter, action };
        let (pressure, _inbox) = Pressure::new();
        let state = Arc::new(PressureState::new(&rule));
        state.places.add(500);
        state.places.renew(usable_until);
        pressure.replace(Some(Arc::clone(&state)));
        let (end, world) = run(World { pressed: Some((rule, pressure)), ..World::default() });
        end.unwrap();
        each_once(&world);
        assert_eq!((state.places.left(), state.places.held()), (left, left), "usable until {usable_until:?}");
        let active = state.users.estimate();
        assert!(active.abs_diff(come_in) <= come_in / 50, "{active} of {come_in} are active");
    }
}

/// A world whose policy has pressure that denies nobody.
fn pressed() -> World {
    let (filter, action) = (Filter::default(), Action::Suppress);
    let rule = PressureRule { max_active_users: 1_000, window_minutes: 30, filter, action };
    let (pressure, _inbox) = Pressure::new();
    let state = Arc::new(PressureState::new(&rule));
    state.places.add(1_000);
    state.places.renew(Duration::MAX);
    pressure.replace(Some(state));
    World { pressed: Some((rule, pressure)), ..World::default() }
}

#[test]
fn others_are_told_before_partitions_are_given_up_and_a_turn_is_asked_for_with_each_assignment() {
    let (end, world) = run_at_once(FakeStore(0, 0), World { revoke_every: Some(8), ..pressed() });
    end.unwrap();
    each_once(&world);
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
        let (end, world) = run_at_once(FakeStore(0, 0), world);
        end.unwrap();
        each_once(&world);
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
