//! The other methods: one call per intent, and the published fixed batch.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use weir_core::limit::{
    budget::ledger::{BUCKETS, TakeTurn, TokenBook},
    share::{Reference as _, TurnNumber},
};

use super::{
    Figures, TAKEN_BEFORE,
    approvals::Approvals,
    load::{Arrival, Load, Scene, time},
};

/// A refill of the published method is this part of the limit.
const BATCHES: u64 = 1_000;

/// A call of `lua/take.lua` for each intent, as it is decided. Intents that are read together are asked for together, which grants
/// the same, and count as a call each.
pub(super) fn one_call_per_intent(scene: &Scene) -> Result<Figures> {
    let (mut figures, mut approvals, mut book) = (Figures::default(), Approvals::new(scene), TokenBook::default());
    for ((at, _, arrival), number) in Load::new(scene).zip(1..) {
        let Arrival::Batch(intents) = arrival else { continue };
        let turn = TakeTurn { need: intents, want: intents, ..TakeTurn::nothing(scene.span(at), scene.limit) };
        let answer = book.turn("all", TurnNumber { run: 1, number }, &turn, time(at)).context(TAKEN_BEFORE)?;
        approvals.add(at, answer.granted);
        figures.calls += intents;
        figures.decisions += intents;
    }
    Ok(figures.with(scene, &mut approvals))
}

/// The published ledger: a bucket is named by its start, and counts until the window has passed since then.
struct PublishedLedger {
    scene: Scene,
    buckets: BTreeMap<i64, u64>,
}

impl PublishedLedger {
    /// Grants a refill, or what is left of the limit.
    fn take(&mut self, at: i64) -> u64 {
        let Scene { window, limit, .. } = self.scene;
        let length_ms = window.kind().length_ms;
        let bucket_ms = if window.kind().is_rolling { length_ms / BUCKETS } else { length_ms };
        self.buckets.retain(|start, _| start + length_ms > at);
        let used: u64 = self.buckets.values().sum();
        let granted = (limit / BATCHES).max(1).min(limit.saturating_sub(used));
        *self.buckets.entry(at - at.rem_euclid(bucket_ms)).or_default() += granted;
        granted
    }
}

/// The published method: an instance whose tokens are spent takes a thousandth of the limit, and keeps it until it is spent. A
/// batch that is granted nothing is denied, and the next one asks again. An instance that ends gives nothing back.
pub(super) fn fixed_batch(scene: &Scene) -> Figures {
    let (mut figures, mut approvals) = (Figures::default(), Approvals::new(scene));
    let mut ledger = PublishedLedger { scene: *scene, buckets: BTreeMap::new() };
    let mut held = vec![0_u64; scene.instances];
    for (at, place, arrival) in Load::new(scene) {
        let Arrival::Batch(intents) = arrival else {
            held[place] = 0;
            continue;
        };
        figures.decisions += intents;
        let mut missing = intents;
        while missing > 0 {
            if held[place] == 0 {
                figures.calls += 1;
                held[place] = ledger.take(at);
            }
            let spent = held[place].min(missing);
            if spent == 0 {
                break;
            }
            held[place] -= spent;
            missing -= spent;
        }
        approvals.add(at, intents - missing);
    }
    figures.with(scene, &mut approvals)
}
