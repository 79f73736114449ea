//! The permits of the route as a process takes turns at them: the Redis edge as it is, what the checker remembers, and around it a planted
//! bug that needs a place there.

use tokio::sync::mpsc::{Receiver, channel};
use weir_core::limit::{
    route::{
        permits::{PermitGrant, PermitTurn, RouteKey, RoutePermits},
        routes::{Pool, RouteState},
    },
    share::{LimitTask, is_overtaken},
};
use weir_redis::RedisShare;
use weir_worker::{
    routes::HeldRoutes,
    share::{KeyedKeeper, RulesInForce},
};

use super::{downstream::SimOffsets, lanes::THE_ROUTE, prelude::*};

/// A look at the offsets says nothing any more after so long, nor where it took longer: the constant `LOOK_HOLDS` of the route's keeper.
const LOOK_HOLDS: Duration = Duration::from_secs(3);
/// A rate is measured over so long at the least.
const MEASURED_OVER: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub process: u64,
    /// When it was asked for.
    pub at: Duration,
    /// It is the one before, made again.
    pub is_repeated: bool,
    pub room: u64,
    pub recent: u64,
    /// Permits that the process tells it took back: none where it is repeated.
    pub unused: u64,
    /// How many of them may be of the reserved share, at most. Where the turn is repeated: of those that the process took back and does not tell.
    pub reserved_back: u64,
    /// Of those that it came to, how many are kept for the reserved share.
    pub reserved: u64,
    /// The lag that the process knew, or the true one, whichever is more.
    pub lag: u64,
    /// The process has seen the offsets just now, and goes by them: not where it is repeated.
    pub is_known: bool,
    /// The members of its last answer; 0: it has had none since it started, or since the route came back into the policy, and it was not
    /// overtaken.
    pub members: u64,
    /// What it was granted; `None`: the process has no answer.
    pub granted: Option<u64>,
}

/// How the route's consumers truly stand.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    pub undelivered: u64,
    /// Offsets that they have passed, without those before their first commits.
    pub delivered: u64,
}

/// All turns of the processes, and what was delivered.
#[derive(Debug, Default)]
pub struct Book {
    pub turns: Vec<Turn>,
    /// The members of each process's last answer, as long as it knows them.
    members: BTreeMap<u64, u64>,
    /// What was undelivered when each process saw the offsets last.
    seen: BTreeMap<u64, u64>,
    /// When that was, unless it could not see them then.
    seen_at: BTreeMap<u64, Duration>,
    /// When each process saw the offsets first and then more of them passed, and how many.
    looks: BTreeMap<u64, Vec<(Duration, u64)>>,
    /// How many records were delivered by when.
    pub delivered: Vec<(Duration, u64)>,
    /// Batches whose commits failed, as far as their lanes know: lane, and when it was submitted.
    pub unclear: Vec<(u64, Duration)>,
}

pub type SharedBook = Arc<Mutex<Book>>;

impl Book {
    /// A process has looked at the offsets, from when until when; `None`: it could not see them.
    pub fn looked(&mut self, process: u64, began_at: Duration, at: Duration, found: Option<Standing>) {
        // The process stood still while it looked: weir takes the lag as unknown, and measures nothing by it.
        let found = found.filter(|_| at.saturating_sub(began_at) <= LOOK_HOLDS);
        let Some(Standing { undelivered, delivered }) = found else {
            self.seen_at.remove(&process);
            return;
        };
        self.seen.insert(process, undelivered);
        self.seen_at.insert(process, at);
        let looks = self.looks.entry(process).or_default();
        if looks.last().is_none_or(|(_, before)| delivered > *before) {
            looks.push((at, delivered));
        }
    }

    /// How often one process had seen by then that more was committed, at the most: what it has learnt is kept for the others.
    pub fn commits_seen(&self, by: Duration) -> usize {
        let seen = |looks: &Vec<(Duration, u64)>| looks.partition_point(|(at, _)| *at <= by).saturating_sub(1);
        self.looks.values().map(seen).max().unwrap_or_default()
    }

