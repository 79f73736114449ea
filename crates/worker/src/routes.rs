//! Routes between instances: one task a route looks at Kafka, and takes this process's turns at the permits, however many intents
//! there are.

mod ages;
mod keeper;
mod lanes;
mod learnt;
mod offsets;
mod route_keeper;
mod statuses;
mod times;

use std::time::Duration;

use weir_core::limit::route::{pace::Throttle, routes::RouteKnown};

pub use keeper::{KeeperLinks, RouteTask, RoutesKeeper};
pub use lanes::{MakesLane, WaitingLanes, waited_for};
pub use offsets::{AskingBack, Looking, LooksAtRoutes, Offsets, RouteOffsets};
use statuses::RouteCell;
pub use statuses::{ByRoute, RoutesStatus, WaitingStatuses};

#[derive(Debug, Clone, PartialEq)]
pub struct RouteSeen {
    pub known: RouteKnown,
    /// The most that delivery is given per second; `None`: no rate and no service.
    pub ceiling_per_s: Option<u64>,
    /// Permits that this instance was granted by the last turn.
    pub permits: u64,
    /// Those of them that only reserved intents may take.
    pub reserved: u64,
    /// Permits that other instances hold or have just used.
    pub held_by_others: u64,
    /// Instances that share the route, this one included.
    pub members: u64,
    /// Why it takes less than its ceiling.
    pub throttle: Throttle,
    /// What could not be found out or asked for.
    pub trouble: Option<String>,
    /// Since when the store does not answer for its permits, by the monotonic clock, where that is all its trouble.
    pub silent_since: Option<Duration>,
    /// Which partitions are behind the others, in words.
    pub behind: Option<String>,
}
