//! What the routes of one process take: the permits that lanes spend, and what the keeper of the routes knows.

mod known;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};

pub use self::known::RouteKnown;
pub use crate::limit::share::{Pool, Taken};
use crate::{
    basis::time::millis,
    limit::{
        route::Route,
        share::{UnitPool, Units},
    },
};

/// The topic of a route's waiting intents, by the route's number in [`Routes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WaitingTopic(pub u16);

/// All routes that a process has had, each with a number that it keeps.
#[derive(Debug, Default)]
pub struct Routes(ArcSwap<Vec<Arc<RouteState>>>);

impl Routes {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The state of the route of this name; a route that is new takes nothing until it is granted permits.
    pub fn state(&self, name: &str) -> Arc<RouteState> {
        if let Some(state) = self.find(name) {
            return state;
        }
        self.0.rcu(|states| {
            let mut states = Vec::clone(states);
            if states.iter().all(|state| *state.name != *name) {
                let number = u16::try_from(states.len()).unwrap_or(u16::MAX);
                let topic = WaitingTopic(number);
                states.push(Arc::new(RouteState { name: name.into(), topic, ..RouteState::default() }));
            }
            states
        });
        self.find(name).expect("states are never removed")
    }

    /// The state of the route of this name, where a policy has had one.
    pub fn find(&self, name: &str) -> Option<Arc<RouteState>> {
        self.0.load().iter().find(|state| *state.name == *name).map(Arc::clone)
    }

    pub fn waiting_on(&self, topic: WaitingTopic) -> Option<Arc<RouteState>> {
        self.0.load().get(usize::from(topic.0)).map(Arc::clone)
    }
}

/// A route's permits and what is known of it.
///
/// Invariant: permits held, and permits spent since the lag was sampled, are never fewer than the intents that may be approved and are not
/// in that lag.
#[derive(Debug, Default)]
pub struct RouteState {
    pub name: Arc<str>,
    pub topic: WaitingTopic,
    /// How many partitions that has, as the policy was read; 0: not known.
    partitions: AtomicUsize,
    /// The general one, and the reserved one.
    pools: [UnitPool; 2],
    spent: AtomicU64,
    failed: AtomicU64,
    took: ArcSwap<(u64, u64)>,
    queued: AtomicU64,
    /// Intents that have waited for too long, of all instances.
    overdue: AtomicU64,
    /// Since when its lane finds intents whenever it looks for one that waits, by the monotonic clock, in milliseconds; 0:
    /// it found none.
    finds_since_ms: AtomicU64,
    taken_over: AtomicBool,
    known: ArcSwapOption<RouteKnown>,
}

impl RouteState {
    fn pool(&self, pool: Pool) -> &UnitPool {
        &self.pools[pool as usize]
    }

    /// What the keeper knows; `None` until it has looked.
    pub fn known(&self) -> Option<Arc<RouteKnown>> {
        self.known.load_full()
    }

    /// What the keeper knows, for intents that this rule of the policy is applied to; without rates where they are another rule's.
    pub fn known_by(&self, rule: &Route) -> Option<Arc<RouteKnown>> {
        let known = self.known()?;
        Some(if known.rule.as_deref() == Some(rule) { known } else { Arc::new(known.without_rates()) })
    }

    pub fn learn(&self, known: RouteKnown) {
        self.known.store(Some(Arc::new(known)));
    }

    /// Nobody keeps the route any more: when somebody does again, what is known of it now may be long ago.
    pub fn forget_rates(&self) {
        if let Some(known) = self.known() {
            self.learn(known.without_rates());
        }
        self.looked(false, Duration::ZERO);
    }

    pub fn set_partitions(&self, partitions: usize) {
        self.partitions.store(partitions, Ordering::Relaxed);
    }

    /// Intents that wait, by partition of the topic: none, as far as is known before the first look. Empty where there is no topic.
    pub fn waiting(&self) -> Vec<u64> {
        let known = self.known.load();
        let looked = known.as_deref().map(|known| &known.waiting).filter(|waiting| !waiting.is_empty());
        looked.cloned().unwrap_or_else(|| vec![0; self.partitions.load(Ordering::Relaxed)])
    }

    pub fn left(&self, pool: Pool, passed: Duration) -> u64 {
        self.pool(pool).free(passed)
    }

    /// [`UnitPool::end_leases`] of both pools: with each turn that begins, and of all leases where another process has overtaken this one.
    pub fn end_leases(&self, until: Duration) {
        self.pools.iter().for_each(|pool| pool.end_leases(until));
    }