    /// The highest rate, per second, that any process can have measured by when: from one look that has found more to a later one.
    pub fn rates(&self) -> Vec<(Duration, f64)> {
        let mut rates = Vec::new();
        for looks in self.looks.values() {
            // What the first one has found was done in nobody knows how long a time.
            let looks = looks.get(1..).unwrap_or_default();
            for (place, (at, delivered)) in looks.iter().enumerate() {
                let earlier = looks[..place].iter().filter(|(before, _)| *before + MEASURED_OVER <= *at);
                let rate = |(before, less): &(Duration, u64)| (delivered - less) as f64 / (*at - *before).as_secs_f64();
                rates.extend(earlier.map(rate).reduce(f64::max).map(|rate| (*at, rate)));
            }
        }
        rates.sort_by_key(|(at, _)| *at);
        let mut highest = 0.0;
        for (_, rate) in &mut rates {
            highest = f64::max(highest, *rate);
            *rate = highest;
        }
        rates
    }
}

/// What the members of the route hold or have just approved, by a node's hash of them at this time in ms since 1970
/// (`lua/share/members.lua`, `lua/permit.lua`); none for another key.
fn counted(item: Option<&Item>, now_ms: i64) -> BTreeMap<&[u8], u64> {
    let Some(Item::Hash(hash)) = item else { return BTreeMap::new() };
    let members = hash.iter().filter(|(field, _)| field.starts_with(b"iweir-"));
    let members = members.map(|(field, entry)| {
        let numbers: Vec<i64> = str::from_utf8(entry).unwrap().split(':').map(|text| text.parse().unwrap()).collect();
        let (ends, held, recent) = (numbers[2], numbers[3], numbers[5]);
        (field.as_slice(), if ends > now_ms { u64::try_from(held + recent).unwrap() } else { 0 })
    });
    members.collect()
}

/// How many permits a node with `kept` does not know of any more, that one with `had` did: others may be granted as many once more.
pub fn forgotten(had: Option<&Item>, kept: Option<&Item>, now_ms: i64) -> u64 {
    let kept = counted(kept, now_ms);
    let had = counted(had, now_ms).into_iter();
    had.map(|(member, permits)| permits.saturating_sub(kept.get(member).copied().unwrap_or(0))).sum()
}

/// What a process's turns reach beside Redis.
#[derive(Clone)]
pub struct Reached {
    pub downstream: SharedDownstream,
    pub book: SharedBook,
    /// The permits that the process holds, and how its keeper says that the route stands.
    pub state: Arc<RouteState>,
}

/// The permits as a process takes turns at them.
pub struct SimPermits {
    env: Env,
    process: u64,
    permits: RedisShare<RoutePermits>,
    reached: Reached,
    number: TurnNumber,
    /// What that was answered, and the rebalances by then.
    before: (u64, u64),
    /// The last turn, and the permits of the reserved share that it left, or that lanes had then, at the most.
    last: Option<(usize, u64)>,
    /// Permits of the reserved share that repeated turns, which tell of none, have taken back since, at the most.
    untold: u64,
}

impl SimPermits {
    fn begin(&mut self, number: TurnNumber, turn: &PermitTurn) -> usize {
        let is_repeated = std::mem::replace(&mut self.number, number) == number;
        let unused = if is_repeated { 0 } else { turn.unused };
        let Reached { downstream, book, state } = &self.reached;
        let (now, undelivered, mut book) = (self.env.passed(), lock(downstream).undelivered(), lock(book));
        // The keeper has shown what the last turn came to.
        let kept = state.known().map_or(0, |known| known.reserved);
        let taken_back = self.last.map_or(u64::MAX, |(place, left)| {
            book.turns[place].reserved = kept;
            left + kept
        });
        let untold = self.untold.saturating_add(taken_back);
        self.untold = if is_repeated { untold } else { 0 };
        let reserved_back = if is_repeated { taken_back } else { untold.min(unused) };
        let left = |pool| state.left(pool, Duration::ZERO);
        let lag = book.seen.get(&self.process).copied().unwrap_or(0).max(undelivered);
        let is_known = !is_repeated && book.seen_at.get(&self.process).is_some_and(|at| *at + LOOK_HOLDS >= now);
        let members = book.members.get(&self.process).copied().unwrap_or(0);
        let place = book.turns.len();
        book.turns.push(Turn {
            process: self.process,
            at: now,
            is_repeated,
            room: turn.room_or_most(),
            recent: turn.recent,
            unused,
            reserved_back,
            reserved: 0,
            lag,
            is_known,
            members,
            granted: None,
        });
        self.last = Some((place, state.held().saturating_sub(left(Pool::General))));
        place
    }

