//! Calls of the ledger, each by a connection that is given back with what came of it.

use std::time::Duration;

use weir_core::{
    budget::BudgetId,
    lease::{CallNumber, Owed},
    ledger::{GiveBack, TakeAnswer, TakeRequest},
    ports::{Ledger, StoreError},
};

use crate::observer::{LedgerCall, Observer};

/// What came of a call.
pub(super) enum Called {
    Took {
        call: CallNumber,
        budget: BudgetId,
        limit: u64,
        sent_at: Duration,
        answer: Result<TakeAnswer, StoreError>,
    },
    /// How many tokens were taken back in each turn.
    GaveBack {
        turns: Vec<(GiveBack, Option<u64>)>,
        sent_at: Duration,
        outcome: Result<(), StoreError>,
    },
    /// How the budgets stand to which replays owe tokens.
    Looked(Vec<(Owed, Option<TakeAnswer>)>, Result<(), StoreError>),
    /// So many budgets have counted what replays owed.
    Charged(usize, Result<(), StoreError>),
}

pub(super) fn count_calls(
    observer: &dyn Observer,
    calls: usize,
    (call, outcome): (LedgerCall, &Result<(), StoreError>),
) {
    let call = if outcome.is_ok() { call } else { LedgerCall::Failed };
    (0..calls).for_each(|_| observer.ledger_called(call));
}

pub(super) async fn take<L: Ledger>(
    mut ledger: L,
    call: CallNumber,
    request: TakeRequest,
    sent_at: Duration,
) -> (L, Called) {
    let (mut answers, budget, limit) = ([None], request.budget.clone(), request.limit);
    let outcome = ledger.take(&[request], &mut answers).await;
    let [answer] = answers;
    let answer = match (answer, outcome) {
        (Some(answer), _) => Ok(answer),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(StoreError::Temporary("the ledger gave no answer".to_owned())),
    };
    (ledger, Called::Took { call, budget, limit, sent_at, answer })
}

pub(super) async fn look<L: Ledger>(mut ledger: L, owed: Vec<Owed>) -> (L, Called) {
    let requests: Vec<TakeRequest> = owed.iter().map(Owed::look).collect();
    let mut answers = vec![None; requests.len()];
    let outcome = ledger.take(&requests, &mut answers).await;
    (ledger, Called::Looked(owed.into_iter().zip(answers).collect(), outcome))
}

pub(super) async fn charge<L: Ledger>(mut ledger: L, due: Vec<TakeRequest>) -> (L, Called) {
    let mut answers = vec![None; due.len()];
    let outcome = ledger.take(&due, &mut answers).await;
    (ledger, Called::Charged(due.len(), outcome))
}

pub(super) async fn give_back<L: Ledger>(mut ledger: L, tokens: Vec<GiveBack>, sent_at: Duration) -> (L, Called) {
    let mut answers = vec![None; tokens.len()];
    let outcome = ledger.give_back(&tokens, &mut answers).await;
    (ledger, Called::GaveBack { turns: tokens.into_iter().zip(answers).collect(), sent_at, outcome })
}
