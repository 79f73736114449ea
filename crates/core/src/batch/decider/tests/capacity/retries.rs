//! Deliveries that are tried again: they need permits as any other approval, and are never suppressed.

use super::*;
use crate::limit::route::MAX_WAIT_MS;

/// The third delivery of e-mails, due now; with further fields.
fn due(count: usize, more: &str) -> Rows {
    let mut batch = batch(&vec![("u", "email", more); count]);
    batch.0.iter_mut().for_each(|row| row.deferral = Some(third_delivery()));
    batch
}

#[test]
fn a_retry_takes_a_permit_and_without_one_it_waits_as_a_retry() {
    let world = World::new(EMAIL, (2, 0));
    let (outputs, settlement) = world.outputs(&due(3, ""), Takes::FromPools);
    assert_eq!(outputs.iter().map(word).collect::<Vec<_>>(), ["approved", "approved", "waits"]);
    settlement.committed();
    assert_eq!((world.left(), world.email.spent(), world.email.queued()), ((0, 0), 2, 1));
    assert!(world.store.history(crate::basis::shard::UserHash::of("u")).is_empty(), "it is counted already");

    let deferral = Deferral::read(&outputs[2].headers).unwrap();
    assert!(deferral.is_until_retry() && deferral.waits_for_route(), "{deferral:?}");
    assert_eq!((deferral.count, deferral.partition, deferral.offset), (2, 3, 1234));

    // Its lane brings the permits.
    let mut waiting = due(2, "");
    waiting.0.iter_mut().for_each(|row| row.deferral = Some(deferral.clone()));
    world.email.grant(1, 0, LEASE);
    world.waits(vec![5, 0]);
    assert!(world.is_short(&waiting, world.taken(1)), "one would wait again");
    waiting.0.truncate(1);
    let (outputs, settlement) = world.outputs(&waiting, Takes::WithPermits(world.taken(1)));
    assert_eq!(word(&outputs[0]), "approved");
    assert!(outputs[0].headers.is_empty(), "as it was");
    assert_eq!(settlement.permits(), 1);
}

#[test]
fn a_retry_queues_behind_what_waits_unless_a_share_is_reserved_for_it() {
    let reserved = format!("{EMAIL}{RESERVED}");
    for (more, expected) in [("", "waits"), (SERVICE, "approved")] {
        let world = World::new(&reserved, (9, 9));
        world.waits(vec![1, 0]);
        assert_eq!(world.decide(&due(1, more)), [expected], "{more}");
    }
}

#[test]
fn a_retry_that_cannot_wait_is_undelivered_and_needs_no_permit() {
    let suppresses = format!("{EMAIL}when_full = \"suppress\"\n");
    assert_eq!(World::new(&suppresses, (1, 0)).decide(&due(2, "")), ["approved", "undelivered: capacity"]);
    // It would have expired when its turn comes.
    let world = World::new(EMAIL, (0, 0));
    world.waits(vec![90, 90, 90, 90]);
    let expires = format!(r#","expires_at":"{}""#, now().plus(5_000));
    assert_eq!(world.decide(&due(1, &expires)), ["undelivered: expired"]);
    // It has waited for too long.
    let world = World { waited_ms: MAX_WAIT_MS, ..World::new(EMAIL, (1, 0)) };
    let (outputs, _) = world.outputs(&due(1, ""), Takes::WithPermits(world.taken(1)));
    assert_eq!((word(&outputs[0]), world.left()), ("undelivered: capacity".to_owned(), (1, 0)));
    // One that has ended takes none, and is not asked for quiet hours.
    for (rule, more, expected, left) in [
        ("[[stop]]\ncampaign = \"spring\"\n", r#","campaign":"spring""#, "undelivered: stopped", 1),
        ("", r#","expires_at":"2026-11-20T09:00:00Z""#, "undelivered: expired", 1),
        ("max_age = \"59s\"\n", "", "undelivered: expired", 1),
        ("[quiet_hours]\nfrom = \"08:00\"\nto = \"20:00\"\naction = \"suppress\"\n", "", "approved", 0),
    ] {
        let world = World::new(&format!("{rule}{EMAIL}"), (1, 0));
        assert_eq!(world.decide(&due(1, more)), [expected], "{rule}{more}");
        assert_eq!(world.left(), (left, 0), "{rule}{more}");
    }
    // In shadow mode nothing waits.
    assert_eq!(World::new(&format!("shadow = true\n{EMAIL}"), (0, 0)).decide(&due(1, "")), ["approved"]);
}
