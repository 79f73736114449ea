//! The route of a run's policy, the consumer that delivers what is approved on it, and what keepers see of it.

use std::{
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use weir_core::{
    arrivals::Waiting,
    class::Filter,
    pace::Lag,
    policy::Selection,
    record::{ApprovedTopic, Destination},
    route::{DEFAULT_MAX_ATTEMPTS, DEFAULT_NETWORK_MS, FairBy, Route, WhenFull},
    time::Time,
};
use weir_worker::routes::{AskingBack, Looking, LooksAtRoutes, Offsets, RouteOffsets};

use super::{
    broker::Broker,
    env::{Env, lock},
    permits::SharedBook,
    rings::{Log, Stored},
    rules::{self, on_channel},
    run::World,
    sabotage::Sabotage,
    workload::{Ask, Kind},
};

pub const ROUTE: &str = "route";
/// The partitions of the topic of waiting intents.
pub const WAITING: i32 = 3;
/// The approved topic of pushes, where these are the route.
const OF_PUSHES: ApprovedTopic = ApprovedTopic(1);
/// What is drawn here changes nothing else of a seed.
const SALT: u64 = 0x726f_7574_6573;

/// A change of the route in the policy. Intents that wait by then are decided all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// It is removed.
    Removed,
    /// It suppresses intents when it is full, and none waits any more.
    Suppresses,
}

/// `[[routes]]` of a policy, and its consumer.
#[derive(Debug, Clone, Copy)]
pub struct Paced {
    /// It is of pushes, which have an approved topic of their own; else of all intents.
    pushes_only: bool,
    pub when_full: WhenFull,
    pub ahead_ms: i64,
    pub rate: Option<u64>,
    /// What the consumer takes for a record.
    takes: Duration,
    commits_every: Duration,
    /// It passes offsets without a record, as a consumer does that commits its position.
    passes: bool,
    /// From when until when it delivers nothing.
    stands: (Duration, Duration),
    /// How the policy changes it, and when.
    pub edit: Option<(Duration, Edit)>,
}

impl Paced {
    /// One in every third run, and in all with a planted bug of routes. Those of other planted bugs have none.
    pub fn draw(env: &Env) -> Option<Self> {
        let mut dice = fastrand::Rng::with_seed(env.seed() ^ SALT);
        let (planted, is_third) = (env.sabotage(), dice.u32(..3) == 0);
        if !planted.is_of_routes() && (planted != Sabotage::None || !is_third) {
            return None;
        }
        let when_full = match dice.u32(..10) {
            _ if planted == Sabotage::RemovedRouteUnread => WhenFull::Wait,
            0 => WhenFull::Suppress,
            _ => WhenFull::Wait,
        };
        let stands = Duration::from_millis(dice.u64(..40_000));
        let long = Duration::from_millis([0, 6_000, 25_000][dice.usize(..3)]);
        let paced = Self {
            pushes_only: dice.bool(),
            when_full,
            ahead_ms: [5_000, 10_000, 30_000][dice.usize(..3)],
            rate: [None, None, Some(5), Some(20)][dice.usize(..4)],
            takes: Duration::from_millis([20, 100, 400][dice.usize(..3)]),
            commits_every: Duration::from_millis([100, 1_000, 5_000][dice.usize(..3)]),
            passes: dice.bool(),
            stands: (stands, stands + long),
            edit: None,
        };
        Some(Self { edit: paced.draw_edit(&mut dice, planted), ..paced })
    }

    /// An edit, in every third run in which intents wait. Those of other planted bugs have none.
    fn draw_edit(&self, dice: &mut fastrand::Rng, planted: Sabotage) -> Option<(Duration, Edit)> {
        let (at, is_third) = (Duration::from_millis(dice.u64(3_000..40_000)), dice.u32(..3) == 0);
        let edit = [Edit::Removed, Edit::Suppresses][dice.usize(..2)];
        if planted == Sabotage::RemovedRouteUnread {
            return Some((at, Edit::Removed));
        }
        (planted == Sabotage::None && is_third && self.when_full == WhenFull::Wait).then_some((at, edit))
    }

