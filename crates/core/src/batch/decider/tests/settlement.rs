//! What becomes of the tokens of a batch: at once, with its commit, and where nobody knows what became of that.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::*;
use crate::{batch::record::Progress, history::decide::AdmitVerdict};

const POLICY: &str = "[[bypass]]\ncategory = \"receipt\"\ncounts = false\n\
                      [[on_unavailable]]\nchannel = \"push\"\naction = \"approve\"\n\
                      [[budgets]]\nname = \"all\"\nlimit = 100\ntotal = true\nbest_effort = true\n";
/// By a bypass that does not count.
const RECEIPT: &str = r#"{"id":"1","user_id":"u","category":"receipt"}"#;
/// Approved where its history is unavailable.
const PUSH: &str = r#"{"id":"2","user_id":"u","channel":"push"}"#;

/// Six intents with their tokens.
fn batch() -> Rows {
    let all = [(0, 10, RECEIPT), (0, 11, PUSH), (0, 12, PUSH), (1, 20, PUSH), (1, 21, RECEIPT), (1, 22, PUSH)];
    Rows(all.map(|(partition, offset, value)| Row { partition, offset, value: value.into(), ..Row::default() }).into())
}

/// Of the pushes, the first is recorded, the second was not asked for, the third was, in vain, and the last is a duplicate.
fn answer(asked: &mut AskedBatch<'_, Rows>) {
    let answer = |verdict| Some(Answer { verdict, at: now(), ahead: false });
    asked.answer(vec![answer(AdmitVerdict::Allowed), None, None, answer(AdmitVerdict::Duplicate)]);
    let unanswered: Vec<RequestIndex> = asked.unanswered().collect();
    asked.asked(&unanswered[1..]);
}

/// The batch, funded; what is then done with it; and how many tokens come back meanwhile.
fn back(then: impl for<'b> FnOnce(AskedBatch<'b, Rows>, &Heard)) -> u64 {
    let (decider, records) = (decider(POLICY), batch());
    let decoded = decider.decode(&records);
    let gated = decider.begin(DecodedBatch { records: &records, decoded: &decoded }, asking());
    let answers = granted(gated.claim().unwrap(), 6);
    let (asked, heard) = funded(gated, answers);
    then(asked, &heard);
    heard.back()
}

/// The batch, decided; what is then done about it; and how many tokens come back meanwhile.
fn back_of_decided(then: impl FnOnce(Settlement)) -> u64 {
    back(|mut asked, heard| {
        answer(&mut asked);
        let (decided, settlement) = asked.finish();
        assert!([0, 1, 2, 4].iter().all(|record| decided.fate(*record).is_approved()));
        assert_eq!(heard.back(), 1, "the duplicate's");
        then(settlement);
    })
}

#[test]
fn a_batch_that_is_dropped_gives_back_all_but_what_is_recorded_or_may_be() {
    assert_eq!(back(|asked, _| drop(asked)), 6, "nothing was asked for");
    assert_eq!(back(|mut asked, _| _ = asked.to_ask()), 2, "it is not known what came of asking");
    let asked_in_vain = |mut asked: AskedBatch<'_, Rows>, _: &Heard| {
        asked.to_ask();
        asked.asked(&[]);
    };
    assert_eq!(back(asked_in_vain), 6, "the store has recorded nothing");
    let answered = |mut asked: AskedBatch<'_, Rows>, _: &Heard| {
        answer(&mut asked);
        drop(asked.give_up());
    };
    assert_eq!(back(answered), 4, "all but the first push and the third");
}

/// Records that cannot be looked at any more, once they are broken.
struct Breaks(Rows, Cell<bool>);

impl Records for Breaks {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> RecordView<'_> {
        assert!(!self.1.get(), "by the test");
        self.0.get(index)
    }
}

#[test]
fn a_batch_that_breaks_before_the_store_is_asked_gives_back_all_that_was_granted() {
    let (decider, records) = (decider(POLICY), Breaks(batch(), Cell::new(false)));
    let decoded = decider.decode(&records);
    let gated = decider.begin(DecodedBatch { records: &records, decoded: &decoded }, asking());
    let ((granter, heard), claim) = (granter(), Arc::clone(gated.claim().unwrap()));
    let funded = Funded::new(Arc::clone(&claim), granted(&claim, 6), granter);
    records.1.set(true);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(gated.ask(Some(funded))))).is_err());
    assert_eq!(heard.back(), 6);
}

/// The receipts and the second push: nothing is recorded for them, so whoever decides them again claims again.
#[test]
fn what_is_not_recorded_is_spent_with_its_commit_and_comes_back_without_it() {
    assert_eq!(back_of_decided(Settlement::committed), 0);
    assert_eq!(back_of_decided(drop), 3, "it is not handed over");
    assert_eq!(back_of_decided(|mut settlement: Settlement| settlement.hand_over()), 0, "it may be committed");
}

#[test]
fn after_a_failed_commit_the_committed_offsets_say_what_is_spent() {
    let settled = |starts: &[(i32, i64)]| {
        let starts = starts.iter().map(|&(partition, next_offset)| Progress { partition, next_offset });
        let starts: Vec<Progress> = starts.collect();
        back_of_decided(|mut settlement| {
            settlement.hand_over();
            settlement.failed().unwrap().settle(&starts);
        })
    };
    assert_eq!(settled(&[(0, 13), (1, 23)]), 0, "all is committed");
    assert_eq!(settled(&[(0, 10), (1, 20)]), 3, "nothing is");
    assert_eq!(settled(&[(0, 12), (1, 21)]), 2, "the first receipt is");
    assert_eq!(settled(&[(0, 10)]), 2, "another one reads the second partition: it is not known");
    assert_eq!(back_of_decided(|settlement| drop(settlement.failed())), 0, "it is never known");
    assert!(Settlement::default().failed().is_none());
}
