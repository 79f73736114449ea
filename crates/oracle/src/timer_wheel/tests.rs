use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The reference: values by deadline, in a sorted map.
#[derive(Default)]
struct Model {
    now: u64,
    values: BTreeMap<(u64, u32), TimerKey>,
}

impl Model {
    fn due(&mut self, to: u64) -> Vec<(TimerKey, u32)> {
        let later = self.values.split_off(&(to + 1, 0));
        let due = std::mem::replace(&mut self.values, later);
        self.now = self.now.max(to);
        due.into_iter().map(|((_, value), key)| (key, value)).collect()
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// So many ticks ahead.
    Insert(u64),
    /// One of the values, or one that is gone.
    Cancel(usize),
    /// So many ticks.
    Advance(u64),
}

/// Ticks of every size, also beyond what the wheel takes.
fn ticks() -> impl Strategy<Value = u64> {
    (0..27_u32).prop_flat_map(|bits| 0..=1_u64 << bits)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => ticks().prop_map(Step::Insert),
        2 => any::<usize>().prop_map(Step::Cancel),
        3 => ticks().prop_map(Step::Advance),
    ]
}

const MOST: usize = 40;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_wheel_is_a_sorted_map(start in ticks(), steps in prop::collection::vec(step(), 1..200)) {
        let mut wheel = TimerWheel::new(start, MOST);
        let mut model = Model { now: start, ..Model::default() };
        let mut keys = Vec::new();
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Insert(ahead) => {
                    let deadline = (model.now + ahead).clamp(model.now + 1, model.now + MAX_AHEAD);
                    let key = wheel.insert(model.now + ahead, number);
                    prop_assert_eq!(key.is_some(), model.values.len() < MOST);
                    if let Some(key) = key {
                        prop_assert_eq!(TimerKey::from_number(key.to_number()), key);
                        prop_assert!(!keys.contains(&key), "a key is used once");
                        keys.push(key);
                        model.values.insert((deadline, number), key);
                    }
                }
                Step::Cancel(which) if keys.is_empty() => prop_assert_eq!(wheel.cancel(TimerKey::from_number(which as u64)), None),
                Step::Cancel(which) => {
                    let key = keys[which % keys.len()];
                    let found = model.values.iter().find(|(_, other)| **other == key).map(|(place, _)| *place);
                    let expected = found.map(|place| { model.values.remove(&place); place.1 });
                    prop_assert_eq!(wheel.get(key).copied(), expected);
                    prop_assert_eq!(wheel.cancel(key), expected);
                }
                Step::Advance(by) => {
                    let to = model.now + by;
                    let mut expired = Vec::new();
                    wheel.advance(to, |key, value| expired.push((key, value)));
                    let due = model.due(to);
                    // The order of deadlines; within one, any.
                    let sorted = |mut values: Vec<(TimerKey, u32)>| { values.sort_unstable(); values };
                    prop_assert_eq!(sorted(expired), sorted(due));
                }
            }
            prop_assert_eq!((wheel.len(), wheel.is_empty()), (model.values.len(), model.values.is_empty()));
            prop_assert_eq!(wheel.is_full(), model.values.len() == MOST);
        }
    }

    #[test]
    fn earlier_deadlines_expire_first(deadlines in prop::collection::vec(ticks(), 1..100), to in ticks()) {
        let mut wheel = TimerWheel::new(0, 100);
        for deadline in &deadlines {
            wheel.insert(*deadline, (*deadline).clamp(1, MAX_AHEAD));
        }
        let mut expired = Vec::new();
        wheel.advance(to, |_, deadline| expired.push(deadline));
        prop_assert!(expired.is_sorted(), "{expired:?}");
    }
}

#[test]
fn a_full_wheel_takes_a_value_once_another_is_gone() {
    let mut wheel = TimerWheel::new(7, 2);
    let (first, _) = (wheel.insert(10, 'a').unwrap(), wheel.insert(20, 'b').unwrap());
    assert_eq!(wheel.insert(30, 'c'), None);
    assert_eq!((wheel.cancel(first), wheel.cancel(first)), (Some('a'), None));
    let third = wheel.insert(30, 'c').unwrap();
    assert_ne!(first, third, "the place is the same, and the key is not");
    assert_eq!((wheel.get(first), wheel.get(third)), (None, Some(&'c')));
}
