//! Rights that are revoked for a while.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Kafka, broker::java};
use crate::{
    process::{Exit, Guarded},
    scratch::Scratch,
};

/// How long the tool may take. Measured: 2 s.
const DEADLINE: Duration = Duration::from_secs(60);
/// Whom brokers take clients without credentials for.
const ANYBODY: &str = "User:ANONYMOUS";

/// A right that is denied until it is lifted.
#[derive(Debug)]
#[must_use = "the right stays denied until it is lifted"]
pub struct Denial {
    bootstrap: String,
    /// The arguments of Kafka's tool that name the right.
    right: [String; 4],
}

impl Kafka {
    /// Denies everybody to write to a topic. For brokers that were started with taps, which look at ACLs.
    pub fn deny_writing(&self, topic: &str) -> Result<Denial> {
        self.deny(["--operation", "Write", "--topic", topic])
    }

    /// Denies everybody to see a group's offsets. Members that are in it already go on.
    pub fn deny_describing_group(&self, group: &str) -> Result<Denial> {
        self.deny(["--operation", "Describe", "--group", group])
    }

    fn deny(&self, right: [&str; 4]) -> Result<Denial> {
        let denial = Denial { bootstrap: self.bootstrap().to_owned(), right: right.map(str::to_owned) };
        denial.change("--add")?;
        Ok(denial)
    }
}

impl Denial {
    pub fn lift(self) -> Result<()> {
        self.change("--remove")
    }

    fn change(&self, how: &str) -> Result<()> {
        let scratch = Scratch::new("acl")?;
        let mut tool = java()?;
        tool.args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "org.apache.kafka.tools.AclCommand"]);
        tool.args(["--bootstrap-server", &self.bootstrap, how, "--deny-principal", ANYBODY]);
        tool.args(&self.right);
        if how == "--remove" {
            tool.arg("--force");
        }
        let mut running = Guarded::spawn("Kafka's AclCommand", &tool, &scratch.join("acl.log"))?;
        let exit = running.wait_exit(DEADLINE)?;
        ensure!(exit == Exit::Code(0), "Kafka's AclCommand ended with {exit:?}: {}", running.log_tail());
        Ok(())
    }
}
