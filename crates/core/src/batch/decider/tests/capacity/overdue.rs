//! Intents that have waited for their route for too long, and permits that are too few for those that have waited.

use super::*;
use crate::limit::route::MAX_WAIT_MS;

#[test]
fn an_intent_that_has_waited_for_72_hours_is_suppressed_and_needs_no_permit() {
    let too_long: &str = &format!("capacity for {}ms", MAX_WAIT_MS + 1_000);
    for (waited_ms, permits, expected, is_short) in [
        (MAX_WAIT_MS - 1, 2, ["approved", "approved"], false),
        (MAX_WAIT_MS - 1, 1, ["approved", "waits"], true),
        (MAX_WAIT_MS, 1, [too_long, too_long], false),
        (MAX_WAIT_MS, 0, [too_long, too_long], false),
    ] {
        let world = World { waited_ms, ..World::new(EMAIL, (permits, 0)) };
        assert_eq!(world.is_short(&emails(2), world.taken(permits)), is_short, "{waited_ms} {permits}");
        let (outputs, settlement) = world.outputs(&emails(2), Takes::WithPermits(world.taken(permits)));
        assert_eq!(outputs.iter().map(word).collect::<Vec<_>>(), expected, "{waited_ms} {permits}");
        assert_eq!(settlement.permits() > 0, expected[0] == "approved");
    }
    // An old record of the intents has not waited for a route.
    assert_eq!(World { waited_ms: MAX_WAIT_MS, ..World::new(EMAIL, (1, 0)) }.decide(&emails(2)), ["approved", "waits"]);
}

#[test]
fn who_needs_no_permit_leaves_none_short() {
    let world = World::new(EMAIL, (1, 0));
    let mixed = batch(&[("a", "email", ""), ("b", "email", r#","expires_at":1"#), ("c", "push", "")]);
    assert!(!world.is_short(&mixed, world.taken(1)), "one has expired, and one has no route");
}

#[test]
fn a_permit_that_comes_back_is_not_for_one_that_pressure_denied_and_that_has_waited_for_too_long() {
    const RULE: &str = "[pressure]\nmax_active_users = 1000\nchannel = \"email\"\naction = \"suppress\"\n";
    for (aged_from, second, left) in [(2, "approved", (0, 0)), (1, "pressure for 60000ms", (1, 0))] {
        // The first user had its mail within the hour, and is not active: its place and its permit come back.
        let before = World::of(super::capped(EMAIL), store(), (9, 0));
        assert_eq!(before.decide(&batch(&[("x", "push", ""), ("a", "email", "")])), ["approved", "approved"]);
        let mut world = World::of(super::capped(&format!("{RULE}{EMAIL}")), before.store, (1, 0));
        world.decider.held.pressure = pressure::World::of(world.decider.clone(), 1).decider.held.pressure;
        // From this place on they have waited for 72 hours.
        let mut aged = batch(&[("a", "email", ""), ("b", "email", "")]);
        aged.0[aged_from..].iter_mut().for_each(|row| row.timestamp = Some(now().plus(-MAX_WAIT_MS)));
        let (outputs, settlement) = world.outputs(&aged, Takes::WithPermits(world.taken(1)));
        assert_eq!(outputs.iter().map(word).collect::<Vec<_>>(), ["cap for 3600000ms", second]);
        settlement.committed();
        assert_eq!(world.left(), left);
    }
}
