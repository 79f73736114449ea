//! True time: what clocks showed when a record was really decided, whatever its `decided_at`.
//!
//! A record was decided when the store answered the lane that wrote it, or, where the store was not asked, between the
//! read of its intent and the submit of its batch. The machine's clock then showed the true time and what it was off by.

use std::ops::RangeInclusive;

use super::{prelude::*, store::Answered};

/// How long before the store was asked the clock may have been read.
pub const JUDGED_WITHIN: Duration = Duration::from_secs(1);
/// How far clocks that are right may differ, and how exact they are.
const EXACT_MS: i64 = 2;

/// When a record was decided, in true time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    pub from: Duration,
    pub upto: Duration,
    /// Whether the store answered it.
    pub asked: bool,
}

impl World {
    /// When an output was decided; `None` for a replay, which was decided before.
    pub fn decided(&self, out: &Out, ask: &Ask, wanted: impl Fn(&AdmitVerdict) -> bool) -> Option<Decided> {
        let (from, upto, asked) = match self.answer(out, ask, wanted) {
            Some(Answered { verdict: AdmitVerdict::Replayed, .. }) => return None,
            Some(Answered { called, .. }) => (called.saturating_sub(JUDGED_WITHIN), called, true),
            None => (out.submit.at.saturating_sub(ANSWERS_HOLD), out.submit.at, false),
        };
        let from = self.before_freezes(out.submit.process, from, upto);
        Some(Decided { from: from.max(out.fetched), upto, asked })
    }

    fn answer(&self, out: &Out, ask: &Ask, wanted: impl Fn(&AdmitVerdict) -> bool) -> Option<Answered> {
        let answers = lock(&self.keyspace.answers);
        let of_lane = answers.get(&(out.submit.lane, UserHash::of(&ask.user), IdHash::of(&ask.id)))?;
        let held = |one: &&Answered| one.called >= out.fetched && one.at <= out.submit.at && wanted(&one.verdict);
        // Of two intents of one id in a batch, one may be a replay.
        let replayed = of_lane.iter().filter(held).find(|answer| answer.verdict == AdmitVerdict::Replayed);
        replayed.or_else(|| of_lane.iter().rfind(held)).copied()
    }

    /// Allows for a freeze between reading the clock and its effect.
    pub fn before_freezes(&self, process: u64, mut from: Duration, upto: Duration) -> Duration {
        for (began, ended) in self.freezes_of(process).into_iter().rev() {
            if ended >= from && began <= upto {
                from = from.min(began.saturating_sub(JUDGED_WITHIN));
            }
        }
        from
    }

    pub fn freezes_of(&self, process: u64) -> Vec<(Duration, Duration)> {
        let processes = self.processes.borrow();
        let process = processes.iter().find(|other| other.number == process);
        process.map(|process| process.freezes.borrow().clone()).unwrap_or_default()
    }

    /// The times that an instance's clock showed in a span of true time, and their precision.
    pub fn clock(&self, instance: usize, from: Duration, upto: Duration) -> Vec<RangeInclusive<i64>> {
        let mut spans = Vec::new();
        let (mut since, mut off) = (Duration::ZERO, 0);
        let changes = self.clock_changes.borrow();
        let of_instance = changes.iter().filter(|(of, ..)| *of == instance).map(|(_, at, off)| (*at, *off));
        for (until, next) in of_instance.chain([(Duration::MAX, 0)]) {
            let (first, last) = (since.max(from), until.min(upto));
            if first <= last {
                spans.push(wall_ms(first) + off - EXACT_MS..=wall_ms(last) + off + EXACT_MS);
            }
            (since, off) = (until, next);
        }
        spans
    }

    pub fn most_off(&self) -> i64 {
        self.clock_changes.borrow().iter().map(|(.., off)| off.abs()).max().unwrap_or(0) + EXACT_MS
    }
}

/// Whether `fits` holds for some moment in these spans of a clock; its result changes only at `edges`.
pub fn some_moment(spans: &[RangeInclusive<i64>], edges: &[i64], fits: impl Fn(i64) -> bool) -> bool {
    spans.iter().any(|span| {
        let near = edges.iter().flat_map(|edge| [edge - 1, *edge]).filter(|edge| span.contains(edge));
        near.chain([*span.start(), *span.end()]).any(&fits)
    })
}
