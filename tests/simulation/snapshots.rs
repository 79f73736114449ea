//! Nodes that come back with what they had some time before: the keyspace's epoch is there, so weir cannot notice it.

use super::{cluster::slot_of, prelude::*};

pub struct Snapshot {
    group: usize,
    data: Data,
    expiries: BTreeMap<Vec<u8>, Duration>,
    slots: BTreeSet<u16>,
}

impl Cluster {
    fn slots_of(&self, group: usize) -> BTreeSet<u16> {
        self.slots().into_iter().filter(|slot| self.owner(*slot) == group).collect()
    }

    /// Whether no slot of a group, or for it, is moving.
    pub fn is_still(&self, group: usize) -> bool {
        !self.moving.iter().any(|(slot, to)| *to == group || self.owner(*slot) == group)
    }

    pub fn snapshot(&self, group: usize) -> Snapshot {
        let data = self.nodes[self.groups[group].primary].data.clone();
        let expires = |key: &Vec<u8>| Some((key.clone(), *self.expiries.get(key)?));
        Snapshot { group, expiries: data.keys().filter_map(expires).collect(), data, slots: self.slots_of(group) }
    }

    /// The node that serves a group now restarts with what it had, and its replica follows. Nothing happens where the group has other
    /// slots by now, or has lost what it had.
    pub fn come_back(&mut self, snapshot: Snapshot, away: Duration) {
        let Snapshot { group, mut data, expiries, slots } = snapshot;
        if self.groups[group].wiped || !self.is_still(group) || self.slots_of(group) != slots {
            return;
        }
        let now = self.env.passed();
        self.restart(group, Keeps::Data, away);
        self.env.note(|| format!("redis group {group} is back with an old snapshot"));
        self.returned += 1;
        // What has expired is not loaded, nor what another node has: a slot was moving here, and is gone again.
        data.retain(|key, _| slots.contains(&slot_of(key)) && expiries.get(key).is_none_or(|at| *at > now));
        let primary = self.groups[group].primary;
        let had = std::mem::replace(&mut self.nodes[primary].data, data.clone());
        for key in had.keys().chain(data.keys()).collect::<BTreeSet<_>>() {
            let (had, kept) = (had.get(key), data.get(key));
            self.ledger.comes_back(now, had, kept);
            self.limits_lost.forget((now, Forgotten::Last), (key, had, kept));
            match expiries.get(key) {
                Some(at) => self.expiries.insert(key.clone(), *at),
                None => self.expiries.remove(key),
            };
        }
        for key in self.accounts_of(group) {
            self.till.comes_back(&key, &data);
        }
        self.groups[group].replica_data = data;
        self.groups[group].log.clear();
    }

    /// Whether a node came back with an old snapshot, and not all was rebuilt since.
    pub fn is_old(&self) -> bool {
        self.returned > self.returned_before_rebuild
    }
}
