//! Permits that come back in a batch go to those of its intents that may have them.

use super::*;

/// One per user, and a route.
fn capped(route: &str, permits: (u64, u64)) -> World {
    World::of(super::capped(route), store(), permits)
}

const CAP: &str = "cap for 3600000ms";

#[test]
fn a_permit_that_a_retry_has_does_not_come_back() {
    let world = capped(EMAIL, (3, 0));
    let mut mixed = batch(&["u", "a", "a", "b", "c"].map(|user| (user, "email", "")));
    mixed.0[0].deferral = Some(third_delivery());
    assert_eq!(world.decide(&mixed), ["approved", "approved", CAP, "approved", "waits"]);
    assert_eq!((world.left(), world.email.spent(), world.email.queued()), ((0, 0), 3, 1));
}

#[test]
fn a_permit_of_the_reserved_share_comes_back_for_its_intents_alone() {
    let reserved = format!("{EMAIL}{RESERVED}");
    let mixed = batch(&[("s", "email", SERVICE), ("s", "email", SERVICE), ("a", "email", ""), ("t", "email", SERVICE)]);
    for (permits, expected) in [
        ((0, 2), ["approved", CAP, "waits", "approved"]),
        ((1, 1), ["approved", CAP, "approved", "waits"]),
        ((2, 0), ["approved", CAP, "approved", "waits"]),
    ] {
        let world = capped(&reserved, permits);
        assert_eq!(world.decide(&mixed), expected, "{permits:?}");
        assert_eq!((world.left(), world.email.spent()), ((0, 0), 2), "{permits:?}");
    }
}

#[test]
fn an_intent_that_only_a_budget_denied_keeps_its_permit_where_a_token_comes_back() {
    let budget = "[[budgets]]\nname = \"spring\"\nlimit = 2\ntotal = true\nbest_effort = true\n";
    let world = capped(&format!("{budget}{EMAIL}"), (3, 0));
    let asked = batch(&[("a", "email", ""), ("a", "email", ""), ("b", "email", "")]);
    let decoded = world.decider.decode(&asked);
    let gated = world.decider.begin(DecodedBatch { records: &asked, decoded: &decoded }, asking());
    let outcomes = vec![Outcome::Granted, Outcome::Granted, Outcome::Denied(0)];
    assert_eq!(gated.claim().unwrap().wants.len(), outcomes.len());
    let (mut asked, _heard) = funded(gated, with_outcomes(outcomes, None));
    assert_eq!(ask(&world.store, &mut asked, now()), 2);
    assert!(asked.offer());
    assert_eq!(ask(&world.store, &mut asked, now()), 1);
    assert!(!asked.offer(), "nothing is left that was denied");
    let (decided, settlement) = asked.finish();
    assert_eq!(approved(&decided, 3), [true, false, true]);
    assert_eq!((settlement.permits(), world.left()), (2, (1, 0)));
}
