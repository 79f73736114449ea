//! What the Redis edge counts. Shared by all lanes; read by `/metrics`.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Why a request was sent again, or given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RetryCause {
    /// MOVED: the slot lives elsewhere.
    Moved,
    /// ASK: the slot is moving.
    Ask,
    /// TRYAGAIN: the keys of a moving slot are apart.
    TryAgain,
    /// NOSCRIPT.
    NoScript,
    /// The epoch is gone or another.
    LostHistory,
    /// CLUSTERDOWN.
    ClusterDown,
    /// LOADING: the node reads its data.
    Loading,
    /// MASTERDOWN.
    MasterDown,
    /// BUSY: somebody's script runs too long.
    Busy,
    /// READONLY: a replica, or a primary no more.
    ReadOnly,
    /// OOM: maxmemory is reached.
    OutOfMemory,
    /// NOREPLICAS: min-replicas-to-write.
    NoReplicas,
    /// MISCONF: the node cannot save.
    Misconf,
    /// No connection, or it broke.
    ConnectionLost,
    /// No reply in time.
    Timeout,
    /// Fewer replicas than `redis.wait_replicas` had the writes in time.
    TooFewReplicas,
    /// The history held a kind that this worker did not know yet.
    StaleKinds,
    /// The call had done enough work.
    PutOff,
    /// Any other error reply.
    Refused,
}

impl RetryCause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 19] = [
        Self::Moved,
        Self::Ask,
        Self::TryAgain,
        Self::NoScript,
        Self::LostHistory,
        Self::ClusterDown,
        Self::Loading,
        Self::MasterDown,
        Self::Busy,
        Self::ReadOnly,
        Self::OutOfMemory,
        Self::NoReplicas,
        Self::Misconf,
        Self::ConnectionLost,
        Self::Timeout,
        Self::TooFewReplicas,
        Self::StaleKinds,
        Self::PutOff,
        Self::Refused,
    ];

    /// The value of the metric's `cause` label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Ask => "ask",
            Self::TryAgain => "try_again",
            Self::NoScript => "no_script",
            Self::LostHistory => "lost_history",
            Self::ClusterDown => "cluster_down",
            Self::Loading => "loading",
            Self::MasterDown => "master_down",
            Self::Busy => "busy",
            Self::ReadOnly => "read_only",
            Self::OutOfMemory => "out_of_memory",
            Self::NoReplicas => "no_replicas",
            Self::Misconf => "misconf",
            Self::ConnectionLost => "connection_lost",
            Self::Timeout => "timeout",
            Self::TooFewReplicas => "too_few_replicas",
            Self::StaleKinds => "stale_kinds",
            Self::PutOff => "put_off",
            Self::Refused => "refused",
        }
    }
}

/// Counters since the start; all only grow, but for the maxima.
#[derive(Debug, Default)]
pub struct RedisStats {
    round_trips: AtomicU64,
    calls: AtomicU64,
    items: AtomicU64,
    troubles: [AtomicU64; RetryCause::ALL.len()],
    connections: AtomicU64,
    map_refreshes: AtomicU64,
    script_loads: AtomicU64,
    ahead: AtomicU64,
    dropped: AtomicU64,
    most_items: AtomicU64,
    slowest_micros: AtomicU64,
    round_trip_micros: AtomicU64,
}

impl RedisStats {
    /// Pipelines sent and answered, or failed.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.round_trips.load(Relaxed)
    }

    /// Calls of the admit script.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// Sends in them.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items.load(Relaxed)
    }

    /// Requests that met this trouble.
    #[must_use]
    pub fn troubles(&self, cause: RetryCause) -> u64 {
        self.troubles[cause as usize].load(Relaxed)
    }

    /// Connections made.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// Times the slot map was read.
    #[must_use]
    pub fn map_refreshes(&self) -> u64 {
        self.map_refreshes.load(Relaxed)
    }

    /// Scripts loaded.
    #[must_use]
    pub fn script_loads(&self) -> u64 {
        self.script_loads.load(Relaxed)
    }

    /// Answers for a user whose history holds an entry far ahead of the clock.
    #[must_use]
    pub fn ahead(&self) -> u64 {
        self.ahead.load(Relaxed)
    }

    /// Sends that were recorded in place of their user's oldest entries, which were too many.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// The most sends in one call so far.
    #[must_use]
    pub fn most_items(&self) -> u64 {
        self.most_items.load(Relaxed)
    }

    /// The slowest round trip so far.
    #[must_use]
    pub fn slowest_round_trip(&self) -> Duration {
        Duration::from_micros(self.slowest_micros.load(Relaxed))
    }

    /// The time of all round trips together.
    #[must_use]
    pub fn time_in_round_trips(&self) -> Duration {
        Duration::from_micros(self.round_trip_micros.load(Relaxed))
    }

    pub(super) fn round_trip(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.round_trips.fetch_add(1, Relaxed);
        self.round_trip_micros.fetch_add(micros, Relaxed);
        self.slowest_micros.fetch_max(micros, Relaxed);
    }

    pub(super) fn call(&self, items: usize) {
        let items = items as u64;
        self.calls.fetch_add(1, Relaxed);
        self.items.fetch_add(items, Relaxed);
        self.most_items.fetch_max(items, Relaxed);
    }

    pub(super) fn trouble(&self, cause: RetryCause) {
        self.troubles[cause as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn connection(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(super) fn map_refresh(&self) {
        self.map_refreshes.fetch_add(1, Relaxed);
    }

    pub(super) fn script_load(&self) {
        self.script_loads.fetch_add(1, Relaxed);
    }

    pub(super) fn entries_dropped(&self, times: u64) {
        self.dropped.fetch_add(times, Relaxed);
    }

    pub(super) fn ahead_seen(&self) {
        self.ahead.fetch_add(1, Relaxed);
    }
}
