//! Routes that the policy changes: no intent is denied by what was known of another rule, or long ago.

use super::*;
use crate::limit::route::MAX_WAIT_MS;

/// An intent that expires in half a minute.
fn soon() -> Rows {
    batch(&[("a", "email", r#","expires_at":"2026-11-20T09:00:30Z""#)])
}

#[test]
fn until_its_keeper_has_looked_again_a_changed_route_denies_no_intent_for_the_time_that_it_would_wait() {
    let grant = PermitGrant { timeout_ms: Some(30_000), ..PermitGrant::default() };
    let known = || RouteKnown { waiting: vec![40], grant, ..one_per_second() };
    let world = World::new(EMAIL, (0, 0));
    world.learn(known());
    assert_eq!(world.decide(&soon()), ["expired"]);
    assert_eq!(world.decide(&emails(1)), ["capacity for 40000ms"]);
    for more in ["rate = 1000", "service = \"mail\""] {
        let policy = decider(&format!("{EMAIL}{more}\n")).policy.get();
        world.decider.policy.replace(policy);
        assert_eq!(world.decide(&soon()), ["waits"], "{more}: it may take far more by now");
        assert_eq!(world.decide(&emails(1)), ["waits"], "{more}");
        world.learn(known());
        assert_eq!(world.decide(&soon()), ["expired"], "{more}: its keeper has looked");
    }
}

#[test]
fn what_was_known_of_a_route_before_it_was_removed_denies_no_intent_when_it_is_there_again() {
    let world = World::new(EMAIL, (0, 0));
    world.waits(vec![40]);
    world.email.looked(true, Duration::ZERO);
    assert_eq!(world.decide(&soon()), ["expired"]);
    // Its keeper ends.
    world.email.forget_rates();
    assert_eq!(world.decide(&soon()), ["waits"], "by the same rule, perhaps days later");
    assert_eq!(world.email.finds_since(), None, "nor has its lane found what waits now");
    assert!(world.email.is_queueing(), "what waited may still be there");
}

#[test]
fn what_was_read_at_full_speed_is_decided_at_once_where_its_route_suppresses_what_it_has_no_permit_for() {
    let suppresses = format!("{EMAIL}when_full = \"suppress\"\n");
    let world = World { waited_ms: MAX_WAIT_MS, ..World::new(&suppresses, (1, 0)) };
    world.waits(vec![5]);
    let none = || Taken::none(Arc::clone(&world.email));
    assert!(!world.is_short(&emails(2), none()), "none waits");
    let (outputs, _) = world.outputs(&emails(2), Takes::WithPermits(none()));
    let words: Vec<String> = outputs.iter().map(word).collect();
    assert!(words[0] == "approved" && words[1].starts_with("capacity for"), "{words:?}");
}
