//! Routes between instances: one task a route looks at Kafka, and takes this process's turns at the permits, however many intents
//! there are.

mod ages;
mod keeper;
mod lanes;
mod learnt;
mod offsets;
mod route_keeper;

pub use keeper::HeldRoutes;
pub use lanes::{MakesLane, WaitingLanes, WaitingStatuses, waited_for};
pub use offsets::{AskingBack, Looking, LooksAtRoutes, Offsets, RouteOffsets, RoutePartition};
