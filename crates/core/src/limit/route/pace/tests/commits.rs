//! Consumers that commit seldom, each at its own time, or at another time than before.

use super::*;

const AHEAD_S: f64 = 60.0;

#[test]
fn a_consumer_that_commits_seldom_is_told_from_one_that_has_stopped() {
    for commit_every_s in [8.5, 9.0, 9.5, 10.0, 10.5, 11.0, 12.0, 13.3, 15.0] {
        for ceiling in [None, Some(500)] {
            let seconds = World { ceiling, commit_every_s, ..World::new(60, &|_| 100.0) }.run(600);
            check(&seconds, 3.0 * AHEAD_S, AHEAD_S, &|_| 100.0);
            let stopped = seconds[180..].iter().filter(|second| second.pace.why == Throttle::Stopped).count();
            assert_eq!(stopped, 0, "{commit_every_s} {ceiling:?}");
        }
    }
}

#[test]
fn a_consumer_that_commits_less_often_than_before_is_measured_as_before() {
    for (before, after) in [(0.1, 5.0), (1.0, 5.0), (5.0, 12.0), (1.0, 15.0), (15.0, 1.0)] {
        let takes = |at: f64| if at < 400.0 { 400.0 } else { 100.0 };
        let commits = Some((200.0, after));
        let seconds = World { commit_every_s: before, commits, ..World::new(60, &takes) }.run(1_000);
        // What stood when it slowed down is delivered first.
        check(&seconds, 400.0 + 4.0 * AHEAD_S + 60.0, AHEAD_S, &|_| 100.0);
        assert!(seconds[700..].iter().all(|second| second.pace.measured_per_s.is_some()), "{before} {after}");
    }
}

#[test]
fn a_burst_after_an_idle_time_is_not_measured_over_the_idle_time() {
    for burst_s in [1.0, 2.0, 5.0, 10.0] {
        for begins in [500.0, 501.0, 502.0, 503.0, 504.0] {
            let comes = |at: f64| match at {
                ..300.0 => 120.0,
                at if (begins..begins + burst_s).contains(&at) => 1_000.0,
                _ => 0.0,
            };
            let seconds = World { comes: &comes, ..World::new(30, &|_| 100.0) }.run(600);
            let least = seconds[500..].iter().map(|second| second.pace.drain_per_s).fold(f64::MAX, f64::min);
            assert!(least >= 90.0, "{burst_s} {begins}: {least}");
        }
    }
}

#[test]
fn a_blast_behind_light_traffic_is_not_measured_over_the_light_traffic() {
    for light in [1.0, 5.0, 20.0, 50.0] {
        // A first blast, so that a rate was measured before.
        let comes = |at: f64| if (100.0..600.0).contains(&at) { light } else { 1_000.0 };
        let seconds = World { comes: &comes, ..World::new(30, &|_| 100.0) }.run(700);
        assert!(seconds[90].pace.measured_per_s.is_some() && seconds[699].pace.measured_per_s.is_some());
        let least = seconds[600..].iter().filter_map(|second| second.pace.measured_per_s).fold(f64::MAX, f64::min);
        assert!(least >= 90.0, "{light}: {least}");
    }
}

#[test]
fn a_consumer_whose_intents_come_seldom_is_known_to_have_stopped_as_soon_as_another_one() {
    for gap_s in [11, 13, 17, 23, 29] {
        // One comes each so many seconds, and is committed 3 s later. From 600 s on 100 per second come, and nothing is committed.
        let mut controller = Controller::new(30_000, 0);
        let paces = (0..660_u64).map(|at| {
            let end = at.min(600) / gap_s + 100 * at.saturating_sub(600);
            let committed = at.min(600).saturating_sub(3) / gap_s;
            controller.turn(&sample(at, Some(Lag { least: 0, ..Lag::new(end, committed) }), Some(500)))
        });
        let stopped = paces.skip(600).position(|pace| pace.why == Throttle::Stopped);
        assert!(stopped.is_some_and(|after_s| after_s <= 11), "{gap_s}: {stopped:?}");
    }
}

/// So many consumers, of a partition each, get intents at random, so many per second in all, and deliver each at once. Each commits
/// every 5 s, at its own time; the last one so long before a look, in hundredths of a second. `is_new`: none has committed before.
fn idle(consumers: u32, per_s: f64, before: u64, is_new: bool) -> Vec<Pace> {
    let (mut controller, mut delivered) = (Controller::new(30_000, 0), Delivered::default());
    let mut came = vec![0.0_f64; consumers as usize];
    let mut committed = came.clone();
    let (mut paces, mut drawn) = (Vec::new(), 1_u32);
    for at in 0..2_000 {
        let lags = came.iter().zip(&committed).map(|(came, committed)| PartitionLag {
            committed: Some(whole(*committed)).filter(|committed| !is_new || *committed > 0),
            undelivered: whole(*came) - whole(*committed),
        });
        paces.push(controller.turn(&sample(at, Some(delivered.look(lags.enumerate()).lag), None)));
        for step in 0..100 {
            for consumer in 0..consumers {
                let place = consumer as usize;
                drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if f64::from(drawn >> 8) < per_s / f64::from(consumers) / 100.0 * f64::from(1 << 24) {
                    came[place] += 1.0;
                }
                if (at * 100 + step + before) % 500 == u64::from(500 * (consumer + 1) / consumers) % 500 {
                    committed[place] = came[place];
                }
            }
        }
    }
    paces
}

#[test]
fn what_consumers_were_given_that_have_little_to_do_is_no_rate_however_many_commit_when() {
    for consumers in [1, 2, 3, 4, 12, 50] {
        for per_s in [0.05, 0.3, 0.6, 1.0, 2.0, 5.0, 20.0, 200.0] {
            for before in [1, 30, 60, 90] {
                let paces = idle(consumers, per_s, before, false);
                let measured = paces.iter().find(|pace| pace.best_per_s.is_some() || pace.measured_per_s.is_some());
                assert!(measured.is_none(), "{consumers} {per_s} {before}: {measured:?}");
            }
        }
    }
}

#[test]
fn what_a_new_group_was_given_whose_partitions_seldom_have_intents_is_no_rate_while_it_commits_each_of_them_first() {
    for (consumers, per_s) in [(50, 5.0), (200, 5.0), (200, 20.0)] {
        let paces = idle(consumers, per_s, 1, true);
        let measured = paces.iter().find(|pace| pace.best_per_s.is_some() || pace.measured_per_s.is_some());
        assert!(measured.is_none(), "{consumers} {per_s}: {measured:?}");
    }
}
