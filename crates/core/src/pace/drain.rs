//! How much delivery takes per second, from the offsets that its consumers commit.

use std::collections::VecDeque;

use super::{FLOOR, Lag, to_f64};

/// How far back the rate is measured, in seconds: `ahead`, within these bounds, and three commits at the least.
const WINDOW_S: [f64; 2] = [10.0, 30.0];
/// How often consumers commit where it has not been seen: Kafka's default.
const STEP_S: f64 = 5.0;
/// The longest time between commits that is told from a consumer that has stopped.
const LONGEST_STEP_S: f64 = 15.0;
/// A consumer has enough to do where its lag is never below what it takes in this time: a sample is a second old.
const BUSY_S: f64 = 1.5;
/// How fast the estimate rises while the consumer has not enough to do, per second, as a share of the ceiling, or of what was seen.
const RISE: f64 = 0.1;
/// The estimate rises to so many times what was seen.
const MOST_RISE: f64 = 2.0;
/// A rate is measured once so many looks have found that more was committed.
const LOOKS: u32 = 3;
/// The best rate was measured at most so long ago, in seconds.
const BEST_S: f64 = 3_600.0;
/// The highest rate of each such time is kept, in seconds.
const BEST_EVERY_S: f64 = 60.0;
/// Within `ahead`, the estimate of a consumer that has stopped halves so often.
const HALVINGS: f64 = 8.0;

/// The estimate of one consumer group.
#[derive(Debug, Clone)]
pub(super) struct Drain {
    ahead_s: f64,
    /// When the committed offsets were seen to change, and what they were then; the last ones, ascending.
    changes: VecDeque<(f64, u64)>,
    /// The lag of the last samples.
    lags: VecDeque<(f64, f64)>,
    /// The end offsets when the committed ones changed last.
    end: u64,
    /// How long a busy consumer takes from one commit to the next.
    step_s: f64,
    /// What it is known to take, per second.
    seen: Option<f64>,
    /// The most that was ever seen.
    highest: f64,
    estimate: Option<f64>,
    /// Until when it has risen; `None`: it has not begun.
    risen_at: Option<f64>,
    busy: bool,
    /// Since when it is busy.
    busy_since: Option<f64>,
    stopped: bool,
    /// Looks that found that more was committed, since it was stopped last or its offsets went back.
    looks: u32,
    /// What it can take was measured since it was stopped last.
    measured: bool,
    /// The highest rates that were measured, each with when its minute began.
    best: VecDeque<(f64, f64)>,
    /// The least lag since it was stopped, until there is room again.
    probed: Option<f64>,
    /// When it was probed last: offsets that were committed by then may hold no record.
    probed_at: f64,
}

impl Drain {
    pub(super) const fn new(ahead_s: f64) -> Self {
        Self {
            ahead_s,
            changes: VecDeque::new(),
            lags: VecDeque::new(),
            end: 0,
            step_s: STEP_S,
            seen: None,
            highest: 0.0,
            estimate: None,
            risen_at: None,
            busy: false,
            busy_since: None,
            stopped: false,
            looks: 0,
            measured: false,
            best: VecDeque::new(),
            probed: None,
            probed_at: f64::MIN,
        }
    }

    /// The same estimate for another `ahead`.
    pub(super) fn looking_ahead(self, ahead_s: f64) -> Self {
        Self { ahead_s, ..self }
    }

    /// Whether what it can take was measured since it was stopped last: the estimate does not come from what it was given.
    pub(super) const fn is_measured(&self) -> bool {
        self.measured
    }

    /// Whether it had enough to do all the time, so that what it took is what it can take.
    pub(super) const fn is_busy(&self) -> bool {
        self.busy
    }

    /// Whether one is approved though there is no room: it has stopped, or what it has taken since was all that was approved. What
    /// stands may be offsets without a record, in other partitions than those of the last probes.
    pub(super) fn is_probed(&self, lag: f64) -> bool {
        self.stopped || self.probed.is_some_and(|least| lag <= least + 2.0 * self.step_s)
    }

    /// Whether it was stopped, and there is no room since.
    pub(super) const fn has_no_room(&self) -> bool {
        self.probed.is_some()
    }

    /// There is room: unless it is stopped, it needs no probes.
    pub(super) const fn has_room(&mut self) {
        if !self.stopped {
            self.probed = None;
        }
    }

    /// Whether intents stand and it commits nothing.
    pub(super) const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The least that is approved, per second.
    pub(super) fn floor(&self, ceiling: Option<f64>) -> f64 {
        (FLOOR * ceiling.unwrap_or(self.highest)).max(1.0)
    }

    /// The estimate, per second: between floor and ceiling.
    pub(super) fn per_s(&self, ceiling: Option<f64>) -> f64 {
        let estimate = self.estimate.unwrap_or_else(|| self.first(ceiling));
        estimate.min(ceiling.unwrap_or(f64::MAX)).max(self.floor(ceiling))
    }

    /// The best rate that is known: of the ceiling and what was measured within the last hour the higher one, since a ceiling of
    /// registered instances is low while these restart. It is no less than the estimate.
    pub(super) fn best(&self, now: f64, ceiling: Option<f64>) -> Option<f64> {
        let measured = self.best.iter().filter(|(at, _)| now - at <= BEST_S).map(|(_, rate)| *rate);
        Some(ceiling.into_iter().chain(measured).reduce(f64::max)?.max(self.per_s(ceiling)))
    }

