//! How much delivery takes per second, from the offsets that its consumers commit.

use std::collections::VecDeque;

use super::{FLOOR, KeptRates, Lag, delivered::STEP, to_f64};

/// How far back the rate is measured, in seconds: `ahead`, within these bounds, and three commits at the least.
const WINDOW_S: [f64; 2] = [10.0, 30.0];
/// The longest time between commits that is told from a consumer that has stopped.
const LONGEST_STEP_S: f64 = 15.0;
/// Intents stand that are more than a consumer takes in this time: a look is a second old.
const STANDS_S: f64 = 1.5;
/// A consumer has enough to do where a commit never leaves less than it takes in a fifth of `ahead`, within these bounds: besides
/// what came since the commit, what it is at work on.
const BUSY_S: [f64; 2] = [STANDS_S, 3.0];
/// In all looks of this time, in seconds: three.
const BUSY_FOR_S: f64 = 3.0;
/// So few intents are never enough.
const FEW: f64 = 3.0;
/// What is tried first where neither a ceiling nor a rate is known, per second.
const FIRST_PER_S: f64 = 2.0;
/// How fast the estimate rises while the consumer has not enough to do, per second, as a share of the ceiling, or of what was seen.
const RISE: f64 = 0.1;
/// The estimate rises to so many times what was seen.
const MOST_RISE: f64 = 2.0;
/// A rate counts once so many looks have found that more was committed, over the time from one commit to the next at the least.
const LOOKS: u32 = 3;
/// Within `ahead`, the estimate of a consumer that has stopped halves so often.
const HALVINGS: f64 = 8.0;

/// The estimate of one consumer group.
#[derive(Debug, Clone, Default)]
pub(super) struct Drain {
    pub(super) ahead_s: f64,
    /// When the committed offsets were seen to change last, or were seen first, and what they were then.
    pub(super) last: Option<(f64, u64)>,
    /// When they were seen to change since it began, resumed or went back, and what they were then; the last ones, ascending. The
    /// first one is where counting begins: nobody knows over how long a time that was done.
    changes: VecDeque<(f64, u64)>,
    /// The last looks.
    lags: VecDeque<(f64, Lag)>,
    /// The end offsets when the committed ones changed last.
    end: u64,
    /// How long a busy consumer takes from one commit to the next. Of several, each commits at its own time.
    step_s: f64,
    /// How long each of them takes.
    each_step_s: f64,
    /// What it is known to take, per second: by a rate that counts, or by what was kept.
    seen: Option<f64>,
    /// The most that was ever seen.
    highest: f64,
    estimate: Option<f64>,
    /// Until when it has risen; `None`: it has not begun.
    risen_at: Option<f64>,
    /// It had enough to do all the time, so that what it took is what it can take.
    pub(super) busy: bool,
    busy_since: Option<f64>,
    /// Since when intents stand, since more was committed last.
    stands_since: Option<f64>,
    /// Intents stand, and it commits nothing.
    pub(super) stopped: bool,
    /// Looks that found that more was committed, since it began, resumed or went back.
    looks: u32,
    /// A rate counted since then.
    pub(super) counted: bool,
    /// What it has committed when it resumed, per second of the time between two commits.
    resumed: Option<f64>,
    /// The estimate is what it takes: it has enough to do, and that was measured since it had.
    pub(super) measured: bool,
    /// The highest rate that was measured and that others have not been told of.
    best: Option<f64>,
    /// The highest one of the last hour that instances have kept.
    kept_best: Option<f64>,
    /// The least lag since it was stopped, until there is room again.
    pub(super) probed: Option<f64>,
    /// When it was probed last: offsets that were committed by then may hold no record.
    probed_at: f64,
}

impl Drain {
    pub(super) fn new(ahead_s: f64) -> Self {
        Self { ahead_s, step_s: to_f64(STEP), probed_at: f64::MIN, ..Self::default() }
    }

    /// Takes up what instances have kept, once this one has told that: the best rate, and where this one knows of none, what delivery takes.
    /// A better rate that was measured since is still to be told.
    pub(super) fn recall(&mut self, kept: KeptRates, told: KeptRates) {
        self.kept_best = kept.best_per_s;
        self.best = self.best.filter(|best| told.best_per_s < Some(*best));
        if let Some(drain) = kept.drain_per_s.filter(|_| self.seen.is_none()) {
            (self.seen, self.estimate) = (Some(drain), Some(drain));
            self.highest = self.highest.max(drain);
        }
    }

