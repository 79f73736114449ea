//! All nodes of a Redis: who owns which slot, and rounds of requests to many nodes at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use redis::Cmd;
use tokio::task::JoinSet;

use super::{
    address::NodeAddr,
    backoff::Tries,
    node::{Asking, LinkId, Node, Reply, Request},
    options::RedisOptions,
    request_error::RequestError,
    slot_map::SlotMap,
    stats::{RedisStats, RetryCause},
};

#[derive(Debug, Clone)]
pub(super) struct Routed {
    pub(super) slot: u16,
    /// The node to ask in place of the owner, with ASKING.
    pub(super) detour: Option<NodeAddr>,
    pub(super) request: Request,
}

/// The requests of a round: for each node, the place in the round and what to ask.
type ByNode = BTreeMap<NodeAddr, Vec<(usize, (Asking, Request))>>;

pub(super) struct Cluster {
    options: Arc<RedisOptions>,
    stats: Arc<RedisStats>,
    nodes: BTreeMap<NodeAddr, Node>,
    map: Option<SlotMap>,
    /// The map may be out of date: read it before the next round.
    doubt: bool,
    /// Slots that moved, as told by redirects since the map was read.
    moved: Vec<(u16, NodeAddr)>,
    /// Nodes that did not answer last time, and nodes that are asked now: a request that is dropped half way leaves its node here. While there
    /// are any, the map is read before the next round, from all other nodes first.
    silent: BTreeSet<NodeAddr>,
}

impl Cluster {
    pub(super) fn new(options: &Arc<RedisOptions>, stats: &Arc<RedisStats>) -> Self {
        Self {
            options: Arc::clone(options),
            stats: Arc::clone(stats),
            nodes: BTreeMap::new(),
            map: None,
            doubt: false,
            moved: Vec::new(),
            silent: BTreeSet::new(),
        }
    }

    /// One for the same nodes, with connections of its own.
    pub(super) fn another(&self) -> Self {
        Self::new(&self.options, &self.stats)
    }

    pub(super) fn options(&self) -> &RedisOptions {
        &self.options
    }

    pub(super) fn stats(&self) -> &RedisStats {
        &self.stats
    }

    pub(super) fn tries<K: Ord>(&self) -> Tries<K> {
        Tries::new(self.options.tries, Arc::clone(&self.options.network))
    }

    pub(super) fn map(&self) -> Option<&SlotMap> {
        self.map.as_ref()
    }

    pub(super) fn begin_with(&mut self, map: SlotMap) {
        self.map.get_or_insert(map);
    }

    pub(super) fn primaries(&self) -> Vec<NodeAddr> {
        self.map.as_ref().map(SlotMap::primaries).unwrap_or_default()
    }

    /// The connection to the owner of a slot; another one after every reconnect and failover. `None` while there is none.
    pub(super) fn link(&self, slot: u16) -> Option<LinkId> {
        self.nodes.get(self.map.as_ref()?.owner(slot)?)?.link()
    }

    /// Sends each request to the owner of its slot, all nodes at once, one pipeline a node; gives the replies
    /// in order. Nothing is sent twice.
    pub(super) async fn round(&mut self, requests: Vec<Routed>) -> Vec<Reply> {
        let mut replies: Vec<Option<Reply>> = requests.iter().map(|_| None).collect();
        self.round_each(requests, |place, reply| replies[place] = Some(reply)).await;
        let lost = || Err(self.torn("a request got none"));
        replies.into_iter().map(|reply| reply.unwrap_or_else(lost)).collect()
    }

    /// As [`Cluster::round`]; hands over each reply, with the place of its request, as soon as its node has answered.
    pub(super) async fn round_each(&mut self, requests: Vec<Routed>, mut each: impl FnMut(usize, Reply)) {
        let mut by_node = ByNode::new();
        if let Err(error) = self.refresh_in_doubt().await {
            return (0..requests.len()).for_each(|place| each(place, Err(error.clone())));
        }
        for (place, Routed { slot, detour, request }) in requests.into_iter().enumerate() {
            let owner = self.map.as_ref().and_then(|map| map.owner(slot)).cloned();
            match (detour, owner) {
                (Some(to), _) => by_node.entry(to).or_default().push((place, (Asking::Yes, request))),
                (None, Some(to)) => by_node.entry(to).or_default().push((place, (Asking::No, request))),
                (None, None) => {
                    self.doubt = true;
                    each(place, Err(self.nobody(slot)));
                }
            }
        }
        let mut errors = Vec::new();
        let note = |place, reply: Reply| {
            errors.extend(reply.as_ref().err().cloned());
            each(place, reply);
        };
        self.send(by_node, note).await;
        errors.iter().for_each(|error| self.learn(error));
    }

