//! Judges batches by each policy, and counts each intent once all policies have an outcome for it.

use std::{collections::BTreeMap, sync::Arc};

use weir_core::{
    basis::{shard::UserHash, time::Time},
    batch::{decider::Undecided, record::Records as _},
    intent::Intent,
    ports::embedded::PastSend,
    replay::{Judged, ReplayOutcome, ReplaySource, ReplayTally},
};

use super::{
    args::Plan,
    past::{Batch, Past, Piece},
    side::{Fresh, Outcomes, Side},
};

pub(super) struct Replay {
    sides: Vec<Side>,
    tally: ReplayTally,
    segment_names: Vec<String>,
    /// The intents that a policy has deferred, by number.
    open: BTreeMap<u64, Open>,
    /// How many records were read.
    read: u64,
    /// The time of the last intent that told one.
    last: Time,
}

/// An intent that a policy has deferred.
struct Open {
    record: Arc<Past>,
    at: Time,
    segment: Option<usize>,
    /// One entry per policy; `None` while it is deferred.
    outcomes: Vec<Option<ReplayOutcome>>,
}

impl Replay {
    /// `first`: the time of the first intent.
    pub(super) fn new(plan: &Plan, first: Time) -> Self {
        let names: Vec<String> = plan.segments.segments().iter().map(|segment| segment.name.clone()).collect();
        Self {
            sides: plan.policies.iter().map(|policy| Side::new(plan, policy, first)).collect(),
            tally: ReplayTally::new(plan.policies.clone(), names.clone()),
            segment_names: names,
            open: BTreeMap::new(),
            read: 0,
            last: Time::default(),
        }
    }

    /// Counts a send of before the first intent, under each policy.
    pub(super) fn remember(&mut self, user: UserHash, send: &PastSend<'_>) {
        for side in &mut self.sides {
            side.remember(user, send);
        }
    }

    pub(super) fn judge(&mut self, batch: &Batch, source: &mut ReplaySource) {
        let records = batch.all();
        let Some(first) = self.sides.first() else { return };
        let decoded = first.decode(&records);
        source.records += decoded.len() as u64;
        let mut times = Vec::with_capacity(decoded.len());
        for (index, decoded) in decoded.iter().enumerate() {
            match decoded {
                Ok(intent) => self.last = records.get(index).timestamp.or(intent.created_at).unwrap_or(self.last),
                Err(Undecided::Invalid(letter)) => source.dead_letter(letter.reason),
                // The records are intents.
                Err(Undecided::Retry(_)) => {}
            }
            times.push(self.last);
        }
        let fresh = Fresh { batch, decoded: &decoded, times: &times, first: self.read };
        self.read += decoded.len() as u64;
        let mut judged = self.on_each_side(|side| side.judge(fresh));
        self.count_fresh(fresh, &mut judged);
        self.count_late(judged);
    }

    /// Each policy has its own histories, so they are judged side by side.
    fn on_each_side(&mut self, judge: impl Fn(&mut Side) -> Outcomes + Sync) -> Vec<Outcomes> {
        let Some((first, others)) = self.sides.split_first_mut() else { return Vec::new() };
        std::thread::scope(|scope| {
            let judge = &judge;
            let others: Vec<_> = others.iter_mut().map(|side| scope.spawn(move || judge(side))).collect();
            let first = judge(first);
            let others = others.into_iter().map(|side| side.join().expect("judging does not panic"));
            std::iter::once(first).chain(others).collect()
        })
    }

    fn count_fresh(&mut self, fresh: Fresh<'_>, judged: &mut [Outcomes]) {
        let Fresh { batch, decoded, times, first } = fresh;
        let mut outcomes = Vec::with_capacity(judged.len());
        for (index, decoded) in decoded.iter().enumerate() {
            let Ok(intent) = decoded else { continue };
            let at = times[index];
            let segment = judged.first().and_then(|side| side.segments[index]);
            if judged.iter().all(|side| side.fresh[index].is_some()) {
                outcomes.clear();
                outcomes.extend(judged.iter_mut().filter_map(|side| side.fresh[index].take()));
                self.add(intent, (at, segment), &outcomes);
            } else {
                let outcomes = judged.iter_mut().map(|side| side.fresh[index].take()).collect();
                let record = Arc::clone(&batch.all().records[index]);
                self.open.insert(first + index as u64, Open { record, at, segment, outcomes });
            }
        }
    }

    fn count_late(&mut self, judged: Vec<Outcomes>) {
        for (side, judged) in judged.into_iter().enumerate() {
            for (number, outcome) in judged.late {
                let Some(open) = self.open.get_mut(&number) else { continue };
                open.outcomes[side] = Some(outcome);
                if open.outcomes.iter().all(Option::is_some)
                    && let Some(open) = self.open.remove(&number)
                {
                    self.close(open);
                }
            }
        }
    }

    /// Counts an intent that had been deferred.
    fn close(&mut self, open: Open) {
        let Open { record, at, segment, outcomes } = open;
        let outcomes: Vec<ReplayOutcome> =
            outcomes.into_iter().map(|outcome| outcome.unwrap_or(ReplayOutcome::STILL_DEFERRED)).collect();
        let Some(first) = self.sides.first() else { return };
        let records = [record];
        let piece = Piece { records: &records, deferrals: &[] };
        let decoded = first.decode(&piece);
        for intent in decoded.iter().flatten() {
            self.add(intent, (at, segment), &outcomes);
        }
    }

    fn add(&mut self, intent: &Intent<'_>, (at, segment): (Time, Option<usize>), outcomes: &[ReplayOutcome]) {
        let segment = segment.map(|place| (place, self.segment_names[place].as_str()));
        self.tally.add(&Judged { intent, at, segment, outcomes });
    }

    /// What was counted. The replay ends with the last intent, or with `--to`: what is due later is still deferred.
    pub(super) fn finish(mut self, plan: &Plan, source: &mut ReplaySource) -> ReplayTally {
        let until = plan.between.to.map_or(self.last, |to| to.plus(-1));
        let late = self.on_each_side(|side| {
            let mut outcomes = Outcomes::default();
            side.release(until, &mut outcomes);
            outcomes
        });
        self.count_late(late);
        for open in std::mem::take(&mut self.open).into_values() {
            self.close(open);
        }
        for (number, (side, name)) in self.sides.iter().zip(&plan.names).enumerate() {
            for (budget, at) in side.budgets.first_spent() {
                self.tally.first_spent(number, budget, at);
            }
            if let Some(pressure) = &side.pressure {
                self.tally.pressed(number, pressure.peak());
            }
            self.tally.routed(number, side.routes.totals());
            source.notes.extend(side.routes.notes().map(|note| format!("under {name}, {note}")));
            if let Some((count, due)) = side.still_deferred() {
                source.notes.push(format!(
                    "under {name}, {count} intents are still deferred at the end and have no verdict; the last of them is \
                     due at {due}, so that an --until after that decides them, too"
                ));
            }
        }
        self.tally
    }
}
