//! The store in Redis: a batch becomes calls of `lua/admit.lua`, in rounds, until all is answered.

use std::{collections::BTreeSet, sync::Arc};

use weir_core::{
    basis::{shard::UserHash, time::Time},
    history::{
        admit::AdmitBatch,
        decide::Answer,
        deferred_send::{DeferredSend, PastSend},
        named::NamedHistory,
    },
    intent::class::{ClassNames, ClassNumbers},
    ports::{Histories, Store, StoreError},
};

use super::{
    admit_run::AdmitRun,
    cluster::Cluster,
    health::ShardLook,
    history::{forget, named_history},
    keyspace::{Guard, Keyspace},
    names::Names,
    open::renewed,
    options::RedisOptions,
    plan::CallSize,
    rebuild::{PutInto, put_in},
    request_error::lost_history,
    stats::RedisStats,
    watch::{ShardsSeen, Watch},
};

pub struct RedisStore {
    pub(super) cluster: Cluster,
    pub(super) keyspace: Arc<Keyspace>,
    names: Names,
    call_size: CallSize,
    /// Shards found without their epoch and not answered since.
    pub(super) lost: Vec<u16>,
    /// Where [`RedisStore::look_at_shards`] goes on.
    pub(super) look: ShardLook,
    watch: Watch,
}

impl RedisStore {
    /// A store on a keyspace that [`super::open`] has verified. Connects when first asked.
    pub fn new(options: &Arc<RedisOptions>, stats: &Arc<RedisStats>, opened: &super::Opened) -> Self {
        Self {
            cluster: Cluster::new(options, stats),
            keyspace: Arc::clone(&opened.keyspace),
            names: Names::default(),
            call_size: CallSize::default(),
            lost: opened.lost.clone(),
            look: ShardLook::default(),
            watch: Watch::new(options, stats),
        }
    }

    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    pub fn options(&self) -> &RedisOptions {
        self.cluster.options()
    }

    /// Begins with the keyspace and the names that another store knows.
    pub(super) fn begin_with(&mut self, other: &Self) {
        self.keyspace = Arc::clone(&other.keyspace);
        self.names = other.names.clone();
    }

    /// What is counted, shared by all lanes.
    pub fn stats(&self) -> &RedisStats {
        self.cluster.stats()
    }

    /// Answers what is open under the epoch that is known.
    async fn admit_under_epoch(
        &mut self,
        batch: &AdmitBatch<'_>,
        answers: &mut [Option<Answer>],
        unclear: &mut BTreeSet<u16>,
    ) -> Result<(), StoreError> {
        let Self { cluster, keyspace, names, lost, call_size, .. } = self;
        let mut run = AdmitRun::new(batch, answers, keyspace, call_size, cluster);
        run.unclear.append(unclear);
        run.name(cluster, names).await;
        run.run(cluster, names).await;
        lost.retain(|shard| !run.was_answered(*shard));
        lost.extend(run.lost());
        lost.sort_unstable();
        lost.dedup();
        unclear.extend(&run.unclear);
        run.result()
    }

    /// Where a request has found a shard without its history: whether a rebuild has made a new keyspace, which this store then uses.
    async fn is_renewed_for<T>(&mut self, found: &Result<T, StoreError>) -> bool {
        let Err(StoreError::LostHistory { shards, .. }) = found else { return false };
        self.lost.clone_from(shards);
        self.take_up_new_keyspace().await
    }

    /// Uses the keyspace with which a rebuild has replaced this one, if any; `true` then.
    pub(super) async fn take_up_new_keyspace(&mut self) -> bool {
        if self.lost.is_empty() {
            return false;
        }
        let Some(made_anew) = renewed(&mut self.cluster, &self.keyspace).await else { return false };
        self.lost = (0..made_anew.meta().layout.shards).collect();
        self.keyspace = made_anew;
        self.names = Names::default();
        true
    }
}

impl Store for RedisStore {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        let mut unclear = BTreeSet::new();
        let result = self.admit_under_epoch(batch, answers, &mut unclear).await;
        // A keyspace under a new epoch has the histories that it had, or those that were restored: what is open is asked at once.
        if result.is_err() && self.take_up_new_keyspace().await {
            return self.admit_under_epoch(batch, answers, &mut unclear).await;
        }
        result
    }

    fn numbers(&self, class: &ClassNames<'_>) -> Option<ClassNumbers> {
        self.names.numbers(class)
    }

    fn shards(&self) -> u16 {
        self.keyspace.meta().layout.shards
    }

    fn watch(&mut self, away: &BTreeSet<u16>) -> Vec<u16> {
        match self.watch.look(away, &self.keyspace) {
            None => Vec::new(),
            Some(ShardsSeen::Answers { back, .. }) => back,
            Some(ShardsSeen::Renewed(keyspace)) => {
                self.lost.clear();
                self.keyspace = keyspace;
                self.names = Names::default();
                away.iter().copied().collect()
            }
        }
    }

    async fn record(&mut self, sends: &[DeferredSend], now: Time) -> Result<(), StoreError> {
        let deferred: Vec<PastSend<'_>> = sends.iter().map(DeferredSend::past).collect();
        let Self { cluster, keyspace, names, .. } = self;
        let into = PutInto { guard: Guard::Epoch(keyspace.epoch()), keyspace };
        let (ended, _) = put_in(cluster, names, into, &deferred, now).await?;
        if let Some((_, found)) = ended.lost.first_key_value() {
            return Err(lost_history(ended.lost.keys().copied().collect(), found));
        }
        ended.open.map_or(Ok(()), |why| Err(StoreError::Temporary(why)))
    }
}

impl Histories for RedisStore {
    async fn history_of(&mut self, user: UserHash) -> Result<NamedHistory, StoreError> {
        let found = named_history(user, &mut self.cluster, &self.keyspace, &mut self.names).await;
        if !self.is_renewed_for(&found).await {
            return found;
        }
        named_history(user, &mut self.cluster, &self.keyspace, &mut self.names).await
    }

    async fn forget(&mut self, user: UserHash) -> Result<u64, StoreError> {
        let forgotten = forget(user, &mut self.cluster, &self.keyspace).await;
        if !self.is_renewed_for(&forgotten).await {
            return forgotten;
        }
        forget(user, &mut self.cluster, &self.keyspace).await
    }
}
