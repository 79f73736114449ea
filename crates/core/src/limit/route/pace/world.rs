//! A simulated consumer, and intents that wait: for the controller's tests, and for the plots of `cargo xtask bench pace`.

use std::{collections::VecDeque, time::Duration};

use super::{
    Controller, Delivered, Deliveries, DeliverySignals, Lag, Pace, PartitionLag, Sample, WaitingQueue, to_f64, whole,
};

/// What the consumer group takes per second, by time.
pub(super) type Rate<'r> = &'r dyn Fn(f64) -> f64;

/// A route with intents that wait for it, and its consumer.
pub(super) struct World<'r> {
    pub(super) controller: Controller,
    pub(super) delivered: Delivered<u32>,
    pub(super) ahead: Duration,
    pub(super) ceiling: Option<u64>,
    pub(super) takes: Rate<'r>,
    /// Intents that come per second; they wait where they are not approved.
    pub(super) comes: Rate<'r>,
    pub(super) commit_every_s: f64,
    /// When it commits at other times, and how often then.
    pub(super) commits: Option<(f64, f64)>,
    /// When the lag cannot be found out.
    pub(super) unknown: std::ops::Range<f64>,
    pub(super) slow: &'r dyn Fn(f64) -> f64,
    /// When a transaction is aborted behind all that was approved, how many offsets it takes, and in how many partitions. The consumer
    /// commits what it has delivered, so it passes those of a partition with the record behind them: every third record is in another.
    pub(super) aborted: Option<(f64, f64, u32)>,
    /// When weir approves nothing, whatever the route takes.
    pub(super) stalls: std::ops::Range<f64>,
    /// What looks at the oldest intent that waits; `None`: nothing does.
    pub(super) oldest: Option<Oldest>,
    /// When weir starts again, and whether it then has what was kept.
    pub(super) restarts: Option<(f64, bool)>,
}

struct RouteLook<'p> {
    /// Intents that have left the queue, and those that wait in it.
    left: f64,
    waiting: f64,
    lag: Option<Lag>,
    pace: &'p Pace,
}

/// What looks at the oldest intent that waits.
#[derive(Debug, Default)]
pub(super) struct Oldest {
    /// When how many had come by then, from the oldest that waits on.
    came: VecDeque<(f64, f64)>,
    signals: DeliverySignals,
    /// What its age leaves of the drain rate.
    slow: f64,
}

impl Oldest {
    pub(super) fn new() -> Self {
        Self { slow: 1.0, ..Self::default() }
    }

