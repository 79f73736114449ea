//! Several instances, a registry and a network that delays, repeats and loses: whatever happens, the admissions of all of them together
//! stay within what is registered.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use weir_core::{basis::time::Time, limit::share::Reference as _};

use super::*;
use crate::service::{Registration, ServiceBook};

const START_MS: u64 = 1_795_132_800_000;
const TIMEOUT_MS: u64 = 2_500;

/// Random numbers of a seed (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// A turn on its way to the book, or its reply on the way back.
struct Message {
    to: String,
    /// When it arrives.
    at: u64,
    number: TurnNumber,
    turn: ShareTurn,
    /// Of the instance's calls.
    call: u64,
    /// `None`: not at the book yet. `Some(None)`: it was refused there.
    reply: Option<Option<ShareReply>>,
    lost: bool,
}

/// An instance of weir, whose monotonic clock began at a moment of its own.
struct Instance {
    admissions: Admissions,
    began: u64,
    asks_per_s: u64,
    /// How many calls it has made, and when the last one is given up.
    calls: u64,
    gives_up: Option<u64>,
}

/// Whether messages are lost or late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Fine,
    Bad,
}

struct World {
    network: Network,
    dice: Dice,
    now: u64,
    book: ServiceBook,
    instances: BTreeMap<String, Instance>,
    born: u64,
    messages: Vec<Message>,
    /// When admissions were given, within the last second.
    given: VecDeque<u64>,
    /// Admissions that have not ended as their service knows: holder and number, and when they are over at the latest.
    open: BTreeMap<(String, u64), u64>,
    total: u64,
    admitted: u64,
}

impl World {
    fn new(seed: u64, (capacity_per_s, concurrency): (u64, u64), network: Network) -> Self {
        let mut world = Self {
            network,
            dice: Dice(seed | 1),
            now: 5_000,
            book: ServiceBook::default(),
            instances: BTreeMap::new(),
            born: 0,
            messages: Vec::new(),
            given: VecDeque::new(),
            open: BTreeMap::new(),
            total: concurrency,
            admitted: 0,
        };
        world.register(capacity_per_s);
        world.now = 10_000;
        (0..3).for_each(|_| world.start());
        world
    }

    fn register(&mut self, capacity_per_s: u64) {
        let registration = Registration {
            capacity_per_s,
            concurrency: self.total,
            timeout_ms: TIMEOUT_MS,
            network_ms: 50,
            interval_ms: 1_000_000,
        };
        self.book.register(&ServiceName::new("i").unwrap(), &registration, self.time());
    }

    fn time(&self) -> Time {
        Time::from_millis((START_MS + self.now) as i64).unwrap()
    }

    fn start(&mut self) {
        self.born += 1;
        let began = self.dice.below(self.now);
        let mut admissions = Admissions::new(&format!("h{}", self.born), self.now - began);
        admissions.begin(&service(), self.now - began);
        let asks_per_s = *[0, 3, 40, 400].get(self.dice.below(4) as usize).unwrap();
        let instance = Instance { admissions, began, asks_per_s, calls: 0, gives_up: None };
        self.instances.insert(format!("h{}", self.born), instance);
    }

    /// One instance, for a moment.
    fn run(&mut self, holder: &str, frozen: bool) {
        let Some(mut instance) = self.instances.remove(holder) else { return };
        let now = self.now - instance.began;
        if instance.gives_up.is_some_and(|at| self.now >= at) {
            instance.admissions.not_turned(&service(), "lost", now);
            instance.gives_up = None;
        }
        for (_, number, turn) in if frozen { Vec::new() } else { instance.admissions.due_turns(now) } {
            // Now and then it arrives after it was given up, and behind later ones.
            let late = if self.goes_wrong(10) { 4_000 } else { 30 };
            let at = self.now + self.dice.below(late);
            let lost = self.goes_wrong(12);
            instance.calls += 1;
            let (to, call) = (holder.to_owned(), instance.calls);
            self.messages.push(Message { to, at, number, turn, call, reply: None, lost });
            instance.gives_up = Some(self.now + 1_000);
        }
        if !frozen && self.dice.below(1_000) < instance.asks_per_s {
            for _ in 0..1 + self.dice.below(3) {
                if let Asked::Admitted { number, timeout_ms } = instance.admissions.ask(&service(), now, 0) {
                    self.given.push_back(self.now);
                    self.open.insert((holder.to_owned(), number), self.now + timeout_ms);
                    self.admitted += 1;
                }
            }
        }
        self.instances.insert(holder.to_owned(), instance);
    }