    /// Whether it was busy, and needed no probes, in all of the time that the rate is measured over.
    fn was_busy(&self, looks_back: f64) -> bool {
        let measured_from = self.changes.front().map(|(at, _)| *at).filter(|at| *at > self.probed_at);
        measured_from.zip(self.busy_since).is_some_and(|(from, since)| from >= since - looks_back)
    }

    /// Notes a rate that was measured.
    fn note_best(&mut self, now: f64, rate: f64) {
        match self.best.back_mut() {
            Some((at, most)) if now - *at < BEST_EVERY_S => *most = most.max(rate),
            Some(_) | None => self.best.push_back((now, rate)),
        }
        while self.best.pop_front_if(|(at, _)| now - *at > BEST_S).is_some() {}
    }

    /// What is tried first: a tenth of the ceiling.
    fn first(&self, ceiling: Option<f64>) -> f64 {
        (ceiling.unwrap_or(0.0) * RISE).max(self.floor(ceiling))
    }

    /// Another sample, so long after the one before.
    pub(super) fn see(&mut self, now: f64, passed: f64, lag: Lag, ceiling: Option<f64>) {
        let undelivered = to_f64(lag.undelivered());
        self.note(now, lag);
        self.lags.push_back((now, undelivered));
        let looks_back = (2.0 * self.step_s).max(3.0);
        while self.lags.front().is_some_and(|(at, _)| now - at > looks_back) {
            self.lags.pop_front();
        }
        let quiet_s = self.changes.back().map_or(0.0, |(at, _)| now - at);
        let has_new = lag.end > self.end;
        let standing = has_new || undelivered > BUSY_S * self.seen.unwrap_or(1.0);
        self.stopped = standing && quiet_s > 2.0 * self.step_s;

        let least = self.probed.map_or(undelivered, |least| least.min(undelivered));
        self.probed = (self.stopped || self.probed.is_some()).then_some(least);

        if self.probed.is_some() {
            self.probed_at = now;
        }
        // Offsets without a record that a probe has passed are no rate: it takes no more than was ever seen.
        let is_sure = self.highest == 0.0 || self.changes.front().is_some_and(|(at, _)| *at > self.probed_at);
        let measured = self.measured().map(|measured| if is_sure { measured } else { measured.min(self.highest) });
        if let Some(measured) = measured {
            self.highest = self.highest.max(measured);
        }
        let low = self.lags.iter().map(|(_, lag)| *lag).fold(f64::MAX, f64::min);
        self.busy = measured.is_some_and(|measured| low > BUSY_S * measured);
        self.busy_since = self.busy_since.or(Some(now)).filter(|_| self.busy);
        let takes = measured.filter(|_| self.looks >= LOOKS && self.was_busy(looks_back));
        if let Some(takes) = takes {
            self.note_best(now, takes);
        }
        self.measured = self.probed.is_none() && (self.measured || takes.is_some());
        let before = self.per_s(ceiling);
        // What was approved since the last commit and is not committed yet may be for a consumer that has stopped. What stood before
        // may be offsets without a record.
        let rises_s = self.risen_at.filter(|_| !has_new).map_or(0.0, |at| now - at);
        if !has_new || self.stopped || self.busy {
            self.risen_at = Some(now);
        }
        let estimate = if self.stopped {
            before * (-HALVINGS * passed / self.ahead_s).exp2()
        } else if self.busy {
            self.seen = measured;
            measured.unwrap_or(before)
        } else {
            let seen = self.seen.unwrap_or_else(|| self.first(ceiling)).max(measured.unwrap_or(0.0));
            self.seen = Some(seen);
            let rise = RISE * ceiling.unwrap_or(self.highest.max(1.0)) * rises_s;
            (before + rise).min(MOST_RISE * seen).max(before.min(seen))
        };
        self.estimate = Some(estimate.max(self.floor(ceiling)).min(ceiling.unwrap_or(f64::MAX)));
    }

    /// Notes a change of the committed offsets.
    fn note(&mut self, now: f64, lag: Lag) {
        let Some(&(at, committed)) = self.changes.back() else {
            self.changes.push_back((now, lag.committed));
            self.end = lag.end;
            return;
        };
        if lag.committed == committed {
            return;
        }
        self.looks = if lag.committed < committed || self.stopped { 0 } else { self.looks.saturating_add(1) };
        if lag.committed < committed {
            // Offsets were reset, or the topic was recreated.
            self.changes.clear();
        } else if self.stopped {
            // It has resumed: this is what it took since its last commit, or since it began. Where nothing was ever measured, it may be
            // offsets without a record.
            self.changes.clear();
            if self.highest > 0.0 {
                self.changes.push_back((now - self.step_s.min(now - at), committed));
            }
        } else if self.busy {
            self.step_s = (now - at).max(0.9 * self.step_s).clamp(1.0, LONGEST_STEP_S);
        }
        self.changes.push_back((now, lag.committed));
        self.end = lag.end;
        let window = self.ahead_s.clamp(WINDOW_S[0], WINDOW_S[1]).max(3.0 * self.step_s);
        while self.changes.len() > 2 && now - self.changes[0].0 > window {
            self.changes.pop_front();
        }
    }

    /// What was committed per second, from the first change to the last; `None` where there are not two.
    fn measured(&self) -> Option<f64> {
        let ((first_at, first), (last_at, last)) = (self.changes.front()?, self.changes.back()?);
        (last_at > first_at).then(|| to_f64(last - first) / (last_at - first_at))
    }
}
