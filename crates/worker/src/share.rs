//! The turns of this process at the limits that instances share.

use weir_core::{limit::share::TurnNumber, ports::Clock};

/// Numbers of turns, each above the one before.
pub(crate) struct TurnNumbers(TurnNumber);

impl TurnNumbers {
    /// Those of a run that begins now.
    pub(crate) fn new(clock: &impl Clock) -> Self {
        Self(TurnNumber { run: run_of(clock), number: 0 })
    }

    pub(crate) fn next_turn(&mut self) -> TurnNumber {
        self.0.number += 1;
        self.0
    }
}

/// Which run of the process this is: when it began. The part of a millisecond is by chance, for clocks that begin alike.
pub(crate) fn run_of(clock: &impl Clock) -> i64 {
    const PARTS: u32 = 1_024;
    let part = clock.passed().subsec_nanos() % PARTS;
    clock.now().millis().max(0).saturating_mul(PARTS.into()).saturating_add(part.into()).max(1)
}
