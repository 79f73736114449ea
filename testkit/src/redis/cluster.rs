//! A Redis Cluster of real processes.

use std::time::Duration;

use anyhow::{Context, Result};
use redis::{ReplicaInfo, Role};

use super::RedisServer;
use crate::{clock::ProcessClock, ports::Port, wait_for};

const SLOTS: usize = 16_384;

/// How long the nodes may take to agree. A primary serves nobody in its first 2 s.
const AGREE_DEADLINE: Duration = Duration::from_secs(60);

const HAND_OVER_DEADLINE: Duration = Duration::from_secs(6);

/// Settings of every node: a failover within seconds, replicas that are in step soon after their start.
const NODE_ARGS: &str = "--cluster-enabled yes --cluster-config-file nodes.conf --cluster-node-timeout 2000 \
                         --repl-diskless-sync-delay 0 --repl-ping-replica-period 1";

pub(super) fn prepare(number: usize, port: Port, extra_args: &[&str]) -> Result<RedisServer> {
    let args: Vec<&str> = NODE_ARGS.split(' ').chain(extra_args.iter().copied()).collect();
    RedisServer::prepare(&format!("Redis node {number}"), port, &args)
}

/// A running cluster. Nodes are numbered from 0: first the primaries of the start, then their replicas; a failover
/// changes the roles, never the numbers.
#[derive(Debug)]
pub struct RedisCluster {
    pub(super) nodes: Vec<RedisServer>,
}

/// A line of CLUSTER NODES.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeLine {
    pub(super) id: String,
    pub(super) port: u16,
    /// Whether it is a primary, as the node asked sees it.
    pub(super) primary: bool,
    /// The id of the primary that it copies.
    pub(super) follows: Option<String>,
    /// First and last slot of each range that it serves.
    pub(super) slots: Vec<(u16, u16)>,
    fails: bool,
}

impl RedisCluster {
    /// Starts a cluster and waits until every node says that it is whole.
    pub fn start(primaries: usize, replicas_per_primary: usize) -> Result<Self> {
        Self::start_with(primaries, replicas_per_primary, &[])
    }

    /// The same with further arguments of each redis-server.
    pub fn start_with(primaries: usize, replicas_per_primary: usize, extra_args: &[&str]) -> Result<Self> {
        let ports = (0..primaries * (1 + replicas_per_primary)).map(|_| Port::lease()).collect::<Result<_>>()?;
        Self::start_on(ports, replicas_per_primary, extra_args)
    }

    /// Starts one node per port; `extra_args` go to each redis-server as they are.
    pub fn start_on(ports: Vec<Port>, replicas_per_primary: usize, extra_args: &[&str]) -> Result<Self> {
        let nodes = ports.into_iter().enumerate().map(|(number, port)| prepare(number, port, extra_args));
        Self::start_nodes(nodes.collect::<Result<_>>()?, replicas_per_primary)
    }

    /// Starts one node per clock, each with its own: the primaries first, then their replicas.
    pub fn start_by(clocks: &[ProcessClock], replicas_per_primary: usize) -> Result<Self> {
        let nodes = clocks.iter().enumerate();
        let nodes = nodes.map(|(number, clock)| Ok(prepare(number, Port::lease()?, &[])?.with_clock(clock)));
        Self::start_nodes(nodes.collect::<Result<_>>()?, replicas_per_primary)
    }

    fn start_nodes(mut nodes: Vec<RedisServer>, replicas_per_primary: usize) -> Result<Self> {
        for node in &mut nodes {
            node.restart()?;
        }
        let cluster = Self { nodes };
        cluster.join(replicas_per_primary)?;
        cluster.wait_whole()?;
        Ok(cluster)
    }

