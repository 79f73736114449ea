//! Several instances, one ledger, and what goes wrong between them.

use std::collections::{HashMap, HashSet};

use super::{
    super::{stock::Stock, *},
    books::{Books, SpendId},
    ledger::{Ledger, time},
};
use crate::limit::{
    budget::SpanNow,
    share::tests::{Happens, Network, Ways},
};

/// The kind of a budget's window, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Rolling(i64),
    Period(i64),
    Total,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) limit: u64,
    pub(super) kind: Kind,
    pub(super) best_effort: bool,
}

/// How often, in percent, something goes wrong; and how long something takes at most.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) lost_replies: u64,
    pub(super) refusals: u64,
    pub(super) dropped_tickets: u64,
    /// A batch is judged by another version of the policy: its limits are half as high.
    pub(super) other_limits: u64,
    pub(super) put_backs: u64,
    pub(super) freezes: u64,
    pub(super) kills: u64,
    pub(super) latency_ms: u64,
}

impl Faults {
    pub(super) fn none() -> Self {
        Self { latency_ms: 5, ..Self::default() }
    }

    fn ways(self) -> Ways {
        let Self { lost_replies, refusals: lost_turns, latency_ms, .. } = self;
        Ways { lost_turns, lost_replies, latency_ms, ..Ways::default() }
    }
}

/// What the lanes ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) instances: usize,
    pub(super) lanes: usize,
    /// The most intents in a batch.
    pub(super) batch: u64,
    pub(super) most_cost: u64,
    /// The longest pause between two batches of a lane.
    pub(super) pause_ms: u64,
}

/// A turn, and when it was sent.
#[derive(Debug, Clone)]
struct Sent {
    due: DueTurn,
    at: i64,
}

#[derive(Debug)]
enum Own {
    /// A lane reads its clock.
    Judge(usize),
    /// A lane claims, judged then.
    Claim(usize, Claim, i64),
    PutBack(SpendId, (BudgetId, LeaseNumber, u64)),
    Tick,
}

/// A lane's batch.
#[derive(Debug, Default)]
struct Lane {
    ticket: Option<Ticket>,
    /// Budgets (a set of bits) and cost of each intent.
    intents: Vec<(u8, u8)>,
    has_other_limits: bool,
    is_pending: bool,
    is_claiming: bool,
    began_at: i64,
    claims: u32,
}

#[derive(Debug)]
struct Instance {
    /// The number of its process, unlike that of any other; and the run of its turns.
    life: usize,
    run: i64,
    leases: Leases,
    lanes: Vec<Lane>,
    /// What its monotonic clock showed when the world began.
    clock: Duration,
    tick_at: Option<i64>,
    in_flight: Vec<DueTurn>,
    answered: HashSet<TurnNumber>,
    first_sent: HashMap<TurnNumber, i64>,
}

impl Instance {
    fn passed(&self, at: i64) -> Duration {
        self.clock + Duration::from_millis(at.try_into().unwrap())
    }

    fn due(&mut self, at: i64) -> Due {
        let (run, passed) = (self.run, self.passed(at));
        self.leases.due(passed, || TurnNumber { run, number: 0 })
    }
}

/// What a process lost of a window of a budget when it was killed.
#[derive(Debug)]
pub(super) struct LostByKill {
    /// The budget's number.
    pub(super) budget: usize,
    pub(super) tokens: u64,
    /// The most that the process had spent of it in a second.
    pub(super) fullest: u64,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) specs: Vec<Spec>,
    faults: Faults,
    load: Load,
    /// Between instances and the ledger.
    network: Network<usize, Sent, TakeAnswer, Own>,
    last_ticket: u64,
    instances: Vec<Instance>,
    lives: usize,
    pub(super) lost: Vec<LostByKill>,
    ledger: Ledger,
    pub(super) books: Books,
    /// No batch begins any more.
    is_ending: bool,
    /// The most claims and milliseconds that a ticket needed.
    pub(super) most_claims: u32,
    pub(super) longest_ms: i64,
}

/// What is asked of a budget with this number.
pub(super) fn budget(number: usize) -> BudgetId {
    BudgetId { name: format!("budget-{number}").into(), campaign: None }
}

impl World {
    pub(super) fn new(specs: &[Spec], load: Load, faults: Faults, seed: u64) -> Self {
        let mut world = Self {
            specs: specs.to_vec(),
            faults,
            load,
            network: Network::new(seed, faults.ways()),
            last_ticket: 0,
            instances: Vec::new(),
            lives: 0,
            lost: Vec::new(),
            ledger: Ledger::default(),
            books: Books::default(),
            is_ending: false,
            most_claims: 0,
            longest_ms: 0,
        };
        for index in 0..load.instances {
            let clock = Duration::from_millis(world.network.random.below(1_000_000));
            let instance = world.instance(1, clock);
            world.instances.push(instance);
            world.wakes(index);
        }
        world
    }

