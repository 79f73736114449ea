//! A process of weir that begins while its consumer is at work: by what was kept, or by nothing.

use super::*;

const RATE: f64 = 500.0;
const AHEAD_S: i64 = 30;
/// When it begins: at each second of a commit step of 5 s.
const BEGINS: [f64; 5] = [100.0, 101.0, 102.0, 103.0, 104.0];

/// The seconds from when weir starts again on; its consumers commit so often.
fn restarted(at: f64, keeps: bool, ceiling: Option<u64>, commit_every_s: f64) -> Vec<Second> {
    let restarts = Some((at, keeps));
    let mut seconds = World { ceiling, commit_every_s, restarts, ..World::new(AHEAD_S, &|_| RATE) }.run(250);
    seconds.retain(|second| second.at >= at);
    seconds
}

#[test]
fn a_controller_that_begins_within_a_commit_step_approves_no_more_than_one_that_has_learnt() {
    for keeps in [false, true] {
        for (ceiling, commit_every_s) in [(None, 5.0), (Some(2_000), 5.0), (None, 2.3), (None, 1.0), (None, 0.1)] {
            for at in BEGINS {
                let seconds = restarted(at, keeps, ceiling, commit_every_s);
                let most = seconds.iter().map(|second| second.undelivered).fold(0.0, f64::max);
                assert!(most <= 1.2 * 30.0 * RATE, "{keeps} {ceiling:?} {commit_every_s} {at}: {most}");
                let drains = seconds.iter().map(|second| second.pace.drain_per_s).fold(0.0, f64::max);
                assert!(drains <= 1.2 * RATE, "no step counts as a look's: {keeps} {commit_every_s} {at}: {drains}");
                check(&seconds, at, 30.0, &|_| RATE);
            }
        }
    }
}

#[test]
fn until_a_rate_counts_a_grant_is_what_delivery_takes_from_one_look_to_the_next() {
    for at in BEGINS {
        for keeps in [false, true] {
            let seconds = restarted(at, keeps, None, 5.0);
            let counts = seconds.iter().position(|second| second.pace.most == u64::MAX).unwrap();
            let (early, late) = seconds.split_at(counts);
            assert!(late[0].at - at > 5.0, "three looks with progress are two steps apart: {:?}", late[0]);
            assert!(early.iter().all(|second| second.pace.measured_per_s.is_none()), "{at} {keeps}");
            assert!(late[0].pace.measured_per_s.is_some_and(|rate| (rate - RATE).abs() < 1.0), "{:?}", late[0]);
            let most = early.iter().map(|second| second.pace.most).max().unwrap();
            assert!(most.abs_diff(if keeps { 500 } else { 2 }) <= 1, "{at} {keeps}: {most}");
            let mut best = early.iter().map(|second| second.pace.best_per_s);
            assert!(best.all(|best| best.is_some() == keeps), "nothing expires by a guess: {at} {keeps}: {early:?}");
        }
    }
}

#[test]
fn what_was_kept_is_taken_up_once_and_only_where_nothing_is_known() {
    let lag = |at: u64| Some(Lag::new(2_000 + 300 * at, 300 * at));
    let mut controller = Controller::new(30_000, 0);
    let turn =
        |controller: &mut Controller, at: u64| controller.turn(&Sample { approved: 0, ..sample(at, lag(at), None) });
    let kept = |drain_per_s| KeptRates { drain_per_s: Some(drain_per_s), best_per_s: Some(2.0 * drain_per_s) };
    turn(&mut controller, 0);
    assert_eq!(controller.to_keep(), KeptRates::default(), "nothing counts");
    // The store did not answer before.
    controller.recall(kept(400.0), KeptRates::default());
    let pace = turn(&mut controller, 1);
    assert_eq!((pace.drain_per_s, pace.best_per_s, pace.most), (400.0, Some(800.0), 400));
    for at in 2..60 {
        controller.recall(kept(7.0), controller.to_keep());
        turn(&mut controller, at);
    }
    let pace = turn(&mut controller, 60);
    assert!((pace.drain_per_s - 300.0).abs() < 1.0 && pace.best_per_s.is_some_and(|rate| rate < 301.0), "{pace:?}");
    let kept = controller.to_keep();
    let is_about = |rate: Option<f64>| rate.is_some_and(|rate| (rate - 300.0).abs() < 1.0);
    assert!(is_about(kept.drain_per_s) && is_about(kept.best_per_s), "{kept:?}");
    controller.turn(&Sample { approved: 0, ..sample(61, None, None) });
    assert_eq!(controller.to_keep(), KeptRates { drain_per_s: None, ..kept }, "the best rate is what it was");
    controller.recall(kept, controller.to_keep());
    assert_eq!(controller.to_keep(), KeptRates::default(), "nothing is measured now");
}

#[test]
fn what_was_committed_before_a_change_of_the_route_is_no_progress() {
    // The group began at the end of a topic with a million records, after weir had looked for the first time.
    let partitions = |at: u64| {
        let committed = (at >= 5).then_some(1_000_000 + 300 * at);
        [(0, PartitionLag { committed, undelivered: if committed.is_none() { 1_000_000 } else { 1_000 } })]
    };
    let (mut controller, mut delivered, mut rates) = (Controller::new(30_000, 0), Delivered::default(), Vec::new());
    for at in 0..200 {
        if at == 100 {
            // Whoever keeps the route by the new policy looks for the first time.
            (controller, delivered) = (controller.changed_to(30_000, 0), Delivered::default());
        }
        let lag = Some(delivered.look(partitions(at)).lag);
        rates.push(controller.turn(&sample(at, lag, None)).drain_per_s);
    }
    assert!(rates[60..].iter().all(|rate| (rate - 300.0).abs() < 1.0), "{rates:?}");
    assert!(controller.to_keep().drain_per_s.is_some_and(|rate| (rate - 300.0).abs() < 1.0), "it is measured again");
}

#[test]
fn a_rate_that_was_kept_is_not_believed_for_long_where_the_consumer_takes_less_or_nothing() {
    for (takes, most_s) in [(50.0, 15.0), (0.0, 14.0)] {
        let consumer = |_: f64| takes;
        let mut world = World::new(AHEAD_S, &consumer);
        world.controller.recall(KeptRates { drain_per_s: Some(RATE), best_per_s: None }, KeptRates::default());
        let seconds = world.run(120);
        let most = seconds.iter().map(|second| second.undelivered).fold(0.0, f64::max);
        assert!(most <= 2.0 * RATE * most_s, "{takes}: {most}, two grants a second");
        let last = seconds.last().unwrap();
        assert!(last.pace.drain_per_s <= f64::max(takes, 0.01 * RATE) + 1.0, "{takes}: {last:?}");
    }
}

#[test]
fn before_the_lag_was_ever_known_the_floor_is_approved() {
    let mut controller = Controller::new(30_000, 0);
    controller.recall(KeptRates { drain_per_s: Some(RATE), best_per_s: None }, KeptRates::default());
    let mut room = |at: u64| controller.turn(&sample(at, None, None)).room;
    assert_eq!([room(0), room(1), room(2)], [0, 5, 10], "1% of what it is known to take");
}
