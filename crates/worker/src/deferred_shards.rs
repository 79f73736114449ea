//! The shards in which lanes of this process still have to record sends that were approved while the shard was unavailable:
//! until then nobody in the process decides there, or a cap would be asked without what it has to count.
//!
//! Other processes do not know of it: they ask a shard as soon as it is available again, and each process records its own
//! sends first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arc_swap::ArcSwap;

/// Shared by all lanes of a process and by its HTTP interface.
#[derive(Debug, Default)]
pub struct DeferredShards(ArcSwap<BTreeMap<u16, usize>>);

impl DeferredShards {
    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }

    /// Whether some lane has deferred writes for this shard.
    pub fn has(&self, shard: u16) -> bool {
        self.0.load().contains_key(&shard)
    }

    /// One lane has deferred writes for these shards now, and before for those.
    pub fn change(&self, before: &BTreeSet<u16>, now: &BTreeSet<u16>) {
        if before == now {
            return;
        }
        self.0.rcu(|lanes| {
            let mut lanes: BTreeMap<u16, usize> = (**lanes).clone();
            for shard in now.difference(before) {
                *lanes.entry(*shard).or_default() += 1;
            }
            for shard in before.difference(now) {
                if let Some(count) = lanes.get_mut(shard) {
                    *count -= 1;
                }
            }
            lanes.retain(|_, count| *count > 0);
            Arc::new(lanes)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_has_deferred_writes_until_the_last_lane_has_recorded() {
        let deferred_shards = DeferredShards::default();
        let (none, some, one) = ([].into(), [1, 2].into(), [2].into());
        deferred_shards.change(&none, &some);
        deferred_shards.change(&none, &one);
        deferred_shards.change(&some, &none);
        assert!(deferred_shards.has(2) && !deferred_shards.has(1));
        deferred_shards.change(&one, &none);
        assert!(deferred_shards.is_empty());
    }
}
