//! Routes between instances: one task a route looks at Kafka, and takes this process's turns at the permits, however many intents
//! there are.

mod ages;
mod keeper;
mod lanes;
mod learnt;
mod offsets;
mod overdue;
mod route_keeper;
mod statuses;
mod times;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::{ArcSwap, ArcSwapOption};
use weir_core::limit::route::{pace::Throttle, routes::RouteKnown};

pub use keeper::{KeeperLinks, RouteTask, RoutesKeeper};
pub use lanes::{MakesLane, WaitingLanes, waited_for};
pub use offsets::{AskingBack, Looking, LooksAtRoutes, Offsets, RouteOffsets};
pub use statuses::{Statuses, WaitingStatuses};

/// How the routes of the policy stand in this process, for HTTP, metrics and people; clones show the same.
#[derive(Debug, Clone, Default)]
pub struct RoutesStatus(Arc<ArcSwap<BTreeMap<Arc<str>, RouteCell>>>);

type RouteCell = Arc<ArcSwapOption<RouteSeen>>;

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

impl RoutesStatus {
    #[must_use]
    pub fn seen(&self) -> Vec<(Arc<str>, Arc<RouteSeen>)> {
        let cells = self.0.load();
        cells.iter().filter_map(|(name, cell)| Some((Arc::clone(name), cell.load_full()?))).collect()
    }

    pub fn set(&self, name: &Arc<str>, seen: RouteSeen) {
        self.add(name).store(Some(Arc::new(seen)));
    }

    fn add(&self, name: &Arc<str>) -> RouteCell {
        let cell = RouteCell::default();
        self.0.rcu(|cells| {
            let mut cells = BTreeMap::clone(cells);
            cells.insert(Arc::clone(name), Arc::clone(&cell));
            cells
        });
        cell
    }

    fn remove(&self, name: &str) {
        self.0.rcu(|cells| {
            let mut cells = BTreeMap::clone(cells);
            cells.remove(name);
            cells
        });
    }
}
