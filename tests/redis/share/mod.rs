//! The scripts of the limits and their references answer alike: random steps of several members, each repeated on the reference at the
//! time that the server's clock showed. Meanwhile replies are lost, records are deleted, the clock jumps or a slot moves to another node,
//! and members are silent for longer than their leases.

mod budget;
mod pressure;
mod route;
mod service;
mod two;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::Arc,
    time::{Duration, Instant},
};

use fastrand::Rng;
use testkit::{
    clock::ProcessClock,
    redis::{RedisCluster, RedisServer},
};
use weir_core::{
    basis::time::Time,
    limit::share::{TurnNumber, is_overtaken},
    ports::StoreError,
};
use weir_redis::{Opened, RedisOptions};

use crate::redis_support::{opened, options};

/// In ten times the steps and so many phases they reach everything, however fast the machine is.
const PHASES: usize = 40;
const INSTANCES: [&str; 5] = ["weir-0", "weir-1", "", "a:b\r\n c", "é\u{1}10:99"];

/// A limit that members share: its script on a server, its reference, and the steps that are taken at both.
trait Scripted: Sized {
    type Step: Debug;
    type Reply: PartialEq + Debug;
    const MEMBERS: usize;
    /// How many there are at least, of all parts.
    const STEPS: usize = 3_000;
    /// How often they must reach each thing.
    const LEAST: usize = 10;
    /// For how long the same members are awake.
    const PHASE: Duration = Duration::from_secs(1);
    /// How many seconds the clock is ahead, one after the other.
    const AHEAD_S: &'static [i64] = &[15, -10, 0];

    async fn new(place: Arc<Place>) -> Self;

    /// The next steps of a member, which are sent at once.
    fn draw(&mut self, rng: &mut Rng, member: usize) -> Vec<Self::Step>;

    /// Gives the replies in order, and what the server's clock showed at each.
    async fn on_server(&mut self, member: usize, steps: &[Self::Step]) -> Result<Vec<(Self::Reply, Time)>, StoreError>;

    fn on_reference(&mut self, member: usize, step: &Self::Step, now: Time) -> Self::Reply;

    /// Gives what the step has reached, of all that steps must reach. A member goes on from a reply that it has heard.
    fn note(&mut self, member: usize, step: &Self::Step, reply: &Self::Reply, is_heard: bool) -> Reached;

    /// The slot and the key of each record.
    fn records(&self) -> Vec<(u16, String)>;

    /// All records were deleted: the reference begins anew.
    fn forget(&mut self);
}

/// The number of a member's next turn, above 0, as a rule after its last one; or of one that comes behind it, of a run before, or of the next
/// run.
fn next_turn(rng: &mut Rng, last: &mut TurnNumber) -> TurnNumber {
    let TurnNumber { run, number } = *last;
    match rng.u8(..24) {
        0 if number > 1 => return TurnNumber { run, number: number - 1 },
        1 => return TurnNumber { run: run - 1, number: number + 1 },
        2 => *last = TurnNumber { run: run + 1, number: 1 },
        _ => last.number += 1,
    }
    *last
}

