//! How long a batch is open.

use super::*;

#[test]
fn a_batch_is_open_for_what_its_commit_is_expected_to_leave_of_the_interval() {
    let times = CommitTimes { flush: Duration::from_secs(3), commit: Duration::from_secs(1), ..CommitTimes::default() };
    let world = done(run(World { commit_interval: Duration::from_secs(10), times, ..World::default() }));
    let (first, last) = (world.fills[0], world.fills[world.fills.len() - 1]);
    assert!(first > Duration::from_secs(9), "nothing is known of commits yet: {first:?}");
    assert!((5..=6).contains(&last.as_secs()), "four seconds of ten are expected to be taken: {last:?}");
}
