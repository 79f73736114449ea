//! The lanes' store: the Redis edge as it is, on the fake cluster; and around it the planted bug that needs a place there.

use weir_core::{
    history::{admit::AdmitBatch, decide::Answer, deferred_send::DeferredSend},
    intent::class::ClassNumbers,
    limit::route::permits::RoutePermits,
    ports::Store,
};
use weir_redis::{LedgerClock, Opened, RedisServices, RedisShare, RedisStats, RedisStore, WhenMissing, open};

use super::{
    link::{SharedCluster, SimNetwork},
    prelude::*,
    pressure::SimActivityLog,
    tells::{SimLedger, Tells},
    time,
};

const GROUPS: usize = 3;
pub const SHARDS: u16 = 6;
pub const REFUNDS: &str = "refunds";
/// The constant of this name in src/cli/run.rs.
const TRIES_WITHOUT_PATIENCE: usize = 2;

/// A keyspace that was made by the edge itself.
#[derive(Clone)]
pub struct Made {
    opened: Opened,
    slots: Vec<u16>,
    keys: Data,
}

thread_local! {
    /// All runs of this thread begin with a copy of it.
    pub static MADE: Made = make();
}

fn options(env: &Env, cluster: &SharedCluster) -> RedisOptions {
    let mut options = RedisOptions::for_urls(&["redis://127.0.0.1:7000", "redis://127.0.0.1:7003"]).unwrap();
    options.shards = SHARDS;
    options.users = 24 * 3 * u64::from(SHARDS);
    options.network = Arc::new(SimNetwork { env: env.clone(), cluster: Arc::clone(cluster) });
    options
}

/// Makes the keyspace, in a cluster of its own where nothing breaks.
fn make() -> Made {
    let env = Env::new(0, Arc::new(Virtual::default()), Sabotage::None, Tracing::Off);
    env.calm_down();
    let layout = weir_core::basis::shard::Layout::for_users(SHARDS, 1);
    let mut slots: Vec<u16> =
        (0..layout.shards).map(|shard| weir_core::basis::shard::slot_of_shard(shard, SHARDS)).collect();
    slots.push(super::cluster::NAMES);
    assert_eq!(super::cluster::slot_of(b"{weir}"), super::cluster::NAMES);
    let cluster = Arc::new(Mutex::new(Cluster::new(&env, GROUPS, slots.iter().copied())));
    let options = Arc::new(options(&env, &cluster));
    let keyspace_seed = KeyspaceSeed { epoch: "the epoch".to_owned(), now: Time::default().plus(env.time().wall_ms()) };
    let stats = Arc::default();
    let opening = open(&options, &stats, WhenMissing::Create, keyspace_seed);
    let opened = time::block_on(env.time(), opening).expect("the keyspace is made");
    let keys = lock(&cluster).all_keys();
    Made { opened, slots, keys }
}

/// A cluster with a keyspace in it, and what makes stores on it.
pub struct Keyspace {
    pub cluster: SharedCluster,
    pub opened: Opened,
    pub options: Arc<RedisOptions>,
    pub wait_replicas: u32,
    /// What lanes put in that no cap was asked for. Where its batch was not committed after all, it is found by whoever
    /// decides it again, and goes out as a replay.
    pub put_in: PutIn,
    /// Of all stores together.
    pub stats: Arc<RedisStats>,
    pub answers: Answers,
    pub tells: Tells,
    pub heard: SharedHeard,
}

/// An answer that a lane was given, and when: true times.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// When the store was asked.
    pub called: Duration,
    pub at: Duration,
    pub verdict: AdmitVerdict,
}

/// All answers to a lane about a user's id, in their order.
pub type Answers = Arc<Mutex<BTreeMap<(u64, UserHash, IdHash), Vec<Answered>>>>;