    /// The planted bug: after a rebalance, what the last turn gave is counted again.
    fn counted_twice(&mut self, grant: PermitGrant) -> PermitGrant {
        let rebalances = lock(&self.reached.downstream).rebalances;
        let (permits, known) = std::mem::replace(&mut self.before, (grant.permits, rebalances));
        let again = self.env.sabotage() == Sabotage::PermitsCountedTwice && known != rebalances;
        PermitGrant { permits: grant.permits + if again { permits } else { 0 }, ..grant }
    }
}

impl Share<RoutePermits> for SimPermits {
    async fn turn(&mut self, key: &RouteKey, number: TurnNumber, turn: &PermitTurn) -> Result<PermitGrant, StoreError> {
        let place = self.begin(number, turn);
        let outcome = self.permits.turn(key, number, turn).await;
        match outcome {
            Ok(grant) => {
                let mut book = lock(&self.reached.book);
                book.turns[place].granted = Some(grant.permits);
                book.members.insert(self.process, grant.members);
                drop(book);
                Ok(self.counted_twice(grant))
            }
            Err(error) => {
                // It takes nothing.
                if is_overtaken(&error) {
                    let mut book = lock(&self.reached.book);
                    book.turns[place].members = book.turns[place].members.max(1);
                }
                self.env.note(|| format!("process {}: no turn at the permits: {error}", self.process));
                Err(error)
            }
        }
    }
}

impl World {
    /// What the route takes in a process, by a keeper of its own until the process leaves, and what says when its tasks have ended.
    pub fn keep_routes(&self, process: &Rc<Process>, leave: &CancellationToken) -> Option<(Arc<Routes>, Receiver<()>)> {
        let paced = self.setting.paced?;
        let (routes, number) = (Routes::new(), process.number);
        assert_eq!(routes.state(ROUTE).topic, THE_ROUTE);
        let (downstream, book) = (Arc::clone(&self.broker.borrow().downstream), Arc::clone(&self.book));
        let offsets = SimOffsets::new(&self.env, number, (Arc::clone(&downstream), Arc::clone(&book)));
        let (policy, clock) = (Arc::clone(&self.keepers_policy), process.clock.clone());
        let held = HeldRoutes { routes: Arc::clone(&routes), offsets: Arc::new(offsets), clock: clock.clone() };
        let reached = Reached { downstream, book, state: routes.state(ROUTE) };
        let (env, connect) = (self.env.clone(), self.keyspace.permits(process.instance));
        let permits = move || {
            // A change of the policy leaves it what it knows, unless that had no route.
            if paced.edits.iter().flatten().any(|(at, rule)| *rule == Rule::Removed && *at <= env.passed()) {
                lock(&reached.book).members.remove(&number);
            }
            SimPermits {
                env: env.clone(),
                process: number,
                permits: connect(),
                reached: reached.clone(),
                number: TurnNumber::default(),
                before: (0, 0),
                last: None,
                untold: 0,
            }
        };
        let (of, (running, ended)) = (Rc::clone(process), channel(1));
        let spawn = move |task: LimitTask| {
            let running = running.clone();
            let work = async move {
                task.await;
                drop(running);
            };
            drop(spawn_local(of.run(work)));
        };
        let rules = RulesInForce { policy, of: |policy| policy.routes.as_slice() };
        let keeper = KeyedKeeper::new(held, rules, (permits, clock), spawn);
        spawn_local(process.run(keeper.run(leave.clone())));
        Some((routes, ended))
    }
}
