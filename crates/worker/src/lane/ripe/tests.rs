//! Which buckets are read when.

use weir_core::deferral::{DeferReason, Deferral};

use super::*;
use crate::tests::{Row, Rows};

const NO: Duration = Duration::ZERO;
const NOBODY: [i32; 0] = [];
const NONE: [(i32, i64); 0] = [];

fn time(clock: &str) -> Time {
    Time::from_rfc3339(&format!("2026-11-20T{clock}:00Z")).unwrap()
}

/// Records of the minutes with one share: partition, offset, and when each is due.
fn batch(records: &[(i32, i64, &str)]) -> Rows {
    let (first_at, why) = (Time::default(), DeferReason::TooEarly);
    let deferral =
        |due| Deferral { due: time(due), topic: "t".into(), partition: 0, offset: 0, first_at, why, count: 1 };
    let row = |&(partition, offset, due): &_| Row { partition, offset, deferral: Some(deferral(due)), timestamp: None };
    Rows(records.iter().map(row).collect())
}

/// Buckets of a lane that has heard of all.
fn begun(ring: Ring, shares: u16) -> Ripe {
    Ripe { starting: None, ..Ripe::new(ring, Wheel { shares }) }
}

/// The ends that were told: partition and offset.
fn hear(ripe: &mut Ripe, ends: &[(i32, i64)], all: usize) {
    ripe.hear(&ends.iter().copied().collect(), all);
}

/// Which are woken at 18:45, once these are heard.
fn heard(ripe: &mut Ripe, ends: &[(i32, i64)], all: usize) -> Vec<i32> {
    hear(ripe, ends, all);
    ripe.wake(time("18:45"))
}

/// Puts back what is not due of these records at this time. Gives the partitions, and from which offset on.
fn put_back(ripe: &mut Ripe, records: &[(i32, i64, &str)], clock: &str) -> Vec<(i32, i64)> {
    ripe.put_back(&batch(records), Some(time(clock)), NO).unwrap()
}

/// A poll that gives nothing of these buckets, and so waits.
fn wait(ripe: &mut Ripe, seconds: u64) {
    assert_eq!(ripe.put_back(&batch(&[]), Some(time("18:45")), Duration::from_secs(seconds)), Ok(Vec::new()));
}

#[test]
fn a_bucket_sleeps_until_its_first_record_is_due() {
    let mut ripe = begun(Ring::Minutes, 1);
    // 18:30 is minute 30 of the two hours that the ring has.
    let back = put_back(&mut ripe, &[(30, 7, "18:30"), (31, 0, "18:31"), (30, 8, "18:30"), (31, 1, "18:31")], "18:30");
    assert_eq!(back, [(31, 0)]);
    hear(&mut ripe, &[(30, 9), (31, 0)], 2);
    assert_eq!(ripe.wake(time("18:30")), NOBODY);
    assert_eq!(ripe.wake(time("18:31")), [31]);
    assert_eq!(ripe.wake(time("18:31")), NOBODY, "it is awake");
}

#[test]
fn a_record_of_the_next_round_waits_behind_those_of_this_one() {
    let mut ripe = begun(Ring::Minutes, 1);
    assert_eq!(put_back(&mut ripe, &[(30, 7, "18:30"), (30, 8, "20:30"), (30, 9, "20:30")], "19:40"), [(30, 8)]);
    assert_eq!(ripe.wake(time("20:29")), NOBODY);
    assert_eq!(ripe.wake(time("20:30")), [30]);
}

#[test]
fn the_oldest_bucket_has_told_its_end_before_the_next_one_is_read() {
    let mut ripe = begun(Ring::Minutes, 1);
    let back = put_back(&mut ripe, &[(32, 0, "18:32"), (30, 0, "18:30"), (31, 0, "18:31"), (31, 1, "18:31")], "18:45");
    assert_eq!(back, [(32, 0), (31, 0)]);
    assert_eq!(heard(&mut ripe, &[(31, 0), (32, 0)], 3), NOBODY, "bucket 30 may have more");
    assert_eq!(put_back(&mut ripe, &[(30, 1, "18:30")], "18:45"), NONE);
    assert_eq!(heard(&mut ripe, &[(30, 1), (31, 0), (32, 0)], 3), NOBODY, "that is the end of before");
    assert_eq!(heard(&mut ripe, &[(30, 2), (31, 0), (32, 0)], 3), [31]);
    assert_eq!(heard(&mut ripe, &[(30, 2), (31, 0), (32, 0)], 3), NOBODY, "what 31 has is on its way, put back there");
    assert_eq!(put_back(&mut ripe, &[(31, 0, "18:31"), (31, 1, "18:31")], "18:45"), NONE, "it is read");
    // The mark of a transaction is before the end.
    assert_eq!(heard(&mut ripe, &[(30, 2), (31, 3), (32, 0)], 3), [32]);
}

