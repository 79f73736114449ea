//! Which tokens of a replay are spent.

use super::{super::RequestIndex, *};

#[test]
fn a_replay_pays_nothing_unless_it_is_of_the_same_admission_or_not_counted_in_its_window() {
    let now = Time::default().plus(1_000);
    let request = RequestIndex::next(&[]);
    let disposition = Disposition::CheckCaps { request, cap_set: 0, shadowed: None, fallback: Unavailable::Wait };
    let (begin, before) = (now.plus(-900), now.plus(-500));
    for (at, spent) in [
        (begin.plus(-1), false),
        (begin, true),
        (before.plus(-1), true),
        (before, false),
        (now.plus(-1), false),
        (now, true),
        (now.plus(1), true),
    ] {
        let answer = Answer { verdict: AdmitVerdict::Replayed, at, ahead: false };
        let answers = vec![Some(answer)].into();
        assert_eq!(is_spent(&disposition, (&answers, now), || begin..before, Mode::Enforce), spent, "{at:?}");
        let is_own = is_recorded(&disposition, (&answers, now), Mode::Enforce);
        assert_eq!(is_own, at >= now, "where the batch is judged again, it claims again: {at:?}");
    }
}
