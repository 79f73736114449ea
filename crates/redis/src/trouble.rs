//! What a node may answer instead of an answer, and what that calls for.

use redis::{RedisError, ServerError};

use super::{address::NodeAddr, stats::RetryCause};

/// What to do where a script may not run one of its commands.
const GRANT_ALL: &str = "(the ACL user lacks a command that weir's scripts use: grant all that docs/security.md lists)";

/// One request that was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// The slot lives elsewhere now.
    #[error("{node}: slot {slot} has moved to {to}")]
    Moved {
        /// Who said so.
        node: NodeAddr,
        /// Which slot.
        slot: u16,
        /// Where it lives.
        to: NodeAddr,
    },
    /// The slot is on its way; the key is there already, if anywhere.
    #[error("{node}: a slot is moving to {to}")]
    Ask {
        /// Who said so.
        node: NodeAddr,
        /// Where the key is.
        to: NodeAddr,
    },
    /// The slot is on its way and the keys of the request are on both sides, or not there yet.
    #[error("{node}: keys of a moving slot are apart (TRYAGAIN)")]
    Apart {
        /// Who said so.
        node: NodeAddr,
    },
    /// The node has forgotten the script.
    #[error("{node}: the script is not loaded")]
    NoScript {
        /// Who said so.
        node: NodeAddr,
    },
    /// The epoch is gone or another.
    #[error("{message}")]
    LostHistory {
        /// What was found.
        message: String,
    },
    /// The node cannot now, or cannot be reached.
    #[error("{node}: {message}")]
    Away {
        /// Which node.
        node: NodeAddr,
        /// Why, for counting.
        cause: RetryCause,
        /// Why, in its words.
        message: String,
    },
    /// Asking again at once would not help: no permission, a key of another type, an answer of another shape.
    #[error("{node}: {message}")]
    Refused {
        /// Which node.
        node: NodeAddr,
        /// Why, in its words.
        message: String,
    },
}

/// When a request that met trouble is worth sending again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pace {
    /// Now.
    AtOnce,
    /// After a while.
    AfterWait,
    /// Not from here.
    Never,
}

