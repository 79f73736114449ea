//! Instances whose intents come rarely, or no longer, at the reference of the ledger.

use std::time::Duration;

use super::super::*;
use crate::{
    basis::time::Time,
    limit::{
        budget::{SpanNow, ledger::TokenBook},
        share::Reference as _,
    },
};

/// A first refill asks for a thousandth of it, 10 tokens. Its leases last a minute.
const LIMIT: u64 = 10_000;
const HOLDERS: [&str; 2] = ["weir-0", "weir-1"];

fn at(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

struct Instances {
    book: TokenBook,
    leases: [Leases; HOLDERS.len()],
    /// How often a batch waited for the ledger.
    waits: usize,
}

impl Instances {
    fn new() -> Self {
        Self { book: TokenBook::default(), leases: [1, 2].map(|run| Leases::new(10, run)), waits: 0 }
    }

    /// Makes the turns that are due, which are answered at once.
    fn pump(&mut self, holder: usize, ms: u32) {
        let (leases, now) = (&mut self.leases[holder], Time::default().plus(1_795_132_800_000 + i64::from(ms)));
        for DueTurn { call, number, turn, .. } in leases.due(at(ms)).turns {
            let answer = self.book.turn(HOLDERS[holder], number, &turn, now).unwrap();
            leases.answered(call, Ok(answer), at(ms), at(ms));
        }
    }

    /// Decides a batch of so many intents; how many of them are granted.
    fn decide(&mut self, holder: usize, intents: usize, ms: u32) -> usize {
        let used = BudgetUse {
            id: BudgetId { name: "b".into(), campaign: None },
            limit: LIMIT,
            span: SpanNow::Total,
            best_effort: true,
            unavailable_after: None,
        };
        let wants = vec![Want { set: 0, cost: 1 }; intents];
        let claim = Claim { judged_at: at(ms), budgets: vec![used], sets: vec![vec![0]], wants };
        loop {
            match self.leases[holder].claim(Ticket(1), &claim, at(ms)) {
                Claimed::Answered(Answers { outcomes, .. }) => {
                    return outcomes.iter().filter(|outcome| **outcome == Outcome::Granted).count();
                }
                Claimed::Pending => {
                    self.waits += 1;
                    self.pump(holder, ms);
                }
            }
        }
    }
}

/// The first takes much at once, and asks for as much again, of which it is granted half of the rest.
#[test]
fn what_an_instance_holds_is_spent_by_another_within_seconds_once_its_own_intents_no_longer_come() {
    let mut instances = Instances::new();
    let mut approved = instances.decide(0, 4_000, 0);
    for ms in (0..20_000).step_by(100) {
        instances.pump(0, ms);
        approved += instances.decide(1, 100, ms);
        instances.pump(1, ms);
    }
    assert!(approved as u64 * 100 >= LIMIT * 99, "{approved} of {LIMIT}");
}

#[test]
fn an_instance_keeps_a_first_refill_so_that_rare_intents_do_not_wait() {
    let mut instances = Instances::new();
    for ms in (0..66_000).step_by(100) {
        if ms % 6_000 == 0 {
            assert_eq!(instances.decide(0, 1, ms), 1);
        }
        instances.pump(0, ms);
    }
    assert_eq!(instances.waits, 1, "the first one does");
}