    /// Whether another process has the name of this instance, and takes its turns.
    pub fn set_taken_over(&self, is_so: bool) {
        self.taken_over.store(is_so, Ordering::Release);
    }

    /// Whether it has: this process gets no permits any more.
    pub fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Acquire)
    }

    /// Adds permits of both pools, to be taken until then by the monotonic clock: for [`crate::limit::route::permits::LEASE`] from when
    /// the keeper's turn began.
    pub fn grant(&self, general: u64, reserved: u64, until: Duration) {
        for (pool, permits) in self.pools.iter().zip([general, reserved]) {
            pool.add(permits);
            pool.renew(until);
        }
    }

    /// Takes back what nobody has taken beyond so many of each pool; gives how many that were.
    pub fn withdraw_above(&self, general: u64, reserved: u64) -> u64 {
        self.pool(Pool::General).keep(general) + self.pool(Pool::Reserved).keep(reserved)
    }

    /// Permits that are held, taken or not.
    pub fn held(&self) -> u64 {
        self.pools.iter().map(UnitPool::held).sum()
    }

    pub fn fail(&self, deliveries: u64) {
        self.failed.fetch_add(deliveries, Ordering::Relaxed);
    }

    /// Deliveries that failed, since the process began.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// So many deliveries were reported, whose processing times have this sum in milliseconds.
    pub fn note_times(&self, (count, sum_ms): (u64, u64)) {
        self.took.rcu(|took| (took.0.saturating_add(count), took.1.saturating_add(sum_ms)));
    }

    /// Deliveries whose processing time was reported since this was taken last, and the sum of these times in milliseconds.
    pub fn take_times(&self) -> (u64, u64) {
        *self.took.swap(Arc::default())
    }

    /// Permits spent since the process began: to be read before the lag is sampled, which then has all of them.
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Acquire)
    }

    /// Intents were sent to wait.
    pub fn queue(&self, intents: u64) {
        self.queued.fetch_add(intents, Ordering::AcqRel);
    }

    /// How many intents were sent to wait since the process began: to be read before they are counted ([`RouteKnown::queued_before`]).
    pub fn queued(&self) -> u64 {
        self.queued.load(Ordering::Acquire)
    }

    /// So many intents have waited for longer than [`crate::limit::route::MAX_WAIT_MS`], at the most.
    pub fn set_overdue(&self, intents: u64) {
        self.overdue.store(intents, Ordering::Relaxed);
    }

    /// How many intents have waited for too long, at the most, as they were counted last: they are read without permits, to be
    /// suppressed.
    pub fn overdue(&self) -> u64 {
        self.overdue.load(Ordering::Relaxed)
    }

    /// Its lane has looked for an intent that waits. `passed` is the monotonic clock.
    pub fn looked(&self, found: bool, passed: Duration) {
        if !found || self.finds_since().is_none() {
            let since_ms = if found { millis(passed).max(1) } else { 0 };
            self.finds_since_ms.store(since_ms, Ordering::Relaxed);
        }
    }

    /// Since when its lane finds intents whenever it looks; `None`: the last time it found none, or it has not looked. What waits is
    /// counted in offsets, and these may hold no record: those of a transaction that was aborted, until the lane has passed them.
    pub fn finds_since(&self) -> Option<Duration> {
        Some(self.finds_since_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// Whether intents wait on this route, or may do so. New intents then queue behind them.
    pub fn is_queueing(&self) -> bool {
        let known = self.known.load();
        known.as_deref().is_some_and(|known| known.waiting() > 0 || known.queued_before != self.queued())
    }
}

impl Units for RouteState {
    fn pools(&self) -> &[UnitPool] {
        &self.pools
    }

    fn spend(&self, permits: u64) {
        self.spent.fetch_add(permits, Ordering::AcqRel);
    }
}

/// The partition where an intent of this hash is to wait: of two that the hash names the one where fewer wait. `None` where there is no
/// partition.
pub fn place(waiting: &[u64], hash: u64) -> Option<usize> {
    let count = u64::try_from(waiting.len()).ok().filter(|count| *count > 0)?;
    let first = hash % count;
    // Any of the others.
    let second = match count {
        1 => first,
        _ => (first + 1 + (hash >> 32) % (count - 1)) % count,
    };
    let [first, second] = [first, second].map(|place| usize::try_from(place).unwrap_or(0));
    Some(if waiting[second] < waiting[first] { second } else { first })
}
