//! Checks the pace of approvals on the route: by what each process was granted of the permits, and by what was undelivered at each
//! moment.

use weir_core::limit::route::permits::LEASE;

use super::{
    permits::{Book, Turn},
    prelude::*,
    retries,
    rules::TOPIC,
};

/// How long after it was granted an intent with a permit may become visible, in a process that takes its turns: the lease, an answer
/// of the store that holds, and a transaction.
const LATEST: Duration = Duration::from_secs(40);

/// It is known what delivery takes once a process has seen so many commits: nothing is denied by a guess.
const COMMITS: usize = 3;

/// An approved intent on the route, by when it became visible.
struct Approved<'a> {
    visible: Duration,
    out: &'a Out,
    /// It may have had no permit by what the book knew.
    stray: bool,
    /// Its lane does not know that it was committed: it may have become visible when the room was another.
    unclear: bool,
}

impl Judge<'_> {
    pub fn paced(&mut self, broker: &Broker, outs: &[&Out], cluster: &Cluster) {
        let Some(paced) = self.world.setting.paced else { return };
        for out in outs.iter().filter(|out| out.intent.log != Log::Ring(Ring::Hours)) {
            let Some(ask) = self.asks.get(&out.intent.first) else { continue };
            if matches!(out.to, Destination::Waiting { .. }) {
                self.waits_its_turn(out, ask, paced);
                // One whose delivery is tried again was approved before.
                if out.intent.retry.is_none() {
                    self.is_no_replay(out, ask, "full, and it waits");
                }
            }
        }
        if self.world.setting.mode == Mode::Shadow {
            return;
        }
        let book = lock(&self.world.book);
        let mut approved: Vec<Approved<'_>> = Vec::new();
        for out in outs.iter().filter(|out| out.to == Destination::Approved(paced.topic())) {
            let visible = broker.visible_at(out).unwrap_or_default();
            let unclear = book.unclear.contains(&(out.submit.lane, out.submit.at));
            approved.push(Approved { visible, out, stray: self.is_stray(&book, out, visible), unclear });
        }
        approved.sort_by_key(|approved| approved.visible);
        self.within_the_book(&book, &approved, paced);
        self.within_the_room(&book, &approved, &cluster.limits_lost.permits);
        self.within_the_pace(&book, paced);
    }

    /// What waits is an intent of the route, and keeps its first place.
    fn waits_its_turn(&mut self, out: &Out, ask: &Ask, paced: Paced) {
        let headers = out.headers.iter().rev().find(|(name, _)| *name == "weir-origin");
        let (topic, (partition, offset)) =
            out.intent.retry.map_or((TOPIC, out.intent.first), |place| (retries::TOPIC, place));
        let from = headers.is_some_and(|(_, origin)| origin.starts_with(&format!("{topic}/{partition}/{offset}/")));
        let enforced = self.world.setting.mode == Mode::Enforce;
        if !from || !enforced || !paced.is_for(ask) {
            self.broken.push(format!("waits: {ask:?} by {paced:?}: {:?}", out.headers));
        }
        let Some(decided) = self.world.decided(out, ask, |_| true) else { return };
        if !self.is_full_by(out, decided.from, WhenFull::Wait) {
            let rules = self.world.route_rules.borrow();
            self.broken.push(format!("waits: {ask:?} at {decided:?}, when no intent waits: {paced:?}, {rules:?}"));
        }
    }

    /// Whether an intent of the route that was decided since then is treated so, by some rule of the policy since then, when it is full.
    fn is_full_by(&self, out: &Out, since: Duration, when_full: WhenFull) -> bool {
        let Some(paced) = self.world.setting.paced else { return false };
        let rules = self.world.rules_within(since, out.submit.at);
        rules.into_iter().any(|rule| paced.when_full_by(rule) == Some(when_full))
    }

    /// Whether an approval may be beyond what the book granted: it was a replay, or the process stood still, or had no answer, or the route
    /// was removed.
    fn is_stray(&self, book: &Book, out: &Out, visible: Duration) -> bool {
        let replayed = self.asks.get(&out.intent.first).is_some_and(|ask| {
            let allowed = |verdict: &AdmitVerdict| matches!(verdict, AdmitVerdict::Allowed | AdmitVerdict::Replayed);
            self.world.decided(out, ask, allowed).is_none()
        });
        let mut known_until = out.fetched.saturating_sub(LEASE);
        let turns = book.turns.iter().filter(|turn| turn.process == out.submit.process);
        for turn in turns.filter(|turn| turn.granted.is_some()) {
            if turn.at > known_until + LEASE {
                break;
            }
            known_until = known_until.max(turn.at);
        }
        let unpaced = self.world.rules_within(out.fetched, out.submit.at).contains(&Rule::Removed);
        replayed || unpaced || known_until + LEASE < visible
    }

    /// No process approves more than the book has granted it, or what is its part where the book does not answer, which it has once, however
    /// often a turn is made: what it had by itself until a turn that is repeated was answered is a part of that grant. Nor does it approve
    /// more intents that have no part in the reserved share than it was granted beside that.
    fn within_the_book(&mut self, book: &Book, approved: &[Approved<'_>], paced: Paced) {
        let mut of_process: BTreeMap<u64, Vec<&Approved<'_>>> = BTreeMap::new();
        for one in approved {
            of_process.entry(one.out.submit.process).or_default().push(one);
        }
        for (process, mut approved) in of_process {
            approved.sort_by_key(|one| one.out.submit.at);
            let mut turns = book.turns.iter().filter(|turn| turn.process == process).peekable();
            let (mut all, mut unused, mut kept) = (0_u64, 0, 0_u64);
            // What it had by itself while its turn had no answer, at the most.
            let mut alone = 0;
            let (mut sure, mut of_no_share) = (0, 0);
            for one in &approved {
                let Submit { at, .. } = one.out.submit;
                while let Some(turn) = turns.next_if(|turn| turn.at <= at) {
                    if !turn.is_repeated {
                        alone = 0;
                    }
                    match turn.granted {
                        Some(granted) => all += granted.saturating_sub(alone),
                        None => {
                            let more = by_itself(turn).saturating_sub(alone);
                            (all, alone) = (all + more, alone + more);
                        }
                    }
                    unused += turn.unused;
                    // What a repeated turn takes back of the reserved share may be given for any intent.
                    let back = if turn.is_repeated { turn.reserved_back.min(alone) } else { turn.reserved_back };
                    kept = (kept + turn.reserved + turn.unused).saturating_sub(back);
                }
                let reserves = self.asks.get(&one.out.intent.first).is_some_and(|ask| paced.reserves(ask));
                sure += u64::from(!one.stray);
                of_no_share += u64::from(!one.stray && !reserves);
                let (granted, beside) = (all.saturating_sub(unused), all.saturating_sub(kept));
                if sure > granted || of_no_share > beside {
                    self.broken.push(format!(
                        "permits: process {process} approved {sure} by {at:?}, of {granted}; and {of_no_share} of no reserved share, \
                         of {beside}"
                    ));
                    break;
                }
            }
        }
    }

    /// No more is undelivered than some process knew to be room for, a moment before; and as many as nodes forgot that others held, and one
    /// for each process that had no answer, and knew of room, but not for one of each member: it takes one all the same. One that has had
    /// no answer yet takes all the room that it knows of, whatever others have.
    fn within_the_room(&mut self, book: &Book, approved: &[Approved<'_>], lost: &[(Duration, u64)]) {
        for (place, one) in approved.iter().enumerate() {
            if one.stray || one.unclear {
                continue;
            }
            let delivered = &book.delivered[..book.delivered.partition_point(|(at, _)| *at <= one.visible)];
            let undelivered = (place as u64 + 1).saturating_sub(delivered.last().map_or(0, |(_, count)| *count));
            let since = one.visible.saturating_sub(LATEST);
            let turns = &book.turns[..book.turns.partition_point(|turn| turn.at <= one.visible)];
            let turns = turns.iter().rev().take_while(|turn| turn.at >= since);
            let takes_one = |turn: &&Turn| turn.granted.is_none() && (1..turn.members).contains(&room_left(turn));
            let alone: BTreeSet<u64> = turns.clone().filter(takes_one).map(|turn| turn.process).collect();
            let takes_all = |turn: &&Turn| turn.granted.is_none() && turn.members == 0;
            let mut rooms = BTreeMap::<u64, u64>::new();
            for turn in turns.clone().filter(takes_all) {
                let most = rooms.entry(turn.process).or_default();
                *most = turn.room.max(*most);
            }
            let shared = |turn: &Turn| if takes_all(&turn) { 0 } else { turn.room };
            let room = turns.map(|turn| turn.lag.saturating_add(shared(turn))).max().unwrap_or(0);
            let lately = approved[..=place].iter().rev().take_while(|other| other.visible >= since);
            let strays = lately.filter(|other| other.stray || other.unclear).count() as u64;
            let lost = lost.iter().filter(|(at, _)| (since..=one.visible).contains(at)).map(|(_, permits)| permits);
            let beside = strays + lost.sum::<u64>() + alone.len() as u64 + rooms.values().sum::<u64>();
            if undelivered > room.saturating_add(beside) {
                self.broken.push(format!(
                    "room: {undelivered} were undelivered at {:?}, with room for {room} and {beside} beside",
                    one.visible
                ));
                return;
            }
        }
    }

    /// No process sees more room than delivery takes in `ahead`, at twice the highest rate that any has seen, or at what is tried first:
    /// whatever was committed before it looked first, or the route was changed, is no rate.
    fn within_the_pace(&mut self, book: &Book, paced: Paced) {
        // A tenth of the ceiling, and the floor at the least, without which nothing shows that delivery goes on.
        let first = paced.rate.map_or(2.0, |rate| (rate as f64 / 10.0).max(1.0));
        let rates = book.rates();
        for turn in book.turns.iter().filter(|turn| turn.is_known) {
            let seen = &rates[..rates.partition_point(|(at, _)| *at <= turn.at)];
            let rate = seen.last().map_or(first, |(_, rate)| rate.max(first));
            let most = 2.0 * rate * paced.most_ahead_s() + 1.0;
            if turn.room as f64 > most {
                let Turn { process, at, room, .. } = turn;
                let seen = format!("process {process} had room for {room} at {at:?}, at {rate} per second");
                return self.broken.push(format!("pace: {seen}"));
            }
        }
    }

    /// Whether an intent is suppressed when the route is full.
    pub fn may_be_too_much(&self, out: &Out, ask: &Ask) -> bool {
        let is_for = self.world.setting.paced.is_some_and(|paced| paced.is_for(ask));
        is_for && self.is_full_by(out, out.fetched, WhenFull::Suppress)
    }

    pub fn may_wait(&self, ask: &Ask) -> bool {
        self.world.setting.paced.is_some_and(|paced| paced.when_full == WhenFull::Wait && paced.is_for(ask))
    }

    /// Whether an intent expires, and may be denied before it does, since its turn on the route comes later by a rate that is known.
    pub fn would_expire(&self, out: &Out, ask: &Ask) -> bool {
        let Some(paced) = self.world.setting.paced else { return false };
        let is_seen = || lock(&self.world.book).commits_seen(out.submit.at) >= COMMITS;
        ask.expires.is_some() && self.may_wait(ask) && (paced.rate.is_some() || is_seen())
    }
}

/// What a process has without an answer, at the most.
fn by_itself(turn: &Turn) -> u64 {
    (room_left(turn) / turn.members.max(1)).max(room_left(turn).min(1))
}

fn room_left(turn: &Turn) -> u64 {
    turn.room.saturating_sub(turn.recent)
}
