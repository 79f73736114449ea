//! weir's leases: those of each instance, calls that take time, and instances that end with tokens in hand.

use std::{collections::BTreeMap, iter::Peekable, time::Duration};

use anyhow::{Context, Result, ensure};
use weir_core::limit::{
    budget::{
        BudgetId,
        lease::{BudgetUse, CallNumber, Claim, Claimed, DueTurn, Leases, Outcome, Ticket, Want},
        ledger::{TakeAnswer, TokenBook},
    },
    share::{Reference as _, TurnNumber},
};

use super::{
    Figures, TAKEN_BEFORE,
    approvals::Approvals,
    load::{Arrival, Load, SEED, Scene, time},
};

/// Intents that are decided together, at most, as in weir's default.
const BATCH: u64 = 10_000;
/// Intents that the lanes of an instance decide per millisecond.
const DECIDED_PER_MS: u64 = 300;
/// A call takes at most so long to the ledger, and so long back.
const LATENCY_MS: i64 = 3;
/// The only batch of an instance.
const TICKET: Ticket = Ticket(0);

fn budget() -> BudgetId {
    BudgetId { name: "b".into(), campaign: None }
}

enum Event {
    /// The instance looks what is due.
    Tick,
    /// Its lanes have decided a batch, and begin the next one.
    Decide,
    /// A call reaches the ledger.
    Turn(DueTurn),
    /// Its answer is there.
    Answer(CallNumber, TakeAnswer),
}

struct Planned {
    instance: usize,
    /// When the call was sent that it is of.
    sent_at: i64,
    event: Event,
}

struct Instance {
    holder: String,
    leases: Leases,
    is_killed: bool,
    /// Intents that are read and not decided.
    backlog: u64,
    /// Of the batch whose claim is pending.
    pending: Option<u64>,
    /// When the lanes are done with what they decide.
    busy_until: i64,
    tick_at: Option<i64>,
}

struct World {
    scene: Scene,
    book: TokenBook,
    random: fastrand::Rng,
    now: i64,
    /// By when they happen; of two at the same time that with the lower number comes first.
    events: BTreeMap<(i64, u64), Planned>,
    planned: u64,
    instances: Vec<Instance>,
    places: Vec<usize>,
    left_behind: u64,
    claim: Claim,
    approvals: Approvals,
    /// The same, and what was lost with instances that were killed.
    with_lost: Approvals,
    figures: Figures,
    granted: u64,
    returned: u64,
}

/// What a case costs with weir's leases.
pub(super) fn leases(scene: &Scene) -> Result<Figures> {
    let mut world = World {
        scene: *scene,
        book: TokenBook::default(),
        random: fastrand::Rng::with_seed(SEED),
        now: 0,
        events: BTreeMap::new(),
        planned: 0,
        instances: Vec::new(),
        places: Vec::new(),
        left_behind: 0,
        claim: Claim { judged_at: Duration::ZERO, budgets: Vec::new(), sets: vec![vec![0]], wants: Vec::new() },
        approvals: Approvals::new(scene),
        with_lost: Approvals::new(scene),
        figures: Figures::default(),
        granted: 0,
        returned: 0,
    };
    world.places = (0..scene.instances).map(|_| world.joins()).collect();
    world.run(&mut Load::new(scene).peekable())?;
    let World { mut figures, mut approvals, mut with_lost, granted, returned, .. } = world;
    let (missing, lost) = (granted - returned - approvals.all(), with_lost.all() - approvals.all());
    ensure!(missing == lost, "{missing} tokens are missing, and {lost} were lost");
    figures.used_or_lost = with_lost.used();
    Ok(figures.with(scene, &mut approvals))
}

/// What the monotonic clock shows at a moment of the case.
fn passed(at: i64) -> Duration {
    Duration::from_millis(u64::try_from(at).unwrap_or(0))
}

impl World {
    fn run(&mut self, load: &mut Peekable<Load>) -> Result<()> {
        loop {
            let next = self.events.first_key_value().map_or(i64::MAX, |((at, _), _)| *at);
            if let Some((at, place, arrival)) = load.next_if(|(at, ..)| *at <= next) {
                self.now = at;
                self.arrives(place, arrival);
            } else if next < self.scene.end_ms() {
                self.happens()?;
            } else {
                break;
            }
        }
        self.now = self.scene.end_ms();
        for instance in self.places.clone() {
            self.stops(instance);
        }
        while !self.events.is_empty() {
            self.happens()?;
        }
        Ok(())
    }

    fn joins(&mut self) -> usize {
        let (holder, leases) = (format!("weir-{}", self.instances.len()), Leases::new(10));
        let instance =
            Instance { holder, leases, is_killed: false, backlog: 0, pending: None, busy_until: 0, tick_at: None };
        self.instances.push(instance);
        self.instances.len() - 1
    }

    fn arrives(&mut self, place: usize, arrival: Arrival) {
        let number = self.places[place];
        match arrival {
            Arrival::Batch(intents) => {
                self.instances[number].backlog += intents + std::mem::take(&mut self.left_behind);
                self.decide(number);
                self.pump(number);
            }
            Arrival::Stops => self.stops(number),
            Arrival::IsKilled => {
                let instance = &mut self.instances[number];
                instance.is_killed = true;
                let held: u64 = instance.leases.states().iter().map(|state| state.held).sum();
                self.with_lost.add(self.now, held + instance.leases.unreturned());
                self.leaves_behind(number);
            }
            Arrival::Joins => self.places[place] = self.joins(),
        }
    }

