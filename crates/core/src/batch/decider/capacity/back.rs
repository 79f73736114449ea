//! Permits that came back, because their intents are not approved, and are given to other intents of the batch.

use super::{BatchCapacity, Slot, route_of};
use crate::{
    batch::decider::fate::Fates,
    intent::class::ClassNames,
    limit::route::routes::{Pool, Taken},
    policy::Policy,
};

#[derive(Debug, Clone, Copy)]
pub(in crate::batch::decider) enum Lacks {
    /// It has no route.
    Nothing,
    /// A permit of the route at this place of the policy, that a record of this pool may have.
    Permit(usize, Pool),
    /// No permit is for it.
    More,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::batch::decider) struct BackPermits {
    all: u64,
    /// How many of them a record may have that may have none of the reserved share, at most.
    general: u64,
}

impl BackPermits {
    pub(in crate::batch::decider) fn left(self, pool: Pool) -> u64 {
        match pool {
            Pool::General => self.general.min(self.all),
            Pool::Reserved => self.all,
        }
    }
}

impl BatchCapacity {
    /// What a record needs of its route to be approved after all. It may have a permit already: that came back, too.
    pub(in crate::batch::decider) fn lacks(&self, record: usize, policy: &Policy, class: &ClassNames<'_>) -> Lacks {
        let Some((route, pool)) = route_of(policy, class) else { return Lacks::Nothing };
        match self.slots[record] {
            Slot::Denied(..) => Lacks::More,
            // Something before had denied it.
            Slot::Unrouted if self.taken[route].state().is_queueing() => Lacks::More,
            Slot::Unrouted | Slot::Permit(..) | Slot::Full(..) => Lacks::Permit(route, pool),
        }
    }

    /// The permits of each route that were taken.
    pub(in crate::batch::decider) fn given(&self) -> impl Iterator<Item = u64> {
        self.taken.iter().map(Taken::permits)
    }

    /// The permits of each route that no record uses.
    pub(in crate::batch::decider) fn back(&self, fates: &Fates) -> Vec<BackPermits> {
        let used = self.used_by(|index| fates.get(index).uses_permit());
        let back = self.taken.iter().zip(used).map(|(taken, (used, used_general))| BackPermits {
            all: taken.permits().saturating_sub(used),
            general: taken.of(Pool::General).saturating_sub(used_general),
        });
        back.collect()
    }

    pub(in crate::batch::decider) fn give(
        &mut self,
        record: usize,
        (route, pool): (usize, Pool),
        back: &mut BackPermits,
    ) {
        back.all -= 1;
        if pool == Pool::General {
            back.general -= 1;
        }
        self.slots[record] = Slot::Permit(u16::try_from(route).unwrap_or(u16::MAX), pool);
    }
}
