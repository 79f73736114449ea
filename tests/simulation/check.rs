//! What must hold of the committed output, whatever happened: judged without any of weir's own reckoning.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::Relaxed,
};

use serde_json::Value;
use weir::{
    domain::{policy::Mode, shard::IdHash, time::Time},
    edge::redis::RetryCause,
    worker::record::{Destination, OutputValue},
};

use super::{
    broker::Out,
    cluster::{self, ENTRY, is_history},
    env::lock,
    run::World,
    script::Item,
    store::{field_of, mark_of},
    workload::{Ask, Kind, limits_of},
};

/// What a run was like: to see that the seeds reach what they are for.
#[derive(Debug, Default, Clone)]
pub struct Tale {
    pub intents: usize,
    pub approved: usize,
    pub suppressed: usize,
    /// Approved sends that were recorded by a batch that was not committed.
    pub replays: usize,
    pub duplicates: usize,
    pub forgotten: usize,
    /// Held back by the cap of a day, which ends in the run.
    pub by_day: usize,
    /// Sent without a cap being asked.
    pub bypassed: usize,
    /// Sent in shadow mode in spite of a cap.
    pub shadowed: usize,
    /// Approved, and suppressed, while their history was away.
    pub later: usize,
    pub unavailable: usize,
    /// Commits after which an intent still waited while others behind it were done.
    pub parked: usize,
    /// As much was owed as there was room for.
    pub owed_full: u64,
    /// How often a worker did not decide because its clock was wrong.
    pub refused: u64,
    pub rebalances: u64,
    /// What Redis answered in place of answers.
    pub troubles: BTreeMap<&'static str, u64>,
}

impl Tale {
    /// What these runs did not reach, and so prove nothing about.
    pub fn unreached(&self) -> Vec<&'static str> {
        // Nothing else writes to the keyspace, and with a few kinds a lane seldom meets one that it does not know.
        let beyond = [RetryCause::Refused, RetryCause::StaleKinds].map(RetryCause::label);
        let troubles = self.troubles.iter().filter(|(cause, times)| **times == 0 && !beyond.contains(cause));
        let counts = [
            ("approved", self.approved),
            ("suppressed", self.suppressed),
            ("duplicates", self.duplicates),
            ("replays", self.replays),
            ("forgotten", self.forgotten),
            ("by_day", self.by_day),
            ("bypassed", self.bypassed),
            ("shadowed", self.shadowed),
            ("later", self.later),
            ("unavailable", self.unavailable),
            ("parked", self.parked),
            ("owed_full", usize::try_from(self.owed_full).unwrap_or(usize::MAX)),
            ("refused", usize::try_from(self.refused).unwrap_or(usize::MAX)),
        ];
        let counts = counts.into_iter().filter(|(_, times)| *times == 0);
        troubles.map(|(cause, _)| *cause).chain(counts.map(|(what, _)| what)).collect()
    }

    pub fn add(&mut self, other: &Self) {
        self.intents += other.intents;
        self.approved += other.approved;
        self.suppressed += other.suppressed;
        self.replays += other.replays;
        self.duplicates += other.duplicates;
        self.forgotten += other.forgotten;
        self.by_day += other.by_day;
        self.bypassed += other.bypassed;
        self.shadowed += other.shadowed;
        self.later += other.later;
        self.unavailable += other.unavailable;
        self.parked += other.parked;
        self.owed_full += other.owed_full;
        self.refused += other.refused;
        self.rebalances += other.rebalances;
        for (cause, times) in &other.troubles {
            *self.troubles.entry(cause).or_default() += times;
        }
    }
}

/// An approved send as the checker judges it.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: i64,
    id: IdHash,
    kind: Kind,
    /// It was let through by caps, which were asked: not while the history was away, nor in shadow mode.
    judged: bool,
}

/// An entry of a history: user's field, time, id.
type Mark = (Vec<u8>, i64, IdHash);

