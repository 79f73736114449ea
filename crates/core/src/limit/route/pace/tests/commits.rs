//! Consumers that commit seldom, each at its own time, or at another time than before.

use std::collections::VecDeque;

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
fn the_promises_hold_where_ahead_is_three_commits_however_seldom_these_are() {
    for commit_every_s in [5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0] {
        for (ceiling, factor) in [(None, 0.5), (None, 2.0), (Some(1.5), 0.7), (Some(3.0), 1.5)] {
            check_a_change(whole(3.0 * commit_every_s).cast_signed(), 100.0, commit_every_s, ceiling, factor);
        }
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
        for ceiling in [None, Some(110), Some(130), Some(150)] {
            // A first blast, so that a rate was measured before.
            let comes = |at: f64| if (15.0..600.0).contains(&at) { light } else { 1_000.0 };
            let seconds = World { ceiling, comes: &comes, ..World::new(30, &|_| 100.0) }.run(700);
            assert!(seconds[599].undelivered < 100.0, "{light} {ceiling:?}");
            assert!(seconds[90].pace.measured_per_s.is_some() && seconds[699].pace.measured_per_s.is_some());
            let least = seconds[100..].iter().filter_map(|second| second.pace.measured_per_s).fold(f64::MAX, f64::min);
            assert!(least >= 90.0, "{light} {ceiling:?}: {least}");
        }
    }
}

#[test]
fn a_consumer_that_got_faster_while_it_had_little_to_do_is_measured_anew() {
    for faster in [300.0, 500.0, 1_000.0] {
        let comes = |at: f64| if (15.0..600.0).contains(&at) { 5.0 } else { 1_000.0 };
        let takes = |at: f64| if at < 400.0 { 100.0 } else { faster };
        let seconds = World { comes: &comes, ..World::new(30, &takes) }.run(660);
        let least = seconds[600..].iter().filter_map(|second| second.pace.measured_per_s).fold(f64::MAX, f64::min);
        assert!(least >= 0.9 * faster && seconds[659].pace.measured_per_s.is_some(), "{faster}: {least}");
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
            controller.turn(&sample(at, Some(Lag { least: 0, even: 0, ..Lag::new(end, committed) }), Some(500)))
        });
        let stopped = paces.skip(600).position(|pace| pace.why == Throttle::Stopped);
        assert!(stopped.is_some_and(|after_s| after_s <= 12), "{gap_s}: {stopped:?}");
    }
}

/// Consumers, of a partition each, whose intents come at random. Each commits every 5 s, at its own time.
struct Group<'r> {
    consumers: u32,
    comes: Rate<'r>,
    /// What all take per second.
    takes: f64,
    ceiling: Option<u64>,
    /// How long before a look the last one commits, in hundredths of a second.
    before: u64,
    /// How long an intent is under way, in the same.
    lasts: usize,
    /// None has committed before.
    is_new: bool,
}

impl<'r> Group<'r> {
    /// Consumers that deliver each intent at once.
    fn new(consumers: u32, comes: Rate<'r>) -> Self {
        Self { consumers, comes, takes: f64::MAX, ceiling: None, before: 1, lasts: 0, is_new: false }
    }

    fn run(&self, seconds: u64) -> Vec<Pace> {
        let (mut controller, mut delivered) = (Controller::new(30_000, 0), Delivered::default());
        let each = 1.0 / f64::from(self.consumers) / 100.0;
        // What waits for a partition, what was approved into it, and how much of that is taken, and is committed.
        let mut partitions = vec![([0.0_f64; 4], VecDeque::from(vec![0.0; self.lasts])); self.consumers as usize];
        let (mut paces, mut drawn) = (Vec::new(), 1_u32);
        for at in 0..seconds {
            let lags = partitions.iter().map(|([_, approved, _, committed], _)| PartitionLag {
                committed: Some(whole(*committed)).filter(|committed| !self.is_new || *committed > 0),
                undelivered: whole(*approved) - whole(*committed),
            });
            let pace = controller.turn(&sample(at, Some(delivered.look(lags.enumerate()).lag), self.ceiling));
            paces.push(pace);
            let permits = to_f64(pace.room).min(2.0 * to_f64(pace.most));
            for step in (at * 100)..(at * 100 + 100) {
                let come = (self.comes)(to_f64(step) / 100.0) * each;
                for (consumer, ([waiting, approved, taken, committed], under_way)) in (0..).zip(&mut partitions) {
                    drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    *waiting += (come + f64::from(drawn >> 8) / f64::from(1 << 24)).floor();
                    let approves = waiting.min(permits * each);
                    *waiting -= approves;
                    *approved += approves;
                    under_way.push_back(*approved);
                    let done = under_way.pop_front().unwrap();
                    *taken = done.min(*taken + self.takes * each);
                    if (step + self.before) % 500 == u64::from(500 * (consumer + 1) / self.consumers) % 500 {
                        *committed = *taken;
                    }
                }
            }
        }
        paces
    }
}

fn measures_nothing(group: &Group<'_>) {
    let paces = group.run(2_000);
    let measured = paces.iter().find(|pace| pace.best_per_s.is_some() || pace.measured_per_s.is_some());
    assert!(measured.is_none(), "{} {} {}: {measured:?}", group.consumers, group.before, group.lasts);
}

#[test]
fn what_consumers_were_given_that_have_little_to_do_is_no_rate_however_many_commit_when() {
    for consumers in [1, 2, 3, 4, 12, 50] {
        for per_s in [0.05, 0.3, 0.6, 1.0, 2.0, 5.0, 20.0, 200.0] {
            for (before, lasts) in [(1, 0), (30, 0), (60, 0), (90, 0), (1, 50), (60, 100)] {
                measures_nothing(&Group { before, lasts, ..Group::new(consumers, &|_| per_s) });
            }
        }
    }
}

#[test]
fn what_a_new_group_was_given_whose_partitions_seldom_have_intents_is_no_rate_while_it_commits_each_of_them_first() {
    for (consumers, per_s) in [(50, 5.0), (200, 5.0), (200, 20.0)] {
        measures_nothing(&Group { is_new: true, ..Group::new(consumers, &|_| per_s) });
    }
}

#[test]
fn light_traffic_and_a_blast_behind_it_are_measured_as_what_was_measured_before_however_many_commit_when() {
    for consumers in [1, 2, 3, 4, 6, 12, 50] {
        for light in [0.0, 1.0, 2.0, 5.0, 50.0] {
            for (ceiling, before) in [(None, 1), (None, 80), (Some(130), 60), (Some(150), 40)] {
                let comes = |at: f64| if (1.0..600.3).contains(&at) { light } else { 20_000.0 };
                let paces = Group { takes: 120.0, ceiling, before, ..Group::new(consumers, &comes) }.run(700);
                // Of the first blast, some partitions have nothing left before others.
                let rates = |of: fn(&Pace) -> Option<f64>| paces[200..].iter().filter_map(of).fold(f64::MAX, f64::min);
                let (measured, best) = (rates(|pace| pace.measured_per_s), rates(|pace| pace.best_per_s));
                assert!(measured >= 70.0 && best >= 70.0, "{consumers} {light} {ceiling:?}: {measured} {best}");
                assert!(paces[650].measured_per_s.is_some_and(|rate| rate < 132.0), "{:?}", paces[650]);
            }
        }
    }
}
