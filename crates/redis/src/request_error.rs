//! The errors of a request to a node, when to send it again, and the error for shards without their history.

use redis::{RedisError, ServerError};
use weir_core::ports::StoreError;

use super::{address::NodeAddr, stats::RetryCause};

/// The advice where a script may not run one of its commands.
const GRANT_ALL: &str = "(the ACL user lacks a command that weir's scripts use: grant all that docs/security.md lists)";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("{node}: slot {slot} has moved to {to}")]
    Moved { node: NodeAddr, slot: u16, to: NodeAddr },
    /// The slot is moving; the key is on the new node already, if anywhere.
    #[error("{node}: a slot is moving to {to}")]
    Ask { node: NodeAddr, to: NodeAddr },
    /// The slot is moving, and the keys of the request are on both nodes, or not on the new one yet.
    #[error("{node}: keys of a moving slot are on two nodes (TRYAGAIN)")]
    Apart { node: NodeAddr },
    #[error("{node}: the script is not loaded")]
    NoScript { node: NodeAddr },
    /// The epoch is gone or another.
    #[error("{message}")]
    LostHistory { message: String },
    /// The node cannot answer now, or cannot be reached.
    #[error("{node}: {message}")]
    Unavailable { node: NodeAddr, cause: RetryCause, message: String },
    /// Sending it again would not help: no permission, a key of another type, a reply of another shape.
    #[error("{node}: {message}")]
    Refused { node: NodeAddr, message: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RetryTiming {
    AtOnce,
    AfterWait,
    Never,
}

impl RequestError {
    pub(super) fn of_reply(error: &ServerError, asked: &NodeAddr) -> Self {
        let node = asked.clone();
        let details = error.details().unwrap_or_default();
        let message = format!("{} {details}", error.code()).trim_end().to_owned();
        let unavailable = |cause| Self::Unavailable { node: node.clone(), cause, message: message.clone() };
        let mut words = details.split_ascii_whitespace();
        match error.code() {
            "MOVED" | "ASK" => {
                let slot = words.next().and_then(|slot| slot.parse().ok());
                let to = words.next().and_then(|to| NodeAddr::of_redirect(to, asked));
                match (error.code(), slot, to) {
                    ("MOVED", Some(slot), Some(to)) => Self::Moved { node, slot, to },
                    ("ASK", Some(_), Some(to)) => Self::Ask { node, to },
                    _ => Self::Refused { node, message },
                }
            }
            "TRYAGAIN" => Self::Apart { node },
            "NOSCRIPT" => Self::NoScript { node },
            "LOSTHISTORY" => Self::LostHistory { message: details.to_owned() },
            "BUDGETCLOSED" => Self::LostHistory { message: format!("it is closed ({details})") },
            "LATE" => unavailable(RetryCause::Timeout),
            "CLUSTERDOWN" => unavailable(RetryCause::ClusterDown),
            "LOADING" => unavailable(RetryCause::Loading),
            "MASTERDOWN" => unavailable(RetryCause::MasterDown),
            "BUSY" => unavailable(RetryCause::Busy),
            "READONLY" => unavailable(RetryCause::ReadOnly),
            "OOM" => unavailable(RetryCause::OutOfMemory),
            "NOREPLICAS" => unavailable(RetryCause::NoReplicas),
            "MISCONF" => unavailable(RetryCause::Misconf),
            // Redis 7.0 does not say which: the one at that line of the script.
            _ if details.contains("can't run this command") => {
                Self::Refused { node, message: format!("NOPERM {message} {GRANT_ALL}") }
            }
            _ if details.contains("undeclared keys were accessed during rehashing") => Self::Apart { node },
            _ => Self::Refused { node, message },
        }
    }

    pub(super) fn of_connection(error: &RedisError, asked: &NodeAddr) -> Self {
        let node = asked.clone();
        let message = error.to_string();
        if error.is_timeout() {
            return Self::Unavailable { node, cause: RetryCause::Timeout, message: "no reply in time".to_owned() };
        }
        // A certificate that one of the two does not trust comes as an I/O error, and does not get better.
        if ["certificate", "alert"].iter().any(|word| message.to_lowercase().contains(word)) {
            return Self::Refused { node, message };
        }
        if error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal() {
            return Self::Unavailable { node, cause: RetryCause::ConnectionLost, message };
        }
        match error.code() {
            Some("LOADING") => Self::Unavailable { node, cause: RetryCause::Loading, message },
            Some("MASTERDOWN") => Self::Unavailable { node, cause: RetryCause::MasterDown, message },
            Some("BUSY") => Self::Unavailable { node, cause: RetryCause::Busy, message },
            Some(_) | None => Self::Refused { node, message },
        }
    }

    /// A reply of another shape than expected.
    pub(super) fn torn(asked: &NodeAddr, what: &str) -> Self {
        Self::Refused { node: asked.clone(), message: format!("its reply is not what weir's script gives: {what}") }
    }

    pub(super) fn retry_timing(&self) -> RetryTiming {
        match self {
            Self::Moved { .. } | Self::Ask { .. } | Self::NoScript { .. } => RetryTiming::AtOnce,
            Self::Apart { .. } | Self::Unavailable { .. } => RetryTiming::AfterWait,
            Self::LostHistory { .. } | Self::Refused { .. } => RetryTiming::Never,
        }
    }

    /// Whether the request may have been carried out all the same.
    pub(super) fn may_have_run(&self) -> bool {
        match self {
            Self::Unavailable { cause, .. } => match cause {
                RetryCause::ConnectionLost | RetryCause::Timeout | RetryCause::TooFewReplicas => true,
                RetryCause::Moved
                | RetryCause::Ask
                | RetryCause::TryAgain
                | RetryCause::NoScript
                | RetryCause::LostHistory
                | RetryCause::ClusterDown
                | RetryCause::Loading
                | RetryCause::MasterDown
                | RetryCause::Busy
                | RetryCause::ReadOnly
                | RetryCause::OutOfMemory
                | RetryCause::NoReplicas
                | RetryCause::Misconf
                | RetryCause::Refused
                | RetryCause::StaleKinds
                | RetryCause::PutOff => false,
            },
            Self::Refused { .. } => true,
            Self::Moved { .. }
            | Self::Ask { .. }
            | Self::Apart { .. }
            | Self::NoScript { .. }
            | Self::LostHistory { .. } => false,
        }
    }

    pub(super) fn cause(&self) -> RetryCause {
        match self {
            Self::Moved { .. } => RetryCause::Moved,
            Self::Ask { .. } => RetryCause::Ask,
            Self::Apart { .. } => RetryCause::TryAgain,
            Self::NoScript { .. } => RetryCause::NoScript,
            Self::LostHistory { .. } => RetryCause::LostHistory,
            Self::Unavailable { cause, .. } => *cause,
            Self::Refused { .. } => RetryCause::Refused,
        }
    }

    pub(super) fn doubts_the_map(&self) -> bool {
        match self {
            Self::Moved { .. } | Self::Unavailable { .. } => true,
            Self::Ask { .. }
            | Self::Apart { .. }
            | Self::NoScript { .. }
            | Self::LostHistory { .. }
            | Self::Refused { .. } => false,
        }
    }
}

pub(super) fn lost_history(shards: Vec<u16>, found: &str) -> StoreError {
    StoreError::LostHistory {
        shards,
        message: format!("{found}; their intents wait: restore their history with weir rebuild"),
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn of(reply: &str) -> RequestError {
        let asked = NodeAddr { host: "asked".to_owned(), port: 1 };
        match redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => RequestError::of_reply(&error, &asked),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_error_reply_has_its_pace_and_cause() {
        let cases = [
            ("MOVED 3999 127.0.0.1:6381", RetryTiming::AtOnce, RetryCause::Moved),
            ("ASK 3999 127.0.0.1:6381", RetryTiming::AtOnce, RetryCause::Ask),
            ("TRYAGAIN Multiple keys request during rehashing of slot", RetryTiming::AfterWait, RetryCause::TryAgain),
            ("NOSCRIPT No matching script. Please use EVAL.", RetryTiming::AtOnce, RetryCause::NoScript),
            ("CLUSTERDOWN The cluster is down", RetryTiming::AfterWait, RetryCause::ClusterDown),
            ("LOADING Redis is loading the dataset in memory", RetryTiming::AfterWait, RetryCause::Loading),
            ("MASTERDOWN Link with MASTER is down", RetryTiming::AfterWait, RetryCause::MasterDown),
            ("BUSY Redis is busy running a script", RetryTiming::AfterWait, RetryCause::Busy),
            ("READONLY You can't write against a read only replica.", RetryTiming::AfterWait, RetryCause::ReadOnly),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                RetryTiming::AfterWait,
                RetryCause::OutOfMemory,
            ),
            ("NOREPLICAS Not enough good replicas to write.", RetryTiming::AfterWait, RetryCause::NoReplicas),
            ("MISCONF Redis is configured to save RDB snapshots", RetryTiming::AfterWait, RetryCause::Misconf),
            ("LATE the caller has given this call up", RetryTiming::AfterWait, RetryCause::Timeout),
            ("LOSTHISTORY the epoch is gone", RetryTiming::Never, RetryCause::LostHistory),
            ("BUDGETCLOSED a rebuild has to count", RetryTiming::Never, RetryCause::LostHistory),
            ("NOPERM this user has no permissions", RetryTiming::Never, RetryCause::Refused),
            ("WRONGTYPE Operation against a key", RetryTiming::Never, RetryCause::Refused),
            ("ERR anything else", RetryTiming::Never, RetryCause::Refused),
            ("MOVED nonsense", RetryTiming::Never, RetryCause::Refused),
        ];
        for (reply, retry_timing, cause) in cases {
            let error = of(reply);
            assert_eq!((error.retry_timing(), error.cause()), (retry_timing, cause), "{reply}: {error:?}");
        }
    }

    #[test]
    fn redirects_name_a_node_even_where_the_node_asked_does_not_know_its_host() {
        for (reply, expected) in [
            ("MOVED 1 127.0.0.1:6381", "127.0.0.1:6381"),
            ("MOVED 1 :6381", "asked:6381"),
            ("MOVED 1 ?:6381", "asked:6381"),
            ("MOVED 1 [::1]:6381", "[::1]:6381"),
            ("MOVED 1 redis-0.svc:6381", "redis-0.svc:6381"),
        ] {
            let error = of(reply);
            let RequestError::Moved { to, slot: 1, .. } = &error else { panic!("{error:?}") };
            assert_eq!(to.to_string(), expected);
        }
    }
}
