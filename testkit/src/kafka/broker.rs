//! One broker: its properties, its format, its process.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{formatted, tap::Tap};
use crate::{
    disk::SmallDisk,
    ports::Port,
    process::{Exit, Guarded, program},
    scratch::Scratch,
};

/// Any 16 bytes in URL-safe base64; nodes of one cluster must agree.
pub(super) const CLUSTER_ID: &str = "d2Vpci10ZXN0LWthZmthMA";
/// What a broker's folder calls that of its records.
const DATA: &str = "data";
/// How long formatting may take. Measured: 1.5 s.
const FORMAT_DEADLINE: Duration = Duration::from_secs(60);
/// The largest message accepted: more than any test needs, below librdkafka's own bound on a fetch.
const MAX_MESSAGE_BYTES: u32 = 10 * 1024 * 1024;

/// Where a broker's Java machine unpacks native libraries, in the broker's folder: one that is killed would leave them behind elsewhere.
const UNPACKED: &str = "tmp";

/// Partitions of the topics that groups and transactions are kept in.
pub(super) const INTERNAL_PARTITIONS: i32 = 8;

pub fn libs_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).join(".weir/kafka-libs")
}

/// What a broker has besides its one open listener.
#[derive(Debug, Clone, Default)]
pub(super) struct Additions {
    /// Name, port and security protocol of further listeners.
    pub(super) listeners: Vec<(&'static str, u16, &'static str)>,
    pub(super) properties: Vec<(String, String)>,
    /// Further arguments of StorageTool's `format`.
    pub(super) format_args: Vec<String>,
}

impl Additions {
    /// `,NAME://127.0.0.1:port` of each listener.
    fn addresses(&self) -> String {
        self.listeners.iter().fold(String::new(), |text, (name, port, _)| format!("{text},{name}://127.0.0.1:{port}"))
    }

    /// `,NAME:PROTOCOL` of each listener.
    fn protocols(&self) -> String {
        self.listeners.iter().fold(String::new(), |text, (name, _, protocol)| format!("{text},{name}:{protocol}"))
    }
}

#[derive(Debug)]
pub(super) struct Broker {
    node: usize,
    port: Port,
    controller: Port,
    tapped: Option<Tapped>,
    shape: Shape,
    folder: PathBuf,
    // The process before its disk: fields are dropped in their order.
    process: Option<Guarded>,
    disk: Option<SmallDisk>,
}

/// A second listener, and the port of the tap that it advertises.
#[derive(Debug)]
struct Tapped {
    listener: Port,
    tap: Port,
}

/// How the Java machine of a broker is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Jvm {
    /// A small heap, and the client compiler alone: it starts faster and takes less of two cores from the tests.
    #[default]
    Light,
    /// As Kafka's own `kafka-server-start.sh` and `kafka-run-class.sh` set it.
    AsShipped,
}

impl Jvm {
    fn arguments(self) -> impl Iterator<Item = &'static str> {
        let arguments = match self {
            Self::Light => "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            Self::AsShipped => {
                "-Xmx1G -Xms1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 \
                 -XX:+ExplicitGCInvokesConcurrent"
            }
        };
        arguments.split(' ')
    }
}

/// What is not usual about brokers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shape {
    /// Whether each broker has a tap in front of a second listener.
    pub(super) tapped: bool,
    pub(super) jvm: Jvm,
    /// The size of each broker's disk, where it is one of its own.
    pub(super) disk_mib: Option<u32>,
    /// How long a new group waits for further members before its first generation.
    pub(super) gather_ms: u32,
}