    /// A process that begins. `clock`: what the monotonic clock of its machine showed when the world began.
    fn instance(&mut self, run: i64, clock: Duration) -> Instance {
        self.lives += 1;
        let (life, leases) = (self.lives, Leases::new(10_000));
        let lanes = (0..self.load.lanes).map(|_| Lane::default()).collect();
        let (in_flight, answered, first_sent) = (Vec::new(), HashSet::new(), HashMap::new());
        Instance { life, run, leases, lanes, clock, tick_at: None, in_flight, answered, first_sent }
    }

    /// The lanes of an instance begin.
    fn wakes(&mut self, index: usize) {
        (0..self.load.lanes).for_each(|lane| self.pause(index, lane));
    }

    fn now(&self) -> i64 {
        self.network.now.cast_signed()
    }

    /// The process of an instance ends at once, and the next one takes its place. Turns that are on their way reach the ledger or do not.
    fn kill(&mut self, index: usize) {
        let now = self.now();
        for Sent { due, .. } in self.network.forget(&index) {
            if self.network.random.percent(50) {
                self.ledger.turn(index, &due, now);
            }
        }
        let Instance { life, run, clock, .. } = self.instances[index];
        for number in 0..self.specs.len() {
            let id = budget(number);
            for (span, taken) in self.ledger.taken_by((index, run), &id) {
                let (spent, fullest) = self.books.spent_by(life, &id, span);
                let tokens = taken.checked_sub(spent).expect("what is spent was granted");
                self.lost.push(LostByKill { budget: number, tokens, fullest });
            }
        }
        self.books.is_killed(life);
        self.instances[index] = self.instance(run + 1, clock);
        self.wakes(index);
    }

    pub(super) fn span(&self, number: usize, at: i64) -> SpanNow {
        match self.specs[number].kind {
            Kind::Rolling(window_ms) => SpanNow::Rolling { window_ms },
            Kind::Period(length) => {
                let start = at / length * length;
                SpanNow::Period { start: time(start), end: time(start + length) }
            }
            Kind::Total => SpanNow::Total,
        }
    }

    pub(super) fn run_until(&mut self, end: i64) {
        while let Some((index, happens)) = self.network.next(end.unsigned_abs()) {
            self.handle(index, happens);
            self.pump(index);
        }
    }

    /// Lets all pending tickets be answered, without faults, and gives everything back.
    pub(super) fn end(&mut self) {
        self.is_ending = true;
        self.faults = Faults::none();
        self.network.ways = self.faults.ways();
        self.run_until(self.now() + 60_000);
        for index in 0..self.instances.len() {
            let now = self.now();
            let instance = &mut self.instances[index];
            for lane in &instance.lanes {
                assert!(!lane.is_pending, "a ticket of instance {index} is not answered: {lane:?}");
            }
            instance.leases.close(instance.passed(now));
            self.pump(index);
        }
        self.run_until(self.now() + 10_000);
        let now = self.now();
        for instance in &mut self.instances {
            assert!(instance.leases.is_settled(), "everything is given back: {:?}", instance.leases);
            let after = instance.due(now);
            assert!(after.turns.is_empty(), "everything was given back: {after:?}");
        }
    }

    fn handle(&mut self, index: usize, happens: Happens<Sent, TakeAnswer, Own>) {
        let now = self.now();
        match happens {
            Happens::Turn { call, turn } => {
                let answer = self.ledger.turn(index, &turn.due, now);
                self.network.answer(index, (call, turn), answer);
            }
            Happens::Heard { turn: Sent { due, at }, reply, .. } => {
                let instance = &mut self.instances[index];
                instance.in_flight.retain(|other| other.budget != due.budget);
                if let Some(answer) = &reply {
                    assert!(instance.answered.insert(due.number), "{due:?} was answered before");
                    let (life, ends) = (instance.life, instance.first_sent[&due.number] + due.turn.lease_ms);
                    self.books.granted(life, &due, answer.granted, (now, ends));
                    due.turn.back.iter().for_each(|back| self.books.returned(life, &due.budget, back));
                }
                let (sent_at, passed) = (instance.passed(at), instance.passed(now));
                instance.leases.answered(due.call, reply.ok_or(Refused), sent_at, passed);
            }
            Happens::Own(Own::Judge(lane)) => self.judge(index, lane),
            Happens::Own(Own::Claim(lane, claim, at)) => self.claim(index, lane, &claim, at),
            Happens::Own(Own::PutBack(spend, tokens)) => {
                self.books.put_back(spend, tokens.2);
                let instance = &mut self.instances[index];
                instance.leases.put_back(&[tokens], instance.passed(now));
            }
            Happens::Own(Own::Tick) => self.instances[index].tick_at = None,
        }
    }

