//! Judges batches by each policy, with the worker's own desk and the embedded store.

use std::sync::Arc;

use weir_core::{
    current::Current,
    decide::Answer,
    desk::{Decoded, Desk, Draft, Sitting, Way},
    embedded::EmbeddedStore,
    record::Records,
    simulation::{Judged, Source, Tally},
    time::Time,
    verdict::Verdict,
};

use super::{args::Plan, past::Batch};

/// One policy, and the histories under it.
struct Side {
    desk: Desk,
    store: EmbeddedStore,
}

/// A batch, judged by one policy.
struct Ruled {
    sitting: Sitting,
    drafts: Vec<Draft>,
    answers: Vec<Option<Answer>>,
}

impl Side {
    /// Judges each intent at its own time.
    fn judge(&self, batch: &Batch, decoded: &[Decoded<'_>], times: &[Time]) -> Ruled {
        let mut sitting = self.desk.sit(times.first().copied().unwrap_or_default());
        let (drafts, asks, _) = sitting.gate_each(batch, decoded, |index| times[index]);
        let asked = |(draft, time): (&Draft, &Time)| match draft.way {
            Way::Ask { .. } | Way::LookUp { .. } => Some(*time),
            Way::DeadLetter | Way::Hold(_) | Way::Bypass { .. } | Way::LeftOut => None,
        };
        // Asks are in the order of their drafts.
        let ask_times: Vec<Time> = drafts.iter().zip(times).filter_map(asked).collect();
        let answers = self.store.admit_each(&asks, &ask_times);
        Ruled { sitting, drafts, answers }
    }
}

/// Replays batches.
pub(super) struct Replay {
    sides: Vec<Side>,
    tally: Tally,
    /// The time of the last intent that told one.
    last: Time,
}

impl Replay {
    pub(super) fn new(plan: &Plan) -> Self {
        let segments = Current::new(Arc::clone(&plan.segments));
        let side = |policy| Side {
            desk: Desk {
                topic: plan.intents.to_string().into(),
                fields: Arc::clone(&plan.fields),
                segments: Arc::clone(&segments),
                policy: Current::new(Arc::clone(policy)),
                limits: Arc::default(),
            },
            store: EmbeddedStore::new(plan.bounds),
        };
        let names = plan.segments.segments().iter().map(|segment| segment.name.clone()).collect();
        Self {
            sides: plan.policies.iter().map(side).collect(),
            tally: Tally::new(plan.policies.clone(), names),
            last: Time::default(),
        }
    }

    /// The histories under each policy.
    pub(super) fn stores(&self) -> Vec<&EmbeddedStore> {
        self.sides.iter().map(|side| &side.store).collect()
    }

    /// Judges a batch and counts what became of it.
    pub(super) fn judge(&mut self, batch: &Batch, source: &mut Source) {
        let Some((first, others)) = self.sides.split_first() else { return };
        let decoded = first.desk.sit(self.last).decode(batch);
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
    pub(super) fn finish(self) -> Tally {
        self.tally
    }
}

fn count(tally: &mut Tally, decoded: &[Decoded<'_>], times: &[Time], ruled: &[Ruled]) {
    let mut verdicts: Vec<Verdict<'_>> = Vec::with_capacity(ruled.len());
    for (index, (decoded, at)) in decoded.iter().zip(times).enumerate() {
        let Ok(intent) = decoded else { continue };
        verdicts.clear();
        verdicts.extend(ruled.iter().map(|ruled| ruled.sitting.ruling(&ruled.drafts[index], &ruled.answers, *at).0));
        let set = ruled.first().map(|ruled| (ruled.sitting.segments(), ruled.drafts[index].segment));
        let segment = set.and_then(|(set, place)| Some((place?, set.segments()[place?].name.as_str())));
        tally.add(&Judged { intent, at: *at, segment, verdicts: &verdicts });
    }
}
