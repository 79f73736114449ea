//! The counters of the Redis edge. Shared by all lanes; read by `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The causes of retries, and the value of the metric's `cause` label for each.
macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// Why a request was sent again, or given up.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum RetryCause {
            $($(#[$doc])* $name,)*
        }

        impl RetryCause {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; [$($label),*].len()] = [$(Self::$name),*];

            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }
        }
    };
}

causes! {
    /// MOVED: the slot lives elsewhere.
    Moved = "moved",
    /// ASK: the slot is moving.
    Ask = "ask",
    /// TRYAGAIN: the keys of a moving slot are on two nodes.
    TryAgain = "try_again",
    NoScript = "no_script",
    /// The epoch is gone or another.
    LostHistory = "lost_history",
    ClusterDown = "cluster_down",
    /// LOADING: the node reads its data.
    Loading = "loading",
    MasterDown = "master_down",
    /// BUSY: somebody's script runs too long.
    Busy = "busy",
    /// READONLY: a replica, or a primary no more.
    ReadOnly = "read_only",
    /// OOM: maxmemory is reached.
    OutOfMemory = "out_of_memory",
    /// NOREPLICAS: min-replicas-to-write.
    NoReplicas = "no_replicas",
    /// MISCONF: the node cannot save.
    Misconf = "misconf",
    /// No connection, or it broke.
    ConnectionLost = "connection_lost",
    Timeout = "timeout",
    /// Fewer replicas than `redis.wait_replicas` had the writes in time.
    TooFewReplicas = "too_few_replicas",
    /// The history held a kind that this worker did not know yet.
    StaleKinds = "stale_kinds",
    /// The call had done enough work.
    PutOff = "put_off",
    Refused = "refused",
}

/// Numbers that only grow, and how each is read.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the start; all only grow.
        #[derive(Debug, Default)]
        pub struct RedisStats {
            troubles: [AtomicU64; RetryCause::ALL.len()],
            $($name: AtomicU64,)*
        }

        impl RedisStats {
            $(
                $(#[$doc])*
                pub fn $name(&self) -> u64 {
                    self.$name.load(Relaxed)
                }
            )*
        }
    };
}

numbers! {
    /// Pipelines sent and answered, or failed.
    round_trips,
    /// Calls of the admit script.
    calls,
    items,
    /// Sends for which the oldest entries of a full history were dropped.
    dropped,
    /// The most sends in one call so far.
    most_items,
}

impl RedisStats {
    pub fn errors(&self, cause: RetryCause) -> u64 {
        self.troubles[cause as usize].load(Relaxed)
    }

    pub(super) fn round_trip(&self) {
        self.round_trips.fetch_add(1, Relaxed);
    }

    pub(super) fn call(&self, items: usize) {
        let items = items as u64;
        self.calls.fetch_add(1, Relaxed);
        self.items.fetch_add(items, Relaxed);
        self.most_items.fetch_max(items, Relaxed);
    }

    pub(super) fn error(&self, cause: RetryCause) {
        self.troubles[cause as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn entries_dropped(&self, times: u64) {
        self.dropped.fetch_add(times, Relaxed);
    }
}
