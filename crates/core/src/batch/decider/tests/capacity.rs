//! Which intents have permits of their route, what becomes of the others, and which permits go back.

mod back;
mod changed;
mod overdue;
mod retries;

use super::*;
use crate::{
    batch::record::{Destination, Output, WaitingTopic},
    limit::route::{
        permits::PermitGrant,
        routes::{Pool, RouteKnown, RouteState, Taken},
    },
};

const EMAIL: &str = "[[routes]]\nname = \"email\"\nchannel = \"email\"\nconsumer_group = \"hedwig\"\n";
const RESERVED: &str = "reserved = { category = \"service\", share = 0.2 }\n";
const SERVICE: &str = r#","category":"service""#;
const LEASE: Duration = Duration::from_secs(103);

/// A mail that failed twice, and is due now.
fn third_delivery() -> Deferral {
    Deferral { due: now(), first_at: now().plus(-60_000), ..Deferral::sample(DeferReason::Retry, 2) }
}

/// Intents of these users by channel, with further fields.
fn batch(intents: &[(&str, &str, &str)]) -> Rows {
    let row = |(offset, (user, channel, more)): (i64, &(&str, &str, &str))| {
        let value = format!(r#"{{"id":"{offset}","user_id":"{user}","channel":"{channel}"{more}}}"#);
        Row { offset, value, timestamp: Some(now()), ..Row::default() }
    };
    Rows((0..).zip(intents).map(row).collect())
}

fn emails(count: usize) -> Rows {
    batch(&vec![("u", "email", ""); count])
}

/// A route that takes one per second, as was measured, and never took more.
fn one_per_second() -> RouteKnown {
    RouteKnown { drain_per_s: 1.0, best_per_s: Some(1.0), measured_per_s: Some(1.0), ..RouteKnown::default() }
}

struct World {
    decider: Decider,
    email: Arc<RouteState>,
    store: EmbeddedStore,
    read_before: ReadBefore,
    /// How long the records have been there when they are decided.
    waited_ms: i64,
}

impl World {
    /// With so much of a policy, and so many permits of the route for e-mails, of either pool.
    fn new(policy: &str, (general, reserved): (u64, u64)) -> Self {
        Self::of(decider(policy), store(), (general, reserved))
    }

    fn of(decider: Decider, store: EmbeddedStore, (general, reserved): (u64, u64)) -> Self {
        let routes = Routes::new();
        let email = routes.state("email");
        email.grant(general, reserved, LEASE);
        let decider = Decider { held: routed(routes), ..decider };
        let world = Self { decider, email, store, read_before: ReadBefore::none(), waited_ms: 0 };
        world.learn(RouteKnown { waiting: vec![0; 4], ..one_per_second() });
        world
    }

    /// What its keeper knows, by the rule of now.
    fn learn(&self, known: RouteKnown) {
        self.email.learn(RouteKnown { rule: self.decider.policy.get().routes.first().cloned().map(Arc::new), ..known });
    }

    fn left(&self) -> (u64, u64) {
        (self.email.left(Pool::General, PASSED), self.email.left(Pool::Reserved, PASSED))
    }

    fn waits(&self, waiting: Vec<u64>) {
        self.learn(RouteKnown { waiting, queued_before: self.email.queued(), ..one_per_second() });
    }

    fn gated<'b>(&self, batch: &'b Rows, decoded: &'b [Decoded<'b>], takes: Takes) -> GatedBatch<'b, Rows> {
        let (times, read_before) = (Times::One(now().plus(self.waited_ms)), self.read_before.clone());
        let ground = Ground { times, takes, read_before, budgets: None, ..asking() };
        self.decider.begin(DecodedBatch { records: batch, decoded }, ground)
    }

    /// What becomes of the records, and what is left to be settled.
    fn outputs(&self, batch: &Rows, takes: Takes) -> (Vec<Output>, Settlement) {
        let (decoded, then) = (self.decider.decode(batch), now().plus(self.waited_ms));
        let mut asked = self.gated(batch, &decoded, takes).ask(None);
        ask(&self.store, &mut asked, then);
        while asked.offer() {
            ask(&self.store, &mut asked, then);
        }
        let (mut decided, settlement) = asked.finish();
        (decided.outputs(&|_| None).0, settlement)
    }

    /// So many permits of a lane.
    fn taken(&self, permits: u64) -> Taken {
        Taken::general(Arc::clone(&self.email), permits, PASSED)
    }

    /// Whether intents that have waited would wait again, with these permits of their lane.
    fn is_short(&self, batch: &Rows, permits: Taken) -> bool {
        let decoded = self.decider.decode(batch);
        self.gated(batch, &decoded, Takes::WithPermits(permits)).is_short_of_permits()
    }

    fn decide(&self, batch: &Rows) -> Vec<String> {
        let (outputs, settlement) = self.outputs(batch, Takes::FromPools);
        settlement.committed();
        outputs.iter().map(word).collect()
    }
}