/// The decision on an approved record; null on any other.
fn decision(out: &Out) -> Value {
    let header = out.headers.iter().find(|(found, _)| *found == "weir-decision");
    header.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn decided_at(out: &Out) -> Option<i64> {
    Some(Time::from_rfc3339(decision(out)["decided_at"].as_str()?)?.millis())
}

fn mark(entry: &cluster::Sent) -> Mark {
    let (at, id) = mark_of(&entry.1);
    (entry.0.clone(), at, id)
}

/// What was sent until now, as a rebuild reads it: entries of the histories that were whose output is visible.
pub fn sent(world: &World) -> BTreeSet<cluster::Sent> {
    let broker = world.broker.borrow();
    let approved = broker.visible().filter(|out| out.to == Destination::Approved);
    let marks: BTreeSet<Mark> = approved
        .filter_map(|out| {
            let id = serde_json::from_str::<Value>(&out.intent.value).ok()?["id"].as_str().map(IdHash::of)?;
            Some((field_of(&out.intent.key), decided_at(out)?, id))
        })
        .collect();
    let cluster = lock(&world.keyspace.cluster);
    cluster.ever.iter().filter(|entry| marks.contains(&mark(entry))).cloned().collect()
}

struct Judge<'w> {
    world: &'w World,
    asks: &'w BTreeMap<(i32, i64), Ask>,
    ever: BTreeSet<Mark>,
    forgotten: BTreeSet<Mark>,
    broken: &'w mut Vec<String>,
}

pub fn check(world: &World, asks: &BTreeMap<(i32, i64), Ask>, broken: &mut Vec<String>) -> Tale {
    let broker = world.broker.borrow();
    let cluster = lock(&world.keyspace.cluster);
    broken.extend(broker.broken.iter().cloned());
    if world.env.time().trusted.load(Relaxed) > 0 {
        broken.push("a worker has decided by a clock that is more than 5 minutes off".to_owned());
    }
    let forgotten: BTreeSet<Mark> =
        cluster.forgotten_by_failover.iter().chain(&cluster.forgotten_by_restore).map(mark).collect();
    let ever = cluster.ever.iter().map(mark).collect();
    let outs: Vec<&Out> = broker.visible().collect();
    let mut judge = Judge { world, asks, ever, forgotten, broken };
    judge.each_once(&outs);
    judge.in_order(&outs);
    let approved = judge.approved(&outs);
    judge.caps(&approved);
    judge.ids(&approved);
    judge.suppressed(&outs);
    judge.histories(cluster.all_keys().values());
    if world.keyspace.wait_replicas > 0 {
        let forgotten: BTreeSet<Mark> = cluster.forgotten_by_failover.iter().map(mark).collect();
        for (user, sends) in &approved {
            for Sent { at, id, .. } in
                sends.iter().filter(|sent| forgotten.contains(&(field_of(user), sent.at, sent.id)))
            {
                judge
                    .broken
                    .push(format!("wait_replicas: a failover forgot what was sent to user {user} at {at} ({id:?})"));
            }
        }
    }
    let of_reason =
        |wanted: &str| outs.iter().filter(|out| reason(out).is_some_and(|(reason, _)| reason == wanted)).count();
    let with = |name: &str, value: Value| outs.iter().filter(|out| decision(out)[name] == value).count();
    let by_day = |out: &&&Out| reason(out).is_some_and(|(_, envelope)| envelope["cap"]["name"] == "today");
    Tale {
        intents: asks.len(),
        approved: approved.values().map(Vec::len).sum(),
        suppressed: outs.iter().filter(|out| out.to == Destination::Suppressed).count(),
        replays: broker.replays(),
        duplicates: of_reason("duplicate"),
        by_day: outs.iter().filter(by_day).count(),
        bypassed: with("counts", false.into()),
        shadowed: with("verdict", "shadow-suppressed".into()),
        later: with("recorded", "later".into()),
        unavailable: of_reason("unavailable"),
        parked: broker.parked,
        owed_full: world.counted(|metrics| metrics.owed_full.get()),
        refused: world.env.time().refused.load(Relaxed),
        forgotten: judge.forgotten.len(),
        rebalances: broker.group.rebalances,
        troubles: RetryCause::ALL.iter().map(|cause| (cause.label(), world.keyspace.stats.troubles(*cause))).collect(),
    }
}

