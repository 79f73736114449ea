//! The tasks of a limit that has several keys, as the policy in force has them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio_util::sync::{CancellationToken, DropGuard};
use weir_core::{
    basis::current::Current,
    limit::share::{HoldsPart, HoldsParts, KeyOf, LimitTask},
    policy::Policy,
    ports::{Clock, Share},
};

use super::{AskedTurns, PoolKeeper};

/// The rules of a limit that the policy in force has.
pub struct RulesInForce<R> {
    pub policy: Arc<Current<Policy>>,
    pub of: fn(&Policy) -> &[R],
}

/// Keeps a task for each key that the policy in force has.
pub struct KeyedKeeper<H: HoldsParts, F, S, C> {
    parts: H,
    rules: RulesInForce<H::Rule>,
    /// Makes a client for one key.
    connect: F,
    clock: C,
    /// Runs a task beside this one.
    spawn: S,
    pub(crate) kept: BTreeMap<KeyOf<H::Part>, KeptPart<H>>,
    /// Keys of which nothing could be held, each with the time when it may be logged again: a minute after it was logged last.
    unheld: BTreeMap<KeyOf<H::Part>, Duration>,
    /// What was held by another rule, until something is held by the present one.
    before: BTreeMap<KeyOf<H::Part>, RuleLearnt<H>>,
}

/// A rule, and what was learnt by it.
type RuleLearnt<H> = (<H as HoldsParts>::Rule, <H as HoldsParts>::Learnt);

/// A key with its tasks; dropped, they end.
pub(crate) struct KeptPart<H: HoldsParts> {
    rule: H::Rule,
    pub(crate) learnt: H::Learnt,
    _stop: DropGuard,
}

impl<H, F, P, S, C> KeyedKeeper<H, F, S, C>
where
    H: HoldsParts<Part: Send + 'static>,
    F: Fn() -> P,
    P: Share<<H::Part as HoldsPart>::Limit> + 'static,
    S: Fn(LimitTask),
    C: Clock + Clone + 'static,
{
    /// A keeper that keeps nothing yet; `connect` makes a client for each key, and `spawn` runs its tasks.
    pub fn new(parts: H, rules: RulesInForce<H::Rule>, (connect, clock): (F, C), spawn: S) -> Self {
        let (kept, unheld, before) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { parts, rules, connect, clock, spawn, kept, unheld, before }
    }

    /// Follows the policy until `stop`. Then the tasks of all keys end, each with a last turn.
    pub async fn run(mut self, stop: CancellationToken) {
        let clock = self.clock.clone();
        loop {
            self.follow();
            if stop.run_until_cancelled(clock.sleep(<H::Part as HoldsPart>::EVERY)).await.is_none() {
                return;
            }
        }
    }

    /// Begins to keep keys that are new or have changed, and ends those that are gone.
    pub(crate) fn follow(&mut self) {
        let policy = self.rules.policy.get();
        let rules: Vec<_> = (self.rules.of)(&policy).iter().map(|rule| (H::key(rule), rule)).collect();
        let gone =
            self.kept.extract_if(.., |key, kept| !rules.iter().any(|(of, rule)| of == key && **rule == kept.rule));
        self.before.extend(gone.map(|(key, KeptPart { rule, learnt, .. })| (key, (rule, learnt))));
        self.before.retain(|key, _| rules.iter().any(|(of, _)| of == key));
        for (key, rule) in rules {
            if self.kept.contains_key(&key) {
                continue;
            }
            let stop = CancellationToken::new();
            // From here on: what runs ends, too, where nothing can be held.
            let ends = stop.clone().drop_guard();
            let run = |task: LimitTask| {
                let stop = stop.clone();
                (self.spawn)(Box::pin(async move {
                    // A task that waits for what never comes holds up nobody's end.
                    stop.run_until_cancelled_owned(task).await;
                }));
            };
            let begun = self.parts.begin(rule, self.before.get(&key).cloned(), &run);
            let (part, learnt) = match begun {
                Ok(begun) => begun,
                Err(why) => {
                    let (now, log_at) = (self.clock.passed(), self.unheld.entry(key).or_default());
                    if *log_at <= now {
                        tracing::warn!("{why}");
                        *log_at = now + Duration::from_secs(60);
                    }
                    continue;
                }
            };
            self.before.remove(&key);
            let share = (key.clone(), (self.connect)());
            let keeper = PoolKeeper::of(part, share, self.clock.clone(), AskedTurns::default());
            (self.spawn)(Box::pin(keeper.run(stop)));
            self.kept.insert(key, KeptPart { rule: rule.clone(), learnt, _stop: ends });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, future::pending};

    use tokio::time::timeout;
    use weir_core::{
        basis::time::Time,
        limit::route::{
            Route,
            permits::{EmbeddedPermits, RouteKey},
        },
    };

    use super::*;
    use crate::{clock::tests::VirtualClock, routes::HeldRoutes, tests::policy};

    const DEADLINE: Duration = Duration::from_secs(60);

    /// Runs a task that waits for what never comes, and can hold nothing.
    struct Unheld;

    impl HoldsParts for Unheld {
        type Part = <HeldRoutes<VirtualClock> as HoldsParts>::Part;
        type Rule = Route;
        type Learnt = ();

        fn key(route: &Route) -> RouteKey {
            RouteKey::of(route)
        }

        fn begin(
            &self,
            _: &Route,
            _: Option<(Route, ())>,
            run: &dyn Fn(LimitTask),
        ) -> Result<(Self::Part, ()), String> {
            run(Box::pin(pending::<()>()));
            Err("by the test".to_owned())
        }
    }

    /// One that can hold nothing of its only key.
    fn keeper<S: Fn(LimitTask)>(
        clock: VirtualClock,
        spawn: S,
    ) -> KeyedKeeper<Unheld, impl Fn() -> EmbeddedPermits, S, VirtualClock> {
        let route = "[[routes]]\nname = \"email\"\nchannel = \"email\"\nconsumer_group = \"hedwig\"\nwhen_full = \"suppress\"\n";
        let policy = Current::new(Arc::new(policy(route)));
        let rules = RulesInForce { policy, of: |policy| policy.routes.as_slice() };
        KeyedKeeper::new(Unheld, rules, (|| EmbeddedPermits::new("weir-0", Time::default), clock), spawn)
    }

    #[tokio::test]
    async fn what_runs_for_a_limit_of_which_nothing_can_be_held_ends() {
        let tasks = RefCell::new(Vec::new());
        keeper(VirtualClock::default(), |task| tasks.borrow_mut().push(task)).follow();
        let task = tasks.borrow_mut().pop().expect("it runs");
        timeout(DEADLINE, task).await.expect("it ends");
    }

    #[test]
    fn that_nothing_can_be_held_is_logged_at_once_and_again_after_a_minute() {
        let clock = VirtualClock::default();
        let mut keeper = keeper(clock.clone(), drop::<LimitTask>);
        let mut again_at = |after: u64| {
            clock.advance(Duration::from_secs(after));
            keeper.follow();
            keeper.unheld.first_key_value().expect("it is logged").1.as_secs()
        };
        assert_eq!([0, 30, 29, 1, 59, 1].map(&mut again_at), [60, 60, 60, 120, 120, 180]);
    }
}
