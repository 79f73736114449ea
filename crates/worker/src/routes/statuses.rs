//! What is shown of each route.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::RouteSeen;
use crate::status::LaneStatus;

/// Something of each route, by its name; clones are of the same.
#[derive(Debug, Clone, Default)]
pub struct ByRoute<T>(Arc<ArcSwap<BTreeMap<Arc<str>, T>>>);

/// How the lanes of waiting intents stand.
pub type WaitingStatuses = ByRoute<Arc<LaneStatus>>;

/// How the routes of the policy stand in this process, for HTTP, metrics and people.
pub type RoutesStatus = ByRoute<RouteCell>;

pub(super) type RouteCell = Arc<ArcSwapOption<RouteSeen>>;

impl<T: Clone + Default> ByRoute<T> {
    /// That of a route, until it is removed.
    #[must_use]
    pub fn add(&self, route: &Arc<str>) -> T {
        self.0.rcu(|all| {
            let mut all = BTreeMap::clone(all);
            all.entry(Arc::clone(route)).or_default();
            all
        });
        self.0.load().get(route).cloned().unwrap_or_default()
    }

    /// Its task or lane has ended.
    pub fn remove(&self, route: &str) {
        self.0.rcu(|all| {
            let mut all = BTreeMap::clone(all);
            all.remove(route);
            all
        });
    }

    #[must_use]
    pub fn all(&self) -> Arc<BTreeMap<Arc<str>, T>> {
        self.0.load_full()
    }
}

impl RoutesStatus {
    #[must_use]
    pub fn seen(&self) -> Vec<(Arc<str>, Arc<RouteSeen>)> {
        self.all().iter().filter_map(|(name, cell)| Some((Arc::clone(name), cell.load_full()?))).collect()
    }

    pub fn set(&self, name: &Arc<str>, seen: RouteSeen) {
        self.add(name).store(Some(Arc::new(seen)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_keeps_its_status_until_it_has_ended() {
        let statuses = WaitingStatuses::default();
        let route: Arc<str> = "email".into();
        statuses.add(&route).assigned();
        assert!(statuses.add(&route).is_assigned() && statuses.clone().all()["email"].is_assigned());
        statuses.remove("email");
        assert!(statuses.all().is_empty() && !statuses.add(&route).is_assigned());
    }
}
