//! Checks the promises on the committed output, whatever happened, without weir's own accounting.

use serde_json::Value;

use super::{
    ledger::{self, Mark},
    prelude::*,
    rules::limits_of,
    tale::tell,
    workload::Shut,
};

/// The decision of an approved record.
pub struct Told {
    pub decided_at: Option<i64>,
    pub counts: bool,
    /// It was approved while its history was unavailable.
    pub later: bool,
    pub shadow: bool,
    /// In shadow mode: why it would be suppressed.
    pub reason: Option<String>,
}

pub fn told(out: &Out) -> Told {
    let header = out.headers.iter().find(|(found, _)| *found == "weir-decision");
    let decision: Value = header.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default();
    Told {
        decided_at: decided_at(&decision),
        counts: decision["counts"] != false,
        later: decision["recorded"] == "later",
        shadow: decision["verdict"] == "shadow-suppressed",
        reason: decision["reason"].as_str().map(str::to_owned),
    }
}

/// A suppressed record's reason and envelope.
pub fn reason(out: &Out) -> Option<(String, Value)> {
    let OutputValue::Ours(bytes) = &out.value else { return None };
    let envelope: Value = serde_json::from_slice(bytes).ok()?;
    Some((envelope["reason"].as_str()?.to_owned(), envelope))
}

/// Everything that the checks need.
pub struct Judge<'w> {
    pub world: &'w World,
    pub asks: &'w Asks,
    /// The intents of each user and id; mostly one.
    pub by_id: BTreeMap<(Vec<u8>, IdHash), Vec<&'w Ask>>,
    pub ledger: &'w Ledger,
    /// The histories' entries at the end, by user's field and id.
    pub kept: BTreeMap<(Vec<u8>, IdHash), Vec<i64>>,
    pub refunded: &'w Refunded,
    pub names_lost: bool,
    pub broken: &'w mut Vec<String>,
}

pub fn check(world: &World, asks: &Asks, broken: &mut Vec<String>) -> Tale {
    let (broker, refunds) = (world.broker.borrow(), world.refunds.borrow());
    let cluster = lock(&world.keyspace.cluster);
    let refunded = world.refunded.borrow();
    broken.extend(broker.broken.iter().chain(&refunds.broken).cloned());
    broken.extend(cluster.ledger.broken.iter().cloned());
    if world.env.time().trusted.load(Relaxed) > 0 {
        broken.push("a worker has decided by a clock that is more than 5 minutes off".to_owned());
    }
    let outs: Vec<&Out> = broker.visible().collect();
    let mut judge = Judge::new(world, asks, &cluster, &refunded, broken);
    judge.each_once(&broker, &outs);
    judge.in_order(&outs);
    judge.suppressed(&outs);
    judge.conserved(&broker, &outs);
    judge.deferral(&broker, &outs);
    judge.sends(&broker, &outs);
    judge.budgets(&broker, &outs, &cluster);
    judge.pressure(&outs);
    judge.paced(&broker, &outs, &cluster);
    judge.retried(&broker, &outs);
    judge.admissions(&cluster);
    judge.histories(&cluster);
    judge.refunds(&refunds);
    drop((broker, cluster, refunded));
    tell(world, asks)
}

impl<'w> Judge<'w> {
    fn new(
        world: &'w World,
        asks: &'w Asks,
        cluster: &'w Cluster,
        refunded: &'w Refunded,
        broken: &'w mut Vec<String>,
    ) -> Self {
        let mut by_id: BTreeMap<_, Vec<&Ask>> = BTreeMap::new();
        for ask in asks.values() {
            by_id.entry((field_of(&ask.user), IdHash::of(&ask.id))).or_default().push(ask);
        }
        let mut kept: BTreeMap<_, Vec<i64>> = BTreeMap::new();
        for (field, at, id) in cluster.all_keys().values().flat_map(|item| ledger::marks(Some(item))) {
            kept.entry((field, id)).or_default().push(at);
        }
        let names_lost = cluster.names_lost > 0;
        Self { world, asks, by_id, ledger: &cluster.ledger, kept, refunded, names_lost, broken }
    }

    /// N and O. With `auto.offset.reset = latest`, what was there before the group started is not decided.
    fn each_once(&mut self, broker: &Broker, outs: &[&Out]) {
        let mut seen: BTreeMap<(i32, i64), usize> = BTreeMap::new();
        for out in outs {
            if out.intent.retry.is_none() && !matches!(out.to, Destination::Deferred(_) | Destination::Waiting { .. }) {
                *seen.entry(out.intent.first).or_default() += 1;
            }
        }
        for (place, ask) in self.asks {
            match seen.get(place) {
                Some(1) => {}
                None if broker.is_skipped(*place) => {}
                None => self.broken.push(format!("N: {place:?} {ask:?} has no output")),
                Some(times) => self.broken.push(format!("O: {place:?} {ask:?} has {times} outputs")),
            }
        }
    }