fn word(output: &Output) -> String {
    match output.to {
        Destination::Approved(_) => "approved".to_owned(),
        Destination::Waiting { topic: WaitingTopic(0), .. } => "waits".to_owned(),
        Destination::Suppressed => {
            let crate::batch::record::OutputValue::Ours(envelope) = &output.value else { panic!("{output:?}") };
            let envelope: serde_json::Value = serde_json::from_slice(envelope).unwrap();
            let at = envelope["eligible_at"].as_str().map(|at| Time::from_rfc3339(at).unwrap());
            let after = at.map_or(String::new(), |at| format!(" for {}ms", at.millis() - now().millis()));
            format!("{}{after}", envelope["reason"].as_str().unwrap())
        }
        Destination::Undelivered => format!("undelivered: {}", output.headers[0].1),
        Destination::DeadLetters => "dead".to_owned(),
        Destination::Waiting { .. } | Destination::Deferred(_) | Destination::Nowhere => panic!("{output:?}"),
    }
}

#[test]
fn an_intent_without_a_permit_waits_or_is_suppressed_as_its_route_says() {
    for (when_full, waiting, expected) in
        [("wait", 0, "waits"), ("suppress", 0, "capacity for 1000ms"), ("suppress", 90, "capacity for 90000ms")]
    {
        let world = World::new(&format!("{EMAIL}when_full = \"{when_full}\"\n"), (0, 0));
        world.waits(vec![waiting, 0]);
        let found = world.decide(&batch(&[("a", "email", ""), ("b", "push", "")]));
        assert_eq!(found, [expected, "approved"], "{when_full} {waiting}: another channel has no route");
    }
}

#[test]
fn permits_of_what_may_be_committed_are_held_until_that_is_known_and_spent_then() {
    let handed_over = || {
        let world = World::new(EMAIL, (2, 0));
        let (_, mut settlement) = world.outputs(&emails(1), Takes::FromPools);
        settlement.hand_over();
        (world, settlement)
    };
    let stands = |world: &World| (world.left(), world.email.held(), world.email.spent());
    let (world, settlement) = handed_over();
    drop(settlement);
    assert_eq!(stands(&world), ((1, 0), 1, 1), "nobody hears what became of it");
    let (world, settlement) = handed_over();
    let unclear = settlement.failed().unwrap();
    assert_eq!(stands(&world), ((1, 0), 2, 0), "it may become visible");
    unclear.settle(&[]);
    assert_eq!(stands(&world), ((1, 0), 1, 1));
    let (world, settlement) = handed_over();
    let mut unclear = settlement.failed().unwrap();
    unclear.transaction_ended();
    assert_eq!(stands(&world), ((1, 0), 1, 1), "the next look at the lag has it, if it is visible");
    unclear.settle(&[]);
    assert_eq!(stands(&world), ((1, 0), 1, 1), "once");
}