    /// A service reports an end, to its holder or to another instance.
    fn end(&mut self) {
        let which = self.dice.below(self.open.len().max(1) as u64) as usize;
        let (Some(id), Some(at)) = (self.open.keys().nth(which).cloned(), self.any()) else { return };
        self.open.remove(&id);
        let instance = self.instances.get_mut(&at).unwrap();
        let end = End { number: id.1, took_ms: Some(20) };
        instance.admissions.end(&service(), &id.0, end, self.now - instance.began);
    }

    /// Once in so many times, where the network is bad.
    fn goes_wrong(&mut self, in_so_many: u64) -> bool {
        self.network == Network::Bad && self.dice.below(in_so_many) == 0
    }

    fn any(&mut self) -> Option<String> {
        let which = self.dice.below(self.instances.len().max(1) as u64) as usize;
        self.instances.keys().nth(which).cloned()
    }

    fn deliver(&mut self) {
        let (now, arrived) = (self.now, std::mem::take(&mut self.messages));
        for mut message in arrived {
            if message.at > now {
                self.messages.push(message);
                continue;
            }
            if message.lost {
                continue;
            }
            if let Some(reply) = message.reply {
                let Some(instance) = self.instances.get_mut(&message.to) else { continue };
                // A reply that comes after its call was given up is not read.
                if instance.gives_up.is_none() || instance.calls != message.call {
                    continue;
                }
                let local = now - instance.began;
                match reply {
                    Some(reply) => drop(instance.admissions.turned(&service(), &reply, local)),
                    None => instance.admissions.not_turned(&service(), "lost", local),
                }
                instance.gives_up = None;
            } else {
                message.reply = Some(self.book.turn(&message.to, message.number, &message.turn, self.time()));
                message.lost = self.goes_wrong(12);
                message.at = now + self.dice.below(30);
                self.messages.push(message);
            }
        }
    }

    fn step(&mut self, frozen: Option<&str>) {
        self.now += 1;
        self.deliver();
        for holder in self.instances.keys().cloned().collect::<Vec<_>>() {
            let is_frozen = frozen == Some(holder.as_str());
            self.run(&holder, is_frozen);
        }
        for _ in 0..2 {
            if self.dice.below(20) == 0 {
                self.end();
            }
        }
        let now = self.now;
        self.open.retain(|_, over| *over > now);
        while self.given.front().is_some_and(|at| at + 1_000 <= now) {
            self.given.pop_front();
        }
    }
}

/// Whether Redis loses all that it knows, now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Redis {
    Keeps,
    Loses,
}

/// Runs for so many seconds, while instances freeze, die and start.
fn run(seed: u64, (capacity_per_s, concurrency): (u64, u64), redis: Redis) -> Result<(), TestCaseError> {
    let mut world = World::new(seed, (capacity_per_s, concurrency), Network::Bad);
    for _ in 0..20 {
        let frozen = if world.dice.below(8) == 0 { world.any() } else { None };
        match world.dice.below(12) {
            0 => drop(world.any().map(|holder| world.instances.remove(&holder))),
            1 => world.start(),
            2 | 3 if redis == Redis::Loses => {
                world.book = ServiceBook::default();
                world.register(capacity_per_s);
            }
            _ => {}
        }
        for _ in 0..1_000 {
            world.step(frozen.as_deref());
            let (given, open) = (world.given.len() as u64, world.open.len() as u64);
            prop_assert!(given <= capacity_per_s, "{given} within a second, of {capacity_per_s}, at {}", world.now);
            // After a loss it is not known what instances gave that died before.
            prop_assert!(
                open <= concurrency || redis == Redis::Loses,
                "{open} open, of {concurrency}, at {}",
                world.now
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5, ..ProptestConfig::default() })]

    #[test]
    fn all_instances_together_give_no_more_than_is_registered(seed in any::<u64>(), capacity in 1..300_u64, concurrency in 1..60_u64) {
        run(seed, (capacity, concurrency), Redis::Keeps)?;
    }

    #[test]
    fn no_loss_of_what_redis_knows_lets_the_rate_go_above_what_is_registered(seed in any::<u64>(), capacity in 1..300_u64) {
        run(seed, (capacity, 1_000), Redis::Loses)?;
    }
}

#[test]
fn busy_instances_use_what_idle_ones_leave() {
    let mut world = World::new(7, (200, 10_000), Network::Fine);
    for (instance, asks_per_s) in world.instances.values_mut().zip([0, 0, 400]) {
        instance.asks_per_s = asks_per_s;
    }
    let mut after_ten_s = 0;
    for step in 0..40_000 {
        world.step(None);
        if step == 10_000 {
            after_ten_s = world.admitted;
        }
    }
    let admitted = world.admitted - after_ten_s;
    assert!(admitted >= 30 * 200 * 95 / 100, "{admitted} in 30 s");
}