/// What a turn was answered; `None`: a later one was taken before.
fn unless_overtaken<T>(answer: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match answer {
        Err(error) if is_overtaken(&error) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Things that steps must reach, and which of them one has reached.
type Reached = Vec<(&'static str, bool)>;

enum Servers {
    /// A server whose clock can be moved.
    One {
        server: Box<RedisServer>,
        clock: ProcessClock,
    },
    Many(RedisCluster),
}

impl Servers {
    fn one() -> Self {
        let clock = ProcessClock::ahead(0).unwrap();
        let server = Box::new(RedisServer::start_by(&clock).unwrap());
        Self::One { server, clock }
    }

    fn nodes(&self) -> Vec<&RedisServer> {
        match self {
            Self::One { server, .. } => vec![server.as_ref()],
            Self::Many(cluster) => (0..cluster.nodes().len()).map(|node| cluster.node(node)).collect(),
        }
    }

    fn urls(&self) -> Vec<String> {
        self.nodes().into_iter().map(RedisServer::url).collect()
    }
}

struct Place {
    servers: Servers,
    options: RedisOptions,
    opened: Opened,
}

impl Place {
    /// The reply of the node that has the key: the others say where it is.
    fn query<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        let (nodes, ask) = (self.servers.nodes(), |node: &RedisServer| node.query(command));
        let (first, others) = nodes.split_first().unwrap();
        others.iter().fold(ask(first), |reply, node| reply.or_else(|_| ask(node))).unwrap()
    }

    fn clock(&self) -> Time {
        let (seconds, micros): (i64, i64) = self.query(&["TIME"]);
        Time::from_millis(seconds * 1_000 + micros / 1_000).unwrap()
    }

    /// When a member took its last turn, which has written its end so far ahead (`lua/share/members.lua`).
    fn turned_at(&self, key: &str, field: &str, ahead_ms: i64) -> Time {
        self.moment(key, field, 2, ahead_ms)
    }

    /// When a call was that wrote a time so far ahead into a field, behind so many colons.
    fn moment(&self, key: &str, field: &str, colons: usize, ahead_ms: i64) -> Time {
        let text: String = self.query(&["HGET", key, field]);
        let millis = text.split(':').nth(colons).unwrap().parse().unwrap();
        Time::from_millis(millis).unwrap().plus(-ahead_ms)
    }

    /// The clock jumps, or a slot moves.
    fn disturb(&self, times: usize, ahead_s: &[i64], records: &[(u16, String)]) {
        match &self.servers {
            Servers::One { clock, .. } => clock.set(ahead_s[times % ahead_s.len()]).unwrap(),
            Servers::Many(cluster) => {
                let (slot, _) = records[times % records.len()];
                let from = cluster.owner_of(slot).unwrap();
                cluster.move_slots([slot], from, (from + 1) % cluster.nodes().len()).unwrap();
            }
        }
    }
}

/// A limit on the servers and its reference.
struct Both<S> {
    limit: S,
    place: Arc<Place>,
    /// How often the steps have reached each thing.
    seen: BTreeMap<&'static str, usize>,
}

impl<S: Scripted> Both<S> {
    async fn new(servers: Servers, options: RedisOptions) -> Self {
        let opened = opened(&options).await.unwrap();
        let place = Arc::new(Place { servers, options, opened });
        Self { limit: S::new(Arc::clone(&place)).await, place, seen: BTreeMap::new() }
    }

    /// Takes steps of a member at both.
    async fn take(&mut self, member: usize, steps: &[S::Step], is_heard: bool) -> Result<Vec<S::Reply>, StoreError> {
        let replies = self.limit.on_server(member, steps).await?;
        assert_eq!(replies.len(), steps.len());
        let mut all = Vec::new();
        for (step, (reply, now)) in steps.iter().zip(replies) {
            let expected = self.limit.on_reference(member, step, now);
            if reply != expected {
                let short = |what: &dyn Debug| format!("{what:?}").chars().take(1_000).collect::<String>();
                panic!("{member} at {now}: {}\n{}\nexpected {}", short(step), short(&reply), short(&expected));
            }
            for (thing, is_so) in self.limit.note(member, step, &reply, is_heard) {
                *self.seen.entry(thing).or_default() += usize::from(is_so);
            }
            all.push(reply);
        }
        Ok(all)
    }

    fn wipe(&mut self) {
        for (_, key) in self.limit.records() {
            self.place.query::<()>(&["DEL", &key]);
        }
        self.limit.forget();
    }

    fn reaches(&self, least: usize) -> bool {
        self.seen.values().all(|count| *count >= least)
    }

    /// One of so many parts of the steps.
    #[expect(clippy::print_stderr, reason = "a failed run shows by which seed")]
    async fn run(&mut self, parts: usize) {
        let (steps, least) = (S::STEPS / parts, S::LEAST.div_ceil(parts));
        let seed = fastrand::u64(..);
        eprintln!("seed {seed}");
        let (mut rng, mut number) = (Rng::with_seed(seed), 0);
        let (mut phase, mut phase_began, mut first, mut awake) = (0, Instant::now(), 0, 1);
        // In the first four phases there is each fault.
        while number < steps || phase < 4 || !self.reaches(least) {
            if phase_began.elapsed() >= S::PHASE {
                (phase, phase_began) = (phase + 1, Instant::now());
                let may_reach_more = number < 10 * steps || phase < PHASES;
                assert!(may_reach_more, "{number} steps in {phase} phases reach too little: {:?}", self.seen);
                (first, awake) = (rng.usize(..S::MEMBERS), [1, 2, S::MEMBERS][phase % 3]);
                match phase % 4 {
                    1 | 3 => self.place.disturb(phase / 2, S::AHEAD_S, &self.limit.records()),
                    2 => self.wipe(),
                    _ => {}
                }
            }
            let member = (first + rng.usize(..awake)) % S::MEMBERS;
            let (drawn, is_lost) = (self.limit.draw(&mut rng, member), rng.u8(..10) == 0);
            number += drawn.len();
            self.take(member, &drawn, !is_lost).await.unwrap();
            if is_lost {
                // They are repeated as they are.
                self.take(member, &drawn, true).await.unwrap();
            }
            if rng.u8(..8) == 0 {
                tokio::time::sleep(Duration::from_millis(rng.u64(..8))).await;
            }
        }
    }
}

/// Takes one of so many parts of the steps.
async fn run<S: Scripted>(parts: usize) {
    let (one, many) = (Servers::one(), Servers::Many(RedisCluster::start(3, 0).unwrap()));
    let [on_one, on_many] = [&one, &many].map(|servers| options(&servers.urls()));
    let (mut one, mut many) = (Both::<S>::new(one, on_one).await, Both::<S>::new(many, on_many).await);
    tokio::join!(one.run(parts), many.run(parts));
}

/// Random steps of each limit: a test of one of so many parts of them, and one of all.
macro_rules! random_steps {
    ($(#[$attribute:meta] async fn $test:ident() { $limit:ty, $parts:literal })+) => {
        $(#[$attribute]
        async fn $test() {
            run::<$limit>($parts).await;
        })+

        #[tokio::test(flavor = "multi_thread")]
        #[ignore = "takes minutes: cargo xtask ci --extent everything"]
        async fn all_random_steps_are_those_of_the_references() {
            $(run::<$limit>(1).await;)+
        }
    };
}

random_steps! {
    #[tokio::test(flavor = "multi_thread")]
    async fn random_steps_of_budgets_are_those_of_the_reference() { budget::Budgets, 20 }

    #[tokio::test(flavor = "multi_thread")]
    async fn random_turns_at_the_log_of_activity_are_those_of_the_reference() { pressure::Active, 3 }

    #[tokio::test(flavor = "multi_thread")]
    async fn random_turns_at_permits_are_those_of_the_reference() { route::Routes, 3 }

    #[tokio::test(flavor = "multi_thread")]
    async fn random_calls_of_services_are_those_of_the_reference() { service::Shares, 3 }
}
