//! What is asked for, by flags and by a file: the flags win.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use weir_core::{
    document::Format,
    plan::{Given, most_sends},
    policy::Policy,
    policy_file::parse_policy,
};

use super::{
    InvalidPlan,
    quantity::{Bytes, Count, Share, Span, Whole},
};
use crate::files::read_file;

/// Makes the struct of all figures and the merge of two of them from one table, so that none is left out.
macro_rules! figures {
    ($($(#[$attribute:meta])* $name:ident: $kind:ty,)*) => {
        /// What is planned for; the same names are flags (with `-`) and keys of the file (with `_`).
        #[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Figures {
            $($(#[$attribute])* pub $name: Option<$kind>,)*
        }

        impl Figures {
            /// These, and where they say nothing the others.
            #[must_use]
            pub fn or(self, others: Self) -> Self {
                Self { $($name: self.$name.or(others.$name),)* }
            }
        }
    };
}

figures! {
    /// Users with a history: 270M
    #[arg(long, value_name = "COUNT")]
    users: Count,
    /// Intents a second, over days: 10k
    #[arg(long, value_name = "PER_S")]
    rate: Count,
    /// Intents a second at the peak: 100k
    #[arg(long, value_name = "PER_S")]
    peak: Count,
    /// Sends of a user within the history [default: what the rate makes and the policy lets through]
    #[arg(long, value_name = "COUNT")]
    sends: Count,
    /// The share of intents that is approved [default: 100%]
    #[arg(long, value_name = "SHARE")]
    approved: Share,
    /// The policy, a .toml or .json file: how many caps and segments there are, and what they let through
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// The most caps that a decision is held to [default: the policy's, else 2]
    #[arg(long, value_name = "COUNT")]
    caps: Whole,
    /// Segments of the set [default: the policy's, else 4]
    #[arg(long, value_name = "COUNT")]
    segments: Whole,
    /// How far back the history reaches (redis.history) [default: 8d]
    #[arg(long, value_name = "TIME")]
    history: Span,
    /// Replicas of each Redis primary [default: 1]
    #[arg(long, value_name = "COUNT")]
    replicas: Whole,
    /// Memory of a Redis node, which has one core: 16GiB [default: 16GiB]
    #[arg(long, value_name = "SIZE")]
    node_memory: Bytes,
    /// The share of a node's memory to fill: the rest is for buffers and copies while it saves [default: 60%]
    #[arg(long, value_name = "SHARE")]
    memory_share: Share,
    /// The share of a Redis node's core to use at the peak [default: 60%]
    #[arg(long, value_name = "SHARE")]
    redis_load: Share,
    /// Shards of the keyspace (redis.shards) [default: 128]
    #[arg(long, value_name = "COUNT")]
    shards: Whole,
    /// The share of a lane's rate to use at the peak [default: 70%]
    #[arg(long, value_name = "SHARE")]
    lane_load: Share,
    /// Lanes of one instance (worker.lanes) [default: 4]
    #[arg(long, value_name = "COUNT")]
    lanes: Whole,
    /// Partitions of the intents topic, where it is there already
    #[arg(long, value_name = "COUNT")]
    partitions: Whole,
    /// Intents decided together (worker.batch) [default: 10000]
    #[arg(long, value_name = "COUNT")]
    batch: Whole,
    /// Bytes of an intent's key [default: 16]
    #[arg(long, value_name = "SIZE")]
    key_size: Bytes,
    /// Bytes of an intent [default: 500]
    #[arg(long, value_name = "SIZE")]
    intent_size: Bytes,
    /// Copies that Kafka keeps of a record [default: 3]
    #[arg(long, value_name = "COUNT")]
    replication: Whole,
    /// Round trip to the brokers [default: 1ms]
    #[arg(long, value_name = "TIME")]
    round_trip: Span,
    /// After this long an intent must be delivered [default: 30s]
    #[arg(long, value_name = "TIME")]
    delivery_timeout: Span,
    /// What weir and delivery take of it for one intent [default: 100ms]
    #[arg(long, value_name = "TIME")]
    processing: Span,
    /// Intents of a blast [default: 10M]
    #[arg(long, value_name = "COUNT")]
    blast: Count,
    /// Cores for a rebuild [default: 4]
    #[arg(long, value_name = "COUNT")]
    rebuild_cores: Whole,
}

impl Figures {
    /// What a file says.
    ///
    /// # Errors
    /// It cannot be read, or something in it is no figure; says where.
    pub fn read(path: &Path) -> Result<Self, InvalidPlan> {
        let text =
            read_file(path).map_err(|error| InvalidPlan(format!("{} cannot be read: {error}", path.display())))?;
        let mut figures: Self = toml::from_str(&text)
            .map_err(|error| InvalidPlan(format!("{}: {}", path.display(), error.to_string().trim_end())))?;
        // Relative to the file, as in weir.toml.
        let folder = path.parent().unwrap_or(Path::new(""));
        figures.policy = figures.policy.map(|policy| folder.join(policy));
        Ok(figures)
    }

    /// With what holds where nothing is said.
    ///
    /// # Errors
    /// What must be said is not, or the policy is wrong.
    pub fn complete(self) -> Result<Given, InvalidPlan> {
        let must = |name: &str, value: Option<Count>| {
            let missing = || InvalidPlan(format!("--{name} is missing: give it as a flag, or as `{name}` in --inputs"));
            value.map(|Count(value)| value).ok_or_else(missing)
        };
        let (users, rate, peak) = (must("users", self.users)?, must("rate", self.rate)?, must("peak", self.peak)?);
        let Span(history_s) = self.history.unwrap_or(Span(8.0 * 86_400.0));
        let history_ms = (history_s * 1000.0) as i64;
        let policy = self.policy.as_deref().map(|path| read_policy(path, history_ms)).transpose()?;
        let whole = |value: Option<Whole>, otherwise| value.map_or(otherwise, |Whole(value)| value);
        let bytes = |value: Option<Bytes>, otherwise| value.map_or(otherwise, |Bytes(value)| value);
        let share = |value: Option<Share>, otherwise| value.map_or(otherwise, |Share(value)| value);
        let span = |value: Option<Span>, otherwise| value.map_or(otherwise, |Span(value)| value);
        Ok(Given {
            users,
            sends: self.sends.map(|Count(sends)| sends),
            rate,
            peak,
            approved: share(self.approved, 1.0),
            caps: whole(self.caps, policy.as_ref().map_or(2.0, most_caps)),
            segments: whole(self.segments, policy.as_ref().map_or(4.0, |policy| policy.segments.len() as f64)),
            most_sends: policy.as_ref().and_then(|policy| most_sends(policy, history_ms)),
            history_s,
            replicas: whole(self.replicas, 1.0),
            node_bytes: bytes(self.node_memory, 16.0 * 1_073_741_824.0),
            memory_share: share(self.memory_share, 0.6),
            redis_load: share(self.redis_load, 0.6),
            shards: whole(self.shards, 128.0),
            lane_load: share(self.lane_load, 0.7),
            lanes_an_instance: whole(self.lanes, 4.0),
            partitions: self.partitions.map(|Whole(partitions)| partitions),
            batch: whole(self.batch, 10_000.0),
            key_bytes: bytes(self.key_size, 16.0),
            value_bytes: bytes(self.intent_size, 500.0),
            replication: whole(self.replication, 3.0),
            round_trip_s: span(self.round_trip, 0.001),
            timeout_s: span(self.delivery_timeout, 30.0),
            processing_s: span(self.processing, 0.1),
            blast: self.blast.map_or(10e6, |Count(blast)| blast),
            rebuild_cores: whole(self.rebuild_cores, 4.0),
        })
    }
}

fn most_caps(policy: &Policy) -> f64 {
    let all = policy.segments.values().chain([&policy.default]);
    all.map(|caps| caps.list().len()).max().unwrap_or(0) as f64
}

fn read_policy(path: &Path, history_ms: i64) -> Result<Policy, InvalidPlan> {
    let name = path.display().to_string();
    let format =
        Format::of_name(&name).ok_or_else(|| InvalidPlan(format!("{name} is neither a .toml nor a .json file")))?;
    let text = read_file(path).map_err(|error| InvalidPlan(format!("{name} cannot be read: {error}")))?;
    parse_policy(&name, &text, format, history_ms).map_err(|problems| InvalidPlan(problems.to_string()))
}