    fn judge(&mut self, index: usize, number: usize) {
        if self.network.random.percent_if_any(self.faults.kills) {
            return self.kill(index);
        }
        let Load { batch, most_cost, .. } = self.load;
        let (now, specs) = (self.now(), self.specs.len());
        let lane = &mut self.instances[index].lanes[number];
        lane.has_other_limits = self.network.random.percent_if_any(self.faults.other_limits);
        if lane.ticket.is_none() {
            if self.is_ending {
                return;
            }
            self.last_ticket += 1;
            lane.ticket = Some(Ticket(self.last_ticket));
            (lane.began_at, lane.claims) = (now, 0);
            let random = &mut self.network.random;
            let sets = 1 << specs;
            let intents = random.below(batch) + 1;
            let intent = |_| {
                (u8::try_from(random.below(sets - 1) + 1).unwrap(), u8::try_from(random.below(most_cost) + 1).unwrap())
            };
            lane.intents = (0..intents).map(intent).collect();
        } else if self.network.random.percent(self.faults.dropped_tickets) {
            // Another gate denies the last ones now.
            let most = lane.intents.len() as u64;
            lane.intents.truncate(usize::try_from(self.network.random.below(most)).unwrap() + 1);
        }
        let claim = self.claim_of(&self.instances[index].lanes[number], index, now);
        if self.network.random.percent(self.faults.freezes) {
            let frozen_ms = self.network.random.below(8_000);
            self.network.freeze(index, frozen_ms);
        }
        let after = self.network.random.below(20);
        self.network.after(after, index, Own::Claim(number, claim, now));
        self.instances[index].lanes[number].is_claiming = true;
    }

    fn claim_of(&self, lane: &Lane, index: usize, at: i64) -> Claim {
        let numbers = 0..self.specs.len();
        let used = |number| {
            let Spec { limit, best_effort, .. } = self.specs[number];
            let limit = if lane.has_other_limits { limit / 2 } else { limit };
            BudgetUse { id: budget(number), limit, span: self.span(number, at), best_effort, unavailable_after: None }
        };
        let places = |bits: u8| {
            numbers.clone().filter(|number| bits >> number & 1 == 1).map(|n| n.try_into().unwrap()).collect()
        };
        Claim {
            judged_at: self.instances[index].passed(at),
            budgets: numbers.clone().map(used).collect(),
            sets: (0..1 << self.specs.len()).map(places).collect(),
            wants: lane.intents.iter().map(|(bits, cost)| Want { set: (*bits).into(), cost: *cost }).collect(),
        }
    }

    fn claim(&mut self, index: usize, number: usize, claim: &Claim, at: i64) {
        let dropped = self.network.random.percent(self.faults.dropped_tickets);
        let now = self.now();
        let instance = &mut self.instances[index];
        let passed = instance.passed(now);
        let lane = &mut instance.lanes[number];
        let Some(ticket) = lane.ticket else { return };
        lane.claims += 1;
        lane.is_claiming = false;
        match instance.leases.claim(ticket, claim, passed) {
            Claimed::Pending if dropped => {
                if self.network.random.percent(50) {
                    instance.leases.cancel(ticket);
                }
                (lane.ticket, lane.is_pending) = (None, false);
                self.pause(index, number);
            }
            Claimed::Pending => lane.is_pending = true,
            Claimed::Answered(answers) => {
                self.most_claims = self.most_claims.max(lane.claims);
                self.longest_ms = self.longest_ms.max(now - lane.began_at);
                (lane.ticket, lane.is_pending) = (None, false);
                self.answered(index, claim, &answers, at);
                self.pause(index, number);
            }
        }
    }

    fn pause(&mut self, index: usize, lane: usize) {
        let pause = self.network.random.below(self.load.pause_ms + 1);
        self.network.after(pause, index, Own::Judge(lane));
    }

