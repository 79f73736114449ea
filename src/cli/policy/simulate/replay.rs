//! Judges batches by each policy, side by side.

use std::sync::Arc;

use weir_core::{
    basis::{time::Time, zone::Zone},
    batch::{decider::Undecided, record::Records as _},
    history::deferred_send::PastSend,
    replay::{ReplaySource, Replayed},
};

use super::{args::Plan, past::Batch, side::Side};

pub(super) struct Replay {
    sides: Vec<Side>,
    /// What was read. The tallies follow at the end.
    replayed: Replayed,
    /// The time of the last intent that told one.
    last: Time,
}

impl Replay {
    /// `first`: the time of the first intent.
    pub(super) fn new(plan: &Plan, first: Time) -> Self {
        let zone = plan.policies.first().map_or_else(Zone::utc, |policy| policy.timezone.clone());
        let sides = plan.policies.iter().map(|policy| Side::new(plan, policy, zone.clone(), first));
        let replayed = Replayed::new(Arc::clone(&plan.segments));
        Self { sides: sides.collect(), replayed, last: Time::default() }
    }

    /// Counts a send of before the first intent, under each policy.
    pub(super) fn remember(&mut self, send: &PastSend<'_>) {
        for side in &mut self.sides {
            side.remember(send);
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
                Ok(intent) => {
                    self.last = records.get(index).timestamp.or(intent.created_at).unwrap_or(self.last);
                    self.replayed.read(intent, self.last);
                }
                Err(Undecided::Invalid(letter)) => source.dead_letter(letter.reason),
                // The records are intents.
                Err(Undecided::Retry(_)) => {}
            }
            times.push(self.last);
        }
        self.on_each_side(|side| side.judge(batch, &decoded, &times));
    }

    /// Each policy has its own histories, so they are judged side by side.
    fn on_each_side(&mut self, judge: impl Fn(&mut Side) + Sync) {
        let Some((first, others)) = self.sides.split_first_mut() else { return };
        std::thread::scope(|scope| {
            let judge = &judge;
            for side in others {
                scope.spawn(move || judge(side));
            }
            judge(first);
        });
    }

    /// What was counted. The replay ends with the last intent, or with `--to`: what is due later is still deferred.
    pub(super) fn finish(mut self, plan: &Plan, source: &mut ReplaySource) -> Replayed {
        let until = plan.between.to.map_or(self.last, |to| to.plus(-1));
        self.on_each_side(|side| side.release(until));
        for (mut side, name) in self.sides.into_iter().zip(&plan.names) {
            source.notes.extend(side.tally.routes.notes().map(|note| format!("under {name}, {note}")));
            if let Some((count, due)) = side.still_deferred() {
                side.tally.deferred.intents += count;
                side.tally.deferred.waiting = count;
                source.notes.push(format!(
                    "under {name}, {count} intents are still deferred at the end and have no verdict; the last of them is \
                     due at {due}, so that an --until after that decides them, too"
                ));
            }
            self.replayed.tallies.push(side.tally);
        }
        self.replayed
    }
}
