//! The errors of a request to a node, when to send it again, and the error for shards without their history.

use std::fmt;

use redis::{RedisError, ServerError};
use weir_core::ports::StoreError;

use super::{address::NodeAddr, stats::RetryCause};

/// The advice where a script may not run one of its commands.
const GRANT_ALL: &str = "(the ACL user lacks a command that weir's scripts use: grant all that docs/security.md lists)";

/// What is said of keys of a moving slot that are on two nodes, or not on the new one yet.
const APART: &str = "keys of a moving slot are on two nodes (TRYAGAIN)";

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError {
    pub(super) cause: RetryCause,
    /// The node that said so; of a lost history none.
    node: Option<NodeAddr>,
    pub(super) message: String,
    /// Of a redirect: the slot, and the node that has it, or is given it.
    pub(super) to: Option<(u16, NodeAddr)>,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{node}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RetryTiming {
    AtOnce,
    AfterWait,
    Never,
}

impl RequestError {
    pub(super) fn new(node: &NodeAddr, cause: RetryCause, message: impl Into<String>) -> Self {
        Self { cause, node: Some(node.clone()), message: message.into(), to: None }
    }

    /// The epoch is gone or another.
    pub(super) fn lost(message: impl Into<String>) -> Self {
        Self { cause: RetryCause::LostHistory, node: None, message: message.into(), to: None }
    }

    /// A reply of another shape than expected.
    pub(super) fn torn(asked: &NodeAddr, what: &str) -> Self {
        Self::new(asked, RetryCause::Refused, format!("its reply is not what weir's script gives: {what}"))
    }

    pub(super) fn of_reply(error: &ServerError, asked: &NodeAddr) -> Self {
        let details = error.details().unwrap_or_default();
        let message = format!("{} {details}", error.code()).trim_end().to_owned();
        let cause = match error.code() {
            "MOVED" => return Self::of_redirect(RetryCause::Moved, details, asked, message),
            "ASK" => return Self::of_redirect(RetryCause::Ask, details, asked, message),
            "TRYAGAIN" => return Self::new(asked, RetryCause::TryAgain, APART),
            "NOSCRIPT" => return Self::new(asked, RetryCause::NoScript, "the script is not loaded"),
            "LOSTHISTORY" => return Self::lost(details),
            "BUDGETCLOSED" => return Self::lost(format!("it is closed ({details})")),
            "LATE" => RetryCause::Timeout,
            "CLUSTERDOWN" => RetryCause::ClusterDown,
            "LOADING" => RetryCause::Loading,
            "MASTERDOWN" => RetryCause::MasterDown,
            "BUSY" => RetryCause::Busy,
            "READONLY" => RetryCause::ReadOnly,
            "OOM" => RetryCause::OutOfMemory,
            "NOREPLICAS" => RetryCause::NoReplicas,
            "MISCONF" => RetryCause::Misconf,
            // Redis 7.0 does not say which: the one at that line of the script.
            _ if details.contains("can't run this command") => {
                return Self::new(asked, RetryCause::Refused, format!("NOPERM {message} {GRANT_ALL}"));
            }
            _ if details.contains("undeclared keys were accessed during rehashing") => {
                return Self::new(asked, RetryCause::TryAgain, APART);
            }
            _ => RetryCause::Refused,
        };
        Self::new(asked, cause, message)
    }

    fn of_redirect(cause: RetryCause, details: &str, asked: &NodeAddr, message: String) -> Self {
        let mut words = details.split_ascii_whitespace();
        let slot = words.next().and_then(|slot| slot.parse::<u16>().ok());
        let to = words.next().and_then(|to| NodeAddr::of_redirect(to, asked));
        let Some((slot, to)) = slot.zip(to) else { return Self::new(asked, RetryCause::Refused, message) };
        let is_moved = cause == RetryCause::Moved;
        let message =
            if is_moved { format!("slot {slot} has moved to {to}") } else { format!("a slot is moving to {to}") };
        Self { to: Some((slot, to)), ..Self::new(asked, cause, message) }
    }

    pub(super) fn of_connection(error: &RedisError, asked: &NodeAddr) -> Self {
        let message = error.to_string();
        if error.is_timeout() {
            return Self::new(asked, RetryCause::Timeout, "no reply in time");
        }
        // A certificate that one of the two does not trust comes as an I/O error, and does not get better.
        let is_refused = ["certificate", "alert"].iter().any(|word| message.to_lowercase().contains(word));
        let is_lost = error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal();
        let cause = match error.code() {
            _ if is_refused => RetryCause::Refused,
            _ if is_lost => RetryCause::ConnectionLost,
            Some("LOADING") => RetryCause::Loading,
            Some("MASTERDOWN") => RetryCause::MasterDown,
            Some("BUSY") => RetryCause::Busy,
            Some(_) | None => RetryCause::Refused,
        };
        Self::new(asked, cause, message)
    }

    pub(super) fn retry_timing(&self) -> RetryTiming {
        if matches!(self.cause, RetryCause::Moved | RetryCause::Ask | RetryCause::NoScript) {
            RetryTiming::AtOnce
        } else if self.is_final() {
            RetryTiming::Never
        } else {
            RetryTiming::AfterWait
        }
    }

    /// Whether sending it again would not help: no history, no permission, a key of another type, a reply of another shape.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.cause, RetryCause::LostHistory | RetryCause::Refused)
    }

    /// Whether the request may have been carried out all the same.
    pub(super) fn may_have_run(&self) -> bool {
        use RetryCause::{ConnectionLost, Refused, Timeout, TooFewReplicas};
        matches!(self.cause, ConnectionLost | Timeout | TooFewReplicas | Refused)
    }

    /// The node that cannot answer now, or cannot be reached.
    pub(super) fn unavailable(&self) -> Option<&NodeAddr> {
        let is_unavailable = self.retry_timing() == RetryTiming::AfterWait && self.cause != RetryCause::TryAgain;
        self.node.as_ref().filter(|_| is_unavailable)
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
        use RetryTiming::{AfterWait, AtOnce, Never};
        let cases = [
            ("MOVED 3999 127.0.0.1:6381", AtOnce, RetryCause::Moved),
            ("ASK 3999 127.0.0.1:6381", AtOnce, RetryCause::Ask),
            ("TRYAGAIN Multiple keys request during rehashing of slot", AfterWait, RetryCause::TryAgain),
            ("NOSCRIPT No matching script. Please use EVAL.", AtOnce, RetryCause::NoScript),
            ("CLUSTERDOWN The cluster is down", AfterWait, RetryCause::ClusterDown),
            ("LOADING Redis is loading the dataset in memory", AfterWait, RetryCause::Loading),
            ("MASTERDOWN Link with MASTER is down", AfterWait, RetryCause::MasterDown),
            ("BUSY Redis is busy running a script", AfterWait, RetryCause::Busy),
            ("READONLY You can't write against a read only replica.", AfterWait, RetryCause::ReadOnly),
            ("OOM command not allowed when used memory > 'maxmemory'.", AfterWait, RetryCause::OutOfMemory),
            ("NOREPLICAS Not enough good replicas to write.", AfterWait, RetryCause::NoReplicas),
            ("MISCONF Redis is configured to save RDB snapshots", AfterWait, RetryCause::Misconf),
            ("LATE the caller has given this call up", AfterWait, RetryCause::Timeout),
            ("LOSTHISTORY the epoch is gone", Never, RetryCause::LostHistory),
            ("BUDGETCLOSED a rebuild has to count", Never, RetryCause::LostHistory),
            ("NOPERM this user has no permissions", Never, RetryCause::Refused),
            ("WRONGTYPE Operation against a key", Never, RetryCause::Refused),
            ("ERR anything else", Never, RetryCause::Refused),
            ("MOVED nonsense", Never, RetryCause::Refused),
        ];
        for (reply, retry_timing, cause) in cases {
            let error = of(reply);
            assert_eq!((error.retry_timing(), error.cause), (retry_timing, cause), "{reply}: {error:?}");
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
            let RequestError { cause: RetryCause::Moved, to: Some((1, to)), .. } = &error else { panic!("{error:?}") };
            assert_eq!(to.to_string(), expected);
        }
    }
}
