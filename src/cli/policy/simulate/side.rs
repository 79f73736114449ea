//! One policy of a replay, with the worker's own decider, the embedded store, and the intents that the policy has deferred.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use weir_core::{
    basis::{current::Current, shard::UserHash, time::Time},
    batch::{
        decider::{AskedBatch, Decider, Decoded, DecodedBatch, Ground, MOST_OFFERS, Patience, Takes, Times},
        record::{ReadBefore, Records as _},
    },
    deferral::{DeferReason, Deferral, wheel::Ring},
    limit::HeldLimits,
    policy::{Mode, Policy},
    ports::embedded::{EmbeddedStore, PastSend},
    replay::{PressurePeak, ReplayBudgets, ReplayOutcome, ReplayPressure, ReplayRoutes},
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
    budgets: ReplayBudgets,
    /// `None` where the policy has none.
    pressure: Option<ReplayPressure>,
    pub(super) routes: ReplayRoutes,
    /// Whether intents can be deferred.
    may_defer: bool,
    /// Whether the policy asks for it; else only intents with a `not_before` are deferred.
    defers: bool,
    /// By due time; in one due time in the order in which they were deferred. They are held in memory.
    waiting: BTreeMap<Time, Vec<Waiting>>,
}

/// A deferred intent.
struct Waiting {
    number: u64,
    record: Arc<Past>,
    deferral: Deferral,
}

/// A batch of intents as it was read.
#[derive(Clone, Copy)]
pub(super) struct Fresh<'f> {
    pub(super) batch: &'f Batch,
    pub(super) decoded: &'f [Decoded<'f>],
    /// When each came.
    pub(super) times: &'f [Time],
    /// The number of the first one; the others follow.
    pub(super) first: u64,
}

/// The outcomes that a batch brought under one policy.
#[derive(Default)]
pub(super) struct Outcomes {
    /// The number of the batch's first intent.
    first: u64,
    /// Those of the batch's intents; `None` for an intent that is deferred.
    pub(super) fresh: Vec<Option<ReplayOutcome>>,
    /// The segment of each.
    pub(super) segments: Vec<Option<usize>>,
    /// Those of intents that were read before, by number.
    pub(super) late: Vec<(u64, ReplayOutcome)>,
}

impl Outcomes {
    /// The place of an intent in the batch, where it is of it.
    fn place(&self, number: u64) -> Option<usize> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (place < self.fresh.len()).then_some(place)
    }

    fn add(&mut self, number: u64, outcome: ReplayOutcome) {
        match self.place(number) {
            Some(place) => self.fresh[place] = Some(outcome),
            None => self.late.push((number, outcome)),
        }
    }

    fn found(&mut self, number: u64, segment: Option<usize>) {
        if let Some(place) = self.place(number) {
            self.segments[place] = segment;
        }
    }
}

impl Side {
    pub(super) fn new(plan: &Plan, policy: &Arc<Policy>, first: Time) -> Self {
        let pressure = ReplayPressure::new(policy, first);
        Self {
            decider: Decider {
                fields: Arc::clone(&plan.fields),
                held: HeldLimits { pressure: pressure.as_ref().map(ReplayPressure::shared), ..HeldLimits::default() },
                ..Decider::new(
                    plan.intents.to_string(),
                    Current::new(Arc::clone(&plan.segments)),
                    Current::new(Arc::clone(policy)),
                )
            },
            store: EmbeddedStore::new(plan.bounds),
            budgets: ReplayBudgets::new(Arc::clone(policy)),
            pressure,
            routes: ReplayRoutes::new(Arc::clone(policy)),
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
    pub(super) fn remember(&mut self, user: UserHash, send: &PastSend<'_>) {
        self.store.remember(user, send);
        self.budgets.remember(&send.class, send.cost, send.at);
        if let Some(pressure) = &self.pressure {
            pressure.remember(user, send.at);
        }
    }

    /// The budgets that denied intents, and when first.
    pub(super) fn first_spent(&self) -> impl Iterator<Item = (&str, Time)> {
        self.budgets.first_spent()
    }

    /// What its pressure came to, where it has one.
    pub(super) fn peak(&self) -> Option<PressurePeak> {
        self.pressure.as_ref().map(ReplayPressure::peak)
    }

    /// How many intents are still deferred, and when the last of them is due; `None` without one.
    pub(super) fn still_deferred(&self) -> Option<(usize, Time)> {
        let (due, _) = self.waiting.last_key_value()?;
        Some((self.waiting.values().map(Vec::len).sum(), *due))
    }

    /// Judges each intent at its own time, and deferred intents when they are due.
    pub(super) fn judge(&mut self, fresh: Fresh<'_>) -> Outcomes {
        let Fresh { decoded, times, first, .. } = fresh;
        let (fresh_outcomes, segments) = (vec![None; decoded.len()], vec![None; decoded.len()]);
        let mut outcomes = Outcomes { first, fresh: fresh_outcomes, segments, late: Vec::new() };
        // An intent is due at a full minute after the one that defers it, so the intents of one minute are judged together.
        let too_early = || decoded.iter().flatten().any(|intent| intent.not_before.is_some());
        // Users are active by the minute.
        let by_the_minute =
            self.pressure.is_some() || (self.may_defer && (self.defers || !self.waiting.is_empty() || too_early()));
        let mut begin = 0;
        while begin < decoded.len() {
            let end = if by_the_minute {
                let minute = Ring::Minutes.slot(times[begin]);
                self.release(minute, &mut outcomes);
                let same = times[begin..].iter().take_while(|time| Ring::Minutes.slot(**time) == minute);
                begin + same.count()
            } else {
                decoded.len()
            };
            self.judge_fresh(fresh, begin..end, &mut outcomes);
            begin = end;
        }
        outcomes
    }

    /// Judges the deferred intents that are due at `until` or before.
    pub(super) fn release(&mut self, until: Time, outcomes: &mut Outcomes) {
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
                self.judge_piece(&batch, &vec![due; part.len()], |index| part[index].number, outcomes);
            }
        }
    }