    fn look(&mut self, at: f64, look: &RouteLook<'_>, ahead: Duration) {
        let RouteLook { left, waiting, lag, pace } = *look;
        self.came.push_back((at, left + waiting));
        while self.came.pop_front_if(|(_, came)| *came - left < 1.0).is_some() {}
        let oldest = self.came.front().map(|(came_at, _)| Duration::from_secs_f64(at - came_at));
        let queue = lag.filter(|_| !pace.why.is_closed()).map(|lag| {
            let (left, drain_per_s) = (whole(left), pace.drain_per_s);
            WaitingQueue { oldest, left, lag, drain_per_s, ahead }
        });
        let deliveries = Deliveries { queue, ..Deliveries::default() };
        self.slow = to_f64(self.signals.turn(Duration::from_secs_f64(at), &deliveries)) / 1_000.0;
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Second {
    pub(super) at: f64,
    pub(super) approved: f64,
    pub(super) undelivered: f64,
    /// What was taken, and what could have been.
    pub(super) taken: f64,
    pub(super) could: f64,
    pub(super) pace: Pace,
}

impl<'r> World<'r> {
    pub(super) fn new(ahead_s: i64, takes: Rate<'r>) -> Self {
        Self {
            controller: Controller::new(ahead_s * 1000, 0),
            delivered: Delivered::default(),
            ahead: Duration::from_secs(ahead_s.unsigned_abs()),
            ceiling: None,
            takes,
            comes: &|_| 1e9,
            commit_every_s: 5.0,
            commits: None,
            unknown: 0.0..0.0,
            slow: &|_| 1.0,
            aborted: None,
            stalls: 0.0..0.0,
            oldest: Some(Oldest::new()),
            restarts: None,
        }
    }

    /// Another process of weir.
    fn restart(&mut self, keeps: bool) {
        let kept = self.controller.to_keep();
        let ahead_ms = i64::try_from(self.ahead.as_millis()).unwrap_or(i64::MAX);
        (self.controller, self.delivered) = (Controller::new(ahead_ms, 0), Delivered::default());
        if keeps {
            self.controller.recall(kept, kept);
        }
        self.oldest = self.oldest.as_ref().map(|_| Oldest::new());
    }

    pub(super) fn run(&mut self, seconds: u32) -> Vec<Second> {
        const STEPS: u32 = 20;
        let (mut end, mut taken, mut committed, mut committed_at) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
        let (mut waiting, mut left, mut tokens, mut known_end) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
        // The record that passes offsets without one, by how many were taken before it, and how many they are.
        let (mut gaps, mut records) = (VecDeque::<(f64, f64)>::new(), 0.0_f64);
        let mut seconds_done = Vec::new();
        for second in 0..seconds {
            let at = f64::from(second);
            if let Some((_, count, partitions)) = self.aborted.take_if(|(then, ..)| at >= *then) {
                let each = count / f64::from(partitions);
                let approved = records + end - taken;
                gaps.extend((0..partitions).map(|number| (approved + 3.0 * f64::from(number), each)));
                end += count;
            }
            if let Some((_, commit_every_s)) = self.commits.take_if(|(then, _)| at >= *then) {
                self.commit_every_s = commit_every_s;
            }
            if let Some((_, keeps)) = self.restarts.take_if(|(then, _)| at >= *then) {
                self.restart(keeps);
            }
            let unknown = self.unknown.contains(&at);
            let known = PartitionLag { committed: Some(whole(committed)), undelivered: whole(end) - whole(committed) };
            let lag = (!unknown).then(|| self.delivered.look([(0, known)]).lag);
            let approved = whole(end - known_end);
            let slow = (self.slow)(at) * self.oldest.as_ref().map_or(1.0, |oldest| oldest.slow);
            let sample = Sample { at: Duration::from_secs_f64(at), lag, ceiling: self.ceiling, slow, approved };
            let pace = self.controller.turn(&sample);
            if let Some(oldest) = &mut self.oldest {
                oldest.look(at, &RouteLook { left, waiting, lag, pace: &pace }, self.ahead);
            }
            if !unknown {
                known_end = end;
            }
            // What was approved since the lag was known is not in it.
            let room = (to_f64(pace.room) - (end - known_end)).max(0.0);
            // Permits are granted about twice a second.
            let mut permits = room.min(2.0 * to_f64(pace.most));
            if self.stalls.contains(&at) {
                permits = 0.0;
            }
            if let Some(ceiling) = self.ceiling {
                tokens = (tokens + to_f64(ceiling)).min(to_f64(ceiling));
                permits = permits.min(tokens);
            }
            let mut done = Second { at, approved: 0.0, undelivered: 0.0, taken: 0.0, could: 0.0, pace };
            for step in 0..STEPS {
                let (then, length) = (at + f64::from(step) / f64::from(STEPS), 1.0 / f64::from(STEPS));
                waiting = (waiting + (self.comes)(then) * length).min(1e9);
                let approved = (permits / f64::from(STEPS - step)).min(waiting);
                permits -= approved;
                tokens -= approved;
                waiting -= approved;
                left += approved;
                end += approved;
                done.approved += approved;
                let could = (self.takes)(then) * length;
                let takes = could.min(end - taken - in_gaps(&gaps));
                taken += takes;
                records += takes;
                while let Some((_, count)) = gaps.pop_front_if(|(before, _)| records > *before + 0.5) {
                    taken += count;
                }
                done.could += could.min(takes + waiting);
                done.taken += takes;
                if then - committed_at >= self.commit_every_s - 1e-9 && (self.takes)(then) > 0.0 {
                    (committed, committed_at) = (taken, then);
                }
            }
            done.undelivered = end - taken - in_gaps(&gaps);
            seconds_done.push(done);
        }
        seconds_done
    }
}

fn in_gaps(gaps: &VecDeque<(f64, f64)>) -> f64 {
    gaps.iter().map(|(_, count)| count).sum()
}
