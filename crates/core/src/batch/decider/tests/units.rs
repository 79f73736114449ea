//! A limit of which an intent takes a unit of its segment's one pool: what becomes of the units.

use std::{
    slice,
    sync::atomic::{AtomicU64, Ordering},
};

use super::*;
use crate::{
    batch::decider::units::BatchUnits,
    limit::share::{Pool, Taken, UnitPool, UnitRule, Units},
    policy::Action,
};

const UNTIL: Duration = Duration::from_secs(200);

#[derive(Debug)]
struct Held {
    pool: UnitPool,
    spent: AtomicU64,
}

impl Units for Held {
    fn pools(&self) -> &[UnitPool] {
        slice::from_ref(&self.pool)
    }

    fn spend(&self, units: u64) {
        self.spent.fetch_add(units, Ordering::Relaxed);
    }
}

struct Rule;

impl UnitRule for Rule {
    fn denial(&self, _: &Intent<'_>, now: Time, _: &dyn Fn(Time) -> bool) -> GateDenial {
        (GateReason::Limit(SuppressReason::Capacity, Action::Suppress), Some(now.plus(60_000)))
    }
}

/// A cap of one per user, and a segment of the users 1 to 5.
struct World {
    decider: Decider,
    held: Arc<Held>,
    store: EmbeddedStore,
}

impl World {
    /// With so many units for the segment.
    fn new(units: u64) -> Self {
        let segments = SegmentSet::of(UserIdKind::U32, &[("new", &[1, 2, 3, 4, 5])]);
        let decider = Decider { segments: Current::new(Arc::new(segments)), ..capped("") };
        let held = Arc::new(Held { pool: UnitPool::new(UNTIL), spent: AtomicU64::new(0) });
        held.pool.add(units);
        Self { decider, held, store: store() }
    }

    /// Which intents of these users are approved, and what is left to be settled.
    fn decide(&self, users: &[u32]) -> (Vec<bool>, Settlement) {
        let value = |(id, user): (usize, &u32)| format!(r#"{{"id":"{id}","user_id":{user}}}"#);
        let records = Rows::of(users.iter().enumerate().map(value));
        let decoded = self.decider.decode(&records);
        let mut gated = self.decider.begin(DecodedBatch { records: &records, decoded: &decoded }, asking());
        let rules = vec![(Taken::none(Arc::clone(&self.held)), Rule)];
        let units = BatchUnits::take(rules, &mut gated.intents, &asking(), |intents, record, _| {
            intents.segment(record).segment().map(|_| (0, Pool::General))
        });
        gated.limits.add(Some(units));
        let mut asked = gated.ask(None);
        ask(&self.store, &mut asked, now());
        while asked.offer() {
            ask(&self.store, &mut asked, now());
        }
        let (decided, settlement) = asked.finish();
        (approved(&decided, users.len()), settlement)
    }

    /// Left to be taken, held, and spent.
    fn stands(&self) -> (u64, u64, u64) {
        (self.held.pool.left(), self.held.pool.held(), self.held.spent.load(Ordering::Relaxed))
    }
}

#[test]
fn a_unit_that_came_back_is_given_to_another_intent_and_one_that_is_used_is_spent_with_the_commit() {
    let world = World::new(2);
    let (approved, settlement) = world.decide(&[1, 1, 2, 9, 3]);
    assert_eq!(approved, [true, false, true, true, false], "a cap denies the second, and the limit the last");
    assert_eq!(world.stands(), (0, 2, 0));
    settlement.committed();
    assert_eq!(world.stands(), (0, 0, 2));
}

#[test]
fn units_that_come_back_are_offered_ten_times_at_most() {
    // A cap denies all intents of the first user but one.
    for (of_first, is_approved) in [(11, true), (12, false)] {
        let users = [vec![1; of_first], vec![2_u32]].concat();
        assert_eq!(World::new(2).decide(&users).0.last(), Some(&is_approved), "behind {of_first}");
    }
}

#[test]
fn a_unit_of_what_is_not_handed_over_goes_back_unless_its_period_has_ended() {
    let world = World::new(2);
    drop(world.decide(&[1]));
    assert_eq!(world.stands(), (2, 2, 0));
    let world = World::new(2);
    let decided = world.decide(&[1]);
    world.held.pool.give_up(UNTIL);
    world.held.pool.add(5);
    world.held.pool.renew(2 * UNTIL);
    drop(decided);
    assert_eq!(world.stands(), (5, 5, 0));
}