fn reason(out: &Out) -> Option<(String, Value)> {
    let OutputValue::Ours(bytes) = &out.value else { return None };
    let envelope: Value = serde_json::from_slice(bytes).ok()?;
    Some((envelope["reason"].as_str()?.to_owned(), envelope))
}

impl Judge<'_> {
    /// N and O.
    fn each_once(&mut self, outs: &[&Out]) {
        let mut seen: BTreeMap<(i32, i64), usize> = BTreeMap::new();
        for out in outs {
            *seen.entry((out.intent.partition, out.intent.offset)).or_default() += 1;
        }
        for (place, ask) in self.asks {
            match seen.get(place) {
                Some(1) => {}
                None => self.broken.push(format!("N: {place:?} {ask:?} has no output")),
                Some(times) => self.broken.push(format!("O: {place:?} {ask:?} has {times} outputs")),
            }
        }
    }

    /// The outputs of one key and class of one partition are in the order of its intents: one whose class waits for its
    /// history holds up no other class. And what goes without its history goes ahead of what waited before.
    fn in_order(&mut self, outs: &[&Out]) {
        let goes_ahead = |out: &Out| {
            decision(out)["recorded"] == "later" || reason(out).is_some_and(|(reason, _)| reason == "unavailable")
        };
        let mut last: BTreeMap<(i32, &str, Option<Kind>, &str), i64> = BTreeMap::new();
        for out in outs.iter().filter(|out| !goes_ahead(out)) {
            let to = match out.to {
                Destination::Approved => "approved",
                Destination::Suppressed => "suppressed",
                Destination::DeadLetters | Destination::Nowhere => {
                    self.broken.push(format!("no output of an intent: {:?} to {:?}", out.intent, out.to));
                    "neither"
                }
            };
            let offset = out.intent.offset;
            let kind = self.asks.get(&(out.intent.partition, offset)).map(|ask| ask.kind);
            let before = last.insert((out.intent.partition, &out.intent.key, kind, to), offset);
            if before.is_some_and(|before| before > offset) {
                self.broken.push(format!("order: {offset} after {before:?} of user {} in {to}", out.intent.key));
            }
        }
    }

    /// What was sent to each user and counts. Checks that histories know of it.
    fn approved(&mut self, outs: &[&Out]) -> BTreeMap<String, Vec<Sent>> {
        let mut approved: BTreeMap<String, Vec<Sent>> = BTreeMap::new();
        // What a process owed is gone with it.
        let all_is_paid = !self.world.some_process_ended();
        for out in outs.iter().filter(|out| out.to == Destination::Approved) {
            let Some(ask) = self.asks.get(&(out.intent.partition, out.intent.offset)) else { continue };
            let (Some(at), id) = (decided_at(out), IdHash::of(&ask.id)) else {
                self.broken.push(format!("{ask:?} has no weir-decision"));
                continue;
            };
            let counts = ask.kind != Kind::Receipt;
            if (decision(out)["counts"] != false) != counts {
                self.broken.push(format!("{ask:?} counts: {counts}, and the record says {:?}", out.headers));
            }
            if !counts {
                continue;
            }
            let later = decision(out)["recorded"] == "later";
            let field = field_of(&ask.user);
            // A send that was asked for before its history went away may have been recorded then.
            let known = if later {
                !all_is_paid || self.ever.iter().any(|(of, _, known)| *of == field && *known == id)
            } else {
                self.ever.contains(&(field, at, id))
            };
            if !known {
                self.broken.push(format!("C: {ask:?}, approved at {at}, was never recorded"));
            }
            if later && self.world.setting.unavailable_after.is_none() {
                self.broken.push(format!("{ask:?} was approved without being asked for, and nothing says so"));
            }
            let put_in = lock(&self.world.keyspace.put_in).contains(&(field_of(&ask.user), at, id));
            let judged = !later && !put_in && self.world.setting.mode == Mode::Enforce;
            approved.entry(ask.user.clone()).or_default().push(Sent { at, id, kind: ask.kind, judged });
        }
        approved
    }

    /// What caps have let through; what a failover or a wipe made the store forget, it could not count.
    fn judged(&self, user: &str, sends: &[Sent]) -> Vec<Sent> {
        let field = field_of(user);
        let known = |send: &&Sent| !self.forgotten.contains(&(field.clone(), send.at, send.id));
        sends.iter().filter(|send| send.judged).filter(known).copied().collect()
    }

    /// C. Alerts count, but go over a cap: they are left out, since one may have come behind what it makes too many.
    fn caps(&mut self, approved: &BTreeMap<String, Vec<Sent>>) {
        for (user, sends) in approved {
            let sends = self.judged(user, sends);
            for limit in limits_of(user) {
                let counted = sends.iter().filter(|sent| sent.kind != Kind::Alert);
                let counted: Vec<i64> =
                    counted.filter(|sent| sent.kind == Kind::Push || !limit.push).map(|sent| sent.at).collect();
                for end in &counted {
                    let used = counted.iter().filter(|at| (limit.over.first(*end)..=*end).contains(*at)).count();
                    if used > usize::try_from(limit.limit).unwrap() {
                        self.broken.push(format!("C: user {user} had {used} of {limit:?} until {end}"));
                    }
                }
            }
        }
    }

    /// No id twice.
    fn ids(&mut self, approved: &BTreeMap<String, Vec<Sent>>) {
        for (user, sends) in approved {
            let sends = self.judged(user, sends);
            let ids: BTreeSet<IdHash> = sends.iter().map(|sent| sent.id).collect();
            if ids.len() != sends.len() {
                self.broken.push(format!("an id was sent twice to user {user}: {sends:?}"));
            }
        }
    }

    /// Nobody is held back without a reason in what was recorded, and nobody at all in shadow mode.
    fn suppressed(&mut self, outs: &[&Out]) {
        for (out, (reason, envelope)) in outs.iter().filter_map(|out| Some((out, reason(out)?))) {
            let ask = self.asks.get(&(out.intent.partition, out.intent.offset));
            let kind = ask.map(|ask| ask.kind);
            let found = self.world.setting.mode == Mode::Enforce
                && match reason.as_str() {
                    "cap" => {
                        self.is_used_up(&out.intent.key, &envelope)
                            && !matches!(kind, Some(Kind::Alert | Kind::Receipt))
                    }
                    "duplicate" => {
                        let id = IdHash::of(envelope["intent_id"].as_str().unwrap_or_default());
                        let field = field_of(&out.intent.key);
                        self.ever.iter().any(|(of, _, known)| *of == field && *known == id)
                    }
                    "unavailable" => kind == Some(Kind::Email) && self.world.setting.unavailable_after.is_some(),
                    _ => false,
                };
            if !found {
                self.broken.push(format!("held back for no reason: {envelope}"));
            }
        }
    }

    /// Whether the cap that an envelope names has been reached by what was ever recorded.
    fn is_used_up(&self, user: &str, envelope: &Value) -> bool {
        let name = envelope["cap"]["name"].as_str().unwrap_or_default();
        let limit = limits_of(user).iter().find(|limit| limit.name == name);
        let at = envelope["decided_at"].as_str().and_then(weir::domain::time::Time::from_rfc3339);
        let (Some(limit), Some(at)) = (limit, at) else { return false };
        let (field, first) = (field_of(user), limit.over.first(at.millis()));
        let used = self.ever.iter().filter(|(of, sent, _)| *of == field && *sent >= first).count();
        used >= usize::try_from(limit.limit).unwrap()
    }

    /// No send is in a history twice.
    fn histories<'i>(&mut self, items: impl Iterator<Item = &'i Item>) {
        for item in items {
            let Item::Hash(hash) = item else { continue };
            for (field, packed) in hash.iter().filter(|(field, packed)| is_history(field, packed)) {
                // Behind the time: id 6, origin 3.
                let sends: Vec<&[u8]> = packed.chunks_exact(ENTRY).map(|entry| &entry[5..14]).collect();
                if sends.iter().collect::<BTreeSet<_>>().len() != sends.len() {
                    self.broken.push(format!("a send is counted twice in the history of {field:?}: {sends:?}"));
                }
            }
        }
    }
}
