//! Stores that many ask at the same time: a queue for each node, so that a node that does not answer keeps nobody waiting
//! but those who ask for its users, and those not for long.
#![expect(clippy::disallowed_types, reason = "requests share the stores that are free; nothing waits in the lock")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_core::{
    basis::{
        shard::{UserHash, slot_of_shard},
        time::Time,
    },
    history::{admit::AdmitBatch, decide::Answer, deferred_send::DeferredSend, named::NamedHistory},
    ports::{Histories, ShardsFound, Store, StoreError},
};

use super::{
    Opened, address::NodeAddr, options::RedisOptions, slot_map::SlotMap, stats::RedisStats, store::RedisStore,
};

/// Requests that one node is asked at the same time, each over a connection of its own. One takes a round trip, so that
/// with 1 ms these are 8,000 per second.
const PER_NODE: usize = 8;

/// Stores for many requests, by the node that they ask.
pub struct RedisPool {
    options: Arc<RedisOptions>,
    stats: Arc<RedisStats>,
    opened: Opened,
    /// Requests of one node that may wait, at most, where there are others.
    most_waiting: usize,
    seen: ArcSwap<NodesSeen>,
    queues: Mutex<NodeQueues>,
}

/// By node; `None` as long as nobody has looked.
type NodeQueues = BTreeMap<Option<NodeAddr>, Arc<NodeQueue>>;

#[derive(Default)]
struct NodesSeen {
    map: Option<SlotMap>,
    unavailable: BTreeSet<u16>,
    why: String,
}

/// The stores that ask one node.
struct NodeQueue {
    free: Mutex<Vec<RedisStore>>,
    permits: Arc<Semaphore>,
    /// One for each request that runs or waits.
    places: Arc<Semaphore>,
}

/// A store on loan; given back when dropped, also half way through a request, which a store allows.
struct Loan {
    of: Arc<NodeQueue>,
    store: Option<RedisStore>,
    // Behind the store: it is back before another request may look for it.
    _permit: OwnedSemaphorePermit,
    _place: Option<OwnedSemaphorePermit>,
}

