//! What the ledger tells the processes, and the policy's budgets: the checker's memory; and around the ledger the planted bugs that need
//! a place there.

use weir_core::limit::budget::{
    SpanNow,
    ledger::{BudgetTokens, CountId, GiveBack, TakeAnswer, TakeTurn},
};

use super::prelude::*;

/// For how long a denial holds for a batch that waited for it.
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
    fn note(&self, (budget, number): (&BudgetId, TurnNumber), turn: &TakeTurn, answer: &TakeAnswer) {
        let mut told = lock(&self.tells.told);
        let process = self.process;
        if turn.want == 0 {
            return;
        }
        if answer.granted > 0 {
            told.granted += 1;
            told.last.insert((process, budget.clone()), (turn.span, answer.bucket, answer.count_id));
        } else if told.turns[&(process, number)] == 1 {
            *told.asked.entry(budget.clone()).or_default() -= 1;
        }
        if answer.granted < turn.need || answer.granted == 0 && answer.free_in_ms != Some(0) {
            let free_in = answer.free_in_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap()));
            let holds = free_in.map(|free_in| free_in.max(SETTLED));
            told.denials.push(Denial { process, budget: budget.clone(), at: self.env.passed(), holds });
        }
    }

    /// What the planted bug gives back.
    fn unclear(&self, budget: &BudgetId) -> Option<GiveBack> {
        let mut told = lock(&self.tells.told);
        let of = (self.process, budget.clone());
        let (span, bucket, count_id) = *told.last.get(&of)?;
        let tokens = told.unclear.remove(&of)?;
        Some(GiveBack { span, bucket, count_id, tokens })
    }

    /// The turn as the planted bugs make it.
    fn planted(&self, budget: &BudgetId, turn: &TakeTurn) -> TakeTurn {
        let mut turn = turn.clone();
        turn.back.extend(self.unclear(budget));
        if let (Sabotage::LeaseOutlived, SpanNow::Rolling { window_ms }) = (self.env.sabotage(), turn.span) {
            // The ledger believes that the lease ended when a fourth of the window was not over yet.
            turn.lease_ms = -window_ms / 4;
        }
        turn
    }
}

/// Room for another turn between two: where that is made again as another one, by a planted bug.
fn spread(number: TurnNumber, later: u64) -> TurnNumber {
    TurnNumber { number: 3 * number.number + later, ..number }
}

impl Share<BudgetTokens> for SimLedger {
    async fn turn(&mut self, budget: &BudgetId, number: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        let asked = self.planted(budget, turn);
        if turn.want > 0 {
            let mut told = lock(&self.tells.told);
            let times = told.turns.entry((self.process, number)).or_default();
            *times += 1;
            if *times == 1 {
                *told.asked.entry(budget.clone()).or_default() += 1;
            }
        }
        if self.env.sabotage() == Sabotage::GivenBackTwice && !turn.back.is_empty() {
            let first = TakeTurn { need: 0, want: 0, owed: Vec::new(), ..asked.clone() };
            self.ledger.turn(budget, spread(number, 0), &first).await?;
        }
        let mut outcome = self.ledger.turn(budget, spread(number, 1), &asked).await;
        if outcome.is_err() && self.env.sabotage() == Sabotage::GrantAskedAgain {
            outcome = self.ledger.turn(budget, spread(number, 2), &asked).await;
        }
        match &outcome {
            Ok(answer) => self.note((budget, number), turn, answer),
            Err(_) => lock(&self.tells.told).refused += 1,
        }
        outcome
    }
}
