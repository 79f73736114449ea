//! One policy of a replay, with the worker's own decider, the embedded store, and the intents that the policy has deferred.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use weir_core::{
    current::Current,
    decider::{
        Approval, AskedBatch, Decider, Decoded, DecodedBatch, Disposition, Fate, GateResult, Ground, Takes, Times,
    },
    deferral::{DeferReason, Deferral},
    embedded::{EmbeddedStore, PastSend},
    policy::{GateReason, Mode, Policy},
    record::{ReadBefore, Records as _},
    replay::{Outcome, PressurePeak, ReplayBudgets, ReplayPressure, ReplayRoutes, SpentBudget},
    shard::UserHash,
    time::Time,
    verdict::{Counts, Verdict},
    wheel::Ring,
};

use super::{
    args::Plan,
    past::{BATCH, Batch, Past, Piece},
};

/// One policy, the histories under it, and its deferred intents.
pub(super) struct Side {
    decider: Decider,
    store: EmbeddedStore,
    budgets: ReplayBudgets,
    /// `None` where the policy has none.
    pressure: Option<ReplayPressure>,
    pub(super) routes: ReplayRoutes,
    policy: Arc<Policy>,
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
    pub(super) fresh: Vec<Option<Outcome>>,
    /// The segment of each.
    pub(super) segments: Vec<Option<usize>>,
    /// Those of intents that were read before, by number.
    pub(super) late: Vec<(u64, Outcome)>,
}

impl Outcomes {
    fn add(&mut self, number: u64, outcome: Outcome) {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        match place.and_then(|place| self.fresh.get_mut(place)) {
            Some(fresh) => *fresh = Some(outcome),
            None => self.late.push((number, outcome)),
        }
    }
}

impl Side {
    pub(super) fn new(plan: &Plan, policy: &Arc<Policy>, first: Time) -> Self {
        let pressure = ReplayPressure::new(policy, first);
        Self {
            decider: Decider {
                topic: plan.intents.to_string().into(),
                fields: Arc::clone(&plan.fields),
                segments: Current::new(Arc::clone(&plan.segments)),
                policy: Current::new(Arc::clone(policy)),
                limits: Arc::default(),
                wheel: None,
                pressure: pressure.as_ref().map(ReplayPressure::shared),
                routes: None,
                approved_by_channel: Arc::default(),
            },
            store: EmbeddedStore::new(plan.bounds),
            budgets: ReplayBudgets::new(Arc::clone(policy)),
            pressure,
            routes: ReplayRoutes::new(Arc::clone(policy)),
            policy: Arc::clone(policy),
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
                self.judge_piece(batch, &vec![due; part.len()], |index| part[index].number, outcomes);
            }
        }
    }

    fn judge_fresh(&mut self, fresh: Fresh<'_>, range: Range<usize>, outcomes: &mut Outcomes) {
        let Fresh { batch, decoded, times, first } = fresh;
        let piece = Piece { records: &batch.all().records[range.clone()], deferrals: &[] };
        let number = |index| first + (range.start + index) as u64;
        let batch = DecodedBatch { records: &piece, decoded: &decoded[range.clone()] };
        let segments = self.judge_piece(batch, &times[range.clone()], number, outcomes);
        outcomes.segments[range].copy_from_slice(&segments);
    }

    /// Judges a batch; gives the segment of each record.
    fn judge_piece(
        &mut self,
        batch: DecodedBatch<'_, Piece<'_>>,
        times: &[Time],
        number: impl Fn(usize) -> u64,
        outcomes: &mut Outcomes,
    ) -> Vec<Option<usize>> {
        let begin = times.first().copied().unwrap_or_default();
        let DecodedBatch { records: piece, decoded } = batch;
        if let Some(pressure) = &mut self.pressure {
            pressure.turn_to(begin, decoded.len());
        }
        let ground = Ground {
            times: Times::Each(times),
            passed: Duration::ZERO,
            read_before: ReadBefore::none(),
            takes: Takes::FromPools,
            budgets: None,
        };
        let mut asked = self.decider.begin(batch, ground).ask(None);
        let denied = self.admit((decoded, times), &mut asked);
        let (decided, _) = asked.finish();
        if let Some(pressure) = &mut self.pressure {
            pressure.judged(begin);
        }
        for (index, decoded) in decoded.iter().enumerate() {
            let Ok(intent) = decoded else { continue };
            let (now, record) = (times[index], piece.get(index));
            let verdict = match denied.get(index).copied().flatten() {
                Some(budget) => budget_verdict(&budget, &self.policy),
                None => decided.ruling(index, now).0,
            };
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
                outcomes.add(number(index), Outcome::of(&verdict, now, record.deferral.is_some()));
            }
        }
        (0..decoded.len()).map(|index| decided.result(index).segment).collect()
    }

    /// Asks the store for each intent at its own time, and before it the intent's budgets, if the policy has any. Gives the budgets
    /// that deny by intent.
    fn admit(
        &mut self,
        (decoded, times): (&[Decoded<'_>], &[Time]),
        asked: &mut AskedBatch<'_, Piece<'_>>,
    ) -> Vec<Option<SpentBudget>> {
        if self.budgets.is_empty() {
            // Requests are in the order of their records.
            let asks = |index: &usize| asked.result(*index).request().is_some();
            let ask_times: Vec<Time> = (0..times.len()).filter(asks).map(|index| times[index]).collect();
            let answers = self.store.admit_each(asked.requests(), &ask_times);
            asked.answer(answers);
            return Vec::new();
        }
        let mut denied = vec![None; decoded.len()];
        for (index, decoded) in decoded.iter().enumerate() {
            let (Ok(intent), now, result) = (decoded, times[index], *asked.result(index)) else { continue };
            let asks_budgets = is_let_in(&result);
            if asks_budgets {
                denied[index] = self.budgets.take(&intent.class(), intent.cost, now).err();
            }
            let is_denied = denied[index].is_some();
            if is_denied && self.policy.mode == Mode::Enforce {
                asked.deny(index, (GateReason::Budget(0), None));
                continue;
            }
            let Some(request) = result.request() else { continue };
            let answer = self.store.admit_one(asked.requests(), request, now);
            asked.answer_part(&[request], vec![Some(answer)]);
            let is_spent =
                matches!(asked.fate(index), Fate::Approved(Approval::Recorded(_) | Approval::Duplicate(_), _));
            if asks_budgets && !is_denied && !is_spent {
                self.budgets.give_back(&intent.class(), intent.cost, now);
            }
        }
        denied
    }
}

/// Whether no gate denies an intent, so that its budgets are asked.
fn is_let_in(gate_result: &GateResult) -> bool {
    match gate_result.disposition {
        Disposition::CheckCaps { shadowed, .. } | Disposition::Bypass { shadowed } => shadowed.is_none(),
        Disposition::Undecided | Disposition::Suppress(_) | Disposition::LookUp { .. } => false,
    }
}

/// What becomes of an intent that a budget denies.
fn budget_verdict<'p>(budget: &SpentBudget, policy: &'p Policy) -> Verdict<'p> {
    let suppressed = budget.suppressed(policy);
    match policy.mode {
        Mode::Enforce => Verdict::Suppressed(suppressed),
        Mode::Shadow => Verdict::ShadowSuppressed(suppressed, Counts::Yes),
    }
}
