//! A network between members and what they share, for the worlds in which limits are tested: it delays, loses and repeats, and members stand
//! still. Shared: `mod` it by `#[path]`.

use std::collections::{BTreeMap, BTreeSet};

/// Random numbers of a seed (xorshift64*).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % bound.max(1)
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// The same, where nothing is drawn for what never happens: so what else a seed draws stays the same.
    pub fn percent_if_any(&mut self, percent: u64) -> bool {
        percent > 0 && self.percent(percent)
    }
}

/// How often, in percent, something is lost or late; and how long it takes at most, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ways {
    pub lost_turns: u64,
    pub lost_replies: u64,
    pub latency_ms: u64,
    /// Turns that may come behind later ones.
    pub late_turns: u64,
    pub late_ms: u64,
    /// After so long without a reply a member gives its turn up; `None`: it is told when something is lost.
    pub patience_ms: Option<u64>,
}

/// What happens next.
#[derive(Debug)]
pub enum Happens<T, R, O> {
    /// A turn has come to what is shared, which [answers](Network::answer) it.
    Turn { call: u64, turn: T },
    /// A member hears of its turn; `None`: something was lost.
    Heard { call: u64, turn: T, reply: Option<R> },
    /// Something of a member's own.
    Own(O),
}

type OfMember<M, T, R, O> = (M, Happens<T, R, O>);

/// Turns and replies on their way, and what else is to happen to members.
#[derive(Debug)]
pub struct Network<M, T, R, O> {
    /// In milliseconds since the world began.
    pub now: u64,
    pub random: Random,
    pub ways: Ways,
    /// By the time, in the order in which they were begun.
    ahead: BTreeMap<(u64, u64), OfMember<M, T, R, O>>,
    last: u64,
    calls: u64,
    /// The calls that nobody has heard of.
    open: BTreeSet<u64>,
    frozen_until: BTreeMap<M, u64>,
}

impl<M: Ord + Clone, T: Clone, R, O> Network<M, T, R, O> {
    pub fn new(seed: u64, ways: Ways) -> Self {
        let (ahead, open, frozen_until) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { now: 0, random: Random(seed | 1), ways, ahead, last: 0, calls: 0, open, frozen_until }
    }

    /// Something of a member's own happens after so long.
    pub fn after(&mut self, ms: u64, member: M, own: O) {
        self.begin(ms, member, Happens::Own(own));
    }

    pub fn send(&mut self, member: M, turn: T) {
        let Ways { late_turns, late_ms, patience_ms, .. } = self.ways;
        self.calls += 1;
        let call = self.calls;
        self.open.insert(call);
        let ms = if self.random.percent_if_any(late_turns) { self.random.below(late_ms) } else { self.latency() };
        if let Some(patience_ms) = patience_ms {
            self.begin(patience_ms, member.clone(), Happens::Heard { call, turn: turn.clone(), reply: None });
        }
        self.begin(ms, member, Happens::Turn { call, turn });
    }

    /// What a member's turn has come to is on its way back.
    pub fn answer(&mut self, member: M, (call, turn): (u64, T), reply: R) {
        let is_lost = self.random.percent(self.ways.lost_replies);
        self.tell(member, (call, turn), (!is_lost).then_some(reply));
    }

    /// A member stands still for so long. What is on its way to it waits; its turns do not.
    pub fn freeze(&mut self, member: M, ms: u64) {
        self.frozen_until.insert(member, self.now + ms);
    }

    /// Nothing happens to a member any more. Gives its turns that are on their way.
    pub fn forget(&mut self, member: &M) -> Vec<T> {
        let ahead = std::mem::take(&mut self.ahead).into_iter();
        let (own, others) = ahead.partition::<BTreeMap<_, _>, _>(|(_, (of, _))| of == member);
        self.ahead = others;
        self.frozen_until.remove(member);
        let turns = own.into_values().filter_map(|(_, happens)| match happens {
            Happens::Turn { turn, .. } => Some(turn),
            Happens::Heard { .. } | Happens::Own(_) => None,
        });
        turns.collect()
    }

    /// What happens next, until then, and to whom.
    pub fn next(&mut self, until: u64) -> Option<(M, Happens<T, R, O>)> {
        while self.ahead.first_key_value().is_some_and(|((at, _), _)| *at <= until) {
            let ((at, _), (member, happens)) = self.ahead.pop_first()?;
            self.now = at;
            let frozen_ms = self.frozen_until.get(&member).map_or(0, |until| until.saturating_sub(at));
            match happens {
                Happens::Turn { call, turn } if self.random.percent(self.ways.lost_turns) => {
                    self.tell(member, (call, turn), None);
                }
                Happens::Turn { .. } => return Some((member, happens)),
                Happens::Heard { .. } | Happens::Own(_) if frozen_ms > 0 => self.begin(frozen_ms, member, happens),
                Happens::Heard { call, .. } if !self.open.remove(&call) => {}
                Happens::Heard { .. } | Happens::Own(_) => return Some((member, happens)),
            }
        }
        self.now = until;
        None
    }

    /// How long something is on its way.
    pub fn latency(&mut self) -> u64 {
        self.random.below(self.ways.latency_ms) + 1
    }

    fn tell(&mut self, member: M, (call, turn): (u64, T), reply: Option<R>) {
        if reply.is_some() || self.ways.patience_ms.is_none() {
            let ms = self.latency();
            self.begin(ms, member, Happens::Heard { call, turn, reply });
        }
    }

    fn begin(&mut self, ms: u64, member: M, happens: Happens<T, R, O>) {
        self.last += 1;
        self.ahead.insert((self.now + ms, self.last), (member, happens));
    }
}
