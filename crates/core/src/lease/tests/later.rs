//! What turns out only after a claim: that tokens were not spent, that a lease has ended.

use super::{super::*, by_hand::*};

#[test]
fn what_is_put_back_was_not_spent_and_nothing_is_asked_for_in_its_place() {
    let mut leases = holding("a", 100, at(0));
    for round in 1..=10 {
        let now = at(round * 10);
        let claimed = leases.claim(Ticket(1 + round), &claim(vec![used("a")], 50, now), now);
        let Claimed::Answered(Answers { leases: taken, .. }) = claimed else { panic!("it is pending") };
        leases.put_back(&[(used("a").id, taken[0].unwrap(), 50)], now);
    }
    assert!(leases.due(at(100)).turns.is_empty(), "100 are held, and none was spent");
}

#[test]
fn what_goes_back_is_on_lease_only_if_its_lease_lasts_when_the_turn_is_made() {
    let stops = || {
        let mut leases = holding("a", 10, at(0));
        leases.close(at(4_999));
        leases
    };
    let back = |due: &DueTurn| due.turn.back.iter().map(|back| (back.tokens, back.is_on_lease)).collect::<Vec<_>>();
    assert_eq!(back(&due_turn(&mut stops(), at(5_000))), [(10, false)]);
    let mut leases = stops();
    let first = due_turn(&mut leases, at(4_999));
    assert_eq!(back(&first), [(10, true)]);
    leases.answered(first.call, Err(Refused), at(4_999), at(4_999));
    let repeated = due_turn(&mut leases, at(5_099));
    assert_eq!((repeated.number, back(&repeated)), (first.number, vec![(10, false)]));
}
