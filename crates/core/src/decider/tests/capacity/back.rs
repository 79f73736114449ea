//! Permits that come back in a batch go to those of its intents that may have them.

use super::*;
use crate::lease::Outcome;

/// One per user, and a route.
fn capped(route: &str, permits: (u64, u64)) -> World {
    let default = "default = { caps = [{ name = \"a\", limit = 1, window = \"1h\" }] }";
    let text = format!("version = \"1\"\n{default}\n{route}");
    let policy = parse_policy("p.toml", &text, Format::Toml, 86_400_000).unwrap();
    World::of(Decider { policy: Current::new(Arc::new(policy)), ..decider("") }, store(), permits)
}

const CAP: &str = "cap for 3600000ms";

#[test]
fn a_permit_that_a_retry_has_does_not_come_back() {
    let world = capped(EMAIL, (3, 0));
    let mut mixed =
        batch(&[("u", "email", ""), ("a", "email", ""), ("a", "email", ""), ("b", "email", ""), ("c", "email", "")]);
    mixed.0[0].1 = Some(third_delivery());
    assert_eq!(world.decide(&mixed), ["approved", "approved", CAP, "approved", "waits"]);
    assert_eq!((world.left(), world.email.spent(), world.email.queued()), ((0, 0), 3, 1));
}

#[test]
fn a_permit_of_the_reserved_share_comes_back_for_its_intents_alone() {
    let reserved = format!("{EMAIL}reserved = {{ category = \"service\", share = 0.2 }}\n");
    let service = r#","category":"service""#;
    let mixed = batch(&[("s", "email", service), ("s", "email", service), ("a", "email", ""), ("t", "email", service)]);
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
    let mut begun = world.decider.begin_batch(now());
    let decoded = begun.decode(&asked);
    begun.take_permits(&asked, &decoded, PermitsFrom::Pools, PASSED);
    let patience = Patience { unavailable_after: None, may_defer: false };
    let claim = begun.claim(&asked, &decoded, PASSED, patience).unwrap();
    let outcomes = vec![Outcome::Granted, Outcome::Granted, Outcome::Denied(0)];
    assert_eq!(claim.wants.len(), outcomes.len());
    begun.claimed(Answers { outcomes, spent: vec![None], leases: vec![None], counted_for_ms: vec![None] });
    let (mut gated, _) = begun.gate(&asked, &decoded);
    let ask = |gated: &mut GatedBatch<'_, Batch>| {
        let open: Vec<RequestIndex> = gated.unanswered().collect();
        let answers = world.store.admit_each(&gated.part(&open), &vec![now(); open.len()]);
        gated.answer_part(&open, answers);
        open.len()
    };
    assert_eq!(ask(&mut gated), 2);
    assert!(begun.offer(&mut gated));
    assert_eq!(ask(&mut gated), 1);
    assert!(!begun.offer(&mut gated), "nothing is left that was denied");
    let approved = [0, 1, 2].map(|index| begun.decision(&gated, index).verdict.is_approved());
    assert_eq!(approved, [true, false, true]);
    let permits = begun.permits_where(|index| approved[index]);
    assert_eq!((permits.iter().map(Taken::permits).sum::<u64>(), world.left()), (2, (1, 0)));
}
