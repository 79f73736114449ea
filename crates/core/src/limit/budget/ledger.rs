//! The ledger of budgets: how many tokens have been granted in each budget's window, over all instances.
//!
//! What is asked and answered ([`BudgetTokens`]); [`Account`], what was charged to a budget; and [`TokenBook`], a budget in memory: the
//! reference that `lua/take.lua` and `lua/restore_budget.lua` must equal.
//!
//! A token stands for one unit of cost. A grant is a number of tokens that one instance may spend until its lease ends. It counts
//! until the window has passed since the *end* of the lease: a token is spent before that, so no window of approvals ever holds
//! more than the limit. For a calendar period and in total, a grant counts in the period that it was made for.
//!
//! Every grant has an owner: a turn whose reply is lost, or that too few replicas have, is repeated with its number, and gets the
//! same grant. What comes back, and what replays owe, is a part of a turn, too.

mod account;
mod book;
mod recount;

use crate::{
    basis::store_error::StoreError,
    limit::{
        SharedLimit,
        budget::{BudgetId, SpanNow, lease::BudgetUse},
        share::Embedded,
    },
};
pub use account::{Account, BUCKETS};
pub use book::TokenBook;
pub use recount::Recount;

/// The tokens of budgets: instances share those of each, and hold some of them on lease.
#[derive(Debug, Clone, Copy)]
pub struct BudgetTokens;

impl SharedLimit for BudgetTokens {
    type Key = BudgetId;
    type Turn = TakeTurn;
    type Reply = TakeAnswer;
    type Reference = TokenBook;
}

/// The embedded ledger: budgets in this process. For `weir demo` and tests.
pub type EmbeddedLedger = Embedded<BudgetTokens>;

/// Where it is seen how budgets stand; nothing is taken.
pub trait LooksAtBudgets: Send {
    /// Looks at all of these, and when each has so many tokens left. `answers` is as long; safe to drop half way.
    ///
    /// # Errors
    /// Some places in `answers` are still empty; the error says why.
    fn look(
        &mut self,
        budgets: &[BudgetUse],
        tokens: u64,
        answers: &mut [Option<TakeAnswer>],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl LooksAtBudgets for EmbeddedLedger {
    async fn look(
        &mut self,
        budgets: &[BudgetUse],
        tokens: u64,
        answers: &mut [Option<TakeAnswer>],
    ) -> Result<(), StoreError> {
        for (used, answer) in budgets.iter().zip(answers) {
            *answer = Some(self.with(&used.id, |book, now| book.look(&TakeTurn::look(used, tokens), now)));
        }
        Ok(())
    }
}

/// One holder's turn at a budget. A turn without a number takes nothing and changes nothing: the answer tells how the budget stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeTurn {
    pub span: SpanNow,
    /// The most that may be granted in it.
    pub limit: u64,
    pub need: u64,
    /// How many are asked for, ahead of need; at least `need`. More than `need` is granted only up to left / (2 x lease holders).
    pub want: u64,
    /// Grants are multiples of this, above 0.
    pub unit: u64,
    /// The least that is of use; above 0.
    pub least: u64,
    /// How long the lease lasts, in milliseconds, above 0.
    pub lease_ms: i64,
    /// The tokens that the holder has of the budget, whatever it counts over. Who has none and wants none is no holder by this turn.
    pub held: u64,
    /// What comes back before anything is granted.
    pub back: Vec<GiveBack>,
    /// What is taken before anything is granted, where the ledger has not counted it.
    pub owed: Vec<OwedTokens>,
}

impl TakeTurn {
    /// A turn that wants nothing, of one who has nothing.
    #[must_use]
    pub fn nothing(span: SpanNow, limit: u64) -> Self {
        let (back, owed) = Default::default();
        Self { span, limit, need: 0, want: 0, unit: 1, least: 1, lease_ms: 1, held: 0, back, owed }
    }

    /// A turn that asks for nothing; the answer tells when this many tokens are left at the earliest.
    #[must_use]
    pub fn look(used: &BudgetUse, tokens: u64) -> Self {
        let unit = unit(used.limit, used.best_effort);
        let least = tokens.max(1).next_multiple_of(unit);
        Self { unit, least, ..Self::nothing(used.span, used.limit) }
    }
}

/// What grants of a budget are multiples of: 1 with `best_effort`, else a thousandth of the limit, at least 1.
#[must_use]
pub(crate) fn unit(limit: u64, best_effort: bool) -> u64 {
    if best_effort { 1 } else { (limit / 1000).max(1) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TakeAnswer {
    /// How many were granted; 0: the budget is spent.
    pub granted: u64,
    /// How many have been granted in the window, these included.
    pub used: u64,
    /// How many of them holders have whose lease has not ended, these included: what they had by their last turns, and were granted then.
    pub leased: u64,
    /// The bucket that the grant is in, to give tokens back to: of a rolling window the end of the lease, rounded up, of a
    /// calendar period its start, both in milliseconds since 1970; 0 in total.
    pub bucket: i64,
    /// In how many milliseconds at the earliest `least` tokens are left; `None`: never, or not by the passing of time alone
    /// in this period. 0 where they are left now.
    pub free_in_ms: Option<i64>,
    /// For how long its tokens have been counted, in milliseconds: since its first use, or since a rebuild counted the records that
    /// were approved by then. An intent that was admitted before, and is approved only now, is not counted. A length of time, because
    /// an admission has its time from another clock than the ledger's.
    pub counted_for_ms: i64,
    pub count_id: CountId,
}

/// Which count of a budget: when it began by the ledger's clock, in milliseconds since 1970. A rebuild begins another one, which has
/// what was approved by then, and not what was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CountId(pub i64);

/// Tokens that were granted and have not been spent, and never will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GiveBack {
    pub span: SpanNow,
    pub bucket: i64,
    /// The count of the grant; a later one takes nothing back.
    pub count_id: CountId,
    pub tokens: u64,
}

/// Tokens of intents that are approved as replays and took none. They are spent; where fewer are left, these are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwedTokens {
    pub tokens: u64,
    /// How long ago the intents were admitted, in milliseconds: a budget whose count began after that has not counted them.
    pub ago_ms: i64,
}

#[cfg(test)]
mod tests;
