//! Calls that have to be made one after the other within a shard, and side by side over shards.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use redis::Value;

use super::{
    address::NodeAddr,
    cluster::{Cluster, Routed},
    keyspace::Keyspace,
    node::Request,
    trouble::{Pace, Trouble},
};

/// The calls of each shard, in their order.
pub(super) type Sequences<T> = BTreeMap<u16, VecDeque<(Request, T)>>;

/// How sequences came to their end.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Shards without the epoch that was asked for, and what was found.
    pub(super) lost: BTreeMap<u16, String>,
    /// Why calls are left, where some are: asking again later may help.
    pub(super) open: Option<String>,
}

/// Makes all calls: in each round the first of every shard, one pipeline a node. A call is made again until it is
/// answered; the next of its shard waits for that. `take` gets each answer with what belongs to its call, and says
/// whether it is one. Calls left are still in `calls`, but for those of lost shards.
pub(super) async fn run<T>(
    cluster: &mut Cluster,
    keyspace: &Keyspace,
    calls: &mut Sequences<T>,
    mut take: impl FnMut(&T, &Value) -> bool,
) -> Ended {
    let mut ended = Ended::default();
    let mut detours: BTreeMap<u16, NodeAddr> = BTreeMap::new();
    let mut resting: BTreeSet<u16> = BTreeSet::new();
    let mut backoff = cluster.backoff();
    loop {
        calls.retain(|_, queue| !queue.is_empty());
        let shards: Vec<u16> = calls.keys().filter(|shard| !resting.contains(shard)).copied().collect();
        let front = |shard: &u16| calls.get(shard).and_then(VecDeque::front).map(|(request, _)| request.clone());
        let requests: Vec<Routed> = shards
            .iter()
            .filter_map(|shard| {
                let detour = detours.get(shard).cloned();
                Some(Routed { slot: keyspace.slot(*shard), detour, request: front(shard)? })
            })
            .collect();
        let (mut pace, mut answered) = (None, false);
        for (shard, reply) in shards.into_iter().zip(cluster.round(requests).await) {
            let trouble = match reply {
                Ok(value) => {
                    let Some(queue) = calls.get_mut(&shard) else { continue };
                    if queue.front().is_some_and(|(_, what)| take(what, &value)) {
                        queue.pop_front();
                        answered = true;
                        continue;
                    }
                    Trouble::torn(&cluster.options().nodes[0], "another length or code")
                }
                Err(trouble) => trouble,
            };
            detours.remove(&shard);
            match &trouble {
                Trouble::LostHistory { message } => {
                    calls.remove(&shard);
                    ended.lost.insert(shard, message.clone());
                    continue;
                }
                Trouble::Ask { to, .. } => {
                    detours.insert(shard, to.clone());
                }
                Trouble::Moved { .. }
                | Trouble::Apart { .. }
                | Trouble::NoScript { .. }
                | Trouble::Away { .. }
                | Trouble::Refused { .. } => {}
            }
            ended.open = Some(trouble.to_string());
            if trouble.pace() != Pace::AtOnce {
                resting.insert(shard);
            }
            pace = pace.max(Some(trouble.pace().min(Pace::AfterWait)));
        }
        if calls.values().all(VecDeque::is_empty) {
            ended.open = None;
            return ended;
        }
        if answered {
            backoff = cluster.backoff();
        }
        let all_rest = calls.keys().all(|shard| resting.contains(shard));
        if all_rest || (pace.is_some() && !answered) {
            if !backoff.again(pace.unwrap_or(Pace::AfterWait)).await {
                return ended;
            }
            resting.clear();
        }
    }
}
