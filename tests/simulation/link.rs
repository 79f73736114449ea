//! The network to the fake cluster: requests and replies are lost, late, or cut.

use std::io;

use redis::{Arg, Pipeline, RedisError, RedisResult, Value};
use weir_redis::{Boxed, Link, Network, NodeAddr};

use super::{cluster::FIRST_PORT, prelude::*};

pub type SharedCluster = Arc<Mutex<Cluster>>;

#[derive(Debug, Clone)]
pub struct SimNetwork {
    pub env: Env,
    pub cluster: SharedCluster,
}

#[derive(Clone)]
struct SimLink {
    env: Env,
    cluster: SharedCluster,
    node: usize,
    incarnation: u64,
    patience: Duration,
    /// When the replica has what was written last over this connection, in microseconds: WAIT speaks of nothing else.
    replicated_at: Arc<AtomicU64>,
}

type Commands = Vec<Vec<Vec<u8>>>;

fn failed(kind: io::ErrorKind) -> RedisError {
    io::Error::new(kind, "simulated").into()
}

impl Network for SimNetwork {
    fn connect<'a>(&'a self, addr: &'a NodeAddr, options: &'a RedisOptions) -> Boxed<'a, RedisResult<Box<dyn Link>>> {
        Box::pin(async move {
            self.env.sleep(self.env.millis(1, 3)).await;
            let node = usize::from(addr.port - FIRST_PORT);
            let (down_until, incarnation) = {
                let cluster = lock(&self.cluster);
                (cluster.nodes[node].down_until, cluster.nodes[node].incarnation)
            };
            if self.env.passed() < down_until {
                return Err(failed(io::ErrorKind::ConnectionRefused));
            }
            let (env, cluster, patience) = (self.env.clone(), Arc::clone(&self.cluster), options.response_timeout);
            let replicated_at = Arc::default();
            Ok(Box::new(SimLink { env, cluster, node, incarnation, patience, replicated_at }) as Box<dyn Link>)
        })
    }

    fn sleep(&self, wait: Duration) -> Boxed<'static, ()> {
        Box::pin(self.env.sleep(wait))
    }

    fn passed(&self) -> Duration {
        self.env.passed()
    }
}

impl SimLink {
    /// Executes the first `most` commands, unless the node has restarted or been replaced.
    fn execute(&self, commands: &Commands, most: usize) -> Option<Vec<Value>> {
        let mut cluster = lock(&self.cluster);
        let node = &cluster.nodes[self.node];
        if node.incarnation != self.incarnation || self.env.passed() < node.down_until {
            return None;
        }
        let writes = cluster.writes;
        let mut asking = false;
        let mut replies = Vec::with_capacity(commands.len());
        for command in commands.iter().take(most) {
            if command[0] == b"ASKING" {
                asking = true;
                replies.push(Value::Okay);
            } else if command[0] == b"WAIT" {
                replies.push(Value::Int(0));
            } else {
                replies.push(cluster.execute(self.node, command, asking));
                asking = false;
            }
        }
        if cluster.writes > writes {
            let at = cluster.replicated_at(self.node).as_micros();
            self.replicated_at.store(u64::try_from(at).unwrap(), Relaxed);
        }
        Some(replies)
    }

    /// Executed after the client gave up.
    async fn later(self, commands: Commands, wait: Duration) {
        self.env.sleep(wait).await;
        self.env.note(|| format!("redis node {}: a late request", self.node));
        self.execute(&commands, usize::MAX);
    }

    async fn lose(&self, commands: Commands) -> RedisError {
        match self.env.index(4) {
            0 => {}
            1 => {
                self.env.note(|| format!("redis node {}: a reply is lost", self.node));
                self.execute(&commands, usize::MAX);
            }
            2 => {
                let most = self.env.index(commands.len());
                self.env.note(|| format!("redis node {}: cut after {most} of {} commands", self.node, commands.len()));
                self.execute(&commands, most);
            }
            _ => {
                tokio::spawn(self.clone().later(commands, self.env.millis(2_000, 20_000)));
            }
        }
        if self.env.chance(500) {
            return failed(io::ErrorKind::ConnectionReset);
        }
        self.env.sleep(self.patience).await;
        failed(io::ErrorKind::TimedOut)
    }

    /// Waits for the replica as WAIT does; returns how many replicas have the writes of this connection.
    async fn wait(&self) -> i64 {
        let of_all = lock(&self.cluster).replicated_at(self.node);
        let at = Duration::from_micros(self.replicated_at.load(Relaxed)).min(of_all);
        let left = at.saturating_sub(self.env.passed());
        self.env.sleep(left.min(self.patience / 2)).await;
        i64::from(left <= self.patience / 2)
    }

    async fn exchange(&self, commands: Commands) -> RedisResult<Vec<Value>> {
        self.env.sleep(self.env.millis(0, 3)).await;
        if self.env.redis_fails() {
            return Err(self.lose(commands).await);
        }
        let stalled = lock(&self.cluster).nodes[self.node].stalled_until.saturating_sub(self.env.passed());
        if stalled >= self.patience {
            tokio::spawn(self.clone().later(commands, stalled));
            self.env.sleep(self.patience).await;
            return Err(failed(io::ErrorKind::TimedOut));
        }
        self.env.sleep(stalled).await;
        let broken = || failed(io::ErrorKind::ConnectionReset);
        let mut replies = self.execute(&commands, usize::MAX).ok_or_else(broken)?;
        if commands.last().is_some_and(|command| command[0] == b"WAIT") {
            let had = self.wait().await;
            // A primary that was replaced meanwhile does not answer.
            if lock(&self.cluster).nodes[self.node].incarnation != self.incarnation {
                return Err(broken());
            }
            replies.pop();
            replies.push(Value::Int(had));
        }
        self.env.sleep(self.env.millis(0, 3)).await;
        Ok(replies)
    }
}

impl Link for SimLink {
    fn send<'a>(&'a mut self, pipeline: &'a Pipeline) -> Boxed<'a, RedisResult<Vec<Value>>> {
        let args = |arg| match arg {
            Arg::Simple(bytes) => Vec::from(bytes),
            Arg::Cursor => unreachable!("weir uses no cursors"),
            _ => unreachable!("no other kind is known"),
        };
        let commands: Commands = pipeline.cmd_iter().map(|cmd| cmd.args_iter().map(args).collect()).collect();
        Box::pin(async move { self.exchange(commands).await })
    }
}
