//! One policy of a replay, with the worker's own decider, the embedded store, and the intents that the policy has deferred.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use weir_core::{
    basis::{current::Current, time::Time, zone::Zone},
    batch::{
        decider::{AskedBatch, Decider, Decoded, DecodedBatch, Ground, Patience, Takes, Times},
        record::{ReadBefore, Records as _},
    },
    deferral::{DeferReason, Deferral, wheel::Ring},
    history::deferred_send::PastSend,
    limit::HeldLimits,
    policy::{Mode, Policy},
    ports::embedded::EmbeddedStore,
    replay::{Judged, ReplayPressure, ReplayTally},
    segment::SegmentSet,
};

use super::{
    args::Plan,
    past::{BATCH, Batch, Past, Piece},
};

/// Budgets answer at once, and have counted whatever was approved.
const AT_ONCE: Patience = Patience { unavailable_after: None, may_defer: false, replays_pay: false };

/// One policy, the histories under it, and its deferred intents.
pub(super) struct Side {
    decider: Decider,
    store: EmbeddedStore,
    segments: Arc<SegmentSet>,
    pub(super) tally: ReplayTally,
    may_defer: bool,
    /// Whether the policy asks for it; else only intents with a `not_before` are deferred.
    defers: bool,
    /// By due time; in one due time in the order in which they were deferred. They are held in memory.
    waiting: BTreeMap<Time, Vec<DeferredRecord>>,
}

struct DeferredRecord {
    number: usize,
    record: Arc<Past>,
    deferral: Deferral,
}

impl Side {
    pub(super) fn new(plan: &Plan, policy: &Arc<Policy>, zone: Zone, first: Time) -> Self {
        let tally = ReplayTally::new(policy, zone, first);
        Self {
            decider: Decider {
                fields: Arc::clone(&plan.fields),
                held: HeldLimits {
                    pressure: tally.pressure.as_ref().map(ReplayPressure::shared),
                    ..HeldLimits::default()
                },
                ..Decider::new(
                    plan.intents.to_string(),
                    Current::new(Arc::clone(&plan.segments)),
                    Current::new(Arc::clone(policy)),
                )
            },
            store: EmbeddedStore::new(plan.bounds),
            segments: Arc::clone(&plan.segments),
            tally,
            may_defer: policy.mode == Mode::Enforce && (plan.may_defer || policy.defers()),
            defers: policy.defers(),
            waiting: BTreeMap::new(),
        }
    }

    /// Reads the intents, as any policy's decider does.
    pub(super) fn decode<'r>(&self, records: &'r Piece<'_>) -> Vec<Decoded<'r>> {
        self.decider.decode(records)
    }

    /// Counts a send of before the first intent.
    pub(super) fn remember(&mut self, send: &PastSend<'_>) {
        self.store.remember(send);
        self.tally.budgets.remember(&send.class, send.cost, send.at);
        if let Some(pressure) = &self.tally.pressure {
            pressure.remember(send.user, send.at);
        }
    }

    /// How many intents are still deferred, and when the last of them is due; `None` without one.
    pub(super) fn still_deferred(&self) -> Option<(u64, Time)> {
        let (due, _) = self.waiting.last_key_value()?;
        Some((self.waiting.values().map(|waiting| waiting.len() as u64).sum(), *due))
    }

