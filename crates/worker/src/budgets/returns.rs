//! Tokens that are given back to the ledger: of one budget one turn after the other, each again until it is answered. So the ledger has to
//! know a holder's last turn alone, and no turn overtakes another.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use weir_core::{budget::BudgetId, ledger::GiveBack, ports::StoreError};

/// Turns that wait, at most: what is beyond counts as spent.
const MOST: usize = 10_000;
/// How long after it was made a turn without an answer is repeated.
const AGAIN: Duration = Duration::from_secs(1);
/// After so long it is not repeated any more, as where the process stood still: the ledger knows a turn for an hour after it was made last,
/// and would take its tokens back twice.
const REPEATED_WITHIN: Duration = Duration::from_secs(30 * 60);

/// Tokens that are to be given back.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// Those of a budget in the order of their turns.
    waiting: VecDeque<WaitingReturn>,
    /// The budgets with a turn under way.
    under_way: HashSet<BudgetId>,
}

#[derive(Debug)]
struct WaitingReturn {
    given: GiveBack,
    /// When the turn was made last, without an answer.
    sent_at: Option<Duration>,
}

impl Returns {
    /// Whether no turn waits, to be made or for its answer.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// More tokens, in turns after all before.
    pub(super) fn add(&mut self, tokens: Vec<GiveBack>) {
        self.waiting.extend(tokens.into_iter().map(|given| WaitingReturn { given, sent_at: None }));
        self.bound();
    }

    /// The turns to be made now, at most one of a budget. Each is to be answered.
    pub(super) fn due(&mut self, now: Duration) -> Vec<GiveBack> {
        let mut due = Vec::new();
        if self.waiting.is_empty() {
            return due;
        }
        let mut busy = self.under_way.clone();
        self.waiting.retain(|WaitingReturn { given, sent_at }| {
            if sent_at.is_some_and(|at| at + REPEATED_WITHIN < now) {
                tracing::warn!(
                    budget = &*given.budget.name,
                    tokens = given.tokens,
                    "tokens were given back without an answer long ago, and may count as spent"
                );
                return false;
            }
            let is_first = busy.insert(given.budget.clone());
            let is_due = is_first && sent_at.is_none_or(|at| at + AGAIN <= now);
            if is_due {
                due.push(given.clone());
            }
            !is_due
        });
        self.under_way.extend(due.iter().map(|given| given.budget.clone()));
        due
    }

    /// When a turn is repeated that was not to be repeated by now.
    pub(super) fn next_at(&self, now: Duration) -> Option<Duration> {
        self.waiting.iter().filter_map(|waiting| Some(waiting.sent_at? + AGAIN)).filter(|at| now < *at).min()
    }

    /// What came of turns that were made then: how many tokens were taken back in each. One without an answer may have been carried out, and
    /// is repeated: that gives nothing back twice. It keeps no other budget waiting, though they were made together.
    pub(super) fn answered(
        &mut self,
        turns: Vec<(GiveBack, Option<u64>)>,
        sent_at: Duration,
        outcome: &Result<(), StoreError>,
    ) {
        for (given, _) in &turns {
            self.under_way.remove(&given.budget);
        }
        match outcome {
            Ok(()) => {}
            Err(StoreError::Temporary(why)) => {
                tracing::warn!("tokens of budgets could not be given back, and are given back again: {why}");
                for (given, _) in turns.into_iter().filter(|(_, answer)| answer.is_none()) {
                    self.waiting.push_front(WaitingReturn { given, sent_at: Some(sent_at) });
                }
                self.bound();
            }
            Err(error) => tracing::warn!("tokens of budgets could not be given back, and count as spent: {error}"),
        }
    }

