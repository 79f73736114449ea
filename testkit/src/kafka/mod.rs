//! A real Kafka: one broker or three, in KRaft mode, from the jars that `cargo xtask setup` fetches.
//!
//! Each node is broker and controller. Timings are set so that tests see a rebalance, a dead broker or a timed out
//! transaction within seconds; nothing that changes what a client may rely on.

mod acl;
mod admin;
mod broker;
mod client;
mod consumer;
mod delivery;
mod formatted;
mod publisher;
mod reader;
mod record;
mod secured;
mod tap;
mod tokens;
mod wire;

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, ensure};

pub use acl::{Denial, Grant};
pub use broker::libs_folder;
pub use client::{Cut, KafkaClient};
pub use consumer::BoundedConsumer;
pub use delivery::Delivery;
pub use publisher::Publisher;
pub use reader::TopicReader;
pub use record::{Consumed, Record};
pub use secured::SecuredKafka;
pub use tap::{Api, Fate, Moment, Tap, Trap};
pub use tokens::TokenKafka;

use crate::{
    disk::SmallDisk,
    ports::Port,
    process::{Exit, Signal},
    scratch::Scratch,
    wait_for,
};
use broker::{Additions, Broker, Jvm, Shape};

/// How long brokers may take to start. Measured: 5 s for one on two idle cores.
const START_DEADLINE: Duration = Duration::from_secs(90);
/// How long a broker that gathers members of a new group waits for them.
const GATHER_MS: u32 = 1000;
/// How long a broker may take to end after SIGTERM: it moves its leaderships first.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// A running Kafka. Brokers are numbered from 0; `node.id` is one more.
#[derive(Debug)]
pub struct Kafka {
    // Before `scratch`: brokers end before their folder goes.
    brokers: Vec<Broker>,
    client: KafkaClient,
    taps: Vec<Tap>,
    _scratch: Scratch,
}

impl Kafka {
    /// Starts 1 or 3 brokers and waits until all serve.
    pub fn start(brokers: usize) -> Result<Self> {
        let ports = (0..brokers).map(|_| Port::lease()).collect::<Result<_>>()?;
        Self::start_on(ports)
    }

    pub fn start_on(ports: Vec<Port>) -> Result<Self> {
        Self::start_with(ports, Shape::default(), &Additions::default())
    }

    /// Starts 1 or 3 brokers that have a [`Tap`] in front of a second listener, and look at ACLs where there are any.
    pub fn start_tapped(brokers: usize) -> Result<Self> {
        let ports = (0..brokers).map(|_| Port::lease()).collect::<Result<_>>()?;
        Self::start_with(ports, Shape { tapped: true, ..Shape::default() }, &Additions::default())
    }

    /// Starts one broker on a disk of its own, so small that [`Kafka::disk`] can fill it.
    ///
    /// # Errors
    /// As [`Kafka::start`], and when we may not mount: this needs root.
    pub fn start_on_small_disk(mib: u32) -> Result<Self> {
        Self::start_one(Shape { disk_mib: Some(mib), ..Shape::default() })
    }

    /// Starts one broker where members of a new group that join within a second of each other begin with the partitions that
    /// they keep. (Kafka itself waits for three seconds, and [`Kafka::start`] not at all.)
    pub fn start_gathering() -> Result<Self> {
        Self::start_one(Shape { gather_ms: GATHER_MS, ..Shape::default() })
    }

    /// Starts one broker whose Java machine is set as Kafka's own scripts set it, not as suits tests: it gets faster for a
    /// minute or two, and then is faster. It gathers members as [`Kafka::start_gathering`] does.
    pub fn start_as_shipped() -> Result<Self> {
        Self::start_one(Shape { jvm: Jvm::AsShipped, gather_ms: GATHER_MS, ..Shape::default() })
    }

    fn start_one(shape: Shape) -> Result<Self> {
        Self::start_with(vec![Port::lease()?], shape, &Additions::default())
    }

