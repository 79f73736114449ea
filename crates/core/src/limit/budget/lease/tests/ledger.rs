//! The reference of the ledger, and what each run of a holder was granted there and has not given back.

use std::collections::HashMap;

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

#[derive(Debug, Default)]
pub(super) struct TestLedger {
    books: HashMap<BudgetId, TokenBook>,
    /// The last turn of each holder at a budget.
    last: HashMap<(usize, BudgetId), TurnNumber>,
    /// What a run of a holder was granted and has not given back.
    taken: HashMap<(usize, i64), HashMap<(BudgetId, SpanNow), u64>>,
}

impl TestLedger {
    /// What a run of a holder was granted of each window of a budget and has not given back.
    pub(super) fn taken_by(&self, run: (usize, i64), budget: &BudgetId) -> Vec<(SpanNow, u64)> {
        let of_run = self.taken.get(&run).into_iter().flatten();
        of_run.filter(|((id, _), _)| id == budget).map(|((_, span), tokens)| (*span, *tokens)).collect()
    }

    /// Takes a turn that is well made, and behind no later one.
    pub(super) fn turn(
        &mut self,
        holder: usize,
        (budget, number): (&BudgetId, TurnNumber),
        turn: &TakeTurn,
        now: i64,
    ) -> TakeAnswer {
        let TakeTurn { span, need, want, unit, least, limit, lease_ms, .. } = *turn;
        assert!(want >= need && unit > 0 && least > 0 && lease_ms > 0 && want <= limit, "{turn:?}");
        assert!(want == 0 || least <= want, "{turn:?}");
        assert!(need.is_multiple_of(unit) && want.is_multiple_of(unit) && turn.back.len() <= 8, "{turn:?}");
        let last = self.last.entry((holder, budget.clone())).or_default();
        assert!(*last <= number, "{turn:?} is made behind another");
        let is_new = std::mem::replace(last, number) < number;
        let taken = self.taken.entry((holder, number.run)).or_default();
        for given in turn.back.iter().filter(|_| is_new) {
            let own = taken.get_mut(&(budget.clone(), given.span)).expect("this run was granted tokens of it");
            *own = own.checked_sub(given.tokens).expect("no more comes back than was granted");
        }
        let book = self.books.entry(budget.clone()).or_default();
        let answer = book.turn(&format!("weir-{holder}"), number, turn, Time::default().plus(now));
        let answer = answer.expect("it is behind no later one");
        if is_new && answer.granted > 0 {
            *taken.entry((budget.clone(), span)).or_default() += answer.granted;
        }
        answer
    }
}