impl Keyspace {
    pub fn new(env: &Env, setting: &Setting, Made { opened, slots, keys }: Made) -> Self {
        let mut cluster = Cluster::new(env, GROUPS, slots);
        cluster.put(keys);
        let wrong_clock = env.chance(300).then(|| env.index(GROUPS));
        // Tokens of a rolling window are in the ledger by the clock of the node that they are on.
        // Ids of the log of activity are times, too, and permits and shares of a service end by the clock of the node that they are on.
        let by_node = [setting.load.is_some(), setting.served.is_some(), setting.paced.is_some()];
        let by_node = by_node.contains(&true) || !setting.budgets.is_empty();
        cluster.wrong_clock = wrong_clock.filter(|_| !by_node);
        cluster.ledger.bound = usize::try_from(setting.max_entries).ok();
        let cluster = Arc::new(Mutex::new(cluster));
        let mut options = options(env, &cluster);
        let wait_replicas = u32::from(env.chance(500) || env.sabotage() == Sabotage::TurnUntouched);
        options.wait_replicas = wait_replicas;
        options.max_entries = setting.max_entries;
        options.max_totals = setting.max_totals;
        lock(&cluster).ledger.history_ms = options.history_ms;
        if setting.unavailable_after.is_some() {
            // As `weir run` has it: what is given up in time is not asked for long.
            options.tries = TRIES_WITHOUT_PATIENCE;
        }
        let heard = Arc::clone(&lock(&cluster).limits_lost.heard);
        Self {
            cluster,
            heard,
            opened,
            options: Arc::new(options),
            wait_replicas,
            put_in: Arc::default(),
            stats: Arc::default(),
            answers: Arc::default(),
            tells: Tells::new(setting.budgets.iter().cloned()),
        }
    }

    pub fn store(&self, env: &Env, (process, lane): (u64, u64), clock: &WorkerClock) -> SimStore {
        SimStore {
            env: env.clone(),
            process,
            lane,
            store: RedisStore::new(&self.options, &self.stats, &self.opened),
            put_in: Arc::clone(&self.put_in),
            answers: Arc::clone(&self.answers),
            tells: self.tells.clone(),
            heard: Arc::clone(&self.heard),
            held: Arc::clone(&clock.held),
        }
    }

    /// What makes ledgers for a process.
    pub fn ledgers(&self, env: &Env, process: u64, instance: usize) -> impl Fn() -> SimLedger + Send + 'static {
        let (env, options, stats) = (env.clone(), Arc::clone(&self.options), Arc::clone(&self.stats));
        let (opened, tells) = (self.opened.clone(), self.tells.clone());
        move || {
            let judge = env.clone();
            let clock: LedgerClock = Arc::new(move || Ok(wall(judge.passed())));
            let ledger = RedisLedger::with(&options, &stats, &opened, format!("weir-{instance}"), clock);
            SimLedger { env: env.clone(), process, ledger, tells: tells.clone() }
        }
    }

    /// For what is asked again in its next turn, and not longer in this one, as `weir run` has it.
    fn impatient(&self) -> Arc<RedisOptions> {
        Arc::new(RedisOptions { tries: TRIES_WITHOUT_PATIENCE, ..self.options.as_ref().clone() })
    }

    pub fn activity_log(&self, env: &Env, process: u64, instance: usize) -> SimActivityLog {
        let log = RedisActivityLog::new(&self.impatient(), &self.stats, &self.opened, format!("weir-{instance}"));
        SimActivityLog { env: env.clone(), process, log, heard: Arc::clone(&self.heard) }
    }

    /// What makes clients for the permits of routes, for a process.
    pub fn permits(&self, instance: usize) -> impl Fn() -> RedisShare<RoutePermits> + Send + 'static {
        let (options, stats, opened) = (self.impatient(), Arc::clone(&self.stats), self.opened.clone());
        move || RedisShare::new(&options, &stats, &opened, format!("weir-{instance}"))
    }

    /// What makes connections for the services that ask a process.
    pub fn services(&self, process: u64) -> impl Fn() -> RedisServices + Send + 'static {
        let (options, stats, opened) = (self.impatient(), Arc::clone(&self.stats), self.opened.clone());
        move || RedisServices::new(&options, &stats, &opened, holder(process))
    }

    /// Whether all shards have their history, all of it as far as people know, and the tables are there.
    pub fn is_whole(&self) -> bool {
        let cluster = lock(&self.cluster);
        if cluster.is_old() {
            return false;
        }
        let keyspace = &self.opened.keyspace;
        let field = |key: &str, field: &[u8]| match cluster.key(key.as_bytes()) {
            Some(Item::Hash(hash)) => hash.get(field).cloned(),
            Some(Item::Text(_) | Item::Stream(_)) | None => None,
        };
        let Some(epoch) = field(keyspace.meta_key(), b"epoch") else { return false };
        let tables = [keyspace.kinds_key(), keyspace.campaigns_key()];
        let shard = |shard: u16| match cluster.key(keyspace.epoch_key(shard).as_bytes()) {
            Some(Item::Text(text)) => *text == epoch,
            Some(Item::Hash(_) | Item::Stream(_)) | None => false,
        };
        tables.into_iter().all(|table| field(table, b"epoch").as_ref() == Some(&epoch)) && (0..SHARDS).all(shard)
    }
}