    /// Whether an intent takes this route.
    pub fn is_for(&self, ask: &Ask) -> bool {
        !self.pushes_only || ask.kind == Kind::Push
    }

    /// The topic that its consumer reads.
    pub fn topic(&self) -> ApprovedTopic {
        if self.pushes_only { OF_PUSHES } else { ApprovedTopic::MAIN }
    }

    /// The approved topics of channels.
    pub fn by_channel(&self) -> Arc<[(String, ApprovedTopic)]> {
        if self.pushes_only { Arc::new([("push".to_owned(), OF_PUSHES)]) } else { Arc::default() }
    }

    /// The route by the policy after an edit, or before it; `None`: it is removed.
    pub fn to_weir(self, edit: Option<Edit>) -> Option<Route> {
        let when_full = match edit {
            None => self.when_full,
            Some(Edit::Suppresses) => WhenFull::Suppress,
            Some(Edit::Removed) => return None,
        };
        let filter = if self.pushes_only { on_channel("push") } else { Filter::default() };
        Some(Route {
            name: ROUTE.into(),
            filter: Selection { filter, campaigns: None },
            consumer_group: Some("delivery".into()),
            ahead_ms: self.ahead_ms,
            rate: self.rate,
            service: None,
            network_ms: DEFAULT_NETWORK_MS,
            reserved: None,
            when_full,
            fair_by: FairBy::Campaign,
            max_attempts: DEFAULT_MAX_ATTEMPTS,
        })
    }
}

/// What a look at the broker finds of the route.
#[derive(Debug, Default)]
pub struct Downstream {
    /// The topic that the consumer reads; `None`: there is no route.
    topic: Option<ApprovedTopic>,
    end: u64,
    pub committed: u64,
    waiting: Vec<Waiting>,
    /// Rebalances of the groups that take permits.
    pub rebalances: u64,
    /// The policy has no route any more.
    is_removed: bool,
}

impl Downstream {
    pub fn of(paced: Option<&Paced>) -> Self {
        Self { topic: paced.map(Paced::topic), ..Self::default() }
    }

    /// Approved records that are not delivered, and such offsets without a record.
    pub const fn undelivered(&self) -> u64 {
        self.end.saturating_sub(self.committed)
    }

    pub fn is_to(&self, to: Destination) -> bool {
        self.topic.is_some_and(|topic| to == Destination::Approved(topic))
    }
}

pub type SharedDownstream = Arc<Mutex<Downstream>>;

impl Broker {
    /// The planted bug: nobody reads what waits for a route that is removed.
    pub fn leaves_what_waits(&self) -> bool {
        self.env.sabotage() == Sabotage::RemovedRouteUnread && lock(&self.downstream).is_removed
    }

    /// Shows the keepers what is in the topics now.
    pub fn show(&mut self) {
        let mut downstream = lock(&self.downstream);
        if downstream.topic.is_none() {
            return;
        }
        downstream.end = self.written(&|out| downstream.is_to(out.to)) as u64;
        downstream.rebalances = self.group.rebalances + self.waiting.rebalances;
        let waits = |partition| {
            let next = self.committed.get(&(Log::Waiting, partition)).map_or(0, |done| done.next_offset);
            let stored = self.rings.of((Log::Waiting, partition)).iter();
            let left = stored.filter(|stored| stored.record.offset >= next);
            let is_there = |stored: &&Stored| self.is_open(stored.transaction) || self.is_committed(stored.transaction);
            let from = u64::try_from(next).unwrap();
            Waiting { from, end: from + left.filter(is_there).count() as u64 }
        };
        downstream.waiting = (0..WAITING).map(waits).collect();
    }
}