    fn judge_fresh(&mut self, fresh: Fresh<'_>, range: Range<usize>, outcomes: &mut Outcomes) {
        let Fresh { batch, decoded, times, first } = fresh;
        let piece = batch.all().part(range.clone());
        let number = |index| first + (range.start + index) as u64;
        let batch = DecodedBatch { records: &piece, decoded: &decoded[range.clone()] };
        self.judge_piece(&batch, &times[range.clone()], number, outcomes);
    }

    /// Judges what comes in one turn of pressure. Where there are budgets, each intent is a batch of its own: what an intent before it took
    /// of them in vain has come back, and they look back from its own time.
    fn judge_piece(
        &mut self,
        batch: &DecodedBatch<'_, Piece<'_>>,
        times: &[Time],
        number: impl Fn(usize) -> u64,
        outcomes: &mut Outcomes,
    ) {
        let begin = times.first().copied().unwrap_or_default();
        if let Some(pressure) = &mut self.pressure {
            pressure.turn_to(begin, times.len());
        }
        let most = if self.budgets.is_empty() { times.len().max(1) } else { 1 };
        for from in (0..times.len()).step_by(most) {
            let range = from..times.len().min(from + most);
            let piece = batch.records.part(range.clone());
            let batch = DecodedBatch { records: &piece, decoded: &batch.decoded[range.clone()] };
            self.decide(batch, &times[range], |index| number(from + index), outcomes);
        }
        if let Some(pressure) = &mut self.pressure {
            pressure.judged(begin);
        }
    }

    /// Decides a batch, as a lane does.
    fn decide(
        &mut self,
        batch: DecodedBatch<'_, Piece<'_>>,
        times: &[Time],
        number: impl Fn(usize) -> u64,
        outcomes: &mut Outcomes,
    ) {
        let DecodedBatch { records: piece, decoded } = batch;
        let ground = Ground {
            times: Times::Each(times),
            passed: Duration::ZERO,
            read_before: ReadBefore::none(),
            takes: Takes::FromPools,
            budgets: Some(AT_ONCE),
        };
        let gated = self.decider.begin(batch, ground);
        let funded = gated.claim().map(|claim| self.budgets.fund(claim, gated.now()));
        let mut asked = gated.ask(funded);
        self.admit(&mut asked, times);
        let (decided, settlement) = asked.finish();
        settlement.committed();
        for (index, decoded) in decoded.iter().enumerate() {
            outcomes.found(number(index), decided.result(index).segment);
            let Ok(intent) = decoded else { continue };
            let (now, record) = (times[index], piece.get(index));
            let (verdict, _) = decided.ruling(index, now);
            let to_defer = decided.to_defer(index, &verdict, now).filter(|_| self.may_defer);
            if let Some((why, due)) = to_defer {
                let again = record.deferral.is_some_and(|deferral| deferral.why == DeferReason::Pressure);
                if let Some(pressure) = self.pressure.as_mut().filter(|_| why == DeferReason::Pressure && !again) {
                    pressure.defer();
                }
                let deferral = Deferral::after(&record, &self.decider.topic, (why, due), now);
                let record = Arc::clone(&piece.records[index]);
                self.waiting.entry(due).or_default().push(Waiting { number: number(index), record, deferral });
            } else {
                if verdict.is_approved() {
                    self.routes.approve(&intent.class(), now);
                }
                outcomes.add(number(index), ReplayOutcome::of(&verdict, now, record.deferral.is_some()));
            }
        }
    }

    /// Asks the store for each intent at its own time, and again for those that get what limits gave to others in vain.
    fn admit(&self, asked: &mut AskedBatch<'_, Piece<'_>>, times: &[Time]) {
        for offers in 0..=MOST_OFFERS {
            let mut asked_at = vec![Time::default(); asked.requests().requests.len()];
            for (index, time) in times.iter().enumerate() {
                if let Some(request) = asked.result(index).request() {
                    asked_at[request.get()] = *time;
                }
            }
            let (requests, answers) = asked.to_ask();
            self.store.admit_each(requests, &asked_at, answers);
            asked.asked(&[]);
            if offers == MOST_OFFERS || !asked.offer() {
                break;
            }
        }
    }
}
