//! A user with as long a history as one may have: it grows no longer, caps hold, and a batch is decided in time.

use std::time::{Duration, Instant};

use crate::{
    redis_support::{
        DAY_MS, admit, admit_all, at, batch, cap, fresh_store, opened, options, own_store, request, store,
    },
    refunds::{begun, sent},
};
use testkit::stack::Stack;
use weir_core::{
    basis::shard::UserHash,
    history::{
        MAX_ENTRIES,
        admit::{AdmitBatch, AdmitRequest},
        decide::{AdmitVerdict, Answer, RecordWhen},
        deferred_send::PastSend,
    },
    ports::{Histories, StoreError},
};
use weir_redis::{RedisOptions, rebuild::Scope};

/// How long a batch of one user with a full history may take, in a debug build on busy cores: about 1.5 s here.
const SECONDS: Duration = Duration::from_secs(10);

/// Intents of one user, recorded whatever a cap says.
fn crowd(first: u32, count: u32, now: i64) -> AdmitBatch<'static> {
    let requests = (first..first + count).map(|id| AdmitRequest { record: RecordWhen::Always, ..request("hot", id) });
    batch(at(now), &[cap(3, DAY_MS)], requests.collect())
}

#[tokio::test]
async fn a_history_grows_no_longer_than_it_may_and_caps_hold() {
    fill_a_history().await;
}

#[tokio::test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
async fn a_batch_of_one_user_with_a_full_history_is_decided_within_seconds() {
    let longest = fill_a_history().await;
    assert!(longest < SECONDS, "{longest:?}");
}

/// The longest that a batch took.
async fn fill_a_history() -> Duration {
    let mut longest = Duration::ZERO;
    let (_server, mut store) = own_store().await;
    for round in 0..3 {
        let began = Instant::now();
        let answers = admit_all(&mut store, &crowd(round * MAX_ENTRIES, MAX_ENTRIES, round.into())).await;
        longest = longest.max(began.elapsed());
        let denied = |verdict| matches!(verdict, AdmitVerdict::Denied { cap: 0, used: 3.., .. });
        assert!(answers.iter().skip(3).all(|answer| denied(answer.verdict)));
        let entries = store.history_of(UserHash::of("hot")).await.unwrap().entries;
        assert_eq!(entries.len(), 10_000, "no more, whatever is recorded");
    }
    assert_eq!(store.stats().dropped(), u64::from(2 * MAX_ENTRIES), "each beyond the bound is counted");
    longest
}

#[tokio::test]
async fn a_batch_that_takes_too_long_is_answered_in_part_and_a_smaller_one_whole() {
    let options = RedisOptions { admit_time: Duration::from_millis(30), ..options(&[Stack::shared().redis()]) };
    let mut store = fresh_store(&options).await;
    // Where this process has to wait for its turn, nothing may be answered in time.
    let mut tries = 0..100;
    let answers = loop {
        tries.next().expect("some are answered in time, now and then");
        let (answers, result) = admit(&mut store, &crowd(0, MAX_ENTRIES, 0)).await;
        assert!(matches!(result, Err(StoreError::TooSlow(_))), "{result:?}");
        if answers.iter().any(Option::is_some) {
            break answers;
        }
    };
    let answered = answers.iter().flatten().count();
    assert!(answered < answers.len(), "{answered}");
    assert!(answers[..answered].iter().all(Option::is_some), "a user's sends are decided in their order");
    let again = loop {
        tries.next().expect("16 are answered in time, now and then");
        let (again, result) = admit(&mut store, &crowd(0, 16, 1)).await;
        match result {
            Err(StoreError::TooSlow(_)) => {}
            result => break result.map(|()| again).unwrap(),
        }
    };
    let holds = |answer: &Option<Answer>| answer.unwrap().verdict == AdmitVerdict::Replayed;
    assert!(again.iter().all(holds), "what was answered holds");
}

#[tokio::test]
async fn a_rebuild_keeps_the_newest_sends_of_a_user_and_done_twice_changes_nothing() {
    let options = RedisOptions { max_entries: 200, ..options(&[Stack::shared().redis()]) };
    let opened = opened(&options).await.unwrap();
    let mut store = store(&options, &opened);
    let rebuild = begun(&options, &Scope::All).await.unwrap();
    let mut restorer = rebuild.restorer();
    let sends: Vec<PastSend<'_>> = (0..500).map(|number| sent("hot", number, number.into())).collect();
    assert_eq!(restorer.insert(&sends, at(0)).await.unwrap(), 500);
    assert_eq!(restorer.insert(&sends, at(0)).await.unwrap(), 0, "dropped entries stay dropped");
    rebuild.finish().await.unwrap();
    let history = store.history_of(UserHash::of("hot")).await.unwrap();
    assert!(history.entries.iter().map(|entry| entry.at).eq((300..500).map(at)), "{:?}", history.entries);
}
