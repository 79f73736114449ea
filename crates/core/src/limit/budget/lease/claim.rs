//! What a claim is, and its answer.

use std::time::Duration;

use super::{held::LeaseTerms, moment::Moment};
use crate::limit::{
    budget::{
        BudgetId, SpanNow,
        ledger::{CountId, TakeTurn},
    },
    share::TurnNumber,
};

/// A batch's number, chosen by the caller, unlike that of any other one that is pending. Before it is given to another batch, the one before is
/// [cancelled](super::Leases::cancel): that one's answers are not for this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Which turn of which budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallNumber {
    pub(super) budget: u32,
    pub(super) turn: u64,
}

/// Which lease the tokens of a claim are from. It holds what is needed to give them back when nothing else is known of the lease
/// any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseNumber {
    pub(super) span: SpanNow,
    pub(super) limit: u64,
    pub(super) terms: LeaseTerms,
}

impl LeaseNumber {
    /// Of tokens that are charged to a place of an account, without a lease.
    pub(crate) fn of_place(used: &BudgetUse, place: i64) -> Self {
        let terms =
            LeaseTerms { since: Moment::START, ends: Moment::NEVER, bucket: place, count_id: CountId::default() };
        Self { span: used.span, limit: used.limit, terms }
    }

    /// The place of the account that its tokens are charged to.
    pub(crate) const fn place(&self) -> i64 {
        self.terms.bucket
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetUse {
    pub id: BudgetId,
    /// Its limit, in costs.
    pub limit: u64,
    pub span: SpanNow,
    /// Whether a refill takes what is left where that is less than a unit.
    pub best_effort: bool,
    /// For how long it must have been unavailable until intents that need more of it than is held are answered with
    /// [`Outcome::Unavailable`]; `None`: they are pending for as long as it takes.
    pub unavailable_after: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Its budgets: a place in [`Claim::sets`].
    pub set: u32,
    /// The tokens that it takes from each of them.
    pub cost: u8,
}

/// What a batch wants. All places in it must exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// When the batch's clock was read, on the monotonic clock.
    pub judged_at: Duration,
    /// The budgets of the batch's intents, each once.
    pub budgets: Vec<BudgetUse>,
    /// Sets of budgets, as places in `budgets`, each once. An intent takes its cost from all budgets of its set or from none.
    pub sets: Vec<Vec<u32>>,
    /// What the intents want, in the batch's order.
    pub wants: Vec<Want>,
}

/// The answer to one intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has taken its cost from all of its budgets.
    Granted,
    /// This budget (a place in [`Claim::budgets`]) is spent; of several, the one that frees last.
    Denied(u32),
    /// This budget (a place in [`Claim::budgets`]) cannot be asked.
    Unavailable(u32),
}

/// A budget that denied an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// How much of it is used, by the ledger; 0 where the ledger was not asked.
    pub used: u64,
    /// When it frees, on the monotonic clock; `None`: never. It never frees for an intent that costs more than the limit.
    pub free_at: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers {
    /// For each intent.
    pub outcomes: Vec<Outcome>,
    /// For each budget that denied an intent.
    pub spent: Vec<Option<Spent>>,
    /// For each budget of which tokens were taken: where they are put back to.
    pub leases: Vec<Option<LeaseNumber>>,
    /// For each budget: for how long its tokens had been counted when the batch was judged, in milliseconds, by the ledger's last
    /// answer; `None`: it has not answered yet.
    pub counted_for_ms: Vec<Option<i64>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It has taken what it was granted.
    Answered(Answers),
    /// It has taken nothing. Its place is reserved until it claims again.
    Pending,
}

/// The ledger did not answer: it is unavailable, or its answer was lost. The turn may have been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueTurn {
    /// To answer it by.
    pub call: CallNumber,
    pub budget: BudgetId,
    pub number: TurnNumber,
    pub turn: TakeTurn,
}

/// What to ask the ledger now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Turns to make, of a budget one at a time. Each must be answered.
    pub turns: Vec<DueTurn>,
    /// When to ask again at the latest what is due and which tickets are ready; `None`: after the next event.
    pub next_at: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetState {
    pub id: BudgetId,
    /// The tokens held here.
    pub held: u64,
    /// How much was used when the ledger answered last; `None`: it has not answered yet.
    pub used: Option<u64>,
    /// Since when the ledger has not answered, on the monotonic clock; `None`: it does.
    pub unavailable_since: Option<Duration>,
}

/// How a budget answers to what is more than the tokens that are held of it. While it is open, the ledger is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BudgetMode {
    Open,
    Spent { free_at: Moment },
    Unavailable,
}
