//! The promises of leases.

mod books;
mod by_hand;
mod later;
mod ledger;
mod many;
mod quiet;
mod world;

use proptest::prelude::*;

use self::world::{Faults, Kind, Load, Spec, World, budget};

fn spec() -> impl Strategy<Value = Spec> {
    let kind = prop_oneof![
        (10_000_i64..120_000).prop_map(Kind::Rolling),
        (5_000_i64..40_000).prop_map(Kind::Period),
        Just(Kind::Total),
    ];
    let limit = prop_oneof![0_u64..10, 10_u64..3_000, 3_000_u64..200_000];
    (limit, kind, any::<bool>()).prop_map(|(limit, kind, best_effort)| Spec { limit, kind, best_effort })
}

prop_compose! {
    fn load()(instances in 1_usize..4, lanes in 1_usize..5, batch in 1_u64..200, most_cost in 1_u64..20, pause_ms in 0_u64..500)
        -> Load { Load { instances, lanes, batch, most_cost, pause_ms } }
}

prop_compose! {
    fn faults()(
        lost_replies in 0_u64..30, refusals in 0_u64..30, dropped_tickets in 0_u64..30, other_limits in 0_u64..40,
        put_backs in 0_u64..60, freezes in 0_u64..5, latency_ms in prop_oneof![1_u64..50, 50_u64..8_000],
    ) -> Faults {
        Faults { lost_replies, refusals, dropped_tickets, other_limits, put_backs, freezes, kills: 0, latency_ms }
    }
}

prop_compose! {
    /// Few intents at a time, so that most of what is held was asked for ahead of need.
    fn light_load()(instances in 1_usize..4, lanes in 1_usize..3, batch in 1_u64..6, most_cost in 1_u64..4, pause_ms in 50_u64..3_000)
        -> Load { Load { instances, lanes, batch, most_cost, pause_ms } }
}

/// The most that a killed process may lose of a window of a budget: a small part of the limit, and no more than it spends in a second or 2,000;
/// half as much again; as much once more, of leases that end; and what its batches wait for.
fn may_lose(spec: Spec, load: Load, fullest_second: u64) -> u64 {
    let unit = if spec.best_effort { 1 } else { (spec.limit / 1_000).max(1) };
    let ahead = (spec.limit / 50).clamp(1, fullest_second.max(2_000)) + unit;
    3 * (ahead + load.lanes as u64 * load.batch * load.most_cost)
}

/// Runs for so long, lets everything come to its end, and checks it.
fn run(specs: &[Spec], load: Load, faults: Faults, seed: u64, until: i64) -> World {
    let mut world = World::new(specs, load, faults, seed);
    world.run_until(until);
    world.end();
    for (number, spec) in world.specs.iter().enumerate() {
        let most = world.books.most_in_a_window(&budget(number));
        assert!(most <= spec.limit, "{most} of budget {number} were spent in a window: {spec:?}");
    }
    world.books.check_tokens();
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever goes wrong: the limit holds in every window, each token is spent once and while its lease lasts, the tokens that
    /// are not spent are given back once, one call of a budget is in flight, and every ticket is answered in the end.
    #[test]
    fn no_window_exceeds_the_limit_and_no_token_is_spent_twice(
        specs in prop::collection::vec(spec(), 1..4), load in load(), faults in faults(), seed in any::<u64>(),
    ) {
        run(&specs, load, faults, seed, 30_000);
    }

    /// The same where processes are killed all the while: what they lose is granted to nobody.
    #[test]
    fn no_window_exceeds_the_limit_where_instances_are_killed(
        specs in prop::collection::vec(spec(), 1..4), load in load(), faults in faults(), kills in 1_u64..10, seed in any::<u64>(),
    ) {
        run(&specs, load, Faults { kills, ..faults }, seed, 30_000);
    }

    #[test]
    fn a_kill_loses_about_what_is_spent_in_a_second_or_a_small_part_of_the_limit(
        specs in prop::collection::vec(spec(), 1..3), load in light_load(), kills in 1_u64..5,
        lost_replies in 0_u64..30, refusals in 0_u64..30, latency_ms in 1_u64..1_000, seed in any::<u64>(),
    ) {
        let faults = Faults { lost_replies, refusals, kills, latency_ms, ..Faults::none() };
        let world = run(&specs, load, faults, seed, 120_000);
        for lost in &world.lost {
            let most = may_lose(specs[lost.budget], load, lost.fullest);
            prop_assert!(lost.tokens <= most, "{lost:?}: {most} at most of {:?}", specs[lost.budget]);
        }
    }

    /// While the ledger answers, a ticket claims a few times only, and waits for a few calls only.
    #[test]
    fn a_ticket_is_answered_within_a_few_claims(
        specs in prop::collection::vec(spec(), 1..4), load in load(), seed in any::<u64>(),
    ) {
        let world = run(&specs, load, Faults::none(), seed, 30_000);
        prop_assert!(world.most_claims <= 10, "{} claims", world.most_claims);
        prop_assert!(world.longest_ms <= 300, "{} ms", world.longest_ms);
    }
}
