//! How the lanes of waiting intents stand.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;

use crate::status::LaneStatus;

/// How the lanes of waiting intents stand, by route; clones show the same.
#[derive(Debug, Clone, Default)]
pub struct WaitingStatuses(Arc<ArcSwap<Statuses>>);

pub type Statuses = BTreeMap<Arc<str>, Arc<LaneStatus>>;

impl WaitingStatuses {
    #[must_use]
    pub fn add(&self, route: &Arc<str>) -> Arc<LaneStatus> {
        let new: Arc<LaneStatus> = Arc::default();
        let change = |statuses: &Arc<Statuses>| {
            let mut statuses = Statuses::clone(statuses);
            statuses.entry(Arc::clone(route)).or_insert_with(|| Arc::clone(&new));
            statuses
        };
        self.0.rcu(change);
        self.0.load().get(route).map_or(new, Arc::clone)
    }

    /// Its lane has ended.
    pub fn remove(&self, route: &str) {
        self.0.rcu(|statuses| {
            let mut statuses = Statuses::clone(statuses);
            statuses.remove(route);
            statuses
        });
    }

    #[must_use]
    pub fn all(&self) -> Arc<Statuses> {
        self.0.load_full()
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