impl Trouble {
    /// What an error reply means.
    pub(super) fn of_reply(error: &ServerError, asked: &NodeAddr) -> Self {
        let node = asked.clone();
        let details = error.details().unwrap_or_default();
        let message = format!("{} {details}", error.code()).trim_end().to_owned();
        let away = |cause| Self::Away { node: node.clone(), cause, message: message.clone() };
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
            "LATE" => away(RetryCause::Timeout),
            "CLUSTERDOWN" => away(RetryCause::ClusterDown),
            "LOADING" => away(RetryCause::Loading),
            "MASTERDOWN" => away(RetryCause::MasterDown),
            "BUSY" => away(RetryCause::Busy),
            "READONLY" => away(RetryCause::ReadOnly),
            "OOM" => away(RetryCause::OutOfMemory),
            "NOREPLICAS" => away(RetryCause::NoReplicas),
            "MISCONF" => away(RetryCause::Misconf),
            // Redis 7.0 does not say which: the one at that line of the script.
            _ if details.contains("can't run this command") => {
                Self::Refused { node, message: format!("NOPERM {message} {GRANT_ALL}") }
            }
            _ if details.contains("undeclared keys were accessed during rehashing") => Self::Apart { node },
            _ => Self::Refused { node, message },
        }
    }

    /// What an error of the connection means.
    pub(super) fn of_connection(error: &RedisError, asked: &NodeAddr) -> Self {
        let node = asked.clone();
        let message = error.to_string();
        if error.is_timeout() {
            return Self::Away { node, cause: RetryCause::Timeout, message: "no reply in time".to_owned() };
        }
        // A certificate that one of the two does not trust comes as an I/O error, and does not get better.
        if ["certificate", "alert"].iter().any(|word| message.to_lowercase().contains(word)) {
            return Self::Refused { node, message };
        }
        if error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal() {
            return Self::Away { node, cause: RetryCause::ConnectionLost, message };
        }
        match error.code() {
            Some("LOADING") => Self::Away { node, cause: RetryCause::Loading, message },
            Some("MASTERDOWN") => Self::Away { node, cause: RetryCause::MasterDown, message },
            Some("BUSY") => Self::Away { node, cause: RetryCause::Busy, message },
            Some(_) | None => Self::Refused { node, message },
        }
    }

    /// A reply that is none of those expected.
    pub(super) fn torn(asked: &NodeAddr, what: &str) -> Self {
        Self::Refused { node: asked.clone(), message: format!("its reply is not what weir's script gives: {what}") }
    }

    /// When to send the request again.
    pub(super) fn pace(&self) -> Pace {
        match self {
            Self::Moved { .. } | Self::Ask { .. } | Self::NoScript { .. } => Pace::AtOnce,
            Self::Apart { .. } | Self::Away { .. } => Pace::AfterWait,
            Self::LostHistory { .. } | Self::Refused { .. } => Pace::Never,
        }
    }

    /// Under which heading it is counted.
    pub(super) fn cause(&self) -> RetryCause {
        match self {
            Self::Moved { .. } => RetryCause::Moved,
            Self::Ask { .. } => RetryCause::Ask,
            Self::Apart { .. } => RetryCause::TryAgain,
            Self::NoScript { .. } => RetryCause::NoScript,
            Self::LostHistory { .. } => RetryCause::LostHistory,
            Self::Away { cause, .. } => *cause,
            Self::Refused { .. } => RetryCause::Refused,
        }
    }

    /// Whether the slot map may be out of date.
    pub(super) fn doubts_the_map(&self) -> bool {
        match self {
            Self::Moved { .. } | Self::Away { .. } => true,
            Self::Ask { .. }
            | Self::Apart { .. }
            | Self::NoScript { .. }
            | Self::LostHistory { .. }
            | Self::Refused { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn of(reply: &str) -> Trouble {
        let asked = NodeAddr { host: "asked".to_owned(), port: 1 };
        match redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => Trouble::of_reply(&error, &asked),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_error_reply_has_its_pace_and_cause() {
        let cases = [
            ("MOVED 3999 127.0.0.1:6381", Pace::AtOnce, RetryCause::Moved),
            ("ASK 3999 127.0.0.1:6381", Pace::AtOnce, RetryCause::Ask),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Pace::AfterWait, RetryCause::TryAgain),
            ("NOSCRIPT No matching script. Please use EVAL.", Pace::AtOnce, RetryCause::NoScript),
            ("CLUSTERDOWN The cluster is down", Pace::AfterWait, RetryCause::ClusterDown),
            ("LOADING Redis is loading the dataset in memory", Pace::AfterWait, RetryCause::Loading),
            ("MASTERDOWN Link with MASTER is down", Pace::AfterWait, RetryCause::MasterDown),
            ("BUSY Redis is busy running a script", Pace::AfterWait, RetryCause::Busy),
            ("READONLY You can't write against a read only replica.", Pace::AfterWait, RetryCause::ReadOnly),
            ("OOM command not allowed when used memory > 'maxmemory'.", Pace::AfterWait, RetryCause::OutOfMemory),
            ("NOREPLICAS Not enough good replicas to write.", Pace::AfterWait, RetryCause::NoReplicas),
            ("MISCONF Redis is configured to save RDB snapshots", Pace::AfterWait, RetryCause::Misconf),
            ("LATE the caller has given this call up", Pace::AfterWait, RetryCause::Timeout),
            ("LOSTHISTORY the epoch is gone", Pace::Never, RetryCause::LostHistory),
            ("NOPERM this user has no permissions", Pace::Never, RetryCause::Refused),
            ("WRONGTYPE Operation against a key", Pace::Never, RetryCause::Refused),
            ("ERR anything else", Pace::Never, RetryCause::Refused),
            ("MOVED nonsense", Pace::Never, RetryCause::Refused),
        ];
        for (reply, pace, cause) in cases {
            let trouble = of(reply);
            assert_eq!((trouble.pace(), trouble.cause()), (pace, cause), "{reply}: {trouble:?}");
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
            let trouble = of(reply);
            let Trouble::Moved { to, slot: 1, .. } = &trouble else { panic!("{trouble:?}") };
            assert_eq!(to.to_string(), expected);
        }
    }
}