impl RedisPool {
    /// Stores with these options. Where there are several nodes, `most_waiting` requests may wait for each of them; more are
    /// answered at once that it does not answer.
    pub fn new(
        options: &Arc<RedisOptions>,
        stats: &Arc<RedisStats>,
        opened: &Opened,
        most_waiting: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            options: Arc::clone(options),
            stats: Arc::clone(stats),
            opened: opened.clone(),
            most_waiting,
            seen: ArcSwap::default(),
            queues: Mutex::default(),
        })
    }

    /// Takes over what a look has found, of which `store` knows who owns which shard. Requests for shards that do not answer
    /// are refused from now on, until a look finds that they do.
    pub fn take_over(&self, store: &mut RedisStore, found: &ShardsFound) {
        let map = store.cluster.map().cloned();
        let nodes: BTreeSet<NodeAddr> = map.iter().flat_map(SlotMap::primaries).collect();
        lock(&self.queues).retain(|node, _| node.as_ref().is_some_and(|node| nodes.contains(node)));
        let unavailable = found.unavailable.iter().copied().collect();
        self.seen.store(Arc::new(NodesSeen { map, unavailable, why: found.why.clone().unwrap_or_default() }));
    }

    async fn borrow(&self, user: UserHash) -> Result<Loan, StoreError> {
        let layout = self.opened.keyspace.meta().layout;
        let shard = layout.place(user).shard;
        self.must_answer(shard)?;
        let seen = self.seen.load_full();
        let node = seen.map.as_ref().and_then(|map| map.owner(slot_of_shard(shard, layout.shards))).cloned();
        let alone = seen.map.as_ref().is_none_or(|map| map.primaries().len() < 2);
        let queue = Arc::clone(lock(&self.queues).entry(node.clone()).or_insert_with(|| self.queue()));
        let place = Arc::clone(&queue.places).try_acquire_owned().ok();
        if place.is_none() && !alone {
            let node = node.map_or_else(|| "Redis".to_owned(), |node| node.to_string());
            return Err(StoreError::Temporary(format!("{node}: {} requests wait for it already", self.most_waiting)));
        }
        let permit = Arc::clone(&queue.permits).acquire_owned().await;
        let permit = permit.map_err(|_| StoreError::Temporary("the connections are closed".to_owned()))?;
        // It may have been found out while this request waited.
        self.must_answer(shard)?;
        // The one used last: its connections and the names it knows are warm.
        let free = lock(&queue.free).pop();
        let store = free.unwrap_or_else(|| self.another(&seen));
        Ok(Loan { of: queue, store: Some(store), _permit: permit, _place: place })
    }

    /// One more store. It begins with what the last look found and what a free store knows, so that it need not ask a node that may
    /// not answer who owns what, or which number a name has.
    fn another(&self, seen: &NodesSeen) -> RedisStore {
        let mut store = RedisStore::new(&self.options, &self.stats, &self.opened);
        if let Some(map) = &seen.map {
            store.cluster.begin_with(map.clone());
        }
        let queues: Vec<Arc<NodeQueue>> = lock(&self.queues).values().cloned().collect();
        for queue in queues {
            if let Some(other) = lock(&queue.free).last() {
                store.begin_with(other);
                break;
            }
        }
        store
    }

    fn queue(&self) -> Arc<NodeQueue> {
        let places = Semaphore::new(PER_NODE.saturating_add(self.most_waiting).min(Semaphore::MAX_PERMITS));
        let permits = Arc::new(Semaphore::new(PER_NODE));
        Arc::new(NodeQueue { free: Mutex::default(), permits, places: Arc::new(places) })
    }

    fn must_answer(&self, shard: u16) -> Result<(), StoreError> {
        let seen = self.seen.load();
        match seen.unavailable.contains(&shard) {
            true => Err(StoreError::Temporary(seen.why.clone())),
            false => Ok(()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Loan {
    fn store(&mut self) -> &mut RedisStore {
        self.store.as_mut().expect("it is given back only when dropped")
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        lock(&self.of.free).extend(self.store.take());
    }
}

/// A store of a pool, for one request after the other.
pub struct PooledStore {
    pool: Arc<RedisPool>,
    /// For the request that is made next.
    loan: Option<Loan>,
}

impl PooledStore {
    pub fn new(pool: Arc<RedisPool>) -> Self {
        Self { pool, loan: None }
    }
}

impl Store for PooledStore {
    async fn ready_for(&mut self, user: UserHash) -> Result<(), StoreError> {
        // One that was not used goes back before another one is waited for.
        self.loan = None;
        self.loan = Some(self.pool.borrow(user).await?);
        Ok(())
    }

    fn not_asked(&mut self) {
        self.loan = None;
    }

    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        // One request is about one user.
        let Some(request) = batch.requests.first() else { return Ok(()) };
        let mut loan = match self.loan.take() {
            Some(loan) => loan,
            None => self.pool.borrow(request.user).await?,
        };
        loan.store().admit(batch, answers).await
    }

    fn shards(&self) -> u16 {
        self.pool.opened.keyspace.meta().layout.shards
    }

    /// Others look.
    fn watch(&mut self, _: &BTreeSet<u16>) -> Vec<u16> {
        Vec::new()
    }

    async fn record(&mut self, sends: &[DeferredSend], now: Time) -> Result<(), StoreError> {
        let Some(send) = sends.first() else { return Ok(()) };
        self.pool.borrow(send.user).await?.store().record(sends, now).await
    }
}

impl Histories for PooledStore {
    async fn history_of(&mut self, user: UserHash) -> Result<NamedHistory, StoreError> {
        self.pool.borrow(user).await?.store().history_of(user).await
    }

    async fn forget(&mut self, user: UserHash) -> Result<u64, StoreError> {
        self.pool.borrow(user).await?.store().forget(user).await
    }
}
