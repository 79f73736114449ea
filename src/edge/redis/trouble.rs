//! What a node may answer instead of an answer, and what that calls for.

use redis::{RedisError, ServerError};

use super::{address::NodeAddr, stats::RetryCause};

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
            "CLUSTERDOWN" => away(RetryCause::ClusterDown),
            "LOADING" => away(RetryCause::Loading),
            "MASTERDOWN" => away(RetryCause::MasterDown),
            "BUSY" => away(RetryCause::Busy),
            "READONLY" => away(RetryCause::ReadOnly),
            "OOM" => away(RetryCause::OutOfMemory),
            "NOREPLICAS" => away(RetryCause::NoReplicas),
            "MISCONF" => away(RetryCause::Misconf),
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
        // A certificate that is not trusted comes as an I/O error, and does not get better.
        if message.contains("certificate") {
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
