//! Checks approved sends: caps by recorded and by true times, histories, refunds.

use super::{
    check::{Told, counts, of_id},
    ledger::{ENTRY, entries},
    prelude::*,
    rules::{Over, limits_of},
};

/// An approved send as the checker judges it.
#[derive(Debug, Clone, Copy)]
struct Sent<'a> {
    ask: &'a Ask,
    /// Its `decided_at`, when it was really decided, and when it became visible.
    at: i64,
    decided: Option<Decided>,
    visible: Duration,
    id: IdHash,
    /// It was approved while its history was unavailable.
    later: bool,
    /// Caps were evaluated and allowed it: not while the history was unavailable, nor in shadow mode.
    judged: bool,
}

impl<'w> Judge<'w> {
    pub fn sends(&mut self, broker: &Broker, outs: &[&Out]) {
        let approved = self.approved(broker, outs);
        for (user, sends) in &approved {
            let judged = self.judged(user, sends);
            self.caps(user, &judged);
            self.true_caps(user, &judged);
            self.ids(user, &judged);
            if self.world.keyspace.wait_replicas > 0 {
                self.waited_for(user, sends);
            }
        }
    }

    /// The counted sends of each user. Checks that they are in the histories with the right time.
    fn approved(&mut self, broker: &Broker, outs: &[&Out]) -> BTreeMap<String, Vec<Sent<'w>>> {
        let mut approved: BTreeMap<String, Vec<Sent<'w>>> = BTreeMap::new();
        let asks = self.asks;
        for out in outs.iter().filter(|out| out.is_approval()) {
            let Some(ask) = asks.get(&out.intent.first) else { continue };
            let Told { decided_at: Some(at), counts, later, .. } = told(out) else {
                self.broken.push(format!("{ask:?} does not say when it was decided"));
                continue;
            };
            let let_through = |verdict: &AdmitVerdict| {
                self.world.setting.mode == Mode::Shadow
                    || matches!(verdict, AdmitVerdict::Allowed | AdmitVerdict::Replayed)
            };
            let decided = self.world.decided(out, ask, let_through);
            self.in_time(out, ask, decided, at);
            if counts != (ask.kind != Kind::Receipt) {
                self.broken.push(format!("{ask:?}: the record says {:?}", out.headers));
            }
            if !counts {
                continue;
            }
            let id = IdHash::of(&ask.id);
            self.is_known(ask, at, later);
            let put_in = lock(&self.world.keyspace.put_in).contains(&(field_of(&ask.user), at, id));
            let judged = !later && !put_in && self.world.setting.mode == Mode::Enforce;
            let visible = broker.visible_at(out).unwrap_or_default();
            approved.entry(ask.user.clone()).or_default().push(Sent { ask, at, decided, visible, id, later, judged });
        }
        approved
    }

    /// An approved send is in a history, at its `decided_at`, and stays there.
    fn is_known(&mut self, ask: &Ask, at: i64, later: bool) {
        let (field, id) = (field_of(&ask.user), IdHash::of(&ask.id));
        // A process's deferred writes are lost with it.
        let may_be_owed = later && self.world.some_process_ended();
        // A call may itself drop an entry that it adds to a full history.
        let mark = (field.clone(), at, id);
        let ever = if later {
            self.ledger.ever.keys().any(|(of, _, known)| *of == field && *known == id)
        } else {
            self.ledger.ever.contains_key(&mark)
        };
        let is_full = self.ledger.full.contains(&field);
        if !ever && !may_be_owed && !is_full {
            self.broken.push(format!("C: {ask:?}, approved at {at}, was never recorded"));
        }
        if later && self.world.setting.unavailable_after.is_none() {
            self.broken.push(format!("{ask:?} was approved without being asked for, and nothing says so"));
        }
        let gone = [&self.ledger.by_failover, &self.ledger.dropped, &self.ledger.taken_back, &self.ledger.expired];
        let may_be_gone = may_be_owed || gone.into_iter().any(|marks| of_id(marks, &field, id));
        if ever && !may_be_gone && !is_full && !self.kept.contains_key(&(field, id)) {
            self.broken.push(format!("kept: {ask:?}, approved at {at}, is in no history any more"));
        }
    }

    /// An approved send was not expired, too early or in quiet hours when it was decided.
    fn in_time(&mut self, out: &Out, ask: &Ask, decided: Option<Decided>, at: i64) {
        let Some(decided) = decided else { return };
        self.by_the_clock(out, decided, at);
        let clock = self.world.clock(out.submit.instance, decided.from, decided.upto);
        if self.world.setting.mode == Mode::Enforce
            && !some_moment(&clock, &ask.edges(), |clock| ask.shut(clock).is_none())
        {
            let upto = clock.last().map_or(0, |span| *span.end());
            self.broken.push(format!(
                "gates: {ask:?} was approved when the clock showed {clock:?}, and it is {:?}",
                ask.shut(upto)
            ));
        }
    }

    /// The sends that caps allowed, without those that the store lost and could not count.
    fn judged(&self, user: &str, sends: &[Sent<'w>]) -> Vec<Sent<'w>> {
        let field = field_of(user);
        let known = |send: &&Sent<'_>| {
            let mark = (field.clone(), send.at, send.id);
            let Self { ledger, .. } = self;
            ![&ledger.missed, &ledger.by_wipe, &ledger.dropped].into_iter().any(|gone| gone.contains(&mark))
        };
        sends.iter().filter(|send| send.judged).filter(known).copied().collect()
    }

    fn refunded_at(&self, send: &Sent<'_>) -> Option<Duration> {
        self.refunded.get(&(send.ask.user.clone(), send.ask.id.clone())).copied()
    }

    fn tag(&self, limit: &Limit) -> &'static str {
        if self.names_lost && limit.of != Of::Everything { "names: " } else { "" }
    }

    /// C. Alerts count but bypass caps; they are excluded, because one may follow the send that it makes too many.
    fn caps(&mut self, user: &str, sends: &[Sent<'w>]) {
        for limit in limits_of(user) {
            for end in sends.iter().filter(|end| counts(limit, end.ask, end.ask)) {
                let window = limit.over.first(end.at, east_of(user))..=end.at;
                let counted = || {
                    let of_it = |sent: &&Sent<'_>| counts(limit, sent.ask, end.ask) && sent.ask.kind != Kind::Alert;
                    sends.iter().filter(|sent| window.contains(&sent.at)).filter(of_it)
                };
                // One may have replaced another that was refunded by then.
                let last = counted().map(|sent| sent.visible).max().unwrap_or_default();
                let refunded = |sent: &&Sent<'_>| self.refunded_at(sent).is_some_and(|at| at <= last);
                let used: u32 = counted().filter(|sent| !refunded(sent)).map(|sent| u32::from(sent.ask.cost)).sum();
                if used > limit.limit && end.ask.kind != Kind::Alert {
                    let (tag, counted) = (self.tag(limit), counted().collect::<Vec<_>>());
                    let end = end.at;
                    self.broken.push(format!("{tag}C: user {user} had {used} of {limit:?} until {end}: {counted:?}"));
                }
            }
        }
    }

    /// The same by true times: sends certainly decided within one window do not exceed its limit.
    /// Where clocks are wrong, nothing is certain.
    fn true_caps(&mut self, user: &str, sends: &[Sent<'w>]) {
        let off = self.world.most_off();
        if off > 100 {
            return;
        }
        let certain = |sent: &&Sent<'_>| {
            sent.ask.kind != Kind::Alert
                && self.refunded_at(sent).is_none()
                && sent.decided.is_some_and(|decided| decided.asked)
        };
        let sends: Vec<&Sent<'_>> = sends.iter().filter(certain).collect();
        let from = |sent: &Sent<'_>| sent.decided.map_or(Duration::ZERO, |decided| decided.from);
        for limit in limits_of(user) {
            let Over::Last(length_ms) = limit.over else { continue };
            let length = Duration::from_millis(u64::try_from(length_ms - 2 * off).unwrap());
            for first in sends.iter().filter(|first| counts(limit, first.ask, first.ask)) {
                let end = from(first) + length;
                let within = sends.iter().filter(|sent| {
                    counts(limit, sent.ask, first.ask) && from(sent) >= from(first) && sent.visible < end
                });
                let used: u32 = within.map(|sent| u32::from(sent.ask.cost)).sum();
                if used > limit.limit {
                    let (tag, begin) = (self.tag(limit), from(first));
                    self.broken.push(format!("{tag}true: user {user} saw {used} of {limit:?} from {begin:?} on"));
                }
            }
        }
    }

    /// No id twice, unless it was refunded.
    fn ids(&mut self, user: &str, sends: &[Sent<'_>]) {
        if self.ledger.full.contains(&field_of(user)) {
            return;
        }
        let sends: Vec<&Sent<'_>> = sends.iter().filter(|sent| self.refunded_at(sent).is_none()).collect();
        let ids: BTreeSet<IdHash> = sends.iter().map(|sent| sent.id).collect();
        if ids.len() != sends.len() {
            self.broken.push(format!("an id was sent twice to user {user}: {sends:?}"));
        }
    }

    fn waited_for(&mut self, user: &str, sends: &[Sent<'_>]) {
        for sent @ Sent { at, id, .. } in sends.iter().filter(|sent| !sent.later) {
            if self.ledger.by_failover.contains(&(field_of(user), *at, *id)) {
                self.broken.push(format!("wait_replicas: a failover forgot what was sent to user {user}: {sent:?}"));
            }
        }
    }

    /// No send is in a history twice.
    pub fn histories(&mut self, cluster: &Cluster) {
        for item in cluster.all_keys().values() {
            let Item::Hash(hash) = item else { continue };
            for (field, packed) in hash {
                // Behind the time: id 6, origin 3, which is 0 where a rebuild has put it back.
                let name = |entry: &'_ [u8; ENTRY]| match entry[11..14] {
                    [0, 0, 0] => entry[..14].to_vec(),
                    _ => entry[5..14].to_vec(),
                };
                let sends: Vec<Vec<u8>> = entries(field, packed).map(name).collect();
                if sends.iter().collect::<BTreeSet<_>>().len() != sends.len() {
                    self.broken.push(format!("a send is counted twice in the history of {field:?}: {sends:?}"));
                }
            }
        }
    }

    /// A refunded send no longer counts, and an invalid refund becomes a dead letter once.
    pub fn refunds(&mut self, refunds: &Broker) {
        for ((user, id), at) in self.refunded {
            let (field, hash) = (field_of(user), IdHash::of(id));
            let marks: Vec<_> =
                self.ledger.ever.iter().filter(|((of, _, known), _)| *of == field && *known == hash).collect();
            // Decided twice, or written again since: a refund removes an existing entry.
            let [((_, sent, _), known)] = marks.as_slice() else { continue };
            // In shadow mode an id may be approved twice, even at one time.
            let once = self.by_id.get(&(field.clone(), hash)).is_some_and(|asks| asks.len() == 1);
            let there = self.kept.contains_key(&(field.clone(), hash));
            if once && there && known.since < *at && *sent <= super::time::wall_ms(*at) {
                self.broken.push(format!("refunds: {id} of user {user} was refunded at {at:?}, and still counts"));
            }
        }
        let mut letters: BTreeMap<(i32, i64), usize> = BTreeMap::new();
        for out in refunds.visible() {
            *letters.entry((out.intent.partition, out.intent.offset)).or_default() += 1;
        }
        for record in refunds.all(Log::Input).filter(|record| record.value == "{}") {
            let times = letters.get(&(record.partition, record.offset)).copied().unwrap_or(0);
            // Its offset is not committed while one before it waits for a lost shard; a successor may then write it again.
            if times == 0 {
                self.broken.push(format!("refunds: {record:?} has no dead letter"));
            }
        }
    }
}