    fn leaves_behind(&mut self, number: usize) {
        let instance = &mut self.instances[number];
        instance.pending = None;
        self.left_behind += std::mem::take(&mut instance.backlog);
    }

    fn stops(&mut self, number: usize) {
        self.leaves_behind(number);
        self.instances[number].leases.close(passed(self.now));
        self.pump(number);
    }

    fn latency(&mut self) -> i64 {
        self.random.i64(1..=LATENCY_MS)
    }

    fn plan(&mut self, instance: usize, after_ms: i64, event: Event) {
        self.plan_of_call(instance, (self.now, after_ms), event);
    }

    /// Plans what happens so much later, of a call that was sent then.
    fn plan_of_call(&mut self, instance: usize, (sent_at, after_ms): (i64, i64), event: Event) {
        self.planned += 1;
        self.events.insert((self.now + after_ms, self.planned), Planned { instance, sent_at, event });
    }

    fn happens(&mut self) -> Result<()> {
        let Some(((at, _), Planned { instance: number, sent_at, event })) = self.events.pop_first() else {
            return Ok(());
        };
        self.now = at;
        match event {
            Event::Turn(DueTurn { call, number: turn, turn: asked, .. }) => {
                let answer = self.book.turn(&self.instances[number].holder, turn, &asked, time(at));
                let answer = answer.context(TAKEN_BEFORE)?;
                self.figures.calls += 1;
                self.granted += answer.granted;
                self.returned += asked.back.iter().map(|back| back.tokens).sum::<u64>();
                let after = self.latency();
                self.plan_of_call(number, (sent_at, after), Event::Answer(call, answer));
            }
            Event::Answer(_, answer) if self.instances[number].is_killed => self.with_lost.add(at, answer.granted),
            Event::Tick | Event::Decide if self.instances[number].is_killed => {}
            Event::Tick => {
                let tick_at = &mut self.instances[number].tick_at;
                if *tick_at == Some(at) {
                    *tick_at = None;
                    self.pump(number);
                }
            }
            Event::Decide => {
                self.decide(number);
                self.pump(number);
            }
            Event::Answer(call, answer) => {
                self.instances[number].leases.answered(call, Ok(answer), passed(sent_at), passed(at));
                self.pump(number);
            }
        }
        Ok(())
    }

    fn decide(&mut self, number: usize) {
        let Instance { backlog, pending, busy_until, .. } = self.instances[number];
        if backlog > 0 && pending.is_none() && busy_until <= self.now {
            self.figures.batches += 1;
            let intents = backlog.min(BATCH);
            let is_pending = !self.claims(number, intents);
            self.figures.waited += u64::from(is_pending);
        }
    }

    /// Claims a batch's tokens; whether it is answered.
    fn claims(&mut self, number: usize, intents: u64) -> bool {
        let Self { scene, now, claim, .. } = self;
        claim.judged_at = passed(*now);
        claim.wants.resize(usize::try_from(intents).unwrap_or(0), Want { set: 0, cost: 1 });
        let span = scene.span(*now);
        if claim.budgets.first().is_none_or(|used| used.span != span) {
            let (id, Scene { limit, best_effort, .. }) = (budget(), *scene);
            claim.budgets = vec![BudgetUse { id, limit, span, best_effort, unavailable_after: None }];
        }
        let instance = &mut self.instances[number];
        match instance.leases.claim(TICKET, claim, passed(*now)) {
            Claimed::Pending => {
                instance.pending = Some(intents);
                false
            }
            Claimed::Answered(answers) => {
                let granted = answers.outcomes.iter().filter(|outcome| **outcome == Outcome::Granted).count() as u64;
                instance.pending = None;
                instance.backlog -= intents;
                let busy_ms = i64::try_from(intents / DECIDED_PER_MS).unwrap_or(0);
                instance.busy_until = *now + busy_ms;
                self.figures.decisions += intents;
                self.approvals.add(*now, granted);
                self.with_lost.add(*now, granted);
                if self.instances[number].backlog > 0 {
                    self.plan(number, busy_ms.max(1), Event::Decide);
                }
                true
            }
        }
    }

    /// Makes the calls that are due, and claims again where that is ready.
    fn pump(&mut self, number: usize) {
        loop {
            let due = self.instances[number].leases.due(passed(self.now), || TurnNumber { run: 1, number: 0 });
            for turn in due.turns {
                let after = self.latency();
                self.plan(number, after, Event::Turn(turn));
            }
            let instance = &mut self.instances[number];
            if let Some(intents) = instance.pending
                && !instance.leases.ready(passed(self.now)).is_empty()
                && self.claims(number, intents)
            {
                continue;
            }
            if let Some(next) = due.next_at {
                self.tick(number, next);
            }
            return;
        }
    }

    fn tick(&mut self, number: usize, next: Duration) {
        let at = i64::try_from(next.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX).max(self.now + 1);
        let tick_at = &mut self.instances[number].tick_at;
        if tick_at.is_none_or(|tick| at < tick) {
            *tick_at = Some(at);
            let after = at - self.now;
            self.plan(number, after, Event::Tick);
        }
    }
}