    /// The outputs of one key of one partition, to one topic, are in the order of its records.
    fn in_order(&mut self, outs: &[&Out]) {
        let mut last: BTreeMap<(Log, i32, &str, Destination), i64> = BTreeMap::new();
        for Out { intent, to, .. } in outs {
            let gives_up = *to == Destination::Undelivered && intent.retry.is_none();
            if gives_up || matches!(to, Destination::DeadLetters | Destination::Nowhere) {
                self.broken.push(format!("no output of an intent: {intent:?} to {to:?}"));
            }
            let before = last.insert((intent.log, intent.partition, &intent.key, *to), intent.offset);
            if before.is_some_and(|before| before > intent.offset) {
                self.broken.push(format!("order: {intent:?} after {before:?} in {to:?}"));
            }
        }
    }

    /// Each suppression has a reason in the recorded entries or in the time; in shadow mode there is none.
    fn suppressed(&mut self, outs: &[&Out]) {
        for (out, (reason, envelope)) in outs.iter().filter_map(|out| Some((out, reason(out)?))) {
            let Some(ask) = self.asks.get(&out.intent.first) else { continue };
            let found = self.world.setting.mode == Mode::Enforce
                && match reason.as_str() {
                    "cap" => self.is_used_up(ask, &envelope) && !matches!(ask.kind, Kind::Alert | Kind::Receipt),
                    "duplicate" => self.was_recorded(ask),
                    "budget" => self.is_spent(out, ask, &envelope),
                    "pressure" => self.may_be_kept_out(out, ask),
                    "unavailable" => {
                        self.world.setting.unavailable_after.is_some()
                            && (ask.kind == Kind::Email || self.has_budget_that(ask, WhenUnavailable::Suppress))
                    }
                    "stopped" => self.is_stopped(out, ask),
                    "expired" => self.shut(out, ask, Shut::Expired) || self.would_expire(out, ask),
                    "capacity" => self.may_be_too_much(out, ask),
                    "too_early" => self.shut(out, ask, Shut::TooEarly),
                    "quiet_hours" => self.shut(out, ask, Shut::Quiet),
                    _ => false,
                };
            if ["budget", "pressure", "capacity", "unavailable"].contains(&reason.as_str()) {
                self.is_no_replay(out, ask, &reason);
            }
            if !found {
                let tag = match reason.as_str() {
                    "cap" if self.names_lost && envelope["cap"]["name"] == "once" => "names: ",
                    "expired" | "too_early" | "quiet_hours" => "gates: ",
                    _ => "",
                };
                self.broken.push(format!("{tag}suppressed for no reason: {envelope}"));
            }
            let denied = |verdict: &AdmitVerdict| !matches!(verdict, AdmitVerdict::Allowed | AdmitVerdict::Replayed);
            if let (Some(decided), Some(at)) = (self.world.decided(out, ask, denied), decided_at(&envelope)) {
                self.by_the_clock(out, decided, at);
            }
            if decided_at(&envelope).is_some_and(|at| !self.must_not_wait(&reason, &envelope, at)) {
                self.broken.push(format!("suppressed, and not deferred: {ask:?} by {reason}: {envelope}"));
            }
            let origin = &envelope["origin"];
            if (origin["partition"].as_i64(), origin["offset"].as_i64())
                != (Some(out.intent.first.0.into()), Some(out.intent.first.1))
            {
                self.broken.push(format!("origin: {ask:?} came first in {:?}: {envelope}", out.intent.first));
            }
        }
    }

    pub fn is_stopped(&self, out: &Out, ask: &Ask) -> bool {
        let stop = self.world.setting.stop;
        let stops = stop.is_some_and(|stop| stop.stops(ask.kind == Kind::Email, ask.campaign.as_deref()));
        stops && self.world.stopped_at.get().is_some_and(|at| at <= out.submit.at)
    }

    /// An intent whose admission was recorded before this lane read it must be approved again.
    pub fn is_no_replay(&mut self, out: &Out, ask: &Ask, why: &str) {
        let of = (field_of(&ask.user), IdHash::of(&ask.id));
        let once = self.by_id.get(&of).is_some_and(|asks| asks.len() == 1);
        // A history that is unavailable for so long that intents are decided without it cannot be checked.
        let gives_up = self.world.setting.unavailable_after.is_some()
            && (matches!(ask.kind, Kind::Push | Kind::Email) || !self.world.setting.patient);
        // Whether it was approved before was asked when it had to wait for its route: a request of an earlier decision that came later
        // still is found by nobody who does not ask.
        let waits = out.intent.deferral.as_ref().is_some_and(|deferral| deferral.why == DeferReason::Capacity);
        let waits_since = waits.then(|| wall_ms(out.intent.at) + self.world.most_off());
        let found = self.kept.get(&of).into_iter().flatten();
        for at in found.filter(|at| !gives_up && waits_since.is_none_or(|since| **at >= since)) {
            let known = &self.ledger.ever[&(of.0.clone(), *at, of.1)];
            if once && !known.restored && known.since < out.fetched {
                self.broken.push(format!("replay: {ask:?} was suppressed as {why}, and is in its history since {at}"));
            }
        }
    }

