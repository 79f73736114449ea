//! What turns out only after a claim: that a budget is spent, or that tokens were not.

use super::{super::*, by_hand::*};

#[test]
fn an_intent_that_a_budget_denies_leaves_another_one_to_a_later_intent_whose_ticket_waits_once_more() {
    let mut leases = Leases::new(10);
    // `c` has been claimed before, so that it is asked for ahead of need.
    assert_eq!(outcomes(leases.claim(Ticket(1), &claim(vec![used("c")], 0, at(0)), at(0))), []);
    // One token of `a` is left.
    assert_eq!(asks(&mut leases, 1, 2, at(0)), Claimed::Pending);
    let last = TakeAnswer { granted: 1, ..answer(LIMIT, 1, 7, Some(60_000)) };
    let due = due_turn(&mut leases, at(0));
    leases.answered(due.call, Ok(last), at(0), at(0));
    leases.cancel(Ticket(1));

    // The first intent takes it, while nothing is known of `b`.
    let of_two = |now| Claim {
        sets: vec![vec![0, 1], vec![0, 2]],
        wants: vec![Want { set: 0, cost: 1 }, Want { set: 1, cost: 1 }],
        ..claim(vec![used("a"), used("b"), used("c")], 0, now)
    };
    assert_eq!(leases.claim(Ticket(2), &of_two(at(10)), at(10)), Claimed::Pending);
    let turns = leases.due(at(10), first_run).turns;
    let call = |name: &str| turns.iter().find(|due| &*due.budget.name == name).unwrap().call;
    leases.answered(call("b"), Ok(answer(LIMIT, 0, 7, Some(60_000))), at(10), at(20));
    assert_eq!(leases.ready(at(20)), [Ticket(2)]);
    assert_eq!(leases.claim(Ticket(2), &of_two(at(20)), at(20)), Claimed::Pending);
    assert!(leases.ready(at(20)).is_empty(), "the second intent needs `c`");
    leases.answered(call("c"), granted(10), at(10), at(30));
    assert_eq!(leases.ready(at(30)), [Ticket(2)]);
    assert_eq!(outcomes(leases.claim(Ticket(2), &of_two(at(30)), at(30))), [Outcome::Denied(1), Outcome::Granted]);
}

#[test]
fn what_is_put_back_was_not_spent_and_nothing_is_asked_for_in_its_place() {
    let mut leases = holding("a", 100, at(0));
    for round in 1..=10 {
        let now = at(round * 10);
        let taken = answers(asks(&mut leases, 1 + round, 50, now)).leases;
        leases.put_back(&[(used("a").id, taken[0].unwrap(), 50)], now);
    }
    assert!(leases.due(at(100), first_run).turns.is_empty(), "100 are held, and none was spent");
}

#[test]
fn a_spent_budget_is_asked_again_by_the_turn_that_gives_tokens_of_it_back() {
    let all_spent = || Ok(answer(LIMIT, 10, 7, Some(60_000)));
    for (answered, outcome) in [(granted(10), Outcome::Granted), (all_spent(), Outcome::Denied(0))] {
        let mut leases = holding("a", 10, at(0));
        let lease = answers(asks(&mut leases, 2, 10, at(1))).leases[0].unwrap();
        let ahead = due_turn(&mut leases, at(1));
        leases.answered(ahead.call, all_spent(), at(1), at(1));
        assert_eq!(outcomes(asks(&mut leases, 3, 10, at(5_000))), [Outcome::Denied(0); 10]);
        assert!(leases.due(at(5_000), first_run).turns.is_empty(), "it is spent");
        leases.put_back(&[(used("a").id, lease, 10)], at(5_100));
        assert_eq!(asks(&mut leases, 3, 10, at(5_100)), Claimed::Pending);
        let due = due_turn(&mut leases, at(5_100));
        assert_eq!((due.turn.back.len(), due.turn.back[0].tokens, due.turn.need), (1, 10, 10));
        assert!(leases.ready(at(5_150)).is_empty(), "it may be granted them");
        leases.answered(due.call, answered, at(5_100), at(5_200));
        assert_eq!(leases.ready(at(5_200)), [Ticket(3)]);
        assert_eq!(outcomes(asks(&mut leases, 3, 10, at(5_200))), [outcome; 10]);
        if outcome != Outcome::Granted {
            assert!(leases.due(at(5_200), first_run).turns.is_empty(), "it is spent again");
            assert_eq!(outcomes(asks(&mut leases, 4, 10, at(5_300))), [outcome; 10]);
        }
    }
}
