//! stub
#![allow(missing_docs, clippy::all)]
use crate::{
    budget::{BudgetId, SpanNow},
    ledger::{GiveBack, TakeAnswer, TakeRequest},
};
use std::time::Duration;
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Ticket(pub u64);
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct LeaseNumber(u64);
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct CallNumber(u64);
#[derive(Clone, Debug)]
pub struct BudgetUse {
    pub id: BudgetId,
    pub limit: u64,
    pub span: SpanNow,
    pub best_effort: bool,
    pub unavailable_after: Option<Duration>,
}
#[derive(Copy, Clone, Debug)]
pub struct Want {
    pub set: u32,
    pub cost: u8,
}
#[derive(Clone, Debug)]
pub struct Claim {
    pub judged_at: Duration,
    pub budgets: Vec<BudgetUse>,
    pub sets: Vec<Vec<u16>>,
    pub wants: Vec<Want>,
}
#[derive(Copy, Clone, Debug)]
pub enum Outcome {
    Granted,
    Denied(u16),
    Unavailable(u16),
}
#[derive(Copy, Clone, Debug)]
pub struct Spent {
    pub used: u64,
    pub free_at: Option<Duration>,
}
#[derive(Clone, Debug)]
pub struct Answers {
    pub outcomes: Vec<Outcome>,
    pub spent: Vec<Option<Spent>>,
    pub leases: Vec<Option<LeaseNumber>>,
}
#[derive(Clone, Debug)]
pub enum Claimed {
    Answered(Answers),
    Pending,
}
#[derive(Copy, Clone, Debug)]
pub struct Refused;
pub struct Due {
    pub takes: Vec<(CallNumber, TakeRequest)>,
    pub returns: Vec<GiveBack>,
    pub next_at: Option<Duration>,
}
#[derive(Clone, Debug)]
pub struct BudgetState {
    pub id: BudgetId,
}
pub struct Leases;
impl Leases {
    pub fn new(_: usize) -> Self {
        Self
    }
    pub fn claim(&mut self, _: Ticket, _: &Claim, _: Duration) -> Claimed {
        Claimed::Pending
    }
    pub fn cancel(&mut self, _: Ticket) {}
    pub fn put_back(&mut self, _: &[(BudgetId, LeaseNumber, u64)], _: Duration) {}
    pub fn due(&mut self, _: Duration) -> Due {
        Due { takes: vec![], returns: vec![], next_at: None }
    }
    pub fn answered(&mut self, _: CallNumber, _: Result<TakeAnswer, Refused>, _: Duration, _: Duration) {}
    pub fn ready(&mut self, _: Duration) -> Vec<Ticket> {
        vec![]
    }
    pub fn close(&mut self) -> Vec<GiveBack> {
        vec![]
    }
    pub fn states(&self, _: Duration) -> Vec<BudgetState> {
        vec![]
    }
}
