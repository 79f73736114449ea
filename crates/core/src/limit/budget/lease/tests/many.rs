//! Turns of more budgets are due than may be in flight at the same time.

use super::{super::*, by_hand::*};

const BUDGETS: usize = 3 * MOST_TURNS;

/// An intent that takes from all of these budgets. A refill of each is one token at first.
fn of_all(judged_at: Duration) -> Claim {
    let budgets = (0..BUDGETS).map(|number| BudgetUse { limit: 1_000, ..used(&format!("b{number}")) });
    claim(budgets.collect(), 1, judged_at)
}

#[test]
fn a_batch_has_its_tokens_before_one_of_its_budgets_is_asked_for_a_second_time() {
    let mut leases = Leases::new(1_000);
    assert_eq!(leases.claim(Ticket(1), &of_all(at(0)), at(0)), Claimed::Pending);
    let mut asked = 0;
    while asked < BUDGETS {
        assert!(leases.ready(at(0)).is_empty());
        let turns = leases.due(at(0), first_run).turns;
        asked += turns.len();
        assert_eq!(turns.len(), MOST_TURNS);
        for DueTurn { call, turn, .. } in turns {
            leases.answered(call, granted(turn.want), at(0), at(0));
        }
    }
    assert_eq!(leases.ready(at(0)), [Ticket(1)]);
}

#[test]
fn budgets_that_are_never_answered_keep_no_other_one_from_its_turn() {
    let (mut leases, mut asked) = (Leases::new(1_000), BTreeSet::new());
    // From the second round on, half of the places are for turns that are repeated.
    for round in 0..5 {
        // The pauses are over, and all of them are needed again.
        let now = at(round * 10_000);
        assert_eq!(leases.claim(Ticket(1), &of_all(now), now), Claimed::Pending);
        for DueTurn { call, budget, .. } in leases.due(now, first_run).turns {
            asked.insert(budget.name);
            leases.answered(call, Err(Refused), now, now);
        }
    }
    assert_eq!(asked.len(), BUDGETS);
}

#[test]
fn budgets_that_are_never_answered_take_turns_at_half_of_the_places_and_leave_the_others_to_the_rest() {
    let (mut leases, mut repeated) = (Leases::new(1_000), BTreeSet::new());
    assert_eq!(leases.claim(Ticket(0), &of_all(at(0)), at(0)), Claimed::Pending);
    for _ in 0..BUDGETS / MOST_TURNS {
        for DueTurn { call, .. } in leases.due(at(0), first_run).turns {
            leases.answered(call, Err(Refused), at(0), at(0));
        }
    }
    for round in 1..=(BUDGETS / MOST_REPEATED) as u64 {
        let (now, other) = (at(round * 10_000), format!("other{round}"));
        assert_eq!(leases.claim(Ticket(round), &claim(vec![used(&other)], 1, now), now), Claimed::Pending);
        let Due { turns, next_at } = leases.due(now, first_run);
        assert!(next_at.is_some_and(|at| at > now), "{next_at:?}");
        let (answered, silent): (Vec<_>, Vec<_>) =
            turns.into_iter().partition(|due| due.budget.name.starts_with("other"));
        assert_eq!(silent.len(), MOST_REPEATED);
        assert!(answered.iter().any(|due| *due.budget.name == *other), "{other} has its turn");
        for DueTurn { call, turn, .. } in answered {
            leases.answered(call, granted(turn.want), now, now);
        }
        for DueTurn { call, budget, .. } in silent {
            repeated.insert(budget.name);
            leases.answered(call, Err(Refused), now, now);
        }
    }
    assert_eq!(repeated.len(), BUDGETS);
}
