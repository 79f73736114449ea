//! A map of bounded size that keeps the newest entries.

use std::{borrow::Borrow, hash::Hash};

use foldhash::fast::RandomState;

type Generation<K, V> = std::collections::HashMap<K, V, RandomState>;

/// Two generations: a full young generation becomes the old one, which is dropped. So it holds the last `N` entries at least and
/// twice as many at most, and a look-up changes nothing.
#[derive(Debug, Clone)]
pub(super) struct Cache<K, V, const N: usize> {
    young: Generation<K, V>,
    old: Generation<K, V>,
}

impl<K, V, const N: usize> Default for Cache<K, V, N> {
    fn default() -> Self {
        Self { young: Generation::default(), old: Generation::default() }
    }
}

impl<K: Eq + Hash, V, const N: usize> Cache<K, V, N> {
    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= N {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entries_are_held_and_never_more_than_twice_as_many() {
        let mut cache: Cache<u32, u32, 4> = Cache::default();
        for number in 0..100 {
            cache.insert(number, number * 2);
            let held = (0..=number).filter(|key| cache.get(key) == Some(&(key * 2))).count();
            assert!(held <= 8 && held >= usize::try_from(number + 1).unwrap().min(4), "{held} of {number}");
            assert!((number.saturating_sub(3)..=number).all(|key| cache.get(&key).is_some()), "{number}");
        }
    }
}
