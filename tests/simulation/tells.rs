//! What the ledger tells the processes, and the policy's budgets: the checker's memory; and around the ledger the planted bugs that need
//! a place there.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use weir_core::{
    budget::{Budget, BudgetId, SpanNow},
    class::ClassNames,
    ledger::{CountId, GiveBack, TakeAnswer, TakeRequest},
    limit::share::TurnNumber,
    ports::{Ledger, StoreError},
};
use weir_redis::RedisLedger;

use super::{
    env::{Env, lock},
    sabotage::Sabotage,
};

/// For how long a denial holds for a batch that waited for it: a lease's length.
const SETTLED: Duration = Duration::from_secs(5);

/// The answer of the ledger to a process that there is too little.
#[derive(Debug, Clone)]
pub struct Denial {
    pub process: u64,
    pub budget: BudgetId,
    pub at: Duration,
    /// How long it holds; `None`: until the end.
    pub holds: Option<Duration>,
}

/// What the processes were told.
#[derive(Debug, Default)]
pub struct Told {
    pub denials: Vec<Denial>,
    /// In how many turns tokens of each budget were asked for, without those that were answered that there are none.
    pub asked: BTreeMap<BudgetId, usize>,
    /// How often each turn of a process was made.
    turns: BTreeMap<(u64, TurnNumber), usize>,
    /// Answers with tokens.
    pub granted: usize,
    /// Calls without an answer.
    pub refused: usize,
    /// Of a planted bug: where the last tokens of each process are from, and what it gives back too much.
    last: BTreeMap<(u64, BudgetId), (SpanNow, i64, CountId)>,
    unclear: BTreeMap<(u64, BudgetId), u64>,
}

/// What the processes were told, and the policy's budgets.
#[derive(Clone)]
pub struct Tells {
    pub told: Arc<Mutex<Told>>,
    budgets: Arc<[Budget]>,
}

impl Tells {
    pub fn new(budgets: impl Iterator<Item = Budget>) -> Self {
        Self { told: Arc::default(), budgets: budgets.collect() }
    }

    /// The planted bug that gives the tokens of a send back although it may have been recorded.
    pub fn give_back(&self, process: u64, class: &ClassNames<'_>, cost: u8) {
        let mut told = lock(&self.told);
        for id in self.budgets.iter().filter_map(|budget| budget.id_for(class)) {
            *told.unclear.entry((process, id)).or_default() += u64::from(cost);
        }
    }
}

/// The ledger as a process asks it.
pub struct SimLedger {
    pub env: Env,
    pub process: u64,
    pub ledger: RedisLedger,
    pub tells: Tells,
}

impl SimLedger {
    fn note(&self, request: &TakeRequest, answer: &TakeAnswer) {
        let mut told = lock(&self.tells.told);
        let (process, budget) = (self.process, request.budget.clone());
        if answer.granted > 0 {
            told.granted += 1;
            told.last.insert((process, budget.clone()), (request.span, answer.bucket, answer.count_id));
        } else if request.want > 0 && request.turn.is_none_or(|turn| told.turns[&(process, turn)] == 1) {
            *told.asked.entry(budget.clone()).or_default() -= 1;
        }
        if answer.granted < request.need || answer.granted == 0 && answer.free_in_ms != Some(0) {
            let free_in = answer.free_in_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap()));
            let holds = free_in.map(|free_in| free_in.max(SETTLED));
            told.denials.push(Denial { process, budget, at: self.env.passed(), holds });
        }
    }

    /// What the planted bug gives back.
    fn unclear(&self) -> Vec<GiveBack> {
        let mut told = lock(&self.tells.told);
        let Told { last, unclear, .. } = &mut *told;
        let mut back = Vec::new();
        unclear.retain(|of, tokens| {
            let Some(&(span, bucket, count_id)) = last.get(of).filter(|_| of.0 == self.process) else { return true };
            back.push(GiveBack { budget: of.1.clone(), span, bucket, count_id, tokens: *tokens, turn: None });
            false
        });
        back
    }
}

impl Ledger for SimLedger {
    async fn take(&mut self, requests: &[TakeRequest], answers: &mut [Option<TakeAnswer>]) -> Result<(), StoreError> {
        let unclear = self.unclear();
        if !unclear.is_empty() {
            self.ledger.give_back(&unclear, &mut vec![None; unclear.len()]).await?;
        }
        let asked = requests.iter().map(|request| match (self.env.sabotage(), request.span) {
            // The ledger believes that the lease ended when a fourth of the window was not over yet.
            (Sabotage::LeaseOutlived, SpanNow::Rolling { window_ms }) => {
                TakeRequest { lease_ms: -window_ms / 4, ..request.clone() }
            }
            _ => request.clone(),
        });
        let asked: Vec<TakeRequest> = asked.collect();
        for request in requests.iter().filter(|request| request.want > 0) {
            let mut told = lock(&self.tells.told);
            let times = request.turn.map(|turn| {
                let times = told.turns.entry((self.process, turn)).or_default();
                *times += 1;
                *times
            });
            if times.is_none_or(|times| times == 1) {
                *told.asked.entry(request.budget.clone()).or_default() += 1;
            }
        }
        let mut outcome = self.ledger.take(&asked, answers).await;
        if outcome.is_err() && self.env.sabotage() == Sabotage::GrantAskedAgain {
            let anew: Vec<TakeRequest> =
                asked.into_iter().map(|request| TakeRequest { turn: None, ..request }).collect();
            outcome = self.ledger.take(&anew, answers).await;
        }
        for (request, answer) in requests.iter().zip(&*answers) {
            if let Some(answer) = answer {
                self.note(request, answer);
            }
        }
        lock(&self.tells.told).refused += usize::from(outcome.is_err());
        outcome
    }

    async fn give_back(&mut self, tokens: &[GiveBack], answers: &mut [Option<u64>]) -> Result<(), StoreError> {
        if self.env.sabotage() == Sabotage::GivenBackTwice {
            let unnumbered = tokens.iter().map(|given| GiveBack { turn: None, ..given.clone() });
            let unnumbered: Vec<GiveBack> = unnumbered.collect();
            self.ledger.give_back(&unnumbered, &mut vec![None; unnumbered.len()]).await?;
        }
        let outcome = self.ledger.give_back(tokens, answers).await;
        lock(&self.tells.told).refused += usize::from(outcome.is_err());
        outcome
    }
}