    fn bound(&mut self) {
        if self.waiting.len() > MOST {
            tracing::warn!("too many tokens of budgets wait to be given back: what is beyond counts as spent");
            self.waiting.truncate(MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_core::{budget::SpanNow, ledger::CountId, limit::share::TurnNumber};

    use super::*;

    fn given(name: &str, number: u64) -> GiveBack {
        GiveBack {
            budget: BudgetId { name: name.into(), campaign: None },
            span: SpanNow::Total,
            bucket: 0,
            count_id: CountId(1),
            tokens: 1,
            turn: Some(TurnNumber { run: 1, number }),
        }
    }

    fn numbers(due: &[GiveBack]) -> Vec<u64> {
        due.iter().map(|given| given.turn.unwrap().number).collect()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn silence() -> Result<(), StoreError> {
        Err(StoreError::Temporary("by the test".to_owned()))
    }

    /// Turns that all have this answer.
    fn with(turns: Vec<GiveBack>, answer: Option<u64>) -> Vec<(GiveBack, Option<u64>)> {
        turns.into_iter().map(|given| (given, answer)).collect()
    }

    #[test]
    fn a_budget_has_one_turn_under_way_and_its_turns_keep_their_order() {
        let mut returns = Returns::default();
        returns.add(vec![given("a", 1), given("b", 2), given("a", 3)]);
        let first = returns.due(at(0));
        assert_eq!(numbers(&first), [1, 2]);
        returns.add(vec![given("b", 4), given("c", 5)]);
        let others = returns.due(at(0));
        assert_eq!(numbers(&others), [5], "the others have to wait");
        returns.answered(with(first, None), at(0), &silence());
        assert_eq!((numbers(&returns.due(at(0))), returns.next_at(at(0))), (vec![], Some(at(1))), "there is a pause");
        returns.answered(with(others, Some(1)), at(0), &Ok(()));
        let mut again = returns.due(at(1));
        again.sort_by_key(|given| given.turn);
        assert_eq!((numbers(&again), returns.next_at(at(1))), (vec![1, 2], None));
        returns.answered(with(again, Some(1)), at(1), &Ok(()));
        let last = returns.due(at(1));
        assert_eq!(numbers(&last), [3, 4]);
        returns.answered(with(last, Some(1)), at(1), &Ok(()));
        assert!(returns.is_empty() && returns.due(at(9)).is_empty());
    }

    #[test]
    fn a_budget_that_does_not_answer_keeps_no_other_waiting() {
        let mut returns = Returns::default();
        returns.add(vec![given("a", 1), given("b", 2), given("a", 3), given("b", 4)]);
        let both = returns.due(at(0));
        assert_eq!(numbers(&both), [1, 2]);
        // What b gave back is known, also where there was nothing to be taken.
        returns.answered(both.into_iter().zip([None, Some(0)]).collect(), at(0), &silence());
        let other = returns.due(at(0));
        assert_eq!(numbers(&other), [4]);
        returns.answered(with(other, Some(1)), at(0), &Ok(()));
        assert_eq!(numbers(&returns.due(at(1))), [1]);
    }

    #[test]
    fn what_the_ledger_may_know_no_more_is_not_repeated() {
        let mut returns = Returns::default();
        returns.add(vec![given("a", 1)]);
        let mut now = at(0);
        for _ in 0..3 {
            let due = returns.due(now);
            assert_eq!(numbers(&due), [1]);
            returns.answered(with(due, None), now, &silence());
            now += REPEATED_WITHIN;
        }
        // It stood still while the call was under way.
        let due = returns.due(now);
        returns.answered(with(due, None), now, &silence());
        returns.add(vec![given("a", 2)]);
        assert_eq!(numbers(&returns.due(now + REPEATED_WITHIN + AGAIN)), [2]);
    }

    #[test]
    fn tokens_of_a_budget_that_is_counted_anew_are_not_given_back_again() {
        let mut returns = Returns::default();
        returns.add(vec![given("a", 1)]);
        let due = returns.due(at(0));
        let lost = StoreError::LostHistory { shards: vec![3], message: "by the test".to_owned() };
        returns.answered(with(due, None), at(0), &Err(lost));
        assert!(returns.is_empty());
    }
}
