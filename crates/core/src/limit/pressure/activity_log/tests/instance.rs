//! Instances with arrays and places of their own, as the keeper of a process leads them, and who is truly active.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::{Arc, mpsc},
    time::Duration,
};

use super::super::{ActiveIn, Book, Cursor, SyncReply, SyncRequest};
use crate::{
    basis::time::Time,
    intent::class::Filter,
    limit::{
        pressure::{
            ActiveBy, ActiveTold, Pressure, PressureRule, PressureState,
            activity::{ActivityHash, Minute},
            tests::user,
        },
        share::{Reference, TurnNumber},
    },
    policy::Action,
};

pub(super) const MAX: u64 = 2_000;
const WINDOW_MINUTES: u8 = 5;
const MEMBER_FOR_MS: i64 = 10_000;
const START_MS: i64 = 1_795_132_800_000;

/// One process.
pub(super) struct Instance {
    name: String,
    turn: TurnNumber,
    pressure: Arc<Pressure>,
    state: Arc<PressureState>,
    inbox: mpsc::Receiver<ActiveTold>,
    /// Not told, or told and not answered.
    untold: Vec<ActiveIn>,
    cursor: Cursor,
    fair: u64,
}

/// All processes, and the server.
pub(super) struct Instances {
    book: Book,
    pub(super) all: Vec<Instance>,
    started: usize,
    now: Time,
    /// The last minute of each user that has taken a place.
    active: HashMap<u64, Minute>,
    /// Users that were taken for active ones.
    mistaken: HashSet<u64>,
    is_wiped: bool,
    /// Users that may have come in beyond the maximum, by what is conceded.
    pub(super) conceded: u64,
}

impl Instance {
    fn new(number: usize) -> Self {
        let (filter, action) = (Filter::default(), Action::Suppress);
        let rule = PressureRule { max_active_users: MAX, window_minutes: WINDOW_MINUTES, filter, action };
        let (pressure, inbox) = Pressure::new();
        let state = Arc::new(PressureState::new(&rule));
        pressure.replace(Some(Arc::clone(&state)));
        let name = format!("weir-{number}");
        let turn = TurnNumber { run: i64::try_from(number).unwrap(), number: 0 };
        Self { name, turn, pressure, state, inbox, untold: Vec::new(), cursor: None, fair: 0 }
    }

    fn sync(&mut self, book: &mut Book, (held, room): (u64, Option<u64>), member_for_ms: i64, now: Time) -> SyncReply {
        self.turn.number += 1;
        let (cursor, active) = (self.cursor.clone(), self.untold.clone());
        let (wanted, window_ms) = (self.state.take_asked(), i64::from(WINDOW_MINUTES) * 60_000);
        let request = SyncRequest { cursor, active, window_ms, member_for_ms, held, wanted, room };
        book.turn(&self.name, self.turn, &request, now).unwrap()
    }

    /// A turn, in the keeper's order: what is held first, then who is active, then who is told.
    fn turn(&mut self, book: &mut Book, now: Time, answered: bool) -> bool {
        self.state.places.withdraw_above(self.fair);
        let held = self.state.places.held();
        let room = self.state.room();
        self.hear();
        let reply = self.sync(book, (held, Some(room)), MEMBER_FOR_MS, now);
        if answered {
            self.take_up(&reply, held, now);
        }
        answered && reply.more
    }

    fn hear(&mut self) {
        for ActiveTold { active, .. } in self.inbox.try_iter() {
            self.pressure.heard(active.users.len());
            self.untold.push(active);
        }
    }

    fn take_up(&mut self, reply: &SyncReply, held: u64, now: Time) {
        self.untold.clear();
        self.cursor.clone_from(&reply.cursor);
        for active in &reply.active {
            for user in &active.users {
                self.state.users.note(*user, active.minute, now.into());
            }
        }
        self.state.places.add(reply.held - held);
        self.state.places.renew(Duration::MAX);
        self.state.look();
        self.fair = reply.part;
    }
}

impl Instances {
    pub(super) fn new(count: usize) -> Self {
        let (now, (book, all, started, active)) = (Time::default().plus(START_MS), Default::default());
        let (mistaken, is_wiped, conceded) = Default::default();
        let mut instances = Self { book, all, started, now, active, mistaken, is_wiped, conceded };
        (0..count).for_each(|_| instances.join());
        instances
    }

    pub(super) fn join(&mut self) {
        self.started += 1;
        let instance = Instance::new(self.started);
        self.load(self.all.len(), instance);
    }

    /// Reads the window before it takes part.
    fn load(&mut self, place: usize, mut instance: Instance) {
        while instance.turn(&mut self.book, self.now, true) {}
        if self.is_wiped {
            // Whoever was told before the log was lost, nobody tells this one.
            self.conceded += self.unknown_to(&instance);
        }
        self.all.insert(place, instance);
    }