    fn start_with(ports: Vec<Port>, shape: Shape, additions: &Additions) -> Result<Self> {
        ensure!(matches!(ports.len(), 1 | 3), "Kafka runs here with 1 or 3 brokers, not {}", ports.len());
        let scratch = Scratch::new("kafka")?;
        let mut brokers = broker::prepare(ports, shape, &scratch, additions)?;
        for broker in &mut brokers {
            broker.start()?;
        }
        let bootstrap: Vec<String> = brokers.iter().map(Broker::address).collect();
        let taps = brokers.iter().filter_map(|broker| broker.tap().transpose()).collect::<Result<_>>()?;
        let mut kafka = Self { brokers, client: KafkaClient::new(&bootstrap.join(",")), taps, _scratch: scratch };
        for index in 0..kafka.brokers.len() {
            kafka.wait_serving(index)?;
        }
        Ok(kafka)
    }

    pub fn bootstrap(&self) -> &str {
        self.client.bootstrap()
    }

    pub fn client(&self) -> &KafkaClient {
        &self.client
    }

    /// The broker that coordinates a group (`topic` `__consumer_offsets`) or a transactional id (`__transaction_state`):
    /// the leader of the partition that Java's hash of its name gives.
    pub fn coordinator(&self, topic: &str, name: &str) -> Result<usize> {
        let hash = name.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
        let partition = (hash & i32::MAX) % broker::INTERNAL_PARTITIONS;
        self.leader(topic, partition)
    }

    pub fn leader(&self, topic: &str, partition: i32) -> Result<usize> {
        Ok(usize::try_from(self.client.leader_of(topic, partition)? - 1)?)
    }

    pub fn tap(&self, broker: usize) -> &Tap {
        &self.taps[broker]
    }

    pub fn tapped_client(&self) -> KafkaClient {
        let addresses: Vec<String> = self.taps.iter().map(|tap| tap.address().to_string()).collect();
        KafkaClient::new(&addresses.join(","))
    }

    pub fn log_files(&self) -> Vec<PathBuf> {
        self.brokers.iter().map(Broker::log_file).collect()
    }

    /// What a topic's records take on the brokers' disks, in bytes, each replica counted.
    ///
    /// # Errors
    /// When no broker has such a topic, or brokers' folders cannot be read (as those on a [small disk](Self::start_on_small_disk)).
    pub fn bytes_on_disk(&self, topic: &str) -> Result<u64> {
        let mut files = Vec::new();
        for broker in &self.brokers {
            files.extend(broker.segments_of(topic)?);
        }
        ensure!(!files.is_empty(), "no broker has a file of {topic}");
        files.iter().map(|file| Ok(file.metadata()?.len())).sum()
    }

    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        self.client.create_topic(name, partitions)
    }

    pub fn pid(&mut self, broker: usize) -> Result<i32> {
        Ok(self.brokers[broker].process()?.pid())
    }

    /// Ends a broker in an orderly way.
    pub fn stop(&mut self, broker: usize) -> Result<()> {
        let process = self.brokers[broker].process()?;
        process.signal(Signal::TERM);
        process.wait_exit(STOP_DEADLINE).map(|_| ())
    }

    /// The disk of a broker that was started on one of its own.
    pub fn disk(&self, broker: usize) -> Result<&SmallDisk> {
        self.brokers[broker].disk()
    }

    pub fn wait_ended(&mut self, broker: usize, deadline: Duration) -> Result<Exit> {
        self.brokers[broker].process()?.wait_exit(deadline)
    }

    pub fn kill(&mut self, broker: usize) -> Result<()> {
        self.brokers[broker].process()?.kill();
        Ok(())
    }

    /// Freezes a broker: its sockets stay open and nobody answers.
    pub fn freeze(&mut self, broker: usize) -> Result<()> {
        self.brokers[broker].process()?.signal(Signal::STOP);
        Ok(())
    }

    pub fn thaw(&mut self, broker: usize) -> Result<()> {
        self.brokers[broker].process()?.signal(Signal::CONT);
        Ok(())
    }

    /// Starts a broker again, with its data, and does not wait: alone it may not be able to serve.
    pub fn start_again(&mut self, broker: usize) -> Result<()> {
        self.brokers[broker].start()
    }

    /// Starts a broker again, with its data, and waits until it serves. One that still runs is killed first.
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