    /// Judges each intent of a batch at its own time, and deferred intents when they are due.
    pub(super) fn judge(&mut self, batch: &Batch, decoded: &[Decoded<'_>], times: &[Time]) {
        let first = self.tally.number(decoded.iter().map(|decoded| decoded.as_ref().ok()));
        // An intent is due at a full minute after the one that defers it, so the intents of one minute are judged together.
        let too_early = || decoded.iter().flatten().any(|intent| intent.not_before.is_some());
        // Users are active by the minute.
        let by_the_minute = self.tally.pressure.is_some()
            || (self.may_defer && (self.defers || !self.waiting.is_empty() || too_early()));
        let mut begin = 0;
        while begin < decoded.len() {
            let mut end = decoded.len();
            if by_the_minute {
                let minute = Ring::Minutes.slot(times[begin]);
                self.release(minute);
                let same = times[begin..].iter().take_while(|time| Ring::Minutes.slot(**time) == minute);
                end = begin + same.count();
            }
            let piece = batch.all().part(begin..end);
            let intents = DecodedBatch { records: &piece, decoded: &decoded[begin..end] };
            self.judge_piece(&intents, &times[begin..end], |index| first + begin + index);
            begin = end;
        }
    }

    /// Judges the deferred intents that are due at `until` or before.
    pub(super) fn release(&mut self, until: Time) {
        while let Some(first) = self.waiting.first_entry()
            && *first.key() <= until
        {
            let (due, waiting) = first.remove_entry();
            for part in waiting.chunks(BATCH) {
                let records: Vec<_> = part.iter().map(|one| Arc::clone(&one.record)).collect();
                let deferrals: Vec<_> = part.iter().map(|one| one.deferral.clone()).collect();
                let piece = Piece { records: &records, deferrals: &deferrals };
                let decoded = self.decode(&piece);
                let batch = DecodedBatch { records: &piece, decoded: &decoded };
                self.judge_piece(&batch, &vec![due; part.len()], |index| part[index].number);
            }
        }
    }

    /// Judges what comes in one turn of pressure. Where there are budgets, each intent is a batch of its own: what an intent before it took
    /// of them in vain has come back, and they look back from its own time.
    fn judge_piece(&mut self, batch: &DecodedBatch<'_, Piece<'_>>, times: &[Time], number: impl Fn(usize) -> usize) {
        let begin = times.first().copied().unwrap_or_default();
        if let Some(pressure) = &mut self.tally.pressure {
            pressure.turn_to(begin, times.len());
        }
        let most = if self.tally.budgets.is_empty() { times.len().max(1) } else { 1 };
        for from in (0..times.len()).step_by(most) {
            let range = from..times.len().min(from + most);
            let piece = batch.records.part(range.clone());
            let batch = DecodedBatch { records: &piece, decoded: &batch.decoded[range.clone()] };
            self.decide(batch, &times[range], |index| number(from + index));
        }
        if let Some(pressure) = &mut self.tally.pressure {
            pressure.judged(begin);
        }
    }

    /// Decides a batch, as a lane does.
    fn decide(&mut self, batch: DecodedBatch<'_, Piece<'_>>, times: &[Time], number: impl Fn(usize) -> usize) {
        let DecodedBatch { records: piece, decoded } = batch;
        let ground = Ground {
            times: Times::Each(times),
            passed: Duration::ZERO,
            read_before: ReadBefore::none(),
            takes: Takes::FromPools,
            budgets: Some(AT_ONCE),
        };
        let gated = self.decider.begin(batch, ground);
        let funded = gated.claim().map(|claim| self.tally.budgets.fund(claim, gated.now()));
        let mut asked = gated.ask(funded);
        self.admit(&mut asked, times);
        let (decided, settlement) = asked.finish();
        settlement.committed();
        for (index, decoded) in decoded.iter().enumerate() {
            let Ok(intent) = decoded else { continue };
            let (number, now, record) = (number(index), times[index], piece.get(index));
            let (verdict, _) = decided.ruling(index, now);
            let to_defer = decided.to_defer(index, &verdict, now).filter(|_| self.may_defer);
            if let Some((why, due)) = to_defer {
                let again = record.deferral.is_some_and(|deferral| deferral.why == DeferReason::Pressure);
                if let Some(pressure) = &mut self.tally.pressure
                    && why == DeferReason::Pressure
                    && !again
                {
                    pressure.deferred += 1;
                }
                let deferral = Deferral::after(&record, &self.decider.topic, (why, due), now);
                let record = Arc::clone(&piece.records[index]);
                self.waiting.entry(due).or_default().push(DeferredRecord { number, record, deferral });
            } else {
                let segment = decided.result(index).segment;
                let segment = segment.map(|place| self.segments.segments()[place].name.as_str());
                let judged = Judged { number, intent, segment, at: now, deferred: record.deferral.is_some() };
                self.tally.add(&judged, &verdict);
            }
        }
    }

    /// Asks the store for each intent at its own time, and again for those that get what limits gave to others in vain.
    fn admit(&self, asked: &mut AskedBatch<'_, Piece<'_>>, times: &[Time]) {
        loop {
            let mut asked_at = vec![Time::default(); asked.requests().requests.len()];
            for (index, time) in times.iter().enumerate() {
                if let Some(request) = asked.result(index).request() {
                    asked_at[request.get()] = *time;
                }
            }
            let (requests, answers) = asked.to_ask();
            self.store.admit_each(requests, &asked_at, answers);
            asked.heard(&[], None);
            if !asked.offer() {
                break;
            }
        }
    }
}