/// The name by which a process holds shares of services: no other has it, or had it.
pub fn holder(process: u64) -> String {
    format!("p{process}")
}

/// User's field, time and id of sends.
pub type PutIn = Arc<Mutex<BTreeSet<(Vec<u8>, i64, IdHash)>>>;

pub struct SimStore {
    env: Env,
    process: u64,
    lane: u64,
    store: RedisStore,
    put_in: PutIn,
    answers: Answers,
    tells: Tells,
    heard: SharedHeard,
    /// See [`WorkerClock`].
    held: Arc<Mutex<Option<Time>>>,
}

impl SimStore {
    fn note(&self, called: Duration, batch: &AdmitBatch<'_>, new: impl Iterator<Item = (usize, Answer)>) {
        let (mut answers, at) = (lock(&self.answers), self.env.passed());
        for (place, answer) in new {
            let request = &batch.requests[place];
            let answered = Answered { called, at, verdict: answer.verdict };
            if answer.verdict == AdmitVerdict::Replayed {
                lock(&self.heard).replayed.push((request.user.into(), called, at));
            }
            answers.entry((self.lane, request.user, request.id)).or_default().push(answered);
        }
    }
}

impl Store for SimStore {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        let (called, open) = (self.env.passed(), answers.to_vec());
        let mut outcome = self.store.admit(batch, answers).await;
        if outcome.is_err() && self.env.sabotage() == Sabotage::SkipStoreRetry {
            let through = Answer { verdict: AdmitVerdict::Allowed, at: batch.now, ahead: false };
            answers.iter_mut().filter(|answer| answer.is_none()).for_each(|answer| *answer = Some(through));
            outcome = Ok(());
        }
        if outcome.is_err() && self.env.sabotage() == Sabotage::UnclearGivenBack {
            for (request, _) in batch.requests.iter().zip(&*answers).filter(|(_, answer)| answer.is_none()) {
                self.tells.give_back(self.process, &request.class, request.cost);
            }
        }
        if self.env.sabotage() == Sabotage::JudgeOnce {
            let mut held = lock(&self.held);
            *held = outcome.is_err().then(|| held.unwrap_or(batch.now));
        }
        let new = open.iter().zip(&*answers).enumerate().filter(|(_, (before, _))| before.is_none());
        self.note(called, batch, new.filter_map(|(place, (_, answer))| Some((place, (*answer)?))));
        outcome
    }

    fn numbers(&self, class: &ClassNames<'_>) -> Option<ClassNumbers> {
        self.store.numbers(class)
    }

    fn shards(&self) -> u16 {
        self.store.shards()
    }

    fn watch(&mut self, away: &BTreeSet<u16>) -> Vec<u16> {
        self.store.watch(away)
    }

    async fn record(&mut self, sends: &[DeferredSend], now: Time) -> Result<(), StoreError> {
        if self.env.sabotage() == Sabotage::ForgetOwed {
            return Ok(());
        }
        lock(&self.put_in).extend(sends.iter().map(|send| (field_of_hash(send.user), send.at.millis(), send.id)));
        self.store.record(sends, now).await
    }
}

/// Where a user's history is found: the field in its bucket's hash. All users of a run are neighbours, so no two have the
/// same.
pub fn field_of(user: &str) -> Vec<u8> {
    field_of_hash(UserHash::of(user))
}

fn field_of_hash(user: UserHash) -> Vec<u8> {
    let layout = weir_core::basis::shard::Layout::for_users(SHARDS, 24 * 3 * u64::from(SHARDS));
    layout.place(user).field.to_bytes()
}
