//! The ledger of a world, at its reference; and what each process was granted there and has not given back.

use std::collections::{HashMap, HashSet};

use super::super::DueTurn;
use crate::{
    basis::time::Time,
    limit::{
        budget::{
            BudgetId, SpanNow,
            ledger::{TakeAnswer, TakeTurn, TokenBook},
        },
        share::{Reference as _, TurnNumber},
    },
};

/// The ledger's clock, so many milliseconds after the world began.
pub(super) fn time(ms: i64) -> Time {
    Time::default().plus(1_795_132_800_000 + ms)
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    books: HashMap<BudgetId, TokenBook>,
    /// The turns of each holder that were taken.
    turns: HashSet<(usize, TurnNumber)>,
    /// What a run of a holder was granted and has not given back.
    taken: HashMap<(usize, i64), HashMap<(BudgetId, SpanNow), u64>>,
}

impl Ledger {
    /// What a run of a holder was granted of each window of a budget and has not given back.
    pub(super) fn taken_by(&self, run: (usize, i64), budget: &BudgetId) -> Vec<(SpanNow, u64)> {
        let of_run = self.taken.get(&run).into_iter().flatten();
        of_run.filter(|((id, _), _)| id == budget).map(|((_, span), tokens)| (*span, *tokens)).collect()
    }

    /// A holder takes a turn, which is none that comes behind another one.
    pub(super) fn turn(&mut self, holder: usize, due: &DueTurn, now: i64) -> TakeAnswer {
        let DueTurn { budget, number, turn, .. } = due;
        let TakeTurn { need, want, unit, least, limit, lease_ms, .. } = *turn;
        assert!(want >= need && unit > 0 && least > 0 && lease_ms > 0 && want <= limit, "{turn:?}");
        assert!(want == 0 || least <= want, "{turn:?}");
        assert!(need.is_multiple_of(unit) && want.is_multiple_of(unit) && turn.back.len() <= 8, "{turn:?}");
        let book = self.books.entry(budget.clone()).or_default();
        let answer = book.turn(&format!("weir-{holder}"), *number, turn, time(now));
        let answer = answer.unwrap_or_else(|| panic!("{due:?} is made behind another"));
        if self.turns.insert((holder, *number)) {
            let taken = self.taken.entry((holder, number.run)).or_default();
            for given in &turn.back {
                let own = taken.get_mut(&(budget.clone(), given.span)).expect("this run was granted tokens of it");
                *own = own.checked_sub(given.tokens).expect("no more comes back than was granted");
            }
            *taken.entry((budget.clone(), turn.span)).or_default() += answer.granted;
        }
        answer
    }
}
