//! A shard that is away: its intents go by the policy in time, the others go on, and what is owed is recorded first.

use std::{collections::BTreeMap, sync::RwLockWriteGuard};

use weir_core::{
    basis::shard::{IdHash, UserHash},
    batch::record::Output,
};

use super::*;

const AFTER: Duration = Duration::from_millis(200);
const SHARDS: u16 = 4;
const AWAY: u16 = 1;

fn shard(offset: i64) -> u16 {
    UserHash::of(&format!("u{offset}")).shard(SHARDS)
}

/// What was committed, and what came to the histories.
#[derive(Default)]
pub(super) struct Ledger {
    /// Each offset's output, as committed.
    pub(super) outputs: BTreeMap<i64, (Destination, bool)>,
    /// The headers of each approved one.
    pub(super) headers: BTreeMap<i64, String>,
    /// How often each send was recorded after the fact.
    recorded: BTreeMap<u64, usize>,
    /// The shard is away for so many more looks; `None` for ever.
    looks: Option<usize>,
    back: bool,
    /// The ids that were admitted, and when.
    admitted: BTreeMap<u64, Time>,
    /// Each look finds the shard back, but it answers nothing.
    seems_back: bool,
    away_until: Option<CancellationToken>,
    asked: usize,
}

impl Ledger {
    pub(super) fn note(&mut self, job: &Job<Batch, ()>) {
        for (index, output) in job.outputs.iter().enumerate().filter(|(_, output)| output.to != Destination::Nowhere) {
            self.outputs.insert(job.records.0[index].0, (output.to, is_recorded_later(output)));
            self.headers.insert(job.records.0[index].0, format!("{:?}", output.headers));
        }
    }

    fn later(&self) -> impl Iterator<Item = i64> {
        self.outputs.iter().filter(|(_, (_, later))| *later).map(|(offset, _)| *offset)
    }

    fn is_recorded(&self, offset: i64) -> bool {
        self.recorded.contains_key(&IdHash::of(&format!("i-{offset}")).0)
    }
}

pub(super) fn is_recorded_later(output: &Output) -> bool {
    output.headers.iter().any(|(_, value)| value.contains(r#""recorded":"later""#))
}

struct Sharded(Arc<RwLock<Ledger>>);

impl Sharded {
    fn ledger(&self) -> RwLockWriteGuard<'_, Ledger> {
        self.0.write().unwrap()
    }
}

impl Store for Sharded {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        let mut ledger = self.ledger();
        ledger.asked += 1;
        let mut missing = false;
        for (request, answer) in batch.requests.iter().zip(answers) {
            if request.user.shard(SHARDS) == AWAY && !ledger.back {
                missing = true;
                continue;
            }
            let deferred = ledger
                .later()
                .find(|&offset| shard(offset) == request.user.shard(SHARDS) && !ledger.is_recorded(offset));
            assert_eq!(deferred, None, "a shard is asked before what it lacks was recorded");
            *answer = Some(record(&mut ledger.admitted, request.id.0, batch.now));
        }
        if missing { Err(is_silent()) } else { Ok(()) }
    }

    fn shards(&self) -> u16 {
        SHARDS
    }

    fn watch(&mut self, away: &BTreeSet<u16>) -> Vec<u16> {
        let mut ledger = self.ledger();
        if ledger.seems_back && !away.is_empty() {
            return vec![AWAY];
        }
        let may_be_back = ledger.away_until.as_ref().is_none_or(CancellationToken::is_cancelled);
        let Some(looks) = ledger.looks.filter(|_| may_be_back && !away.is_empty()) else { return Vec::new() };
        ledger.looks = Some(looks.saturating_sub(1));
        ledger.back = looks == 0;
        if ledger.back { vec![AWAY] } else { Vec::new() }
    }

    async fn record(&mut self, sends: &[DeferredSend], _: Time) -> Result<(), StoreError> {
        let mut ledger = self.ledger();
        assert!(ledger.back);
        sends.iter().for_each(|send| *ledger.recorded.entry(send.id.0).or_default() += 1);
        Ok(())
    }
}

/// `c0` has the first action, `c1` the second and `c2` the third.
fn world(actions: &str, looks: Option<usize>) -> World {
    let rule = |(number, action)| format!("[[on_unavailable]]\nchannel = \"c{number}\"\naction = \"{action}\"\n");
    World {
        rules: actions.split(' ').enumerate().map(rule).collect(),
        unavailable_after: Some(AFTER),
        deferred_bytes: 1 << 20,
        ledger: Arc::new(RwLock::new(Ledger { looks, ..Ledger::default() })),
        ..World::default()
    }
}

fn go(world: World) -> World {
    let store = Sharded(Arc::clone(&world.ledger));
    done(run_at_once(store, world))
}

/// What is said to be recorded later is recorded once, and nothing else is.
fn settled(ledger: &Ledger) {
    assert!(ledger.later().all(|offset| ledger.is_recorded(offset)), "an owed send is not recorded");
    assert_eq!(ledger.later().count(), ledger.recorded.len());
    assert!(ledger.recorded.values().all(|times| *times == 1), "recorded twice");
}

#[test]
fn intents_of_a_shard_that_is_away_go_by_their_class_and_the_others_are_decided() {
    let world = go(world("approve suppress suppress", None));
    let ledger = world.ledger.write().unwrap();
    for (offset, found) in &ledger.outputs {
        let expected = match (shard(*offset), offset % 3) {
            (AWAY, 0) => (Destination::APPROVED, true),
            (AWAY, _) => (Destination::Suppressed, false),
            _ => (Destination::APPROVED, false),
        };
        assert_eq!(*found, expected, "offset {offset}");
    }
    // 29 batches, nearly all of them with intents of the shard; and the drain, which waits for it in vain.
    let took = world.clock.passed();
    assert!(took < AFTER * 29 / 2 + Duration::from_secs(2), "held up once a batch: {took:?}");
}

