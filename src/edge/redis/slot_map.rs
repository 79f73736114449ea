//! Which node owns which slot.

use redis::Value;

use super::address::NodeAddr;
use crate::domain::shard::SLOTS;

/// The owners of all slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SlotMap {
    /// One server, no cluster.
    Single(NodeAddr),
    /// Slot -> index of its primary; `u16::MAX` for none.
    Cluster {
        /// The primaries, ascending.
        primaries: Vec<NodeAddr>,
        /// By slot.
        owners: Vec<u16>,
    },
}

const NOBODY: u16 = u16::MAX;

impl SlotMap {
    /// Reads the reply of CLUSTER SLOTS. `None` where it is none.
    pub(super) fn of_reply(reply: &Value, asked: &NodeAddr) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        let mut map = Self::Cluster { primaries: Vec::new(), owners: vec![NOBODY; usize::from(SLOTS)] };
        for range in ranges {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice() else {
                return None;
            };
            let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
            let host = match host {
                Value::BulkString(host) => str::from_utf8(host).ok()?,
                Value::SimpleString(host) => host,
                Value::Nil => "",
                _ => return None,
            };
            let addr = NodeAddr::announced(host, u16::try_from(*port).ok()?, asked);
            for slot in *first..=(*last).min(i64::from(SLOTS) - 1) {
                map.set(u16::try_from(slot).ok()?, &addr);
            }
        }
        Some(map)
    }

    /// Gives a slot to a node.
    pub(super) fn set(&mut self, slot: u16, owner: &NodeAddr) {
        let Self::Cluster { primaries, owners } = self else { return };
        let known = primaries.iter().position(|addr| addr == owner).unwrap_or_else(|| {
            primaries.push(owner.clone());
            primaries.len() - 1
        });
        if let Some(place) = owners.get_mut(usize::from(slot)) {
            *place = u16::try_from(known).unwrap_or(NOBODY);
        }
    }

    /// Who owns a slot; `None` where nobody does.
    pub(super) fn owner(&self, slot: u16) -> Option<&NodeAddr> {
        match self {
            Self::Single(addr) => Some(addr),
            Self::Cluster { primaries, owners } => primaries.get(usize::from(*owners.get(usize::from(slot))?)),
        }
    }

    /// All nodes that own a slot.
    pub(super) fn primaries(&self) -> Vec<NodeAddr> {
        match self {
            Self::Single(addr) => vec![addr.clone()],
            Self::Cluster { primaries, owners } => {
                let owning: std::collections::BTreeSet<u16> = owners.iter().copied().collect();
                let own = |index: &usize| u16::try_from(*index).is_ok_and(|index| owning.contains(&index));
                primaries.iter().enumerate().filter(|(index, _)| own(index)).map(|(_, addr)| addr.clone()).collect()
            }
        }
    }
}