    /// What is to be kept, while delivery goes on.
    pub(super) fn to_keep(&self) -> KeptRates {
        let goes_on = self.counted && !self.stopped && self.probed.is_none();
        KeptRates { drain_per_s: self.seen.filter(|_| goes_on), best_per_s: self.best }
    }

    /// Whether the floor is approved though there is no room: nothing shows that delivery goes on, or what it has taken since it was
    /// stopped was all that was approved. What stands may be offsets without a record, in other partitions than those of the last
    /// probes.
    pub(super) fn is_probed(&self, lag: f64, floor: f64) -> bool {
        let shows_nothing = self.stopped || self.looks == 0;
        shows_nothing || self.probed.is_some_and(|least| lag <= least + 2.0 * self.step_s * floor)
    }

    /// There is room: unless it is stopped, it needs no probes.
    pub(super) const fn has_room(&mut self) {
        if !self.stopped {
            self.probed = None;
        }
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
    pub(super) fn best(&self, ceiling: Option<f64>) -> Option<f64> {
        let known = [ceiling, self.kept_best, self.best].into_iter().flatten();
        Some(known.reduce(f64::max)?.max(self.per_s(ceiling)))
    }

    /// Whether it was busy, and needed no probes, in all of the time that the rate is measured over.
    fn was_busy(&self) -> bool {
        self.busy && self.changes.front().is_some_and(|(at, _)| *at > self.probed_at)
    }

    /// Measures from when each consumer has committed once since it had enough to do: before, it may have had little to do.
    fn measure_from(&mut self, busy_since: f64) {
        let from = busy_since - BUSY_FOR_S + self.each_step_s;
        while self.changes.pop_front_if(|(at, _)| *at <= from).is_some() {}
    }

    /// What is tried first: a tenth of the ceiling, if there is one.
    fn first(&self, ceiling: Option<f64>) -> f64 {
        ceiling.map_or(FIRST_PER_S, |ceiling| ceiling * RISE).max(self.floor(ceiling))
    }

    /// Another sample, so long after the one before.
    pub(super) fn see(&mut self, now: f64, passed: f64, lag: Lag, ceiling: Option<f64>) {
        let undelivered = to_f64(lag.undelivered());
        self.note(now, lag);
        self.each_step_s = to_f64(lag.step).max(self.step_s).min(LONGEST_STEP_S);
        self.lags.push_back((now, lag));
        while self.lags.pop_front_if(|(at, _)| now - *at >= BUSY_FOR_S).is_some() {}
        let has_new = lag.end > self.end;
        self.see_whether_it_stands(now, undelivered, has_new);
        let before = self.per_s(ceiling);
        let busy_s = (self.ahead_s / 5.0).clamp(BUSY_S[0], BUSY_S[1]);
        let enough = (busy_s * self.measured().unwrap_or(before)).max(FEW);
        self.busy = self.lags.iter().all(|(_, lag)| to_f64(lag.even) > enough);
        let is_uneven = !self.busy && self.lags.iter().all(|(_, lag)| to_f64(lag.least) > enough);
        self.busy_since = self.busy_since.or(Some(now)).filter(|_| self.busy);
        if let Some(since) = self.busy_since {
            self.measure_from(since);
        }
        let counted = self.measured().filter(|_| self.counts());
        if let Some(rate) = counted {
            self.highest = self.highest.max(rate);
        }
        // Of a consumer that has not enough to do, what it was given says nothing of an estimate far above that.
        self.counted |= counted.is_some_and(|rate| self.busy || before <= MOST_RISE * rate);
        let takes = counted.filter(|_| self.was_busy());
        self.best = self.best.into_iter().chain(takes).reduce(f64::max);
        self.measured = self.probed.is_none() && takes.is_some();
        // What was approved since the last commit and is not committed yet may be for a consumer that has stopped. What stood before
        // may be offsets without a record.
        let rises_s = self.risen_at.filter(|_| !has_new).map_or(0.0, |at| now - at);
        if !has_new || self.stopped || self.busy {
            self.risen_at = Some(now);
        }
        // What does not count yet is believed up to what is known; of a busy consumer, what it took when it resumed alone.
        let known = self.seen.unwrap_or(before);
        let early = self.resumed.or_else(|| self.measured().filter(|_| !self.busy && counted.is_none()));
        let early = early.map(|takes| takes.min(known));
        let estimate = if self.stopped {
            before * (-HALVINGS * passed / self.ahead_s).exp2()
        } else if self.busy {
            self.seen = counted.or(self.seen);
            counted.or(early).unwrap_or(before.min(known))
        } else if is_uneven {
            // What slow consumers leave takes the room of the others. These could take more, but more would be given to all.
            before.min(known)
        } else {
            self.risen(before.max(early.unwrap_or(0.0)), counted, rises_s, ceiling)
        };
        self.estimate = Some(estimate.max(self.floor(ceiling)).min(ceiling.unwrap_or(f64::MAX)));
    }

    /// The estimate of a consumer that has not enough to do. Until a rate counts, it does not rise above what was kept.
    fn risen(&mut self, before: f64, counted: Option<f64>, rises_s: f64, ceiling: Option<f64>) -> f64 {
        let seen = self.seen.unwrap_or_else(|| self.first(ceiling)).max(counted.unwrap_or(0.0));
        let most = if self.counted || self.seen.is_none() { MOST_RISE * seen } else { seen };
        self.seen = counted.map(|_| seen).or(self.seen);
        let rise = RISE * ceiling.unwrap_or(self.highest.max(1.0)) * rises_s;
        (before + rise).min(most).max(before.min(seen))
    }

    /// Looks whether intents stand and nothing is committed.
    fn see_whether_it_stands(&mut self, now: f64, undelivered: f64, has_new: bool) {
        let standing = has_new || undelivered > STANDS_S * self.seen.unwrap_or(1.0);
        self.stands_since = self.stands_since.or(Some(now)).filter(|_| standing);
        self.stopped = self.stands_since.is_some_and(|since| now - since > 2.0 * self.step_s);
        let least = self.probed.map_or(undelivered, |least| least.min(undelivered));
        self.probed = (self.stopped || self.probed.is_some()).then_some(least);
        if self.probed.is_some() {
            self.probed_at = now;
        }
    }

    /// Notes a change of the committed offsets.
    fn note(&mut self, now: f64, lag: Lag) {
        self.resumed = None;
        let Some((at, committed)) = self.last else {
            (self.last, self.end) = (Some((now, lag.committed)), lag.end);
            return;
        };
        if lag.committed == committed {
            return;
        }
        (self.last, self.end) = (Some((now, lag.committed)), lag.end);
        let idle_s = self.stands_since.take().unwrap_or(now) - at;
        if lag.committed < committed {
            // Offsets were reset, or the topic was recreated.
            self.begin_anew();
            return;
        }
        if self.stopped {
            // This is what it took since its last commit, or since it began.
            self.begin_anew();
            self.resumed = Some(to_f64(lag.committed - committed) / self.step_s);
            if now - at <= 2.0 * LONGEST_STEP_S {
                // It may commit so seldom.
                self.step_s = (2.0 * self.step_s).min(LONGEST_STEP_S);
            }
        } else if self.busy {
            self.step_s = (now - at).max(0.9 * self.step_s).clamp(1.0, LONGEST_STEP_S);
        } else if idle_s > self.step_s {
            // It had nothing to do meanwhile.
            self.changes.clear();
        }
        self.looks = self.looks.saturating_add(1);
        self.changes.push_back((now, lag.committed));
        let window = self.ahead_s.clamp(WINDOW_S[0], WINDOW_S[1]).max(3.0 * self.step_s);
        while self.changes.len() > 2 && now - self.changes[0].0 > window {
            self.changes.pop_front();
        }
    }

    /// No rate counts until more looks have found progress.
    fn begin_anew(&mut self) {
        self.changes.clear();
        (self.looks, self.counted) = (0, false);
    }

    /// What was committed per second, from the first change to the last; `None` where there are not two.
    fn measured(&self) -> Option<f64> {
        let ((first_at, first), (last_at, last)) = (self.changes.front()?, self.changes.back()?);
        let measured = (last_at > first_at).then(|| to_f64(last - first) / (last_at - first_at))?;
        // Offsets without a record that a probe has passed are no rate: it takes no more than was ever seen.
        let is_sure = self.highest == 0.0 || *first_at > self.probed_at;
        Some(if is_sure { measured } else { measured.min(self.highest) })
    }

    /// Whether what was measured is what it takes. Consumers commit in steps, each at its own time: over less than such a step, what
    /// one has done in all of it would count.
    fn counts(&self) -> bool {
        let over = self.changes.front().zip(self.changes.back()).map_or(0.0, |((first, _), (last, _))| last - first);
        self.looks >= LOOKS && over >= self.each_step_s
    }
}
