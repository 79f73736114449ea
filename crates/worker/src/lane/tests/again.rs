//! A batch that had to wait is judged again, and what was admitted before is approved as it was.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use weir_core::basis::shard::IdHash;

use super::*;

/// When intents of these tests expire, and how long the store stalls.
const EXPIRES_AT: &str = "2026-11-21T12:00:04Z";
const STALL_MS: i64 = 12_000;

/// A store that has recorded these ids, and counts how often an intent is looked up. When it is asked for the first time it stalls, by this
/// clock, or answers.
fn stalling(mut stalls: bool, clock: &Noon, recorded: BTreeMap<u64, Time>, looked_up: &AtomicUsize) -> impl Store {
    store(move |batch, answers| {
        assert_eq!(batch.now, clock.now(), "the batch is judged by a clock of before");
        assert!(answers.iter().all(Option::is_none), "an answer of before is kept");
        if std::mem::take(&mut stalls) {
            clock.0.fetch_add(STALL_MS, Relaxed);
            return Err(is_silent());
        }
        for (request, answer) in batch.requests.iter().zip(answers) {
            let allows_nothing = batch.cap_sets[request.cap_set].iter().any(|cap| cap.limit == 0);
            looked_up.fetch_add(usize::from(allows_nothing), Relaxed);
            let (verdict, at) = match recorded.get(&request.id.0) {
                Some(at) => (AdmitVerdict::Replayed, *at),
                None if allows_nothing => (AdmitVerdict::Denied { cap: 0, used: 0, blocking: None }, batch.now),
                None => (AdmitVerdict::Allowed, batch.now),
            };
            *answer = Some(Answer { verdict, at, ahead: false });
        }
        Ok(())
    })
}

fn id(offset: i64) -> u64 {
    IdHash::of(&format!("i-{offset}")).0
}

fn world() -> World {
    World { expires_at: Some(EXPIRES_AT), ..World::default() }
}

fn approved(world: &World) -> Vec<i64> {
    let ledger = world.ledger.write().unwrap();
    let approved = ledger.outputs.iter().filter(|(_, (to, _))| *to == Destination::APPROVED);
    approved.map(|(offset, _)| *offset).collect()
}

#[test]
fn intents_that_expire_while_the_store_stalls_are_not_approved() {
    let (clock, looked_up) = (Noon::default(), AtomicUsize::new(0));
    let store = stalling(true, &clock, BTreeMap::new(), &looked_up);
    let world = done(run_by(clock.clone(), store, world()));
    assert_eq!(approved(&world), Vec::<i64>::new());
}

#[test]
fn of_what_was_read_before_an_admission_counts_whatever_the_gate_says_now_and_nothing_else_is_looked_up() {
    const READ: i64 = 50;
    let (clock, looked_up) = (Noon::default(), AtomicUsize::new(0));
    clock.0.store(STALL_MS, Relaxed);
    let admitted: Vec<i64> = (0..100).step_by(3).collect();
    let recorded = admitted.iter().map(|offset| (id(*offset), noon())).collect();
    let store = stalling(false, &clock, recorded, &looked_up);
    let world = done(run_by(clock.clone(), store, World { read_before: Some(READ), ..world() }));
    let expected: Vec<i64> = admitted.into_iter().filter(|offset| *offset < READ).collect();
    assert_eq!(approved(&world), expected);
    assert_eq!(looked_up.load(Relaxed), READ as usize, "each once, and none that is read for the first time");
}

#[test]
fn a_replay_of_a_budget_that_cannot_be_asked_is_approved_and_holds_up_no_other() {
    let (clock, looked_up) = (Noon::default(), AtomicUsize::new(0));
    let store = stalling(false, &clock, [(id(1), noon())].into(), &looked_up);
    let rules = tokens::budget("channel = \"c1\"\non_unavailable = \"suppress\"\n");
    let unavailable_after = Some(Duration::from_millis(50));
    let (read_before, tokens_away) = (Some(2), Arc::new(AtomicBool::new(true)));
    let world = World { rules, tokens_away, unavailable_after, read_before, ..World::default() };
    let world = done(run_by(clock.clone(), store, world));
    let others: Vec<i64> = (0..RECORDS).filter(|offset| *offset == 1 || offset % 3 != 1).collect();
    assert_eq!(approved(&world), others);
}

#[test]
fn bypasses_that_do_not_count_go_on_without_the_store_also_where_they_are_looked_up() {
    let (clock, asked) = (Noon::default(), AtomicUsize::new(0));
    clock.0.store(STALL_MS, Relaxed);
    let away = store(|_, _| {
        asked.fetch_add(1, Relaxed);
        Err(is_silent())
    });
    let (rules, read_before) = (tokens::BYPASS_ALL.to_owned(), Some(RECORDS));
    let world = done(run_by(clock, away, World { rules, read_before, ..world() }));
    assert_eq!(approved(&world), Vec::<i64>::new(), "all have expired");
    assert_eq!(asked.load(Relaxed), (RECORDS as usize).div_ceil(BATCH), "once a batch");
}
