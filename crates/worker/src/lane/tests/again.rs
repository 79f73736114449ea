//! A batch that had to wait is judged again, and what was admitted before is approved as it was.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

use weir_core::{basis::shard::IdHash, limit::budget::WhenUnavailable, policy::Selection};

use super::*;

/// Noon, and as many milliseconds as are in here.
#[derive(Clone, Default)]
pub(super) struct Moving(pub(super) Arc<AtomicI64>);

impl Moving {
    fn at(after_noon_ms: i64) -> Time {
        Noon.now().plus(after_noon_ms)
    }
}

impl Clock for Moving {
    fn now(&self) -> Time {
        Self::at(self.0.load(Relaxed))
    }

    fn passed(&self) -> Duration {
        SystemClock.passed()
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        SystemClock.sleep(wait)
    }
}

/// When intents of these tests expire, and how long the store stalls.
const EXPIRES_AT: &str = "2026-11-21T12:00:04Z";
const STALL_MS: i64 = 12_000;

/// What a store does when it is asked for the first time; afterwards it answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Answers,
    /// It stalls and has done nothing.
    Stalls,
    /// It stalls, and has recorded all that it was asked for.
    StallsAndRecords,
}

struct Stalling {
    first: First,
    clock: Moving,
    /// The ids that are recorded, and when.
    recorded: BTreeMap<u64, Time>,
    looked_up: Arc<AtomicUsize>,
}

impl Stalling {
    fn new(first: First, clock: &Moving) -> Self {
        Self { first, clock: clock.clone(), recorded: BTreeMap::new(), looked_up: Arc::default() }
    }
}

impl Store for Stalling {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        assert_eq!(batch.now, self.clock.now(), "the batch is judged by a clock of before");
        assert!(answers.iter().all(Option::is_none), "an answer of before is kept");
        let first = std::mem::replace(&mut self.first, First::Answers);
        if first != First::Answers {
            self.clock.0.fetch_add(STALL_MS, Relaxed);
            if first == First::StallsAndRecords {
                self.recorded.extend(batch.requests.iter().map(|request| (request.id.0, batch.now)));
            }
            return Err(silent());
        }
        for (request, answer) in batch.requests.iter().zip(answers) {
            let allows_nothing = batch.cap_sets[request.cap_set].iter().any(|cap| cap.limit == 0);
            self.looked_up.fetch_add(usize::from(allows_nothing), Relaxed);
            let (verdict, at) = match self.recorded.get(&request.id.0) {
                Some(at) => (AdmitVerdict::Replayed, *at),
                None if allows_nothing => (AdmitVerdict::Denied { cap: 0, used: 0, blocking: None }, batch.now),
                None => (AdmitVerdict::Allowed, batch.now),
            };
            *answer = Some(Answer { verdict, at, ahead: false });
        }
        Ok(())
    }

    never_given_up!();
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
    let clock = Moving::default();
    let (end, world) = run_by(clock.clone(), Stalling::new(First::Stalls, &clock), world());
    end.unwrap();
    each_once(&world);
    assert_eq!(approved(&world), Vec::<i64>::new());
}

#[test]
fn what_a_stalled_store_had_recorded_is_approved_as_of_then() {
    let clock = Moving::default();
    let (end, world) = run_by(clock.clone(), Stalling::new(First::StallsAndRecords, &clock), world());
    end.unwrap();
    each_once(&world);
    assert_eq!(approved(&world), (0..BATCH as i64).collect::<Vec<_>>(), "the first batch, and no other");
    let noon = Noon.now();
    let approved = approved(&world);
    let ledger = world.ledger.write().unwrap();
    for offset in approved {
        let headers = &ledger.headers[&offset];
        let rfc3339 = String::from_utf8(noon.rfc3339().to_vec()).unwrap();
        let said = [noon.millis().to_string(), rfc3339].iter().any(|time| headers.contains(time));
        assert!(said, "not decided at noon: {headers}");
    }
}

#[test]
fn of_what_was_read_before_an_admission_counts_whatever_the_gate_says_now_and_nothing_else_is_looked_up() {
    const READ: i64 = 50;
    let clock = Moving::default();
    clock.0.store(STALL_MS, Relaxed);
    let mut store = Stalling::new(First::Answers, &clock);
    let admitted: Vec<i64> = (0..100).step_by(3).collect();
    store.recorded = admitted.iter().map(|offset| (id(*offset), Moving::at(0))).collect();
    let looked_up = Arc::clone(&store.looked_up);
    let (end, world) = run_by(clock, store, World { read_before: Some(READ), ..world() });
    end.unwrap();
    each_once(&world);
    let expected: Vec<i64> = admitted.into_iter().filter(|offset| *offset < READ).collect();
    assert_eq!(approved(&world), expected);
    assert_eq!(looked_up.load(Relaxed), READ as usize, "each once, and none that is read for the first time");
}

#[test]
fn a_replay_of_a_budget_that_cannot_be_asked_is_approved_and_holds_up_no_other() {
    let clock = Moving::default();
    let mut store = Stalling::new(First::Answers, &clock);
    store.recorded = [(id(1), Moving::at(0))].into();
    let budgets = vec![tokens::budget(tokens::of_channel("c1"), WhenUnavailable::Suppress)];
    let unavailable_after = Some(Duration::from_millis(50));
    let (read_before, tokens_away) = (Some(2), Arc::new(AtomicBool::new(true)));
    let world = World { budgets, tokens_away, unavailable_after, read_before, ..World::default() };
    let (end, world) = run_by(clock, store, world);
    end.unwrap();
    each_once(&world);
    let others: Vec<i64> = (0..RECORDS).filter(|offset| *offset == 1 || offset % 3 != 1).collect();
    assert_eq!(approved(&world), others);
}

#[test]
fn bypasses_that_do_not_count_go_on_without_the_store_also_where_they_are_looked_up() {
    let clock = Moving::default();
    clock.0.store(STALL_MS, Relaxed);
    let bypass = vec![Bypass { selection: Selection::default(), counts: Counts::No }];
    let asked: Arc<AtomicUsize> = Arc::default();
    let world = World { bypass, read_before: Some(RECORDS), ..world() };
    let counted = Arc::clone(&asked);
    let away = by(move |_, _| {
        counted.fetch_add(1, Relaxed);
        Err(silent())
    });
    let (end, world) = run_by(clock, away, world);
    end.unwrap();
    each_once(&world);
    assert_eq!(approved(&world), Vec::<i64>::new(), "all have expired");
    assert_eq!(asked.load(Relaxed), (RECORDS as usize).div_ceil(BATCH), "once a batch");
}