#[test]
fn at_the_start_nothing_is_taken_until_all_buckets_have_given_a_record_or_their_end() {
    let mut ripe = Ripe::new(Ring::Minutes, Wheel { shares: 1 });
    // The answers of brokers come in pieces: the younger bucket first.
    assert_eq!(put_back(&mut ripe, &[(31, 4, "18:31"), (31, 5, "18:31")], "18:45"), [(31, 4)]);
    assert_eq!(heard(&mut ripe, &[(31, 4), (60, 12)], 4), NOBODY);
    // Buckets that fill meanwhile and are not due have told all that is asked.
    assert_eq!(put_back(&mut ripe, &[(50, 0, "18:50")], "18:45"), [(50, 0)]);
    assert_eq!(heard(&mut ripe, &[(31, 4), (50, 0), (60, 12)], 4), NOBODY, "nothing is known of one");
    assert_eq!(put_back(&mut ripe, &[(30, 7, "18:30")], "18:45"), [(30, 7)]);
    assert_eq!(heard(&mut ripe, &[(30, 7), (31, 4), (50, 0), (60, 12)], 4), [30]);
    assert_eq!(put_back(&mut ripe, &[(30, 7, "18:30")], "18:45"), NONE);
    assert_eq!(heard(&mut ripe, &[(30, 8), (31, 4), (50, 0), (60, 12)], 4), [31]);
    ripe.start();
    assert_eq!(put_back(&mut ripe, &[(31, 4, "18:31")], "18:45"), [(31, 4)], "once more");
    assert_eq!(heard(&mut ripe, &[(31, 4)], 4), NOBODY);
}

#[test]
fn a_lane_without_buckets_that_hold_anything_waits_for_no_ends() {
    let mut ripe = Ripe::new(Ring::Minutes, Wheel { shares: 1 });
    hear(&mut ripe, &[(30, 7), (31, 0)], 2);
    assert!(!ripe.awaits_ends());
    assert_eq!(put_back(&mut ripe, &[(31, 0, "18:31")], "18:30"), [(31, 0)]);
    assert!(!ripe.awaits_ends());
    assert_eq!(ripe.wake(time("18:31")), [31]);
    assert!(ripe.awaits_ends());
}

#[test]
fn a_bucket_of_which_nothing_is_heard_holds_the_others_up_for_ten_seconds_of_polls() {
    let mut ripe = Ripe::new(Ring::Minutes, Wheel { shares: 1 });
    // At the start: the leader of the second one does not answer.
    wait(&mut ripe, 9);
    assert_eq!(put_back(&mut ripe, &[(31, 4, "18:31")], "18:45"), [(31, 4)]);
    hear(&mut ripe, &[(31, 4)], 2);
    wait(&mut ripe, 9);
    assert_eq!(heard(&mut ripe, &[(31, 4)], 2), NOBODY, "one was heard of 9 s ago");
    wait(&mut ripe, 1);
    assert_eq!(heard(&mut ripe, &[(31, 4)], 2), [31]);
    // Later: that of the bucket that is read.
    assert_eq!(put_back(&mut ripe, &[(32, 0, "18:32")], "18:45"), [(32, 0)]);
    wait(&mut ripe, 9);
    let waited = Duration::from_secs(1);
    assert_eq!(ripe.put_back(&batch(&[(31, 4, "18:31")]), Some(time("18:45")), waited), Ok(Vec::new()));
    wait(&mut ripe, 9);
    assert_eq!(heard(&mut ripe, &[(31, 4), (32, 0)], 2), NOBODY, "a record came 9 s ago");
    wait(&mut ripe, 1);
    assert_eq!(heard(&mut ripe, &[(31, 4), (32, 0)], 2), [32]);
    // It answers again: the older one goes first.
    assert_eq!(put_back(&mut ripe, &[(32, 0, "18:32"), (31, 5, "18:31")], "18:45"), [(32, 0)]);
}

#[test]
fn a_younger_bucket_that_fills_while_an_older_one_is_read_waits_for_its_end() {
    let mut ripe = begun(Ring::Minutes, 1);
    assert_eq!(put_back(&mut ripe, &[(30, 0, "18:30")], "18:45"), NONE);
    assert_eq!(put_back(&mut ripe, &[(45, 0, "18:45")], "18:45"), [(45, 0)]);
    assert_eq!(heard(&mut ripe, &[(45, 0)], 2), NOBODY);
    assert_eq!(heard(&mut ripe, &[(30, 1), (45, 0)], 2), [45]);
}

