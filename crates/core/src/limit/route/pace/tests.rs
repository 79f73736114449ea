mod commits;
mod starts;
mod stuck;

use proptest::prelude::*;

use super::{
    world::{Oldest, Rate, Second, World},
    *,
};

/// A sample of this second, by which as much was approved as there was room for.
fn sample(at: u64, lag: Option<Lag>, ceiling: Option<u64>) -> Sample {
    Sample { at: Duration::from_secs(at), lag, ceiling, slow: 1.0, approved: u64::MAX }
}

/// The promises, from a second on: undelivered intents within 1.2 x ahead x drain rate, and a consumer that is never without
/// intents for more than 5% of what it could take.
fn check(seconds: &[Second], from: f64, ahead_s: f64, takes: Rate<'_>) {
    let after = || seconds.iter().filter(|second| second.at >= from);
    for second in after() {
        // What is there was approved by the rate of then.
        let rates = (0..=60).map(|back| takes((second.at - f64::from(back) * ahead_s / 60.0).max(0.0)));
        let rate = rates.fold(0.0, f64::max);
        assert!(second.undelivered <= 1.2 * ahead_s * rate + 1.0, "{second:?} {rate}");
    }
    let sum = |of: fn(&Second) -> f64| after().map(of).sum::<f64>();
    let (taken, could) = (sum(|second| second.taken), sum(|second| second.could));
    assert!(taken >= 0.95 * could, "{taken} of {could}");
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
        let floor = ceiling.map_or(4.0, |ceiling| 0.01 * to_f64(ceiling));
        let mut probes = 0.0;
        for second in seconds.iter().filter(|second| (300.0 + ahead..900.0).contains(&second.at)) {
            assert!(second.approved <= 1.15 * floor, "{second:?}");
            assert!(second.approved >= 0.95 * floor || second.at < 330.0 + ahead, "{second:?}");
            probes += second.approved;
        }
        assert!(seconds.iter().any(|second| second.pace.why == Throttle::Stopped));
        // Probes go on however much stands, so they are to be delivered first where they do not fit into what is approved ahead.
        let probed_s = probes / 400.0;
        let resumed = seconds.iter().find(|second| second.at >= 900.0 && second.approved > 100.0).unwrap();
        assert!(resumed.at <= 902.0 + commit_every_s + probed_s, "with the first commit: {resumed:?} {probed_s}");
        check(&seconds, 900.0 + probed_s, ahead, &|_| 400.0);
    }
}

#[test]
fn while_nothing_is_committed_the_rate_does_not_rise() {
    let mut controller = Controller::new(10_000, 0);
    let mut turn = |at: u64, end: u64, committed: u64| {
        controller.turn(&sample(at, Some(Lag::new(end, committed)), Some(1_000))).drain_per_s
    };
    let delivers: Vec<f64> = (0..10).map(|at| turn(at, 500 * at, 500 * at)).collect();
    assert_eq!(delivers[..6], [100.0, 200.0, 200.0, 200.0, 200.0, 200.0], "no rate counts yet");
    assert!(delivers[5..].is_sorted_by(|before, after| before < after), "it has not enough to do: {delivers:?}");
    let stands: Vec<f64> = (10..13).map(|at| turn(at, 500 * at, 4_500)).collect();
    assert!(stands.iter().all(|rate| *rate == delivers[9]), "it may have stopped: {stands:?}");
    let goes_on = turn(13, 6_500, 6_400);
    assert!(goes_on >= delivers[9] + 300.0, "for as long as it has committed nothing, too: {goes_on}");
}

