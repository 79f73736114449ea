//! Which node owns which slot.

use redis::Value;
use weir_core::basis::shard::SLOTS;

use super::address::NodeAddr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SlotMap {
    Single(NodeAddr),
    /// Slot -> index of its primary; `u16::MAX` for none.
    Cluster {
        /// Each primary, with how many slots it owns.
        primaries: Vec<(NodeAddr, usize)>,
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
            let host: Option<String> = redis::from_redis_value_ref(host).ok()?;
            let addr = NodeAddr::announced(host.as_deref().unwrap_or_default(), u16::try_from(*port).ok()?, asked);
            for slot in *first..=(*last).min(i64::from(SLOTS) - 1) {
                map.set(u16::try_from(slot).ok()?, &addr);
            }
        }
        Some(map)
    }

    pub(super) fn set(&mut self, slot: u16, owner: &NodeAddr) {
        let Self::Cluster { primaries, owners } = self else { return };
        let Some(place) = owners.get_mut(usize::from(slot)) else { return };
        if let Some((_, owned)) = primaries.get_mut(usize::from(*place)) {
            *owned -= 1;
        }
        let known = primaries.iter().position(|(addr, _)| addr == owner).unwrap_or_else(|| {
            primaries.push((owner.clone(), 0));
            primaries.len() - 1
        });
        *place = u16::try_from(known).unwrap_or(NOBODY);
        if let Some((_, owned)) = primaries.get_mut(usize::from(*place)) {
            *owned += 1;
        }
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&NodeAddr> {
        match self {
            Self::Single(addr) => Some(addr),
            Self::Cluster { primaries, owners } => {
                primaries.get(usize::from(*owners.get(usize::from(slot))?)).map(|(addr, _)| addr)
            }
        }
    }

    pub(super) fn primaries(&self) -> Vec<NodeAddr> {
        match self {
            Self::Single(addr) => vec![addr.clone()],
            Self::Cluster { primaries, .. } => {
                primaries.iter().filter(|(_, owned)| *owned > 0).map(|(addr, _)| addr.clone()).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_slots_are_read_with_hosts_unknown_and_slots_unserved() {
        let asked = NodeAddr { host: "seed".to_owned(), port: 1 };
        let reply = b"*3\r\n\
            *3\r\n:0\r\n:99\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n\
            *4\r\n:200\r\n:16383\r\n*2\r\n$-1\r\n:7001\r\n*2\r\n$1\r\nr\r\n:7002\r\n\
            *3\r\n:150\r\n:150\r\n*2\r\n$0\r\n\r\n:7003\r\n";
        let mut map = SlotMap::of_reply(&redis::parse_redis_value(reply).unwrap(), &asked).unwrap();
        let owner = |slot| map.owner(slot).map(ToString::to_string);
        for (slot, expected) in [
            (0, Some("127.0.0.1:7000")),
            (99, Some("127.0.0.1:7000")),
            (100, None),
            (150, Some("seed:7003")),
            (199, None),
            (16_383, Some("seed:7001")),
        ] {
            assert_eq!(owner(slot).as_deref(), expected, "{slot}");
        }
        assert_eq!(map.primaries().len(), 3);
        // The last slot of a node moves away: it owns none.
        map.set(150, &NodeAddr { host: "127.0.0.1".to_owned(), port: 7000 });
        let primaries: Vec<String> = map.primaries().iter().map(ToString::to_string).collect();
        assert_eq!(primaries, ["127.0.0.1:7000", "seed:7001"]);
        for torn in ["*1\r\n:1\r\n", "+OK\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n"] {
            assert_eq!(SlotMap::of_reply(&redis::parse_redis_value(torn.as_bytes()).unwrap(), &asked), None, "{torn}");
        }
    }
}
