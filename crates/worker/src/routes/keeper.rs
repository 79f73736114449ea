//! The permits of all routes of the policy in force.

use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_core::{
    limit::{
        route::{Route, permits::RouteKey, routes::Routes},
        share::{HoldsParts, LimitTask},
    },
    ports::Clock,
};

use super::{
    LooksAtRoutes,
    learnt::{LastLearnt, Learnt},
    offsets::{LastLook, keep_looking},
    route_keeper::HeldPermits,
};

/// The permits of this process at all routes.
pub struct HeldRoutes<C> {
    pub routes: Arc<Routes>,
    pub offsets: Arc<dyn LooksAtRoutes>,
    pub clock: C,
}

impl<C: Clock + Clone + 'static> HoldsParts for HeldRoutes<C> {
    type Part = HeldPermits;
    type Rule = Route;
    type Learnt = LastLearnt;

    fn key(route: &Route) -> RouteKey {
        RouteKey::of(route)
    }

    fn begin(
        &self,
        route: &Route,
        before: Option<(Route, LastLearnt)>,
        run: &dyn Fn(LimitTask),
    ) -> Result<(HeldPermits, LastLearnt), String> {
        let unseen = |reason: String| format!("the offsets of route {} cannot be looked at: {reason}", route.name);
        let offsets = self.offsets.of(route).map_err(unseen)?;
        let (state, look) = (self.routes.state(&route.name), LastLook::default());
        run(Box::pin(keep_looking(offsets, Arc::clone(&state), self.clock.clone(), Arc::clone(&look))));
        let before = before.map(|(rule, learnt)| (rule, learnt.load_full()));
        let before = before.as_ref().map(|(rule, learnt)| (rule, &**learnt));
        let learnt: LastLearnt = Arc::new(ArcSwap::from_pointee(Learnt::before(route, &state, before)));
        Ok((HeldPermits::new(route, state, (look, Arc::clone(&learnt))), learnt))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_core::{
        basis::{current::Current, time::Time},
        limit::route::{
            pace::{Lag, Sample},
            permits::EmbeddedPermits,
        },
        policy::Policy,
    };

    use super::*;
    use crate::{
        clock::SystemClock,
        routes::{AskingBack, Looking, RouteOffsets},
        share::{KeyedKeeper, RulesInForce},
    };

    /// Offsets that nobody looks at: no task runs.
    struct Unseen;

    impl LooksAtRoutes for Unseen {
        fn of(&self, _: &Route) -> Result<Box<dyn RouteOffsets>, String> {
            Ok(Box::new(Self))
        }
    }

    impl RouteOffsets for Unseen {
        fn look(&mut self) -> Looking<'_> {
            unreachable!("no task runs")
        }

        fn waiting_since(&mut self, _: Time) -> AskingBack {
            unreachable!("no task runs")
        }
    }

    fn policy(route: &str) -> Arc<Policy> {
        Arc::new(crate::tests::policy(&format!("[[routes]]\nname = \"email\"\nwhen_full = \"suppress\"\n{route}\n")))
    }

    /// What the route takes at this second, of a consumer that takes 300 per second.
    fn turn(learnt: &mut Learnt, at: u64) -> f64 {
        let lag = Some(Lag::new(100_000 + 300 * at, 300 * at));
        let sample = Sample { at: Duration::from_secs(at), lag, ceiling: None, slow: 1.0, approved: u64::MAX };
        learnt.controller.turn(&sample).drain_per_s
    }

    #[test]
    fn what_was_learnt_is_kept_over_changes_without_a_look_between_them_unless_it_is_of_another_delivery() {
        const EMAIL: &str = "channel = \"email\"\nconsumer_group = \"hedwig\"\n";
        for (changed, keeps) in [
            (format!("{EMAIL}rate = 1000\nahead = \"60s\"\n"), true),
            ("channel = \"email\"\nconsumer_group = \"errol\"\n".to_owned(), false),
            ("channel = \"push\"\nconsumer_group = \"hedwig\"\n".to_owned(), false),
            (format!("{EMAIL}service = \"mail\"\n"), false),
        ] {
            let current = Current::new(policy(EMAIL));
            let routes = HeldRoutes { routes: Routes::new(), offsets: Arc::new(Unseen), clock: SystemClock };
            let permits = || EmbeddedPermits::new("weir-0", Time::default);
            let rules = RulesInForce { policy: Arc::clone(&current), of: |policy| policy.routes.as_slice() };
            let mut keeper = KeyedKeeper::new(routes, rules, (permits, SystemClock), drop::<LimitTask>);
            keeper.follow();
            let mut learnt = Learnt::clone(&keeper.kept.first_key_value().unwrap().1.learnt.load_full());
            learnt.note_times((20, 2_000));
            (0..60).for_each(|at| _ = turn(&mut learnt, at));
            keeper.kept.first_key_value().unwrap().1.learnt.store(Arc::new(learnt));
            for change in [&changed, &format!("{changed}max_attempts = 4\n")] {
                current.replace(policy(change));
                keeper.follow();
            }
            let mut learnt = Learnt::clone(&keeper.kept.first_key_value().unwrap().1.learnt.load_full());
            assert_eq!(learnt.mean_ms(), keeps.then_some(100), "{changed}");
            let rate = turn(&mut learnt, 60);
            assert_eq!(rate > 250.0, keeps, "{changed}: {rate}");
        }
    }
}
