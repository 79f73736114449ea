//! Instances at a ledger that answers at once: how often a batch waits for it, and what is held ahead of need, which is lost where a process
//! is killed, and of use to nobody where its intents no longer come.

use super::{super::*, by_hand::*, ledger::time};
use crate::limit::{
    budget::{SpanNow, ledger::TokenBook},
    share::Reference as _,
};

const HOLDERS: [&str; 2] = ["weir-0", "weir-1"];

struct Instances {
    book: TokenBook,
    leases: [Leases; HOLDERS.len()],
    used: BudgetUse,
    /// How often a batch waited for the ledger.
    waits: usize,
    turns: usize,
    /// The most that a turn asked for, and that was held.
    most_wanted: u64,
    most_held: u64,
}

impl Instances {
    fn new(limit: u64, span: SpanNow) -> Self {
        let (used, leases) = (BudgetUse { limit, span, ..used("a") }, [(); 2].map(|()| Leases::new(10)));
        Self { book: TokenBook::default(), leases, used, waits: 0, turns: 0, most_wanted: 0, most_held: 0 }
    }

    /// Makes the turns that are due.
    fn pump(&mut self, holder: usize, ms: u64) {
        let leases = &mut self.leases[holder];
        for DueTurn { call, number, turn, .. } in leases.due(at(ms), first_run).turns {
            let answer = self.book.turn(HOLDERS[holder], number, &turn, time(ms.cast_signed())).unwrap();
            leases.answered(call, Ok(answer), at(ms), at(ms));
            (self.turns, self.most_wanted) = (self.turns + 1, self.most_wanted.max(turn.want));
        }
        self.most_held = leases.states().first().map_or(0, |state| state.held).max(self.most_held);
    }

    /// Decides a batch of so many intents of cost 1; gives how many of them are granted.
    fn decide(&mut self, holder: usize, intents: usize, ms: u64) -> usize {
        let claim = claim(vec![self.used.clone()], intents, at(ms));
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

    /// The first one decides so many intents each second, all of which are granted, for so long.
    fn spend(&mut self, a_second: impl Fn(u64) -> usize, seconds: u64) {
        for ms in (0..seconds * 1_000).step_by(100) {
            let intents = if ms % 1_000 == 0 { a_second(ms / 1_000) } else { 0 };
            if intents > 0 {
                assert_eq!(self.decide(0, intents, ms), intents, "at {ms} ms");
            }
            self.pump(0, ms);
        }
    }
}

/// The first takes much at once, and asks for as much again, of which it is granted half of the rest.
#[test]
fn what_an_instance_holds_is_spent_by_another_within_seconds_once_its_own_intents_no_longer_come() {
    let mut instances = Instances::new(LIMIT, SpanNow::Total);
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
    let mut instances = Instances::new(LIMIT, SpanNow::Total);
    instances.spend(|second| usize::from(second.is_multiple_of(6)), 66);
    assert_eq!(instances.waits, 1, "the first one does");
}

#[test]
fn of_a_small_budget_no_more_is_held_than_a_fiftieth_and_half_of_that_and_calls_are_few() {
    let mut instances = Instances::new(600, SpanNow::Total);
    instances.spend(|_| 1, 300);
    assert_eq!(instances.most_wanted, 12);
    assert!(instances.most_held <= 18, "{} are held", instances.most_held);
    assert!(instances.turns <= 40, "{} turns for 300 intents", instances.turns);
}

/// Evenly, a lease of 36 s needs 200.
#[test]
fn at_an_even_load_a_refill_is_not_as_large_as_it_may_be() {
    let mut instances = Instances::new(20_000, SpanNow::Rolling { window_ms: 3_600_000 });
    // 50 in 9 s.
    instances.spend(|second| 5 + usize::from(second % 9 < 5), 1_800);
    assert!((100..400).contains(&instances.most_wanted), "{} are asked for", instances.most_wanted);
}
