//! Nodes that join a cluster and leave it, as `redis-cli --cluster add-node` and `del-node` do it.

use std::process::Command;

use anyhow::Result;

use super::{RedisCluster, cluster::prepare};
use crate::{
    ports::Port,
    process::{printed, program},
};

impl RedisCluster {
    /// Starts another node, lets it join as a primary without slots, and waits until all know. Gives its number.
    pub fn add_node(&mut self) -> Result<usize> {
        let number = self.nodes.len();
        let mut node = prepare(number, Port::lease()?, &[])?;
        node.restart()?;
        let new = format!("127.0.0.1:{}", node.port());
        self.nodes.push(node);
        self.manage(&["add-node", &new, &self.address(0)])?;
        self.wait_whole()?;
        Ok(number)
    }

    /// Takes the node that was added last out again, once it serves no slots, and waits until all know.
    pub fn remove_last_node(&mut self) -> Result<()> {
        self.manage(&["del-node", &self.address(0), &self.id_of(self.nodes.len() - 1)?])?;
        self.nodes.pop();
        self.wait_whole()
    }

    fn address(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.nodes[node].port())
    }

    fn manage(&self, args: &[&str]) -> Result<()> {
        printed(Command::new(program("redis-cli")?).arg("--cluster").args(args)).map(drop)
    }
}