/// The offsets of the route as a process sees them.
#[derive(Clone)]
pub struct SimOffsets {
    pub env: Env,
    pub downstream: SharedDownstream,
    pub book: SharedBook,
    pub process: u64,
}

impl LooksAtRoutes for SimOffsets {
    fn of(&self, _: &Route) -> Result<Box<dyn RouteOffsets>, String> {
        Ok(Box::new(self.clone()))
    }
}

impl RouteOffsets for SimOffsets {
    fn look(&mut self) -> Looking<'_> {
        Box::pin(async move {
            let Self { env, downstream, book, process } = &*self;
            env.sleep(env.millis(1, 40)).await;
            if env.kafka_fails() {
                env.sleep(env.millis(10, 4_000)).await;
                let reason = "no reply (simulated)".to_owned();
                return Offsets { lag: Err(reason.clone()), waiting: Err(reason) };
            }
            let (lag, waiting) = {
                let seen = lock(downstream);
                (Lag { end: seen.end, committed: seen.committed }, seen.waiting.clone())
            };
            // The answer may be on its way for long.
            let slow = if env.kafka_fails() { env.millis(0, 2_500) } else { env.millis(1, 40) };
            env.sleep(slow).await;
            lock(book).looked(*process, env.passed(), lag);
            Offsets { lag: Ok(Some(lag)), waiting: Ok(waiting) }
        })
    }

    /// Nothing waits since before the first look: a restart forgets how old intents are.
    fn waiting_since(&mut self, _: Time) -> AskingBack {
        let waiting = lock(&self.downstream).waiting.clone();
        Box::pin(async move { Ok(waiting.iter().map(|waiting| Some(waiting.from)).collect()) })
    }
}

impl World {
    /// Puts the policy of now into force.
    pub fn change_policy(&self) {
        let stop = self.setting.stop.filter(|_| self.stopped_at.get().is_some());
        let policy = rules::policy(&self.setting, stop, self.edit_by(self.env.passed()));
        self.decider.policy.replace(Arc::new(policy));
    }

    /// The edit of the route that is in force by then.
    pub fn edit_by(&self, at: Duration) -> Option<Edit> {
        let (_, edit) = self.setting.paced?.edit?;
        self.edited_at.get().filter(|since| *since <= at).map(|_| edit)
    }
}

/// Edits the route in the policy, when the run's setting says so.
pub async fn edit(world: Rc<World>, (at, edit): (Duration, Edit)) {
    world.env.sleep(at).await;
    world.edited_at.set(Some(world.env.passed()));
    world.change_policy();
    lock(&world.broker.borrow().downstream).is_removed = edit == Edit::Removed;
    world.env.note(|| format!("the route of the policy is changed: {edit:?}"));
}

/// Delivers what is approved on the route, and notes how much that is.
pub async fn deliver(world: Rc<World>) {
    let Some(paced) = world.setting.paced else { return };
    let env = world.env.clone();
    let (mut position, mut delivered, mut commits_at) = (0, 0, Duration::ZERO);
    loop {
        env.sleep(paced.takes).await;
        let now = env.passed();
        if (paced.stands.0..paced.stands.1).contains(&now) && !env.is_calm() {
            continue;
        }
        let mut broker = world.broker.borrow_mut();
        let topic = Destination::Approved(paced.topic());
        let (outs, end) = broker.stable(position);
        match outs.iter().find(|out| out.to == topic) {
            Some(out) => {
                position = out.offset + 1;
                delivered += 1;
            }
            None if paced.passes => position = end,
            None => {}
        }
        if now >= commits_at {
            commits_at = now + paced.commits_every;
            let committed = broker.written(&|out| out.to == topic && out.offset < position) as u64;
            let before = std::mem::replace(&mut lock(&broker.downstream).committed, committed);
            if committed > before {
                env.note(|| format!("delivery has committed {delivered} records, {committed} offsets"));
                lock(&world.book).delivered.push((now, delivered));
            }
        }
    }
}