#[test]
fn offsets_without_a_record_at_the_end_hold_up_nothing_for_long() {
    let takes = |_| 200.0;
    // Nothing comes from a while before the transaction is aborted to a while after it.
    let comes = |at: f64| match at {
        ..120.0 => 100.0,
        ..400.0 => 0.0,
        _ => 1e6,
    };
    for (ahead, ceiling, commit_every_s, aborted) in [
        (30, None, 5.0, (10_000.0, 1)),
        (30, Some(500), 5.0, (10_000.0, 8)),
        (10, None, 0.1, (4_000.0, 2)),
        (5, Some(200), 1.0, (100_000.0, 4)),
    ] {
        let aborted = Some((200.0, aborted.0, aborted.1));
        let mut world = World { ceiling, commit_every_s, comes: &comes, aborted, ..World::new(ahead, &takes) };
        let seconds = world.run(900);
        assert_eq!(seconds[399].pace.why, Throttle::Stopped, "nothing is committed any more");
        assert!(seconds[400..440].iter().any(|second| second.approved > 20.0), "{ahead} {ceiling:?}");
        let ahead = f64::from(u8::try_from(ahead).unwrap());
        check(&seconds, 400.0 + ahead * 3.0, ahead, &takes);
    }
    // A controller that begins with them.
    let mut world = World { aborted: Some((0.0, 10_000.0, 1)), ..World::new(30, &takes) };
    let seconds = world.run(600);
    assert!(seconds[..90].iter().any(|second| second.approved > 20.0), "it begins with 2 per second");
    check(&seconds, 180.0, 30.0, &takes);
}

#[test]
fn while_nothing_is_delivered_the_floor_is_approved_each_second_and_it_is_for_any_intent() {
    for (ceiling, floor) in [(None, 1), (Some(1_000), 10)] {
        let mut controller = Controller::new(30_000, 500);
        for at in 0..60 {
            let lag = Some(Lag::new(100_000, 0));
            let Pace { room, reserved, why, .. } = controller.turn(&sample(at, lag, ceiling));
            let expected = if at > 10 { Throttle::Stopped } else { Throttle::Lag };
            assert_eq!((room, reserved, why), (floor, 0, expected), "{at}: it has committed nothing");
        }
    }
}

#[test]
fn a_probe_is_for_any_intent_also_where_the_room_is_less_than_the_reserved_share() {
    let mut controller = Controller::new(30_000, 500);
    let mut turn = |at: u64| controller.turn(&sample(at, Some(Lag::new(20, 0)), None));
    (0..40).for_each(|at| _ = turn(at));
    let pace = turn(40);
    assert_eq!((pace.room, pace.reserved, pace.why), (10, 9, Throttle::Stopped), "30 s of 1 per second, less 20");
}

#[test]
fn a_rate_is_known_once_it_was_measured_and_no_longer_while_nothing_is_delivered_or_known_but_the_best_one_is() {
    let takes = |at: f64| if (200.0..300.0).contains(&at) { 0.0 } else { 400.0 };
    let comes = |at: f64| if at < 60.0 { 2.0 } else { 1e6 };
    for ceiling in [None, Some(5_000)] {
        let mut world = World { ceiling, comes: &comes, unknown: 500.0..520.0, ..World::new(30, &takes) };
        let seconds = world.run(600);
        let (measured, best) = (|at: usize| seconds[at].pace.measured_per_s, |at: usize| seconds[at].pace.best_per_s);
        let most = ceiling.map(to_f64);
        for at in [0, 50] {
            assert_eq!((measured(at), best(at)), (None, most), "a consumer that has little to do shows little");
        }
        for at in [190, 480, 599] {
            assert!(measured(at).is_some_and(|rate| (rate - 400.0).abs() < 40.0), "{at}: {:?}", measured(at));
        }
        assert_eq!((measured(250), measured(505), measured(515)), (None, None, None));
        assert!(measured(302).is_none_or(|rate| rate > 390.0), "{:?}", measured(302));
        for at in [190, 250, 302, 480, 505, 515, 599] {
            assert!(best(at).is_some_and(|rate| rate >= most.unwrap_or(390.0)), "{at}: {:?}", best(at));
        }
        let least = seconds.iter().filter_map(|second| second.pace.best_per_s).fold(f64::MAX, f64::min);
        assert!(least > 390.0, "no rate that it was given is the best: {least}");
    }
}