/// Makes and formats the folders of a cluster's brokers.
pub(super) fn prepare(ports: Vec<Port>, shape: Shape, scratch: &Scratch, additions: &Additions) -> Result<Vec<Broker>> {
    let mut brokers = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        let folder = scratch.join(&format!("broker-{index}"));
        std::fs::create_dir_all(folder.join(UNPACKED))?;
        let tapped = if shape.tapped { Some(Tapped { listener: Port::lease()?, tap: Port::lease()? }) } else { None };
        let (data, said) = (folder.join(DATA), folder.join("disk.log"));
        let disk = shape.disk_mib.map(|mib| SmallDisk::over(&data, mib, &said)).transpose()?;
        let controller = Port::lease()?;
        brokers.push(Broker { node: index + 1, port, controller, tapped, shape, folder, process: None, disk });
    }
    let voters: Vec<String> =
        brokers.iter().map(|broker| format!("{}@127.0.0.1:{}", broker.node, broker.controller.number())).collect();
    for broker in &brokers {
        std::fs::write(broker.properties_file(), broker.properties(&voters, additions))?;
    }
    // As all others, unless users come with it, or it is inside of a disk.
    let is_usual = additions.format_args.is_empty() && shape.disk_mib.is_none();
    let mut formats = Vec::new();
    for broker in &brokers {
        if !(is_usual && formatted::format_as_kept(&broker.data(), broker.node)?) {
            formats.push(broker.format(additions)?);
        }
    }
    // Side by side: a JVM's start is most of it.
    for mut format in formats {
        let exit = format.wait_exit(FORMAT_DEADLINE)?;
        ensure!(exit == Exit::Code(0), "Kafka's StorageTool ended with {exit:?}: {}", format.log_tail());
    }
    if let (true, Some(first)) = (is_usual, brokers.first()) {
        formatted::keep(&first.data())?;
    }
    Ok(brokers)
}

impl Broker {
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// A tap in front of the listener that is there for it.
    pub(super) fn tap(&self) -> Result<Option<Tap>> {
        let start = |tapped: &Tapped| Tap::start(&tapped.tap, format!("127.0.0.1:{}", tapped.listener.number()));
        self.tapped.as_ref().map(start).transpose()
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.folder.join("broker.log")
    }