#[test]
fn permits_of_what_a_cap_denies_or_a_duplicate_go_back_and_what_is_denied_before_takes_none() {
    let world = World::of(capped(&format!("[[stop]]\ncampaign = \"spring\"\n{EMAIL}")), store(), (9, 0));
    let found = world.decide(&batch(&[
        ("a", "email", ""),
        ("a", "email", ""),
        ("b", "email", r#","campaign":"spring""#),
        ("c", "email", r#","expires_at":1"#),
    ]));
    assert_eq!(found, ["approved", "cap for 3600000ms", "stopped", "expired"]);
    assert_eq!((world.left(), world.email.spent()), ((8, 0), 1));
}

#[test]
fn the_reserved_share_is_for_its_intents_only_and_they_do_not_queue() {
    let reserved = format!("{EMAIL}{RESERVED}");
    let mixed = batch(&[("a", "email", ""), ("b", "email", SERVICE), ("c", "email", ""), ("d", "email", SERVICE)]);
    for (permits, waiting, expected) in [
        ((9, 9), 0, ["approved", "approved", "approved", "approved"]),
        ((1, 1), 0, ["waits", "approved", "waits", "approved"]),
        ((0, 1), 0, ["waits", "approved", "waits", "waits"]),
        ((3, 0), 0, ["approved", "approved", "waits", "approved"]),
        ((9, 9), 1, ["waits", "approved", "waits", "approved"]),
    ] {
        let world = World::new(&reserved, permits);
        world.waits(vec![waiting]);
        assert_eq!(world.decide(&mixed), expected, "{permits:?} {waiting}");
        let approved = expected.iter().filter(|word| **word == "approved").count();
        let (general, left_reserved) = world.left();
        assert_eq!(permits.0 + permits.1 - general - left_reserved, u64::try_from(approved).unwrap());
    }
}

#[test]
fn a_batch_that_is_judged_again_has_no_more_permits_of_the_reserved_share_than_its_intents_need() {
    let world = World::new(&format!("{EMAIL}{RESERVED}"), (0, 4));
    world.waits(vec![4]);
    let mut kept = Taken::none(Arc::clone(&world.email));
    assert_eq!(kept.take(Pool::Reserved, 2, PASSED), 2);
    let mixed = [("a", "email", ""), ("b", "email", SERVICE), ("c", "email", ""), ("d", "email", SERVICE)];
    let (outputs, settlement) = world.outputs(&batch(&mixed), Takes::WithPermits(kept));
    assert_eq!(outputs.iter().map(word).collect::<Vec<_>>(), ["waits", "approved", "waits", "approved"]);
    assert_eq!((settlement.permits(), world.left()), (2, (0, 2)));
}

#[test]
fn an_intent_queues_behind_those_that_wait_and_a_waiting_one_does_not() {
    let world = World::new(EMAIL, (9, 0));
    world.waits(vec![1, 0]);
    assert_eq!(world.decide(&emails(1)), ["waits"]);
    world.waits(vec![0, 0]);
    assert_eq!(world.decide(&emails(1)), ["approved"]);
    world.waits(vec![5, 0]);
    let (outputs, settlement) = world.outputs(&emails(2), Takes::WithPermits(world.taken(2)));
    assert!(outputs.iter().all(|output| output.to.is_approved()));
    assert_eq!((settlement.permits(), world.left()), (2, (6, 0)));
}

#[test]
fn an_intent_that_waits_keeps_its_origin_and_is_due_at_any_time_by_any_clock() {
    let world = World::new(EMAIL, (0, 0));
    let mut waiting = emails(1);
    let (outputs, _) = world.outputs(&waiting, Takes::FromPools);
    let Destination::Waiting { partition, .. } = outputs[0].to else { panic!("{outputs:?}") };
    assert!((0..4).contains(&partition));
    let deferral = Deferral::read(&outputs[0].headers).unwrap();
    assert!(deferral.is_until_capacity());
    assert_eq!((deferral.why, deferral.count, deferral.offset), (DeferReason::Capacity, 1, 0));
    // The clock of the instance that reads it is behind.
    waiting.0[0].deferral = Some(Deferral { first_at: now().plus(5_000), due: now().plus(5_000), ..deferral });
    let again = || world.outputs(&waiting, Takes::WithPermits(world.taken(1))).0;
    assert_eq!(word(&again()[0]), "waits", "again, without a permit");
    world.email.grant(1, 0, LEASE);
    let approved = &again()[0];
    assert!(approved.to.is_approved() && approved.headers[0].1.contains(r#""deferred":{"why":"capacity","count":1,"#));
}

#[test]
fn who_would_wait_too_long_is_expired_or_suppressed_at_once() {
    let soon = r#","expires_at":"2026-11-20T09:00:30Z""#;
    let cases = [
        (29, None, soon, "waits"),
        (30, None, soon, "expired"),
        (30, None, "", "waits"),
        (9, Some((10_000, 900)), "", "waits"),
        (10, Some((10_000, 900)), "", "capacity for 10000ms"),
    ];
    for (waiting, service, more, expected) in cases {
        let world = World::new(EMAIL, (9, 9));
        let (timeout_ms, processing_ms) = service.unzip();
        let grant = PermitGrant { timeout_ms, processing_ms, ..PermitGrant::default() };
        let known = RouteKnown { waiting: vec![waiting], grant, ..one_per_second() };
        world.learn(known.clone());
        assert_eq!(world.decide(&batch(&[("a", "email", more)])), [expected], "{waiting} {service:?}");
        assert!(world.store.history(crate::basis::shard::UserHash::of("a")).is_empty(), "it is not recorded");
        world.learn(RouteKnown { best_per_s: None, measured_per_s: None, ..known });
        assert_eq!(world.decide(&batch(&[("a", "email", more)])), ["waits"], "no rate is known: {service:?}");
    }
    let world = World::new(EMAIL, (9, 9));
    let mut waiting = vec![1_000, 1_000];
    let place = crate::limit::route::routes::place(&waiting, xxhash_rust::xxh3::xxh3_64(b"small")).unwrap();
    waiting[place] = 0;
    world.waits(waiting);
    let found = world.decide(&batch(&[("a", "email", &format!(r#"{soon},"campaign":"small""#))]));
    assert_eq!(found, ["waits"], "its campaign has a partition of its own, which has its turns");
    let aged = format!("max_age = \"20s\"\n{EMAIL}");
    for (waiting, expected) in [(20, "waits"), (21, "expired")] {
        let world = World::new(&aged, (9, 9));
        world.waits(vec![waiting]);
        assert_eq!(world.decide(&emails(1)), [expected], "{waiting}");
    }
}

#[test]
fn an_intent_expires_at_once_by_the_best_rate_alone_and_is_suppressed_at_once_by_the_measured_one() {
    let soon = r#","expires_at":"2026-11-20T09:00:30Z""#;
    let (slow, fast) = (Some(1.0), Some(2.0));
    for (best_per_s, measured_per_s, timeout_ms, more, expected) in [
        (fast, slow, None, soon, "waits"),
        (slow, None, None, soon, "expired"),
        (None, slow, None, soon, "waits"),
        (fast, slow, Some(30_000), "", "capacity for 40000ms"),
        (slow, fast, Some(30_000), "", "waits"),
        (slow, None, Some(30_000), "", "waits"),
    ] {
        let world = World::new(EMAIL, (9, 9));
        let grant = PermitGrant { timeout_ms, ..PermitGrant::default() };
        world.learn(RouteKnown { best_per_s, measured_per_s, grant, waiting: vec![40], ..one_per_second() });
        let found = world.decide(&batch(&[("a", "email", more)]));
        assert_eq!(found, [expected], "{best_per_s:?} {measured_per_s:?} {timeout_ms:?}");
    }
}

#[test]
fn a_replay_is_approved_without_a_permit_also_by_a_later_policy_that_does_not_count_its_class() {
    let uncounted = format!("[[bypass]]\nchannel = \"email\"\ncounts = false\n{EMAIL}");
    for later in [EMAIL, &uncounted] {
        let world = World::new(EMAIL, (1, 0));
        assert_eq!(world.decide(&emails(1)), ["approved"]);
        let again = World { read_before: ReadBefore::All, ..World::of(decider(later), world.store, (0, 0)) };
        assert_eq!(again.decide(&emails(2)), ["approved", "waits"], "{later}");
    }
}

#[test]
fn nothing_is_held_back_in_shadow_mode_or_without_routes_and_who_looks_takes_nothing() {
    let shadow = World::new(&format!("shadow = true\n{EMAIL}"), (1, 0));
    assert_eq!((shadow.decide(&emails(2)), shadow.left()), (vec!["approved".to_owned(); 2], (1, 0)));
    let no_routes = Decider { held: HeldLimits::default(), ..World::new(EMAIL, (0, 0)).decider };
    let world = World { decider: no_routes, ..World::new(EMAIL, (0, 0)) };
    assert_eq!(world.decide(&emails(1)), ["approved"]);
    let world = World::new(EMAIL, (1, 0));
    let (outputs, settlement) = world.outputs(&emails(2), Takes::Nothing);
    assert_eq!(outputs.iter().map(word).collect::<Vec<_>>(), ["approved", "waits"]);
    assert_eq!((settlement.permits(), world.left()), (0, (1, 0)));
}

#[test]
fn a_bypass_takes_permits_and_the_first_route_counts() {
    let rules =
        format!("[[bypass]]\nchannel = \"email\"\ncounts = false\n{EMAIL}[[routes]]\nname = \"rest\"\nrate = 1\n");
    let world = World::new(&rules, (1, 0));
    assert_eq!(world.decide(&emails(2)), ["approved", "waits"]);
    let (outputs, _) = world.outputs(&batch(&[("a", "push", "")]), Takes::FromPools);
    let rest = world.decider.held.routes.as_ref().unwrap().state("rest");
    assert_eq!(outputs[0].to, Destination::Waiting { topic: rest.topic, partition: -1 });
}

#[test]
fn before_the_first_look_at_what_waits_a_campaign_has_two_partitions_too() {
    let world = World::new("[[routes]]\nname = \"rest\"\nrate = 1\n", (0, 0));
    world.decider.held.routes.as_ref().unwrap().state("rest").set_partitions(8);
    let users: Vec<String> = (0..100).map(|number| format!("u{number}")).collect();
    let intents: Vec<_> = users.iter().map(|user| (user.as_str(), "push", r#","campaign":"spring""#)).collect();
    let (outputs, _) = world.outputs(&batch(&intents), Takes::FromPools);
    let partition = |output: &Output| {
        let Destination::Waiting { partition, .. } = output.to else { panic!("{output:?}") };
        partition
    };
    let used: std::collections::BTreeSet<i32> = outputs.iter().map(partition).collect();
    assert!(used.len() == 2 && used.iter().all(|partition| (0..8).contains(partition)), "{used:?}");
}