#[test]
fn the_best_rate_is_the_ceiling_or_what_was_measured_and_is_kept() {
    let mut controller = Controller::new(30_000, 0);
    let best = |controller: &mut Controller, at: u64, lag: Lag, ceiling: Option<u64>| {
        controller.turn(&sample(at, Some(lag), ceiling)).best_per_s
    };
    // It has enough to do for two minutes, and then little.
    let enough = |at: u64| Lag::new(100_000 + 300 * at, 300 * at);
    let little = |at: u64| Lag::new(136_000 + 2 * at, 136_000 + 2 * at);
    let first: Vec<_> = (0..120).map(|at| best(&mut controller, at, enough(at), None)).collect();
    assert!(first[..4].iter().all(Option::is_none), "three looks have to find progress: {first:?}");
    assert_eq!(first[8..].iter().flatten().count(), 112);
    assert!(first.iter().flatten().all(|rate| (rate - 300.0).abs() < 1.0), "{first:?}");
    let mut later = (120..600).map(|at| best(&mut controller, at, little(at), None));
    assert!(later.all(|rate| rate >= Some(300.0)), "the store has the last hour");
    controller.recall(KeptRates::default(), controller.to_keep());
    assert_eq!(best(&mut controller, 600, little(600), None), None, "it may take far more by now");
    assert_eq!(best(&mut controller, 601, little(601), Some(50)), Some(50.0));
}

#[test]
fn a_route_whose_policy_changes_keeps_what_is_known_of_its_delivery() {
    let mut world = World::new(30, &|_| 400.0);
    let before = world.run(200).pop().unwrap().pace;
    let mut changed = world.controller.changed_to(60_000, 0);
    let after = changed.turn(&sample(200, Some(Lag::new(72_000, 69_000)), None));
    assert!(after.drain_per_s > 0.9 * before.drain_per_s && after.measured_per_s.is_some(), "{before:?} {after:?}");
    assert!(after.room > 20_000, "60 s of it: {after:?}");
}

