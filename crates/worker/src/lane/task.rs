//! What a lane reads.

use weir_core::{
    batch::record::WaitingTopic,
    deferral::wheel::{Ring, Wheel},
};

use crate::{group_loop::LagOf, observer::BesideTopic};

/// What a lane reads, and what it does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Decides the intents of the intents topic.
    Intents,
    /// Decides deferred intents that are due: reads the minutes of this wheel.
    Due(Wheel),
    /// Decides intents that wait for a route: reads this topic, no more than the route has permits for.
    Waiting(WaitingTopic),
    /// Defers approved records whose delivery failed to this wheel, and decides nothing.
    Retry(Wheel),
    /// Moves deferred intents on whose hour begins: reads the hours of this wheel, and decides nothing.
    Move(Wheel),
}

impl Task {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Intents => "intents",
            Self::Due(_) => "deferred intents",
            Self::Waiting(_) => "waiting intents",
            Self::Retry(_) => "deliveries to retry",
            Self::Move(_) => "hours of deferred intents",
        }
    }

    /// Whether it is decided who may come in.
    pub(super) const fn decides(self) -> bool {
        matches!(self, Self::Intents | Self::Due(_) | Self::Waiting(_))
    }

    /// Whether the lane rests while Redis is unavailable, so that what it reads stays where it is, in its order.
    pub(super) const fn rests(self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    /// What its lag is shown as. What is deferred or waits is counted by who looks at the topics of all instances.
    pub(super) const fn lag(self) -> Option<LagOf> {
        match self {
            Self::Intents => Some(LagOf::Intents),
            Self::Retry(_) => Some(LagOf::Beside(BesideTopic::Retries)),
            Self::Due(_) | Self::Waiting(_) | Self::Move(_) => None,
        }
    }

    pub(super) const fn ring(self) -> Option<(Ring, Wheel)> {
        match self {
            Self::Intents | Self::Waiting(_) | Self::Retry(_) => None,
            Self::Due(wheel) => Some((Ring::Minutes, wheel)),
            Self::Move(wheel) => Some((Ring::Hours, wheel)),
        }
    }
}
