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
    /// Deadline, value and key of those that are due by then, in the order of deadlines.
    fn due(&mut self, to: u64) -> Vec<(u64, u32, TimerKey)> {
        let later = self.values.split_off(&(to + 1, 0));
        let due = std::mem::replace(&mut self.values, later);
        self.now = self.now.max(to);
        due.into_iter().map(|((deadline, value), key)| (deadline, value, key)).collect()
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_wheel_is_a_sorted_map(start in ticks(), most in 1..40_usize, steps in prop::collection::vec(step(), 1..200)) {
        let mut wheel = TimerWheel::new(start, most);
        let mut model = Model { now: start, ..Model::default() };
        let mut keys = Vec::new();
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Insert(ahead) => {
                    let deadline = (model.now + ahead).clamp(model.now + 1, model.now + MAX_AHEAD);
                    let key = wheel.insert(model.now + ahead, number);
                    prop_assert_eq!(key.is_some(), model.values.len() < most);
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
                    let due = model.due(to);
                    let mut expired = Vec::new();
                    wheel.advance(to, |key, value| {
                        let deadline = due.iter().find(|(_, other, _)| *other == value).map(|(deadline, ..)| *deadline);
                        expired.push((deadline.unwrap_or(u64::MAX), value, key));
                    });
                    prop_assert!(expired.is_sorted_by_key(|(deadline, ..)| *deadline), "{:?}", expired);
                    // Within one deadline, in any order.
                    expired.sort_unstable();
                    prop_assert_eq!(expired, due);
                }
            }
            prop_assert_eq!((wheel.len(), wheel.is_empty()), (model.values.len(), model.values.is_empty()));
            prop_assert_eq!(wheel.is_full(), model.values.len() == most);
        }
    }
}
