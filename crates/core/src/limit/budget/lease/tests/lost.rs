//! What an instance holds ahead of need: that is lost where it is killed.

use super::{super::*, by_hand::*};
use crate::{
    basis::time::Time,
    limit::{
        budget::{SpanNow, ledger::TokenBook},
        share::Reference as _,
    },
};

/// An instance, and a ledger that answers at once.
struct One {
    book: TokenBook,
    leases: Leases,
    used: BudgetUse,
    calls: usize,
    /// The most that a turn asked for.
    most_wanted: u64,
    /// The most that was held.
    most_held: u64,
}

impl One {
    fn new(limit: u64, span: SpanNow) -> Self {
        let used = BudgetUse { limit, span, ..used("a") };
        let (book, leases) = (TokenBook::default(), Leases::new(10, 1));
        Self { book, leases, used, calls: 0, most_wanted: 0, most_held: 0 }
    }

    fn pump(&mut self, ms: u64) {
        let now = Time::default().plus(1_795_132_800_000 + i64::try_from(ms).unwrap());
        for DueTurn { call, number, turn, .. } in self.leases.due(at(ms)).turns {
            let answer = self.book.turn("weir-0", number, &turn, now).unwrap();
            self.leases.answered(call, Ok(answer), at(ms), at(ms));
            (self.calls, self.most_wanted) = (self.calls + 1, self.most_wanted.max(turn.want));
        }
        self.most_held = self.leases.states(at(ms))[0].held.max(self.most_held);
    }

    /// Intents of cost 1, all of which are granted, each second for so long.
    fn spend(&mut self, a_second: impl Fn(u64) -> usize, seconds: u64) {
        for ms in (0..seconds * 1_000).step_by(100) {
            if ms % 1_000 == 0 {
                let intents = a_second(ms / 1_000);
                let asked = claim(vec![self.used.clone()], intents, at(ms));
                let claimed = loop {
                    match self.leases.claim(Ticket(1), &asked, at(ms)) {
                        Claimed::Pending => self.pump(ms),
                        Claimed::Answered(answers) => break answers,
                    }
                };
                assert_eq!(claimed.outcomes, vec![Outcome::Granted; intents], "at {ms} ms");
            }
            self.pump(ms);
        }
    }
}

#[test]
fn of_a_small_budget_no_more_is_held_than_a_fiftieth_and_half_of_that_and_calls_are_few() {
    let mut one = One::new(600, SpanNow::Total);
    one.spend(|_| 1, 300);
    assert_eq!(one.most_wanted, 12);
    assert!(one.most_held <= 18, "{} are held", one.most_held);
    assert!(one.calls <= 40, "{} calls for 300 intents", one.calls);
}

/// Evenly, a lease of 36 s needs 200.
#[test]
fn at_an_even_load_a_refill_is_not_as_large_as_it_may_be() {
    let mut one = One::new(20_000, SpanNow::Rolling { window_ms: 3_600_000 });
    // 50 in 9 s.
    one.spend(|second| 5 + usize::from(second % 9 < 5), 1_800);
    assert!((100..400).contains(&one.most_wanted), "{} are asked for", one.most_wanted);
}