#[test]
fn what_was_overdue_when_it_was_moved_on_is_as_old_as_the_minute_in_which_it_is_read() {
    let mut ripe = begun(Ring::Minutes, 2);
    // Two shares of 18:45, with records that were due at several times.
    assert_eq!(put_back(&mut ripe, &[(90, 0, "09:10"), (91, 0, "03:01"), (90, 1, "04:00")], "18:55"), NONE);
    // What was due the minute before goes first; what is due now and they go together, and before what is due the minute after.
    let mut ripe = begun(Ring::Minutes, 1);
    let back = put_back(&mut ripe, &[(45, 0, "09:10"), (54, 0, "18:54"), (55, 0, "18:55")], "18:55");
    assert_eq!(back, [(45, 0), (55, 0)]);
    assert_eq!(put_back(&mut ripe, &[(56, 0, "18:56")], "18:56"), [(56, 0)]);
    hear(&mut ripe, &[(54, 1)], 4);
    assert_eq!(ripe.wake(time("18:56")), [45, 55]);
    assert_eq!(put_back(&mut ripe, &[(45, 0, "09:10"), (45, 1, "04:00"), (55, 0, "18:55")], "18:56"), NONE);
    hear(&mut ripe, &[(45, 2), (55, 1)], 4);
    assert_eq!(ripe.wake(time("18:56")), [56]);
}

#[test]
fn a_bucket_with_records_of_several_times_is_read_on() {
    let mut ripe = begun(Ring::Minutes, 1);
    // Moved on at 18:55, when minute 45 of two hours was past by every clock, and due when minute 45 was last: 16:45.
    assert_eq!(put_back(&mut ripe, &[(45, 0, "09:10"), (45, 1, "16:45"), (45, 2, "09:10")], "18:55"), NONE);
    // It stays as old as its first record, whatever is read next.
    let mut ripe = begun(Ring::Minutes, 1);
    assert_eq!(put_back(&mut ripe, &[(45, 0, "16:45")], "18:45"), NONE);
    assert_eq!(put_back(&mut ripe, &[(0, 0, "18:00")], "18:45"), [(0, 0)]);
    assert_eq!(put_back(&mut ripe, &[(45, 1, "09:10")], "18:45"), NONE);
}

#[test]
fn an_older_bucket_that_sleeps_is_emptied_before_a_younger_one_that_fills() {
    let mut ripe = begun(Ring::Minutes, 1);
    assert_eq!(put_back(&mut ripe, &[(31, 0, "18:31")], "18:30"), [(31, 0)]);
    // 31 is due, and sleeps; 45 is filled, and is not read on.
    assert_eq!(put_back(&mut ripe, &[(45, 0, "18:45")], "18:45"), [(45, 0)]);
    assert_eq!(ripe.wake(time("18:45")), [31]);
    assert_eq!(heard(&mut ripe, &[(31, 1), (45, 0)], 2), [45]);
}

#[test]
fn a_record_that_is_not_of_its_bucket_is_found_and_one_that_was_moved_on_late_is_none() {
    let mut ripe = begun(Ring::Hours, 2);
    // Written when a bucket had one partition: 42 is half of bucket 21 now.
    assert_eq!(ripe.put_back(&batch(&[(42, 0, "18:00")]), Some(time("09:00")), NO), Err(42));
    let mut ripe = begun(Ring::Minutes, 1);
    // Moved on by a version of before, into the running minute by a clock that is four minutes ahead.
    assert_eq!(put_back(&mut ripe, &[(34, 0, "18:31")], "18:30"), [(34, 0)]);
}

#[test]
fn while_the_clock_is_wrong_all_that_was_read_is_put_back() {
    let mut ripe = begun(Ring::Hours, 1);
    let read = batch(&[(42, 3, "18:00"), (42, 4, "18:10"), (44, 0, "20:00")]);
    assert_eq!(ripe.put_back(&read, None, NO), Ok(vec![(42, 3), (44, 0)]));
    assert_eq!(ripe.wake(time("17:55")), [42]);
    assert_eq!(ripe.put_back(&read, None, NO), Ok(vec![(42, 3), (44, 0)]), "also what is being read");
    assert_eq!(ripe.wake(time("17:55")), [42]);
    assert!(ripe.is_far_from_due(&read, time("17:55")));
    assert!(!ripe.is_far_from_due(&batch(&[(42, 3, "18:00")]), time("17:55")));
}

#[test]
fn what_is_put_back_while_the_clock_is_wrong_is_as_old_as_when_it_was_read() {
    let mut ripe = begun(Ring::Minutes, 1);
    assert_eq!(ripe.wake(time("18:55")), NOBODY);
    // Bucket 45 has an intent that was long overdue when it was moved on.
    let read = batch(&[(45, 0, "09:10"), (54, 0, "18:54")]);
    assert_eq!(ripe.put_back(&read, None, NO), Ok(vec![(45, 0), (54, 0)]));
    assert_eq!(ripe.wake(time("18:56")), [54]);
    hear(&mut ripe, &[(54, 1)], 2);
    assert_eq!(ripe.wake(time("18:56")), [45]);
}

#[test]
fn an_hour_is_read_from_five_minutes_before_it_begins() {
    let mut ripe = begun(Ring::Hours, 1);
    let read = [(42, 0, "18:00"), (42, 1, "18:59")];
    assert_eq!(put_back(&mut ripe, &read, "17:54"), [(42, 0)]);
    assert_eq!(ripe.wake(time("17:55")), [42]);
    assert_eq!(put_back(&mut ripe, &read, "17:55"), NONE);
}