    /// Whether the clock can have shown a time that suppresses this intent.
    fn shut(&mut self, out: &Out, ask: &Ask, why: Shut) -> bool {
        self.is_no_replay(out, ask, &format!("{why:?}"));
        let Some(Decided { from, upto, .. }) = self.world.decided(out, ask, |_| false) else { return true };
        let clock = self.world.clock(out.submit.instance, from, upto);
        // A deferred intent is as old as the clock showed that first decided it, which may have been slow.
        let slow_ms = match out.intent.deferral {
            Some(_) if !ask.says_when_made => self.world.most_off().min(MAX_SKEW_MS),
            Some(_) | None => 0,
        };
        let older = Ask { expires: ask.expires.map(|expires| expires - slow_ms), ..ask.clone() };
        let shut = |ask: &Ask| some_moment(&clock, &ask.edges(), |clock| ask.shut(clock) == Some(why));
        shut(ask) || shut(&older)
    }

    /// The `decided_at` of a record is a time that the machine's clock showed when it was decided, or later if the user's
    /// newest entry was ahead of it.
    pub fn by_the_clock(&mut self, out: &Out, decided: Decided, at: i64) {
        let clock = self.world.clock(out.submit.instance, decided.from, decided.upto);
        if !clock.iter().any(|span| (*span.start()..=span.end() + MAX_SKEW_MS).contains(&at)) {
            let Out { intent, submit, .. } = out;
            self.broken.push(format!(
                "clock: {} of {:?} says that it was decided at {at}, and was {decided:?}, when the clock showed {clock:?}: {submit:?}, {:?}",
                intent.offset, intent.partition, out.fetched
            ));
        }
    }

    fn was_recorded(&self, ask: &Ask) -> bool {
        let (field, id) = (field_of(&ask.user), IdHash::of(&ask.id));
        self.ledger.full.contains(&field) || self.of_user(&field).any(|((.., known), _)| *known == id)
    }

    fn of_user<'s>(&'s self, field: &'s [u8]) -> impl Iterator<Item = (&'s Mark, u8)> {
        let from = (field.to_vec(), i64::MIN, IdHash(0));
        let all = self.ledger.ever.range(from..).take_while(move |((of, ..), _)| of.as_slice() == field);
        all.map(|(mark, known)| (mark, known.cost))
    }

    /// Whether all entries ever recorded reach the cap that an envelope names.
    fn is_used_up(&self, ask: &Ask, envelope: &Value) -> bool {
        let name = envelope["cap"]["name"].as_str().unwrap_or_default();
        let limit = limits_of(&ask.user).iter().find(|limit| limit.name == name);
        let (Some(limit), Some(at)) = (limit, decided_at(envelope)) else { return false };
        let (field, first) = (field_of(&ask.user), limit.over.first(at, east_of(&ask.user)));
        let of_it = |id: IdHash| match self.by_id.get(&(field.clone(), id)) {
            Some(asks) => asks.iter().any(|sent| counts(limit, sent, ask)),
            None => false,
        };
        let used: u32 = self
            .of_user(&field)
            .filter(|((_, sent, id), _)| *sent >= first && of_it(*id))
            .map(|(_, cost)| u32::from(cost))
            .sum();
        // A call may itself drop an entry that it adds to a full history.
        used + u32::from(ask.cost) > limit.limit || self.ledger.full.contains(&field)
    }
}

/// Whether a cap evaluated for one intent counts another of the same user.
pub fn counts(limit: &Limit, sent: &Ask, asked: &Ask) -> bool {
    match limit.of {
        Of::Everything => true,
        Of::Pushes => sent.kind == Kind::Push,
        Of::Campaign => sent.campaign == asked.campaign,
    }
}

fn decided_at(envelope: &Value) -> Option<i64> {
    Some(envelope["decided_at"].as_str().and_then(Time::from_rfc3339)?.millis())
}

pub fn of_id(marks: &BTreeSet<Mark>, field: &[u8], id: IdHash) -> bool {
    marks.iter().any(|(of, _, known)| of == field && *known == id)
}