    /// As `redis-cli --cluster create` does it, which waits for seconds until nodes have heard of each other: here each meets each.
    fn join(&self, replicas_per_primary: usize) -> Result<()> {
        let (primaries, replicas) = self.nodes.split_at(self.nodes.len() / (1 + replicas_per_primary));
        for (number, primary) in primaries.iter().enumerate() {
            // Redis 6.2 has no ADDSLOTSRANGE.
            let slots: Vec<String> = share(number, primaries.len()).map(|slot| slot.to_string()).collect();
            let own: Vec<&str> = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            let () = primary.query(&own)?;
        }
        for (epoch, node) in (1_u32..).zip(&self.nodes) {
            let () = node.query(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()])?;
        }
        for (number, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[number + 1..] {
                let () = node.query(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()])?;
            }
        }
        for (number, replica) in replicas.iter().enumerate() {
            let id = self.id_of(number % primaries.len())?;
            // Refused until they have met.
            let follows = || replica.query::<()>(&["CLUSTER", "REPLICATE", &id]).ok();
            wait_for(AGREE_DEADLINE, follows).with_context(|| format!("{} follows nobody", replica.url()))?;
        }
        Ok(())
    }

    pub fn nodes(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    pub fn node(&self, node: usize) -> &RedisServer {
        &self.nodes[node]
    }

    /// Freezes a node: its sockets stay open and nobody answers.
    pub fn freeze(&mut self, node: usize) {
        self.nodes[node].freeze();
    }

    pub fn thaw(&mut self, node: usize) {
        self.nodes[node].thaw();
    }

    pub fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    /// Starts a node again: empty, or with what it last saved by SAVE, but the member of the cluster that it was.
    pub fn restart(&mut self, node: usize) -> Result<()> {
        self.nodes[node].restart()
    }

    /// What redis-cli prints for these arguments, asked of one node.
    pub fn cli(&self, node: usize, args: &[&str]) -> Result<String> {
        self.nodes[node].cli(args)
    }

    /// The nodes that are primaries with slots, ascending, as the first node that answers sees it.
    pub fn primaries(&self) -> Result<Vec<usize>> {
        let lines = self.lines()?;
        let serving = lines.iter().filter(|line| line.primary && !line.fails && !line.slots.is_empty());
        let mut primaries: Vec<usize> = serving.filter_map(|line| self.number_of(line.port)).collect();
        primaries.sort_unstable();
        Ok(primaries)
    }

    pub fn replicas_of(&self, node: usize) -> Result<Vec<usize>> {
        let lines = self.lines()?;
        let own = lines.iter().find(|line| line.port == self.nodes[node].port()).context("no such node")?;
        let followers = lines.iter().filter(|line| line.follows.as_ref() == Some(&own.id));
        let mut replicas: Vec<usize> = followers.filter_map(|line| self.number_of(line.port)).collect();
        replicas.sort_unstable();
        Ok(replicas)
    }

    pub fn owner_of(&self, slot: u16) -> Result<usize> {
        let lines = self.lines()?;
        let serves = |line: &&NodeLine| line.slots.iter().any(|&(first, last)| (first..=last).contains(&slot));
        let owner = lines.iter().find(serves).with_context(|| format!("nobody serves slot {slot}"))?;
        self.number_of(owner.port).context("the owner is no node of ours")
    }

    pub fn owner_of_key(&self, key: &str) -> Result<usize> {
        self.owner_of(self.nodes[0].query(&["CLUSTER", "KEYSLOT", key])?)
    }

    pub fn slots_of(&self, node: usize) -> Result<Vec<u16>> {
        let lines = self.lines()?;
        let own = lines.into_iter().find(|line| line.port == self.nodes[node].port()).context("no such node")?;
        let mut slots: Vec<u16> = own.slots.into_iter().flat_map(|(first, last)| first..=last).collect();
        slots.sort_unstable();
        Ok(slots)
    }

    /// Makes a replica the primary, in an orderly way (CLUSTER FAILOVER), and waits until all nodes know.
    pub fn failover(&self, replica: usize) -> Result<()> {
        // A replica that has not heard of a moved slot yet would leave it with the old primary.
        self.wait_agreed()?;
        let promoted = wait_for(AGREE_DEADLINE, || {
            let asked = self.nodes[replica].cli(&["cluster", "failover"]);
            // A primary gives the hand-over up after 5 s, as on a machine that has other things to do: asked again then.
            asked.is_ok().then(|| wait_for(HAND_OVER_DEADLINE, || self.is_primary(replica))).flatten()
        });
        promoted.with_context(|| format!("node {replica} does not become primary within {AGREE_DEADLINE:?}"))?;
        self.wait_primary(replica)
    }

    /// Waits until a node is a primary with slots and every node that answers agrees.
    pub fn wait_primary(&self, node: usize) -> Result<()> {
        let found = wait_for(AGREE_DEADLINE, || self.is_primary(node));
        found.with_context(|| format!("node {node} is no primary after {AGREE_DEADLINE:?}"))?;
        self.wait_agreed()
    }

    fn is_primary(&self, node: usize) -> Option<()> {
        self.primaries().is_ok_and(|primaries| primaries.contains(&node)).then_some(())
    }

    /// Waits until the replicas of a node have all that it has written so far.
    pub fn wait_replicated(&self, node: usize) -> Result<()> {
        let offsets = || match self.nodes[node].query(&["ROLE"]) {
            Ok(Role::Primary { replication_offset, replicas }) => Some((replication_offset, replicas)),
            _ => None,
        };
        let (written, _) = offsets().context("the node is no primary")?;
        let has = |replica: &ReplicaInfo| u64::try_from(replica.replication_offset).is_ok_and(|has| has >= written);
        let has_all = || offsets().filter(|(_, replicas)| !replicas.is_empty() && replicas.iter().all(has)).map(drop);
        wait_for(AGREE_DEADLINE, has_all).with_context(|| {
            format!("the replicas of node {node} lack some of {written} bytes after {AGREE_DEADLINE:?}")
        })
    }

    /// Waits until all nodes that answer see the same roles and slots.
    pub fn wait_agreed(&self) -> Result<()> {
        let agreed = || {
            let mut views = self.nodes.iter().filter_map(|node| lines_of(node).ok());
            let first = views.next()?;
            views.all(|view| view == first).then_some(())
        };
        wait_for(AGREE_DEADLINE, agreed).with_context(|| {
            let see = |node| self.cli(node, &["cluster", "nodes"]).unwrap_or_else(|error| error.to_string());
            let seen: Vec<String> =
                (0..self.nodes.len()).map(|node| format!("node {node} sees:\n{}", see(node))).collect();
            format!("the nodes do not agree after {AGREE_DEADLINE:?}\n{}", seen.join("\n"))
        })
    }

    /// Waits until every node finds the cluster whole, all agree on roles and slots, and replicas have their primary's
    /// data.
    pub fn wait_whole(&self) -> Result<()> {
        let whole = || self.is_whole().unwrap_or(false).then_some(());
        wait_for(AGREE_DEADLINE, whole).with_context(|| {
            let seen = self.cli(0, &["cluster", "nodes"]).unwrap_or_else(|error| error.to_string());
            format!("the cluster is not whole after {AGREE_DEADLINE:?}; node 0 sees:\n{seen}")
        })
    }

    fn is_whole(&self) -> Result<bool> {
        // cluster_state:ok alone comes before everybody has heard who copies whom.
        let view = lines_of(&self.nodes[0])?;
        if view.len() != self.nodes.len() || view.iter().any(|line| line.fails) {
            return Ok(false);
        }
        for node in &self.nodes {
            let info: String = node.query(&["CLUSTER", "INFO"])?;
            let replication: String = node.query(&["INFO", "replication"])?;
            let in_step = replication.contains("role:master") || replication.contains("master_link_status:up");
            if !in_step || !info.contains("cluster_state:ok") || lines_of(node)? != view {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn id_of(&self, node: usize) -> Result<String> {
        self.nodes[node].query(&["CLUSTER", "MYID"])
    }

    fn number_of(&self, port: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.port() == port)
    }

    fn lines(&self) -> Result<Vec<NodeLine>> {
        let answers = self.nodes.iter().map(lines_of);
        answers.into_iter().find_map(Result::ok).context("no node of the cluster answers")
    }
}

/// The slots of a primary, of so many.
fn share(number: usize, primaries: usize) -> std::ops::Range<usize> {
    // Rounded to the nearest, as redis-cli does.
    let begin = |number: usize| (2 * number * SLOTS + primaries) / (2 * primaries);
    begin(number)..begin(number + 1)
}

/// The cluster as one node sees it, ordered by id.
fn lines_of(node: &RedisServer) -> Result<Vec<NodeLine>> {
    let text: String = node.query(&["CLUSTER", "NODES"])?;
    let lines = text.lines().map(|line| parse(line).with_context(|| format!("CLUSTER NODES said {line:?}")));
    let mut lines = lines.collect::<Result<Vec<_>>>()?;
    lines.sort_unstable();
    Ok(lines)
}

/// `id 127.0.0.1:7000@17000,name flags primary-id ping pong epoch link-state slot-range...`
fn parse(line: &str) -> Option<NodeLine> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [id, address, flags, follows, _ping, _pong, _epoch, _link, slots @ ..] = &fields[..] else { return None };
    let port = address.split(['@', ',']).next()?.rsplit(':').next()?.parse().ok()?;
    let flags: Vec<&str> = flags.split(',').collect();
    // A slot in migration is listed once more, as [slot->-id] or [slot-<-id].
    let ranges = slots.iter().filter(|range| !range.starts_with('['));
    let slots = ranges.map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    Some(NodeLine {
        id: (*id).to_owned(),
        port,
        primary: flags.contains(&"master"),
        follows: (*follows != "-").then(|| (*follows).to_owned()),
        slots: slots.collect::<Option<_>>()?,
        fails: flags.iter().any(|flag| flag.starts_with("fail") || *flag == "handshake"),
    })
}