    fn answered(&mut self, index: usize, claim: &Claim, answers: &Answers, at: i64) {
        assert_eq!(answers.outcomes.len(), claim.wants.len());
        for (place, used) in claim.budgets.iter().enumerate() {
            let costs = claim.wants.iter().zip(&answers.outcomes).filter(|(want, outcome)| {
                **outcome == Outcome::Granted
                    && claim.sets[want.set as usize].iter().any(|other| *other as usize == place)
            });
            let tokens: u64 = costs.map(|(want, _)| u64::from(want.cost)).sum();
            assert_eq!(tokens > 0, answers.leases[place].is_some(), "tokens have a lease to go back to");
            let denied = answers.outcomes.iter().any(|outcome| *outcome == Outcome::Denied(place.try_into().unwrap()));
            assert_eq!(denied, answers.spent[place].is_some(), "a budget that denies is reported");
            let Some(lease) = answers.leases[place] else { continue };
            let spend = self.books.spent(self.instances[index].life, used, tokens, at);
            if self.network.random.percent(self.faults.put_backs) {
                let tokens = self.network.random.below(tokens) + 1;
                let after = self.network.random.below(8_000);
                self.network.after(after, index, Own::PutBack(spend, (used.id.clone(), lease, tokens)));
            }
        }
    }

    /// Makes the calls that are due, and wakes the lanes that are ready.
    fn pump(&mut self, index: usize) {
        let now = self.now();
        let instance = &mut self.instances[index];
        let passed = instance.passed(now);
        let due = instance.due(now);
        let ready = instance.leases.ready(passed);
        self.check_ready(index, &ready);
        for due in due.turns {
            let in_flight = &mut self.instances[index].in_flight;
            let is_alone = in_flight.iter().all(|other| other.budget != due.budget);
            assert!(is_alone, "two turns of a budget are in flight: {due:?}");
            in_flight.push(due.clone());
            self.instances[index].first_sent.entry(due.number).or_insert(now);
            self.network.send(index, Sent { due, at: now });
        }
        for lane in 0..self.load.lanes {
            let state = &mut self.instances[index].lanes[lane];
            if state.is_pending && !state.is_claiming && state.ticket.is_some_and(|ticket| ready.contains(&ticket)) {
                state.is_claiming = true;
                let after = self.network.random.below(20);
                self.network.after(after, index, Own::Judge(lane));
            }
        }
        if let Some(next) = due.next_at {
            assert!(next > passed, "what was due is done");
            let after = u64::try_from((next - passed).as_millis()).unwrap() + 1;
            let at = now + after.cast_signed();
            if self.instances[index].tick_at.is_none_or(|tick| at < tick) {
                self.instances[index].tick_at = Some(at);
                self.network.after(after, index, Own::Tick);
            }
        }
        self.check_spent(index);
    }

    /// No budget passes for spent at an instance while tokens of its window go back from there.
    fn check_spent(&self, index: usize) {
        let instance = &self.instances[index];
        let now = Moment::of(instance.passed(self.now()));
        for (_, holding) in instance.leases.table.iter() {
            for Stock { span, .. } in holding.stocks.iter().filter(|stock| now < stock.closed_until) {
                let is_of = |due: &DueTurn| due.budget == *holding.id;
                let carries = |due: &DueTurn| is_of(due) && due.turn.back.iter().any(|back| back.span == *span);
                let goes_back = holding.has_back(*span) || instance.in_flight.iter().any(carries);
                assert!(!goes_back, "{:?} is spent at instance {index}, and tokens of it go back", holding.id);
            }
        }
    }

    /// A ticket that is ready is answered if it claims now (the same as before), unless its period is over, or answers of other budgets are too
    /// old, or one of these denies an intent by now whose tokens go to a later one, which needs more of a third.
    fn check_ready(&self, index: usize, ready: &[Ticket]) {
        let instance = &self.instances[index];
        for lane in instance.lanes.iter().filter(|lane| lane.is_pending && !lane.is_claiming) {
            let Some(ticket) = lane.ticket.filter(|ticket| ready.contains(ticket)) else { continue };
            let is_new = |number| self.span(number, self.now()) != self.span(number, lane.began_at);
            if (0..self.specs.len()).any(is_new) || self.now() >= lane.began_at + 5_000 {
                continue;
            }
            let claim = self.claim_of(lane, index, self.now());
            let (mut leases, before) = (instance.leases.clone(), needs(&instance.leases, ticket));
            if leases.claim(ticket, &claim, instance.passed(self.now())) == Claimed::Pending {
                let needs_more = needs(&leases, ticket).iter().any(|(budget, need)| Some(need) > before.get(budget));
                assert!(needs_more, "{ticket:?} is ready, but pending");
            }
        }
    }
}

/// What a pending ticket needs of each of its budgets.
fn needs(leases: &Leases, ticket: Ticket) -> BTreeMap<u32, u64> {
    let Pending { place, budgets, .. } = &leases.tickets[&ticket];
    let waiting = |budget: u32| leases.table.get(budget).stocks.iter().flat_map(|stock| &stock.waiting);
    let own = |budget: u32| waiting(budget).find(|waiter| waiter.place == *place);
    budgets.iter().filter_map(|budget| Some((*budget, own(*budget)?.need))).collect()
}