#[test]
fn a_dead_service_is_probed_from_the_beginning() {
    let seconds = World { ceiling: Some(1_000), ..World::new(30, &|_| 0.0) }.run(300);
    let approved: f64 = seconds.iter().map(|second| second.approved).sum();
    assert!(approved > 0.0 && approved <= 30.0 * 200.0 + 300.0, "{approved}");
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
fn once_the_lag_is_not_known_for_10_s_the_floor_is_approved_however_much_stood_before() {
    let mut controller = Controller::new(30_000, 0);
    let mut room = |at: u64, lag: Option<Lag>| controller.turn(&sample(at, lag, Some(500))).room;
    let stands = Some(Lag::new(100_000, 0));
    (0..60).for_each(|at| _ = room(at, stands));
    assert!((60..70).all(|at| room(at, None) == 0), "an answer may still come");
    let rooms: Vec<u64> = (70..73).map(|at| room(at, None)).collect();
    assert_eq!(rooms, [5, 10, 15], "1% of the ceiling, and what was approved before counts");
    assert_eq!(room(73, stands), 5, "probes");
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
fn old_waiting_intents_are_no_signal_whatever_delivery_does() {
    let shapes: [(&str, Rate<'_>); 6] = [
        ("step up", &|at| if at < 240.0 { 200.0 } else { 400.0 }),
        ("halved", &|at| if at < 240.0 { 400.0 } else { 200.0 }),
        ("ramp", &|at| 400.0 * (0.25 + at / 400.0).min(1.5)),
        ("oscillation", &|at| 400.0 * (1.0 + 0.5 * (at / 40.0).sin())),
        ("dead", &|_| 0.0),
        ("stop", &|at| if (200.0..400.0).contains(&at) { 0.0 } else { 400.0 }),
    ];
    for (name, takes) in shapes {
        for ceiling in [None, Some(2_000)] {
            // All that waits has come at once, so that its age grows and grows while less and less waits.
            let comes = |at: f64| if at < 1.0 { 400.0 * 500.0 } else { 0.0 };
            let seconds = World { ceiling, comes: &comes, ..World::new(30, takes) }.run(600);
            let held = seconds.iter().filter(|second| second.pace.why == Throttle::Signal).count();
            assert_eq!(held, 0, "{name} {ceiling:?}");
        }
    }
}

#[test]
fn where_weir_itself_holds_intents_up_their_age_bounds_what_comes_at_once_afterwards() {
    let most_undelivered = |oldest: Option<Oldest>| {
        let mut world = World { stalls: 200.0..400.0, oldest, ..World::new(30, &|_| 400.0) };
        let seconds = world.run(900);
        let signal = |range: std::ops::Range<usize>| {
            seconds[range].iter().filter(|second| second.pace.why == Throttle::Signal).count()
        };
        let goes_on = &seconds[400..];
        check(&seconds[460..], 600.0, 30.0, &|_| 400.0);
        let most = goes_on.iter().map(|second| second.undelivered).fold(0.0, f64::max);
        (most, signal(0..200), signal(200..400), signal(600..900))
    };
    // The estimate of a consumer that gets nothing rises to twice what it takes.
    let (without, ..) = most_undelivered(None);
    let (with, before, stalled, later) = most_undelivered(Some(Oldest::new()));
    assert!(without > 58.0 * 400.0 && with < 0.75 * without, "{with} {without}");
    assert_eq!(before, 0);
    assert!(stalled > 90, "{stalled}");
    assert_eq!(later, 0, "it ends by itself, though what waits is old");
}

#[test]
fn offsets_that_go_back_are_a_new_beginning() {
    let mut controller = Controller::new(30_000, 200);
    let turn = |controller: &mut Controller, at, end, committed| {
        controller.turn(&sample(at, Some(Lag::new(end, committed)), Some(100)))
    };
    for at in 0..60 {
        turn(&mut controller, at, 10_000 + at * 50, 9_000 + at * 50);
    }
    let pace = turn(&mut controller, 60, 100, 0);
    assert!(pace.drain_per_s <= 100.0 && pace.room <= 3_000, "{pace:?}");
    assert!(pace.reserved <= 600 && pace.reserved <= pace.room);
}

/// The promises, for a consumer that takes another rate from the sixth `ahead` on. `ceiling`: so many times the higher one.
fn check_a_change(ahead: i64, rate: f64, commit_every_s: f64, ceiling: Option<f64>, factor: f64) {
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
        assert!(second.pace.drain_per_s >= floor.max(1.0) - 1e-6);
        assert!(ceiling.is_none_or(|ceiling| second.pace.drain_per_s <= to_f64(ceiling)));
    }
    // What stands when it slows down is delivered first.
    let settled = change + (1.0 / factor).max(1.0) * ahead_s + 30.0;
    check(&seconds, settled, ahead_s, &|_| rate * factor);
}

#[test]
fn a_rate_that_rises_with_each_commit_stops_at_what_delivery_takes() {
    // What it took from its last commit on was all that it could take, and before that it had little to do.
    for rate in (250..=5_000).step_by(250) {
        for commit_every_ms in (4_700..6_000).step_by(20) {
            check_a_change(20, f64::from(rate), f64::from(commit_every_ms) / 1_000.0, None, 0.5);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// Whatever the consumer takes and however it commits.
    #[test]
    fn the_promises_hold(
        ahead in 20_i64..120, rate in 5.0..5_000.0_f64, commit_every_s in 0.1..6.0_f64,
        ceiling in prop::option::of(1.0..4.0_f64), factor in 0.3..3.0_f64,
    ) {
        check_a_change(ahead, rate, commit_every_s, ceiling, factor);
    }
}

#[test]
fn a_long_time_in_which_nothing_is_approved_gives_no_more_room_than_ahead_while_the_lag_is_not_known() {
    let mut controller = Controller::new(10_000, 0);
    let mut turn =
        |at: u64, lag: Option<Lag>, approved: u64| controller.turn(&Sample { approved, ..sample(at, lag, Some(50)) });
    (0..100).for_each(|at| _ = turn(at, Some(Lag::new(40 * at, 40 * at)), 0));
    let pace = (100..3_700).map(|at| turn(at, None, 0)).last().unwrap();
    assert_eq!((pace.room, pace.why), (500, Throttle::LagUnknown), "10 s of 50: nothing was there to be delivered");
    let used = turn(3_700, None, 500);
    assert_eq!(used.room, 501, "one second of the floor is delivered");
    let later = turn(3_800, None, 500);
    assert!((501..=1_000).contains(&later.room), "probes go on: {later:?}");
}
