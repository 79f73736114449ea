//! A simulated consumer, and intents that wait: for the controller's tests, and for the plots of `cargo xtask bench pace`.

use std::time::Duration;

use super::{Controller, Lag, Pace, Sample, to_f64, whole};

/// What the consumer group takes per second, by time.
pub(super) type Rate<'r> = &'r dyn Fn(f64) -> f64;

/// A route with intents that wait for it, and its consumer.
pub(super) struct World<'r> {
    pub(super) controller: Controller,
    pub(super) ceiling: Option<u64>,
    pub(super) takes: Rate<'r>,
    /// Intents that come per second; they wait where they are not approved.
    pub(super) comes: Rate<'r>,
    pub(super) commit_every_s: f64,
    /// When the lag cannot be found out.
    pub(super) unknown: std::ops::Range<f64>,
    pub(super) slow: &'r dyn Fn(f64) -> f64,
}

/// One second.
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
            ceiling: None,
            takes,
            comes: &|_| 1e9,
            commit_every_s: 5.0,
            unknown: 0.0..0.0,
            slow: &|_| 1.0,
        }
    }

    pub(super) fn run(&mut self, seconds: u32) -> Vec<Second> {
        const STEPS: u32 = 20;
        let (mut end, mut taken, mut committed, mut committed_at) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
        let (mut waiting, mut tokens, mut known_end) = (0.0_f64, 0.0_f64, 0.0_f64);
        let mut seconds_done = Vec::new();
        for second in 0..seconds {
            let at = f64::from(second);
            let unknown = self.unknown.contains(&at);
            let lag = (!unknown).then(|| Lag { end: whole(end), committed: whole(committed) });
            let sample = Sample { at: Duration::from_secs_f64(at), lag, ceiling: self.ceiling, slow: (self.slow)(at) };
            let pace = self.controller.turn(&sample);
            if !unknown {
                known_end = end;
            }
            // What was approved since the lag was known is not in it.
            let mut permits = (to_f64(pace.room) - (end - known_end)).max(0.0);
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
                end += approved;
                done.approved += approved;
                let could = (self.takes)(then) * length;
                let takes = could.min(end - taken);
                taken += takes;
                done.could += could.min(takes + waiting);
                done.taken += takes;
                if then - committed_at >= self.commit_every_s - 1e-9 && (self.takes)(then) > 0.0 {
                    (committed, committed_at) = (taken, then);
                }
            }
            done.undelivered = end - taken;
            seconds_done.push(done);
        }
        seconds_done
    }
}
