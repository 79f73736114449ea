//! Approvals as they are made, and how full the budget's windows are of them.

use std::collections::VecDeque;

use super::load::Scene;

/// A rolling window is looked at so often in each of its lengths.
const LOOKS: i64 = 600;

/// The approvals of a case. They are added in the order of time.
pub(super) struct Approvals {
    scene: Scene,
    /// In the window that ends at the latest one.
    recent: VecDeque<(i64, u64)>,
    in_window: u64,
    most: u64,
    look_at: i64,
    looks: u64,
    /// The sum over all looks.
    looked: f64,
    /// Of calendar periods and of a total.
    periods: Vec<u64>,
    all: u64,
}

impl Approvals {
    pub(super) fn new(scene: &Scene) -> Self {
        let periods = vec![0; scene.period(scene.end_ms())];
        // The first window fills up.
        let look_at = scene.window.kind().length_ms;
        let (recent, in_window, most) = (VecDeque::new(), 0, 0);
        Self { scene: *scene, recent, in_window, most, look_at, looks: 0, looked: 0.0, periods, all: 0 }
    }

    pub(super) fn add(&mut self, at: i64, tokens: u64) {
        if tokens == 0 {
            return;
        }
        self.all += tokens;
        if self.scene.window.kind().is_rolling {
            self.look_until(at);
            self.leave(at);
            self.recent.push_back((at, tokens));
            self.in_window += tokens;
            self.most = self.most.max(self.in_window);
        } else {
            let last = self.periods.len() - 1;
            let period = &mut self.periods[self.scene.period(at).min(last)];
            *period += tokens;
            self.most = self.most.max(*period);
        }
    }

    /// Drops what has left the window that ends at a moment.
    fn leave(&mut self, at: i64) {
        let length_ms = self.scene.window.kind().length_ms;
        while let Some((_, tokens)) = self.recent.pop_front_if(|(then, _)| *then + length_ms <= at) {
            self.in_window -= tokens;
        }
    }

    fn look_until(&mut self, at: i64) {
        while self.look_at < at {
            self.leave(self.look_at);
            self.looks += 1;
            self.looked += self.in_window as f64;
            self.look_at += (self.scene.window.kind().length_ms / LOOKS).max(1);
        }
    }

    pub(super) fn all(&self) -> u64 {
        self.all
    }

    /// By how much a window exceeded the limit at most.
    pub(super) fn most_over(&self) -> u64 {
        self.most.saturating_sub(self.scene.limit)
    }

    /// The share of the limit that was used: of rolling windows the mean from the first full one on, else the least of a period.
    pub(super) fn used(&mut self) -> f64 {
        self.look_until(self.scene.end_ms());
        let tokens = if self.scene.window.kind().is_rolling {
            self.looked / self.looks as f64
        } else {
            self.periods.iter().copied().min().unwrap_or(0) as f64
        };
        tokens / self.scene.limit as f64
    }
}