    pub(super) fn segments_of(&self, topic: &str) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for folder in std::fs::read_dir(self.data())? {
            let folder = folder?;
            let name = folder.file_name();
            if name.to_str().and_then(|name| name.rsplit_once('-')).is_some_and(|(name, _partition)| name == topic) {
                for file in std::fs::read_dir(folder.path())? {
                    files.push(file?.path());
                }
            }
        }
        files.retain(|file| file.extension().is_some_and(|ending| ending == "log"));
        Ok(files)
    }

    pub(super) fn start(&mut self) -> Result<()> {
        self.process = None;
        let mut java = self.java()?;
        java.args(self.shape.jvm.arguments()).arg("kafka.Kafka").arg(self.properties_file());
        let name = format!("Kafka broker {}", self.node - 1);
        self.process = Some(Guarded::spawn(&name, &self.on_disk(java)?, &self.log_file())?);
        Ok(())
    }

    pub(super) fn process(&mut self) -> Result<&mut Guarded> {
        self.process.as_mut().context("the broker was never started")
    }

    pub(super) fn disk(&self) -> Result<&SmallDisk> {
        self.disk.as_ref().context("the broker has no disk of its own")
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.exit().is_none())
    }

    fn data(&self) -> PathBuf {
        self.folder.join(DATA)
    }

    fn properties_file(&self) -> PathBuf {
        self.folder.join("server.properties")
    }

    fn format(&self, additions: &Additions) -> Result<Guarded> {
        let mut java = self.java()?;
        java.args(Jvm::Light.arguments()).arg("kafka.tools.StorageTool");
        java.args(["format", "-t", CLUSTER_ID, "-c"]).arg(self.properties_file()).args(&additions.format_args);
        Guarded::spawn("Kafka's StorageTool", &self.on_disk(java)?, &self.folder.join("format.log"))
    }

    fn java(&self) -> Result<Command> {
        let mut java = java()?;
        java.arg(format!("-Djava.io.tmpdir={}", self.folder.join(UNPACKED).display()));
        Ok(java)
    }

    fn on_disk(&self, command: Command) -> Result<Command> {
        match &self.disk {
            None => Ok(command),
            Some(disk) => disk.command(&command),
        }
    }

    fn properties(&self, voters: &[String], additions: &Additions) -> String {
        let (doors, protocols) = (additions.addresses(), additions.protocols());
        let replicas = voters.len();
        let in_sync = if replicas == 1 { 1 } else { 2 };
        let (own, controller) = (self.address(), self.controller.number());
        let (listens, advertises) = self.tapped.as_ref().map_or_else(Default::default, |tapped| {
            let (listener, tap) = (tapped.listener.number(), tapped.tap.number());
            (format!(",TAPPED://127.0.0.1:{listener}"), format!(",TAPPED://127.0.0.1:{tap}"))
        });
        let authorizer: &[(&str, &str)] = match self.tapped {
            None => &[],
            Some(_) => &[
                ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
                ("allow.everyone.if.no.acl.found", "true"),
            ],
        };
        let rules: &[(&str, &str)] = &[
            ("process.roles", "broker,controller"),
            ("node.id", &self.node.to_string()),
            ("controller.quorum.voters", &voters.join(",")),
            ("listeners", &format!("PLAINTEXT://{own}{doors},CONTROLLER://127.0.0.1:{controller}{listens}")),
            ("advertised.listeners", &format!("PLAINTEXT://{own}{doors}{advertises}")),
            ("controller.listener.names", "CONTROLLER"),
            ("inter.broker.listener.name", "PLAINTEXT"),
            (
                "listener.security.protocol.map",
                &format!("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TAPPED:PLAINTEXT{protocols}"),
            ),
            ("log.dirs", &self.data().display().to_string()),
            ("auto.create.topics.enable", "false"),
            ("default.replication.factor", &replicas.to_string()),
            ("min.insync.replicas", &in_sync.to_string()),
            ("offsets.topic.replication.factor", &replicas.to_string()),
            ("transaction.state.log.replication.factor", &replicas.to_string()),
            ("transaction.state.log.min.isr", &in_sync.to_string()),
            // Fewer files than the default 50 of each: the first group and the first transaction wait for them.
            ("offsets.topic.num.partitions", &INTERNAL_PARTITIONS.to_string()),
            ("transaction.state.log.num.partitions", &INTERNAL_PARTITIONS.to_string()),
            ("message.max.bytes", &MAX_MESSAGE_BYTES.to_string()),
            ("replica.fetch.max.bytes", &MAX_MESSAGE_BYTES.to_string()),
            ("log.retention.ms", "-1"),
            ("log.cleaner.dedupe.buffer.size", "16777216"),
            ("log.cleaner.backoff.ms", "1000"),
            // What a test would otherwise wait for: a first rebalance, a dead member, a dead broker, a dead producer.
            ("group.initial.rebalance.delay.ms", &self.shape.gather_ms.to_string()),
            ("group.min.session.timeout.ms", "500"),
            ("broker.session.timeout.ms", "4000"),
            ("broker.heartbeat.interval.ms", "500"),
            ("transaction.max.timeout.ms", "900000"),
            ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500"),
        ];
        let further = additions.properties.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let all = rules.iter().copied().chain(authorizer.iter().copied()).chain(further);
        all.map(|(key, value)| format!("{key}={value}\n")).collect()
    }
}

/// `java` with the jars on its class path and warnings on stderr. It writes no figures for other programs of Java into the system's
/// temporary folder.
pub(super) fn java() -> Result<Command> {
    let libs = libs_folder();
    ensure!(libs.is_dir(), "no Kafka jars in {}: run `cargo xtask setup`", libs.display());
    let mut java = Command::new(program("java")?);
    java.args(["-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"]).arg(libs.join("*"));
    Ok(java)
}
