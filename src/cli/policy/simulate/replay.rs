//! Judges batches by each policy, with the worker's own decider and the embedded store.

use std::sync::Arc;

use weir_core::{
    current::Current,
    decide::Answer,
    decider::{BatchDecision, Decider, Decoded, Disposition, GateResult},
    embedded::EmbeddedStore,
    record::Records,
    replay::{Judged, ReplaySource, ReplayTally},
    time::Time,
    verdict::Verdict,
};

use super::{args::Plan, past::Batch};

/// One policy, and the histories under it.
struct Side {
    decider: Decider,
    store: EmbeddedStore,
}

/// A batch, judged by one policy.
struct Ruled {
    batch_decision: BatchDecision,
    gate_results: Vec<GateResult>,
    answers: Vec<Option<Answer>>,
}

impl Side {
    /// Judges each intent at its own time.
    fn judge(&self, batch: &Batch, decoded: &[Decoded<'_>], times: &[Time]) -> Ruled {
        let mut batch_decision = self.decider.begin_batch(times.first().copied().unwrap_or_default());
        let (gate_results, requests, _) = batch_decision.gate_each(batch, decoded, |index| times[index]);
        let asked = |(gate_result, time): (&GateResult, &Time)| match gate_result.disposition {
            Disposition::CheckCaps { .. } | Disposition::LookUp { .. } => Some(*time),
            Disposition::DeadLetter | Disposition::Suppress(_) | Disposition::Bypass { .. } => None,
        };
        // Requests are in the order of their gate results.
        let ask_times: Vec<Time> = gate_results.iter().zip(times).filter_map(asked).collect();
        let answers = self.store.admit_each(&requests, &ask_times);
        Ruled { batch_decision, gate_results, answers }
    }
}

/// Replays batches.
pub(super) struct Replay {
    sides: Vec<Side>,
    tally: ReplayTally,
    /// The time of the last intent that told one.
    last: Time,
}

impl Replay {
    pub(super) fn new(plan: &Plan) -> Self {
        let segments = Current::new(Arc::clone(&plan.segments));
        let side = |policy| Side {
            decider: Decider {
                topic: plan.intents.to_string().into(),
                fields: Arc::clone(&plan.fields),
                segments: Arc::clone(&segments),
                policy: Current::new(Arc::clone(policy)),
                limits: Arc::default(),
                wheel: None,
            },
            store: EmbeddedStore::new(plan.bounds),
        };
        let names = plan.segments.segments().iter().map(|segment| segment.name.clone()).collect();
        Self {
            sides: plan.policies.iter().map(side).collect(),
            tally: ReplayTally::new(plan.policies.clone(), names),
            last: Time::default(),
        }
    }

    /// The histories under each policy.
    pub(super) fn stores(&self) -> Vec<&EmbeddedStore> {
        self.sides.iter().map(|side| &side.store).collect()
    }

    /// Judges a batch and counts what became of it.
    pub(super) fn judge(&mut self, batch: &Batch, source: &mut ReplaySource) {
        let Some((first, others)) = self.sides.split_first() else { return };
        let decoded = first.decider.begin_batch(self.last).decode(batch);
        source.records += batch.len() as u64;
        let mut times = Vec::with_capacity(decoded.len());
        for (index, decoded) in decoded.iter().enumerate() {
            match decoded {
                Ok(intent) => self.last = batch.get(index).timestamp.or(intent.created_at).unwrap_or(self.last),
                Err(letter) => source.dead_letter(letter.reason),
            }
            times.push(self.last);
        }
        // Each policy has its own histories, so they are judged side by side.
        let ruled: Vec<Ruled> = std::thread::scope(|scope| {
            let (decoded, times) = (&decoded, &times);
            let others: Vec<_> =
                others.iter().map(|side| scope.spawn(move || side.judge(batch, decoded, times))).collect();
            let first = first.judge(batch, decoded, times);
            let others = others.into_iter().map(|side| side.join().expect("judging does not panic"));
            std::iter::once(first).chain(others).collect()
        });
        count(&mut self.tally, &decoded, &times, &ruled);
    }

    /// What was counted.
    pub(super) fn finish(self) -> ReplayTally {
        self.tally
    }
}

fn count(tally: &mut ReplayTally, decoded: &[Decoded<'_>], times: &[Time], ruled: &[Ruled]) {
    let mut verdicts: Vec<Verdict<'_>> = Vec::with_capacity(ruled.len());
    for (index, (decoded, at)) in decoded.iter().zip(times).enumerate() {
        let Ok(intent) = decoded else { continue };
        verdicts.clear();
        verdicts.extend(
            ruled.iter().map(|ruled| ruled.batch_decision.ruling(&ruled.gate_results[index], &ruled.answers, *at).0),
        );
        let set = ruled.first().map(|ruled| (ruled.batch_decision.segments(), ruled.gate_results[index].segment));
        let segment = set.and_then(|(set, place)| Some((place?, set.segments()[place?].name.as_str())));
        tally.add(&Judged { intent, at: *at, segment, verdicts: &verdicts });
    }
}
