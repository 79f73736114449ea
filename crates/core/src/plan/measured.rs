//! What the plan takes from measurements.

use super::Curve;

/// The constants, as `cargo xtask bench` measured them. All are positive and finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Bytes of Redis memory a user, by sends in the user's history.
    pub user_bytes: Curve,
    /// CPU of Redis a decision in microseconds, by sends in the user's history, under two caps.
    pub redis_us_by_sends: Curve,
    /// The same for eight sends, by the number of caps.
    pub redis_us_by_caps: Curve,
    /// Resident over allocated memory of Redis.
    pub resident_ratio: f64,
    /// Memory of a Redis server without keys, in bytes.
    pub empty_node_bytes: f64,
    /// Bytes to Redis a decision.
    pub redis_in_bytes: f64,
    /// Bytes from Redis a decision.
    pub redis_out_bytes: f64,
    /// Intents a second of one lane.
    pub lane_per_s: f64,
    /// CPU of the worker an intent, in microseconds.
    pub worker_us: f64,
    /// Resident memory of a worker of one lane, in bytes.
    pub worker_bytes: f64,
    /// CPU of `weir rebuild` a send, in microseconds.
    pub rebuild_us: f64,
    /// Bytes that an approved record has more than its intent.
    pub headers_bytes: f64,
    /// Bytes that a suppressed record has more than its intent.
    pub envelope_bytes: f64,
}

/// The name of a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the constant of its name in `Measured`")]
pub enum Constant {
    UserBytes,
    RedisUsBySends,
    RedisUsByCaps,
    ResidentRatio,
    EmptyNodeBytes,
    RedisInBytes,
    RedisOutBytes,
    LanePerS,
    WorkerUs,
    WorkerBytes,
    RebuildUs,
    HeadersBytes,
    EnvelopeBytes,
}

impl Constant {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::UserBytes,
        Self::RedisUsBySends,
        Self::RedisUsByCaps,
        Self::ResidentRatio,
        Self::EmptyNodeBytes,
        Self::RedisInBytes,
        Self::RedisOutBytes,
        Self::LanePerS,
        Self::WorkerUs,
        Self::WorkerBytes,
        Self::RebuildUs,
        Self::HeadersBytes,
        Self::EnvelopeBytes,
    ];

    /// What it says.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::UserBytes => "Redis memory a user, by sends in the history",
            Self::RedisUsBySends => "Redis CPU a decision under two caps, by sends in the user's history",
            Self::RedisUsByCaps => "Redis CPU a decision on up to eight sends, by caps",
            Self::ResidentRatio => "resident over allocated memory of Redis, after filling it",
            Self::EmptyNodeBytes => "memory of a Redis server without keys",
            Self::RedisInBytes => "bytes to Redis a decision",
            Self::RedisOutBytes => "bytes from Redis a decision",
            Self::LanePerS => "intents a second of one lane, broker and Redis on the same cores",
            Self::WorkerUs => "worker CPU an intent, the Kafka library's included",
            Self::WorkerBytes => "resident memory of a worker of one lane, at most",
            Self::RebuildUs => "CPU of weir rebuild a send, of a build without optimisation",
            Self::HeadersBytes => "what an approved record has more than its intent",
            Self::EnvelopeBytes => "what a suppressed record has more than its intent",
        }
    }

    /// Which file it stands in.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::RebuildUs => "benches/measured-rebuild.json",
            Self::UserBytes
            | Self::RedisUsBySends
            | Self::RedisUsByCaps
            | Self::ResidentRatio
            | Self::EmptyNodeBytes
            | Self::RedisInBytes
            | Self::RedisOutBytes
            | Self::LanePerS
            | Self::WorkerUs
            | Self::WorkerBytes
            | Self::HeadersBytes
            | Self::EnvelopeBytes => "benches/measured.json",
        }
    }

    /// Where it stands in that file: as jq would say it.
    #[must_use]
    pub fn place(self) -> &'static str {
        match self {
            Self::UserBytes => ".store.by_sends[].user_bytes",
            Self::RedisUsBySends => ".store.by_sends[].cpu_us",
            Self::RedisUsByCaps => ".store.by_caps[].cpu_us",
            Self::ResidentRatio => ".store.resident_ratio",
            Self::EmptyNodeBytes => ".store.empty_node_bytes",
            Self::RedisInBytes => ".store.net_in_bytes",
            Self::RedisOutBytes => ".store.net_out_bytes",
            Self::LanePerS => r#".figures[] | select(.name == "intents/s").weir"#,
            Self::WorkerUs => r#".figures[] | select(.name == "worker CPU, us an intent").weir"#,
            Self::WorkerBytes => r#".figures[] | select(.name == "resident memory at most, MiB").weir"#,
            Self::RebuildUs => ".rebuild.cpu_us",
            Self::HeadersBytes => ".sizes.approved_headers_bytes",
            Self::EnvelopeBytes => ".sizes.envelope_bytes",
        }
    }
}
