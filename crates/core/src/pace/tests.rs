use proptest::prelude::*;

use super::{
    world::{Rate, Second, World},
    *,
};

/// The promises, from a second on: undelivered intents within 1.2 x ahead x drain rate, and a consumer that is never without
/// intents for more than 5% of what it could take.
fn check(seconds: &[Second], from: f64, ahead_s: f64, takes: Rate<'_>) {
    let after = || seconds.iter().filter(|second| second.at >= from);
    for second in after() {
        // What is there was approved by the rate of then.
        let rate =
            (0..=60).map(|back| takes((second.at - f64::from(back) * ahead_s / 60.0).max(0.0))).fold(0.0, f64::max);
        assert!(second.undelivered <= 1.2 * ahead_s * rate + 1.0, "{second:?} {rate}");
    }
    let sum = |of: fn(&Second) -> f64| after().map(of).sum::<f64>();
    let (taken, could) = (sum(|second| second.taken), sum(|second| second.could));
    assert!(taken >= 0.95 * could, "{taken} of {could}");
}

#[test]
fn a_steady_consumer_is_never_without_intents_and_never_has_more_than_its_share() {
    for (rate, commit_every_s, ceiling) in [
        (500.0, 5.0, None),
        (500.0, 0.1, None),
        (20.0, 5.0, None),
        (500.0, 5.0, Some(2_000)),
        (3_000.0, 1.0, Some(3_000)),
    ] {
        let takes = move |_| rate;
        let mut world = World { ceiling, commit_every_s, ..World::new(30, &takes) };
        check(&world.run(400), 90.0, 30.0, &takes);
    }
}

#[test]
fn the_ceiling_is_used_and_not_exceeded() {
    let mut world = World { ceiling: Some(200), ..World::new(30, &|_| 5_000.0) };
    let seconds = world.run(200);
    assert!(seconds.iter().all(|second| second.approved <= 200.5), "no second has more");
    let approved: f64 = seconds[90..].iter().map(|second| second.approved).sum();
    assert!(approved >= 0.95 * 200.0 * 110.0, "{approved}");
}

#[test]
fn a_consumer_that_slows_down_or_speeds_up_is_followed() {
    let ramp = |at: f64| if at < 200.0 { 100.0 } else { (100.0 + 4.0 * (at - 200.0)).min(900.0) };
    check(&World::new(30, &ramp).run(600), 90.0, 30.0, &ramp);
    let halved = |at: f64| if at < 200.0 { 800.0 } else { 400.0 };
    let seconds = World::new(30, &halved).run(500);
    check(&seconds, 90.0, 30.0, &halved);
    check(&seconds[290..], 290.0, 30.0, &|_| 400.0);
    let oscillates = |at: f64| 500.0 + 250.0 * (at / 40.0).sin();
    check(&World::new(30, &oscillates).run(900), 90.0, 30.0, &|_| 750.0);
}

#[test]
fn a_consumer_that_stops_gets_probes_and_one_that_resumes_gets_its_share_within_10_s() {
    for (ahead, ceiling, commit_every_s) in
        [(30, None, 5.0), (30, Some(500), 5.0), (10, None, 1.0), (120, Some(1_000), 5.0)]
    {
        let takes = |at: f64| if (300.0..900.0).contains(&at) { 0.0 } else { 400.0 };
        let mut world = World { ceiling, commit_every_s, ..World::new(ahead, &takes) };
        let seconds = world.run(1_300);
        let ahead = f64::from(i32::try_from(ahead).unwrap());
        let stopped = seconds.iter().filter(|second| (300.0 + ahead..900.0).contains(&second.at));
        for second in stopped {
            let floor = ceiling.map_or(4.5, |ceiling| 0.0101 * to_f64(ceiling));
            assert!(second.approved <= floor.max(1.0), "{second:?}");
        }
        assert!(seconds.iter().any(|second| second.pace.why == Throttle::Stopped));
        let resumed = seconds.iter().find(|second| second.at >= 900.0 && second.approved > 100.0).unwrap();
        assert!(resumed.at <= 902.0 + commit_every_s, "with the first commit: {resumed:?}");
        check(&seconds, 900.0, ahead, &|_| 400.0);
    }
}

#[test]
fn a_dead_service_is_probed_from_the_beginning() {
    let seconds = World { ceiling: Some(1_000), ..World::new(30, &|_| 0.0) }.run(300);
    let approved: f64 = seconds.iter().map(|second| second.approved).sum();
    assert!(approved > 0.0 && approved <= 30.0 * 200.0, "{approved}");
    assert!(seconds[60..].iter().all(|second| second.approved <= 10.0));
}

