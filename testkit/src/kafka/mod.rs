//! A real Kafka: one broker or three, in KRaft mode, from the jars that `cargo xtask setup` fetches.
//!
//! Each node is broker and controller. Timings are set so that tests see a rebalance, a dead broker or a timed out
//! transaction within seconds; nothing that changes what a client may rely on.

mod acl;
mod broker;
mod client;
mod reader;
mod record;
mod secured;

use std::time::Duration;

use anyhow::{Result, ensure};

pub use acl::Grant;
pub use broker::libs_folder;
pub use client::KafkaClient;
pub use reader::TopicReader;
pub use record::{Consumed, Record};
pub use secured::SecuredKafka;

use crate::{ports::Port, process::Signal, scratch::Scratch, wait_for};
use broker::{Additions, Broker};

/// How long brokers may take to start. Measured: 5 s for one on two idle cores.
const START_DEADLINE: Duration = Duration::from_secs(90);
/// How long a broker may take to end after SIGTERM: it moves its leaderships first.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// A running Kafka. Brokers are numbered from 0; `node.id` is one more.
#[derive(Debug)]
pub struct Kafka {
    // Before `scratch`: brokers end before their folder goes.
    brokers: Vec<Broker>,
    client: KafkaClient,
    _scratch: Scratch,
}

impl Kafka {
    /// Starts 1 or 3 brokers and waits until all serve.
    ///
    /// # Errors
    /// When Java or the jars are missing (run `cargo xtask setup`), or a broker does not start in time, with the end
    /// of its log.
    pub fn start(brokers: usize) -> Result<Self> {
        let ports = (0..brokers).map(|_| Port::lease()).collect::<Result<_>>()?;
        Self::start_on(ports)
    }

    /// Starts one broker a port, the way [`Kafka::start`] does.
    ///
    /// # Errors
    /// As [`Kafka::start`].
    pub fn start_on(ports: Vec<Port>) -> Result<Self> {
        Self::start_with(ports, &Additions::default())
    }

    fn start_with(ports: Vec<Port>, additions: &Additions) -> Result<Self> {
        ensure!(matches!(ports.len(), 1 | 3), "Kafka runs here with 1 or 3 brokers, not {}", ports.len());
        let scratch = Scratch::new("kafka")?;
        let mut brokers = broker::prepare(ports, &scratch, additions)?;
        for broker in &mut brokers {
            broker.start()?;
        }
        let bootstrap: Vec<String> = brokers.iter().map(Broker::address).collect();
        let mut kafka = Self { brokers, client: KafkaClient::new(&bootstrap.join(",")), _scratch: scratch };
        for index in 0..kafka.brokers.len() {
            kafka.wait_serving(index)?;
        }
        Ok(kafka)
    }

    /// What goes into `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        self.client.bootstrap()
    }

    /// Publishes, reads, creates topics.
    #[must_use]
    pub fn client(&self) -> &KafkaClient {
        &self.client
    }

    /// Creates a topic, replicated to all brokers.
    ///
    /// # Errors
    /// When the brokers refuse.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        self.client.create_topic(name, partitions)
    }

    /// Ends a broker in an orderly way.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop(&mut self, broker: usize) -> Result<()> {
        let process = self.brokers[broker].process()?;
        process.signal(Signal::Term);
        process.wait_exit(STOP_DEADLINE).map(|_| ())
    }

    /// Kills a broker with SIGKILL.
    ///
    /// # Errors
    /// When it was never started.
    pub fn kill(&mut self, broker: usize) -> Result<()> {
        self.brokers[broker].process()?.kill();
        Ok(())
    }

    /// Freezes a broker: its sockets stay open and nobody answers.
    ///
    /// # Errors
    /// When it was never started.
    pub fn freeze(&mut self, broker: usize) -> Result<()> {
        self.brokers[broker].process()?.signal(Signal::Stop);
        Ok(())
    }

    /// Thaws a frozen broker.
    ///
    /// # Errors
    /// When it was never started.
    pub fn thaw(&mut self, broker: usize) -> Result<()> {
        self.brokers[broker].process()?.signal(Signal::Cont);
        Ok(())
    }

    /// Starts a broker again, with its data, and waits until it serves. One that still runs is killed first.
    ///
    /// # Errors
    /// When it does not start in time.
    pub fn restart(&mut self, broker: usize) -> Result<()> {
        self.brokers[broker].start()?;
        self.wait_serving(broker)
    }

    /// Waits until a broker knows itself and its peers that run, and every one of them can be asked.
    fn wait_serving(&mut self, index: usize) -> Result<()> {
        let running = self.brokers.iter_mut().map(Broker::is_running).filter(|running| *running).count();
        let broker = &mut self.brokers[index];
        let own = KafkaClient::new(&broker.address());
        broker.process()?.wait_ready(START_DEADLINE, || {
            wait_for(Duration::ZERO, || own.broker_count().ok()).is_some_and(|known| known >= running)
        })
    }
}