    /// Sends every primary the same command, all at once, and returns the nodes that did not answer. A node whose connection was closed
    /// meanwhile gets it a second time.
    pub(super) async fn silent_nodes(
        &mut self,
        command: &Cmd,
    ) -> Result<BTreeMap<NodeAddr, RequestError>, RequestError> {
        self.refresh_in_doubt().await?;
        let (mut asked, mut silent) = (self.primaries(), BTreeMap::new());
        for _ in 0..2 {
            let one = |place| vec![(place, (Asking::No, Request::Plain(command.clone())))];
            let by_node = asked.iter().enumerate().map(|(place, node)| (node.clone(), one(place))).collect();
            let mut again = Vec::new();
            let note = |place: usize, reply: Reply| {
                let node: &NodeAddr = &asked[place];
                let Err(error) = reply else {
                    silent.remove(node);
                    return;
                };
                if error.cause == RetryCause::ConnectionLost {
                    again.push(node.clone());
                }
                silent.insert(node.clone(), error);
            };
            self.send(by_node, note).await;
            asked = again;
        }
        silent.values().for_each(|error| self.learn(error));
        Ok(silent)
    }

    async fn send(&mut self, by_node: ByNode, mut each: impl FnMut(usize, Reply)) {
        let mut under_way = JoinSet::new();
        for (addr, requests) in by_node {
            self.silent.insert(addr.clone());
            let mut node = self.nodes.remove(&addr).unwrap_or_else(|| self.node(addr));
            under_way.spawn(async move {
                let (places, requests): (Vec<usize>, Vec<_>) = requests.into_iter().unzip();
                let replies = node.exchange(&requests).await;
                (node, places, replies)
            });
        }
        while let Some(done) = under_way.join_next().await {
            // A task that panicked answers nothing: its places are reported as not answered.
            let Ok((node, places, replies)) = done else { continue };
            self.silent.remove(node.addr());
            self.nodes.insert(node.addr().clone(), node);
            places.into_iter().zip(replies).for_each(|(place, reply)| each(place, reply));
        }
    }

    fn node(&self, addr: NodeAddr) -> Node {
        Node::new(addr, Arc::clone(&self.options), Arc::clone(&self.stats))
    }

    fn nobody(&self, slot: u16) -> RequestError {
        let message = format!("slot {slot} has no owner: the cluster is not whole");
        RequestError::new(&self.options.nodes[0], RetryCause::ClusterDown, message)
    }

    /// Counts an error, and keeps what it says about the slot map.
    fn learn(&mut self, error: &RequestError) {
        self.stats.error(error.cause);
        if error.cause == RetryCause::Moved {
            self.moved.extend(error.to.clone());
            self.doubt = true;
        } else if let Some(node) = error.unavailable() {
            self.silent.insert(node.clone());
            self.doubt = true;
        }
    }

    /// Reads the slot map if there is none, or if it may be out of date.
    async fn refresh_in_doubt(&mut self) -> Result<(), RequestError> {
        let is_fine = self.map.is_some() && !self.doubt && self.silent.is_empty();
        if is_fine { Ok(()) } else { self.refresh().await }
    }

    /// Reads the slot map from the first node that returns one: the last known primaries, then the configured nodes.
    pub(super) async fn refresh(&mut self) -> Result<(), RequestError> {
        let mut candidates = self.primaries();
        candidates.extend(self.options.nodes.iter().cloned());
        candidates.extend(self.moved.iter().map(|(_, to)| to.clone()));
        candidates.sort_by_key(|addr| self.silent.contains(addr));
        let mut tried = BTreeSet::new();
        let mut first = None;
        for addr in candidates {
            if !tried.insert(addr.clone()) {
                continue;
            }
            match self.read_map(&addr).await {
                Ok(mut map) => {
                    for (slot, owner) in self.moved.drain(..) {
                        map.set(slot, &owner);
                    }
                    let primaries = map.primaries();
                    self.nodes.retain(|addr, _| primaries.contains(addr));
                    self.map = Some(map);
                    self.doubt = false;
                    self.silent.clear();
                    return Ok(());
                }
                Err(error) => {
                    self.learn(&error);
                    first.get_or_insert(error);
                }
            }
        }
        Err(first.unwrap_or_else(|| self.nobody(0)))
    }

    async fn read_map(&mut self, addr: &NodeAddr) -> Result<SlotMap, RequestError> {
        match self.ask_node(addr, Request::plain("CLUSTER", "SLOTS")).await {
            Ok(value) => SlotMap::of_reply(&value, addr).ok_or_else(|| RequestError::torn(addr, "CLUSTER SLOTS")),
            Err(error) if error.message.contains("cluster support disabled") => Ok(SlotMap::Single(addr.clone())),
            Err(error) => Err(error),
        }
    }

    /// The error of a reply of another shape than expected, of whatever node.
    pub(super) fn torn(&self, what: &str) -> RequestError {
        RequestError::torn(&self.options.nodes[0], what)
    }

    pub(super) async fn ask_node(&mut self, addr: &NodeAddr, request: Request) -> Reply {
        let mut node = self.nodes.remove(addr).unwrap_or_else(|| self.node(addr.clone()));
        self.silent.insert(addr.clone());
        let reply = node.exchange(&[(Asking::No, request)]).await.pop();
        self.silent.remove(addr);
        self.nodes.insert(addr.clone(), node);
        reply.unwrap_or_else(|| Err(RequestError::torn(addr, "no reply")))
    }
}