#[test]
fn owed_sends_are_recorded_once_the_shard_is_back_and_before_it_is_asked_again() {
    for looks in [1, 3, 20] {
        let world = go(world("approve suppress approve", Some(looks)));
        let ledger = world.ledger.write().unwrap();
        settled(&ledger);
        let direct = ledger.outputs.iter().filter(|(offset, (_, later))| shard(**offset) == AWAY && !later).count();
        assert!(looks == 20 || direct > 20, "once it was back the shard decided: {direct}");
    }
}

#[test]
fn owed_sends_are_recorded_at_the_end_though_the_turn_that_tells_others_is_not_taken() {
    let (pressed, world) = (pressure::pressed(), world("approve approve approve", Some(2)));
    let world = World { rules: pressed.rules + &world.rules, pressed: pressed.pressed, no_turns: true, ..world };
    world.ledger.write().unwrap().away_until = Some(world.stop.clone());
    let world = go(world);
    let ledger = world.ledger.write().unwrap();
    assert!(ledger.later().count() > 0);
    settled(&ledger);
}

/// Where intents are deferred.
const WHEEL: Option<Wheel> = Some(Wheel { shares: 1 });

#[test]
fn intents_of_a_class_that_waits_are_deferred_and_hold_up_no_other() {
    let world = go(World { wheel: WHEEL, ..world("wait wait wait", Some(60)) });
    let ledger = world.ledger.write().unwrap();
    assert_eq!(ledger.later().count(), 0);
    let deferred = |to: &Destination| matches!(to, Destination::Deferred(_));
    let (deferred, decided): (Vec<_>, Vec<_>) = ledger.outputs.iter().partition(|(_, (to, _))| deferred(to));
    assert!(deferred.len() > 10 && deferred.iter().all(|(offset, _)| shard(**offset) == AWAY), "{deferred:?}");
    assert!(decided.iter().all(|(_, (to, _))| *to == Destination::APPROVED));
    assert!(world.trace.iter().all(|step| *step != "rewind"), "{:?}", world.trace);
    for (offset, _) in deferred {
        let headers = &ledger.headers[offset];
        assert!(headers.contains("unavailable") && headers.contains(&format!("intents/0/{offset}/")), "{headers}");
        // Noon, and a minute.
        assert!(headers.contains("1795262460000"), "{headers}");
    }
}

#[test]
fn where_nothing_can_be_deferred_the_lane_waits_in_place() {
    let world = go(world("wait approve suppress", Some(60)));
    assert!(world.visible.is_sorted());
    let ledger = world.ledger.write().unwrap();
    settled(&ledger);
    assert!(ledger.outputs.iter().all(|(offset, (to, _))| offset % 3 != 0 || *to == Destination::APPROVED));
}

#[test]
fn a_batch_that_is_judged_again_and_again_pays_its_budget_once() {
    // Intents of the first class hold up those of the second, which could be approved; a bypass is approved anyway.
    let (ledger, world) = (tokens::ledger(), world("wait approve suppress", Some(60)));
    let rules = world.rules + &tokens::budget(tokens::BYPASS);
    let world = World { rules, tokens: Some(ledger.clone()), ..world };
    // In real time: the task that holds the tokens is beside the lane. By the ledger's clock all is admitted before its first use.
    done(run_by(SystemClock, Sharded(Arc::clone(&world.ledger)), world));
    assert_eq!(tokens::used(ledger), RECORDS.unsigned_abs());
}

#[test]
fn a_shard_that_seems_to_be_back_and_is_not_keeps_the_lane_from_no_other() {
    let world = World { wheel: WHEEL, ..world("wait wait wait", None) };
    world.ledger.write().unwrap().seems_back = true;
    let world = go(world);
    let ledger = world.ledger.write().unwrap();
    let decided = ledger.outputs.values().filter(|(to, _)| *to == Destination::APPROVED).count();
    assert_eq!(decided, (0..RECORDS).filter(|offset| shard(*offset) != AWAY).count());
}

#[test]
fn where_no_more_may_be_owed_intents_wait() {
    let world = go(World { deferred_bytes: 0, ..world("approve approve approve", Some(4)) });
    let ledger = world.ledger.write().unwrap();
    assert_eq!(ledger.later().count(), 0);
    assert!(ledger.outputs.values().all(|(to, _)| *to == Destination::APPROVED));
}

#[test]
fn a_shard_that_another_lane_owes_sends_to_is_asked_when_they_are_recorded() {
    const OWED: u16 = 2;
    let (world, mut looks) = (world("wait wait wait", None), 5);
    let deferred = Arc::clone(&world.deferred_shards);
    deferred.change(&BTreeSet::new(), &[OWED].into());
    let store = watched(
        SHARDS,
        |batch, answers| {
            let asked = batch.requests.iter().any(|request| request.user.shard(SHARDS) == OWED);
            assert!(!asked || !deferred.has(OWED), "a shard is asked before another lane has recorded what it lacks");
            fill(answers, batch.now);
            Ok(())
        },
        |away| {
            let looks_for_it = away.contains(&OWED) && looks > 0;
            looks -= i32::from(looks_for_it);
            if !looks_for_it || looks > 0 {
                return Vec::new();
            }
            deferred.change(&[OWED].into(), &BTreeSet::new());
            vec![OWED]
        },
    );
    let world = done(run_at_once(store, world));
    assert!(world.deferred_shards.is_empty());
}