#[test]
fn an_idle_route_takes_its_first_burst_within_its_share() {
    let takes = |_| 300.0;
    let comes = |at: f64| if at < 600.0 { 2.0 } else { 1e6 };
    for ceiling in [None, Some(600)] {
        let mut world = World { ceiling, comes: &comes, ..World::new(30, &takes) };
        check(&world.run(1_000), 0.0, 30.0 * 2.0, &takes);
    }
}

#[test]
fn permits_halve_every_10_s_while_the_lag_is_not_known_down_to_the_floor() {
    let takes = |_| 400.0;
    let mut world = World { unknown: 200.0..400.0, ceiling: Some(500), ..World::new(30, &takes) };
    let seconds = world.run(600);
    let mean = |from: usize| seconds[from..from + 10].iter().map(|second| second.approved).sum::<f64>() / 10.0;
    for (from, share) in [(200, 1.0), (210, 0.5), (220, 0.25), (230, 0.125)] {
        let expected = 400.0 * share;
        assert!((mean(from) - expected).abs() < 0.25 * expected, "{from}: {} {expected}", mean(from));
    }
    assert!((mean(380) - 5.0).abs() < 1.0, "the floor is 1% of the ceiling: {}", mean(380));
    assert_eq!(seconds[215].pace.why, Throttle::LagUnknown);
    check(&seconds, 430.0, 30.0, &takes);
}

#[test]
fn a_signal_slows_down_at_once_and_recovers_step_by_step() {
    let slow = |at: f64| if (200.0..220.0).contains(&at) { 0.7 } else { 1.0 };
    let mut world = World { slow: &slow, ..World::new(30, &|_| 400.0) };
    let seconds = world.run(240);
    let drain = |at: usize| seconds[at].pace.drain_per_s;
    assert!(drain(200) < 0.75 * drain(199));
    assert_eq!(seconds[210].pace.why, Throttle::Signal);
    assert!(drain(221) < 0.85 * drain(199) && drain(230) > 0.95 * drain(199), "{} {}", drain(221), drain(230));
}

#[test]
fn offsets_that_go_back_are_a_new_beginning() {
    let mut controller = Controller::new(30_000, 200);
    let turn = |controller: &mut Controller, at, end, committed| {
        let lag = Some(Lag { end, committed });
        controller.turn(&Sample { at: Duration::from_secs(at), lag, ceiling: Some(100), slow: 1.0 })
    };
    for at in 0..60 {
        turn(&mut controller, at, 10_000 + at * 50, 9_000 + at * 50);
    }
    let pace = turn(&mut controller, 60, 100, 0);
    assert!(pace.drain_per_s <= 100.0 && pace.room <= 3_000, "{pace:?}");
    assert!(pace.reserved <= 600 && pace.reserved <= pace.room);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever the consumer takes and however it commits.
    #[test]
    fn the_promises_hold(
        ahead in 20_i64..120, rate in 5.0..5_000.0_f64, commit_every_s in 0.1..6.0_f64,
        ceiling in prop::option::of(1.0..4.0_f64), factor in 0.3..3.0_f64,
    ) {
        let ahead_s = f64::from(i32::try_from(ahead).unwrap());
        let change = 6.0 * ahead_s;
        let takes = |at: f64| if at < change { rate } else { rate * factor };
        let ceiling = ceiling.map(|times| whole(rate * factor.max(1.0) * times) + 1);
        let mut world = World { ceiling, commit_every_s, ..World::new(ahead, &takes) };
        let seconds = world.run(u32::try_from(ahead * 14).unwrap());
        let until = seconds.iter().position(|second| second.at >= change).unwrap();
        check(&seconds[..until], 3.0 * ahead_s, ahead_s, &takes);
        for second in &seconds {
            let floor = ceiling.map_or(1.0, |ceiling| 0.01 * to_f64(ceiling));
            prop_assert!(second.pace.drain_per_s >= floor.max(1.0) - 1e-6);
            prop_assert!(ceiling.is_none_or(|ceiling| second.pace.drain_per_s <= to_f64(ceiling)));
        }
        // What stands when it slows down is delivered first.
        let settled = change + (1.0 / factor).max(1.0) * ahead_s + 30.0;
        check(&seconds, settled, ahead_s, &|_| rate * factor);
    }
}
