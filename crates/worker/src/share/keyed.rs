//! The tasks of a limit that has several keys, as the policy in force has them.

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use tokio_util::sync::{CancellationToken, DropGuard};
use weir_core::{
    basis::current::Current,
    policy::Policy,
    ports::{Clock, Share},
};

use super::{AskedTurns, HoldsPart, KeyOf, PoolKeeper};

/// A task of a limit: a part of the process, like the keeper itself.
pub type LimitTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a process holds of a limit that has several keys: a part of each.
pub trait HoldsParts {
    type Part: HoldsPart;
    /// By what a part is held: where that changes, another one takes its place.
    type Rule: Clone + PartialEq;
    /// What a part has learnt for the one that takes its place.
    type Learnt;

    /// The keys of a policy, each with its rule.
    fn keys(policy: &Policy) -> Vec<(KeyOf<Self::Part>, &Self::Rule)>;

    /// What is held of a key that is new, or had another rule before. It may run tasks of its own, until the token is cancelled. `None`:
    /// nothing can be held now; it is asked for again.
    fn begin(
        &self,
        rule: &Self::Rule,
        before: Option<(Self::Rule, Self::Learnt)>,
        run: (&dyn Fn(LimitTask), &CancellationToken),
    ) -> Option<(Self::Part, Self::Learnt)>;
}

/// Keeps a task for each key that the policy in force has.
pub struct KeyedKeeper<H: HoldsParts, F, S, C> {
    parts: H,
    policy: Arc<Current<Policy>>,
    /// Makes a client for one key.
    connect: F,
    clock: C,
    /// Runs a task beside this one.
    spawn: S,
    pub(crate) kept: BTreeMap<KeyOf<H::Part>, KeptPart<H>>,
}

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
    pub fn new(parts: H, policy: Arc<Current<Policy>>, (connect, clock): (F, C), spawn: S) -> Self {
        Self { parts, policy, connect, clock, spawn, kept: BTreeMap::new() }
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
        let policy = self.policy.get();
        let keys = H::keys(&policy);
        let gone =
            self.kept.extract_if(.., |key, kept| !keys.iter().any(|(of, rule)| of == key && **rule == kept.rule));
        let mut before: BTreeMap<_, _> =
            gone.map(|(key, KeptPart { rule, learnt, .. })| (key, (rule, learnt))).collect();
        for (key, rule) in keys {
            if self.kept.contains_key(&key) {
                continue;
            }
            let stop = CancellationToken::new();
            let begun = self.parts.begin(rule, before.remove(&key), (&self.spawn, &stop));
            let Some((part, learnt)) = begun else { continue };
            let share = (key.clone(), (self.connect)());
            let keeper = PoolKeeper::of(part, share, self.clock.clone(), AskedTurns::default());
            (self.spawn)(Box::pin(keeper.run(stop.clone())));
            self.kept.insert(key, KeptPart { rule: rule.clone(), learnt, _stop: stop.drop_guard() });
        }
    }
}
