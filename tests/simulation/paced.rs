//! Checks the pace of approvals on the route: by what the book of permits granted each process, and by what was undelivered at each
//! moment.

use std::{collections::BTreeMap, time::Duration};

use weir_core::{
    decide::AdmitVerdict, permits::LEASE, policy::Mode, record::Destination, route::WhenFull, wheel::Ring,
};

use super::{
    broker::{Broker, Out, Submit},
    check::Judge,
    delivery::{Edit, Paced},
    env::lock,
    permits::{Book, Turn},
    retries,
    rings::Log,
    rules::TOPIC,
    workload::Ask,
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
}

impl Judge<'_> {
    /// All promises about the route.
    pub fn paced(&mut self, broker: &Broker, outs: &[&Out]) {
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
            approved.push(Approved { visible, out, stray: self.is_stray(&book, out, visible) });
        }
        approved.sort_by_key(|approved| approved.visible);
        self.within_the_book(&book, &approved);
        self.within_the_room(&book, &approved);
    }

    /// What waits is an intent of the route, and keeps its first place.
    fn waits_its_turn(&mut self, out: &Out, ask: &Ask, paced: Paced) {
        let headers = out.headers.iter().rev().find(|(name, _)| *name == "weir-origin");
        let (topic, (partition, offset)) =
            out.intent.retry.map_or((TOPIC, out.intent.first), |place| (retries::TOPIC, place));
        let from = headers.is_some_and(|(_, origin)| origin.starts_with(&format!("{topic}/{partition}/{offset}/")));
        let enforced = self.world.setting.mode == Mode::Enforce;
        if !from || !enforced || paced.when_full != WhenFull::Wait || !paced.is_for(ask) {
            self.broken.push(format!("waits: {ask:?} by {paced:?}: {:?}", out.headers));
        }
        let decided = self.world.decided(out, ask, |_| true);
        if let (Some(decided), Some(edited_at)) = (decided, self.world.edited_at.get())
            && decided.from > edited_at
        {
            self.broken.push(format!("waits: {ask:?} at {decided:?}, and no intent waits since {edited_at:?}"));
        }
    }

    /// Whether an approval may be beyond what the book granted: the lane does not know that it was committed, or it was a replay, or
    /// the process stood still, or had no answer, or the route is removed.
    fn is_stray(&self, book: &Book, out: &Out, visible: Duration) -> bool {
        let replayed = self.asks.get(&out.intent.first).is_some_and(|ask| {
            let allowed = |verdict: &AdmitVerdict| matches!(verdict, AdmitVerdict::Allowed | AdmitVerdict::Replayed);
            self.world.decided(out, ask, allowed).is_none()
        });
        let unclear = book.unclear.contains(&(out.submit.lane, out.submit.at));
        let mut known_until = out.fetched.saturating_sub(LEASE);
        let turns = book.turns.iter().filter(|turn| turn.process == out.submit.process);
        for (at, _) in turns.filter(|turn| turn.answered).filter_map(|turn| turn.granted) {
            if at > known_until + LEASE {
                break;
            }
            known_until = known_until.max(at);
        }
        let unpaced = self.world.edit_by(out.submit.at) == Some(Edit::Removed);
        replayed || unclear || unpaced || known_until + LEASE < visible
    }

    /// No process approves more than the book has granted it, or what is its part where the book does not answer.
    fn within_the_book(&mut self, book: &Book, approved: &[Approved<'_>]) {
        let mut of_process: BTreeMap<u64, Vec<&Approved<'_>>> = BTreeMap::new();
        for one in approved {
            of_process.entry(one.out.submit.process).or_default().push(one);
        }
        for (process, mut approved) in of_process {
            approved.sort_by_key(|one| one.out.submit.at);
            let turns: Vec<&Turn> = book.turns.iter().filter(|turn| turn.process == process).collect();
            let mut sure = 0;
            for one in &approved {
                sure += u64::from(!one.stray);
                let asked = || turns.iter().filter(|turn| turn.at <= one.out.submit.at);
                let granted: u64 = asked().map(|turn| granted(turn)).sum();
                let granted = granted.saturating_sub(asked().map(|turn| turn.unused).sum());
                if sure > granted {
                    let Submit { at, .. } = one.out.submit;
                    self.broken.push(format!("permits: process {process} approved {sure} by {at:?}, of {granted}"));
                    break;
                }
            }
        }
    }

    /// No more is undelivered than some process knew to be room for, a moment before.
    fn within_the_room(&mut self, book: &Book, approved: &[Approved<'_>]) {
        for (place, one) in approved.iter().enumerate() {
            if one.stray {
                continue;
            }
            let delivered = book.delivered.iter().rfind(|(at, _)| *at <= one.visible).map_or(0, |(_, count)| *count);
            let undelivered = (place as u64 + 1).saturating_sub(delivered);
            let since = one.visible.saturating_sub(LATEST);
            let turns = book.turns.iter().filter(|turn| turn.at >= since && turn.at <= one.visible);
            let room = turns.map(|turn| turn.lag.saturating_add(turn.room)).max().unwrap_or(0);
            let strays = approved[..=place].iter().filter(|other| other.stray && other.visible >= since).count() as u64;
            if undelivered > room.saturating_add(strays) {
                self.broken.push(format!(
                    "room: {undelivered} were undelivered at {:?}, with room for {room} and {strays} strays",
                    one.visible
                ));
                return;
            }
        }
    }

    /// Whether an intent takes a route that does this when it is full.
    fn is_of_route_that(&self, ask: &Ask, when_full: WhenFull) -> bool {
        self.world.setting.paced.is_some_and(|paced| paced.when_full == when_full && paced.is_for(ask))
    }

    /// Whether an intent is suppressed when the route is full.
    pub fn may_be_too_much(&self, out: &Out, ask: &Ask) -> bool {
        let edited = self.world.edit_by(out.submit.at) == Some(Edit::Suppresses);
        self.is_of_route_that(ask, if edited { WhenFull::Wait } else { WhenFull::Suppress })
    }

    /// Whether an intent may wait for the route.
    pub fn may_wait(&self, ask: &Ask) -> bool {
        self.is_of_route_that(ask, WhenFull::Wait)
    }

    /// Whether an intent expires, and may be denied before it does, since its turn on the route comes later by a rate that is known.
    pub fn would_expire(&self, out: &Out, ask: &Ask) -> bool {
        let Some(paced) = self.world.setting.paced else { return false };
        let is_seen = || lock(&self.world.book).commits_seen(out.submit.at) >= COMMITS;
        ask.expires.is_some() && self.may_wait(ask) && (paced.rate.is_some() || is_seen())
    }
}

/// What a process had by a turn, more than before it.
fn granted(turn: &Turn) -> u64 {
    match turn.granted.filter(|_| turn.answered) {
        Some((_, granted)) => granted,
        None => (turn.room.saturating_sub(turn.recent) / turn.members.max(1)).max(1),
    }
}