    /// Users come to an instance, each with a message.
    pub(super) fn come(&mut self, at: usize, users: Range<u64>) {
        let (place, now) = (at % self.all.len(), Minute::from(self.now));
        let Instance { pressure, state, .. } = &self.all[place];
        for number in users {
            let user = user(number);
            let is_in = self.is_in(number);
            if state.users.is_active(user, now) {
                pressure.note_in(state, [(user, ActiveBy::Intent)], now);
                if is_in {
                    self.active.insert(number, now);
                } else {
                    self.mistaken.insert(number);
                }
            } else if state.take_place(Duration::ZERO) {
                pressure.note_in(state, [(user, ActiveBy::Intent)], now);
                state.places.used(1);
                self.active.insert(number, now);
            }
        }
    }

    /// So many users come to each instance, from this one on.
    pub(super) fn come_to_each(&mut self, mut from: u64, users: u64) {
        for at in 0..self.all.len() {
            self.come(at, from..from + users);
            from += users;
        }
    }

    /// Whether a user is truly active.
    fn is_in(&self, number: u64) -> bool {
        let now = Minute::from(self.now);
        self.active.get(&number).is_some_and(|last| now.0 - last.0 < i64::from(WINDOW_MINUTES))
    }

    pub(super) fn turn(&mut self, at: usize, answered: bool) {
        let place = at % self.all.len();
        self.all[place].turn(&mut self.book, self.now, answered);
    }

    pub(super) fn all_turn(&mut self) {
        self.turn_from(0);
    }

    /// All but the first ones take a turn.
    pub(super) fn turn_from(&mut self, place: usize) {
        // The clock stays in its minute.
        self.now = self.now.plus(1);
        for instance in &mut self.all[place..] {
            while instance.turn(&mut self.book, self.now, true) {}
        }
    }

    /// The rest of the minute, with turns. Whoever is told late, across the end of a minute, counts late; here all are told before.
    pub(super) fn end_minute(&mut self) {
        let next = Minute(Minute::from(self.now).0 + 1);
        let left_ms = |now: Time| next.0 * 60_000 - now.millis();
        while left_ms(self.now) > MEMBER_FOR_MS {
            self.now = self.now.plus(MEMBER_FOR_MS - 1_000);
            self.all_turn();
        }
        self.all_turn();
        self.now = self.now.plus(left_ms(self.now));
        for instance in &self.all {
            instance.state.users.sweep(self.now.into());
        }
        self.all_turn();
    }

    /// An instance stands still until others may have its places. Nobody is told of whom it brought in last until it goes on.
    pub(super) fn freeze(&mut self, at: usize) {
        let mut frozen = self.take_out(at);
        for _ in 0..MEMBER_FOR_MS / 1_000 {
            self.now = self.now.plus(999);
            self.all_turn();
        }
        frozen.state.places.give_up(Duration::ZERO);
        frozen.fair = 0;
        self.all.push(frozen);
    }

    /// An instance tells nothing more: whoever it did not tell is conceded.
    fn take_out(&mut self, at: usize) -> Instance {
        let mut instance = self.all.remove(at % self.all.len());
        instance.hear();
        let untold: HashSet<ActivityHash> = instance.untold.iter().flat_map(|active| active.users.clone()).collect();
        self.conceded += untold.len() as u64;
        instance
    }

    /// An instance is killed, and started again.
    pub(super) fn restart(&mut self, at: usize, same_name: bool) {
        let name = self.all[at % self.all.len()].name.clone();
        self.take_out(at);
        self.started += 1;
        let mut instance = Instance::new(self.started);
        if same_name {
            instance.name = name;
        }
        self.load(self.all.len(), instance);
    }

    /// An instance ends: its last turn tells all, and gives its places up. One stays.
    pub(super) fn leave(&mut self, at: usize) {
        if self.all.len() > 1 {
            let mut leaves = self.all.remove(at % self.all.len());
            leaves.hear();
            leaves.sync(&mut self.book, (0, None), 0, self.now);
        }
    }

    /// Everything is gone; all take a turn within the next second. Users that some do not know yet, they never will.
    pub(super) fn wipe(&mut self) {
        self.conceded += self.all.iter().map(|instance| self.unknown_to(instance)).sum::<u64>();
        self.is_wiped = true;
        self.book = Book::default();
        self.all_turn();
    }

    /// How many active users an instance does not know.
    fn unknown_to(&self, instance: &Instance) -> u64 {
        let now = Minute::from(self.now);
        let unknown = |number: &&u64| !instance.state.users.is_active(user(**number), now);
        self.active.keys().filter(|number| self.is_in(**number)).filter(unknown).count() as u64
    }

    /// How many active users one of the instances does not know, at most.
    pub(super) fn most_unknown(&self) -> u64 {
        self.all.iter().map(|instance| self.unknown_to(instance)).max().unwrap_or(0)
    }

    /// Users who are active, those included that were taken for active ones.
    pub(super) fn seen_active(&self) -> u64 {
        self.truly_active() + self.mistaken.len() as u64
    }

    /// Users who have taken a place, and are active.
    pub(super) fn truly_active(&self) -> u64 {
        self.active.keys().filter(|number| self.is_in(**number)).count() as u64
    }

    /// The most that may be active: the maximum, as exactly as users are counted, and what is conceded.
    pub(super) fn most(&self) -> u64 {
        MAX + MAX / 50 + self.conceded
    }

    pub(super) fn estimates(&self) -> Vec<u64> {
        self.all.iter().map(|instance| instance.state.users.estimate()).collect()
    }
}
