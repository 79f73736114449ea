//! What must hold of the committed output, whatever happened: judged without any of weir's own reckoning.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use weir::{
    domain::shard::IdHash,
    edge::redis::RetryCause,
    worker::record::{Destination, OutputValue},
};

use super::{
    broker::Out,
    cluster::{ENTRY, Sent},
    env::lock,
    run::World,
    script::Item,
    store::{field_of, mark_of},
    workload::{Ask, CAPS},
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
    pub rebalances: u64,
    /// What Redis answered in place of answers.
    pub troubles: BTreeMap<&'static str, u64>,
}

impl Tale {
    /// What these runs did not reach, and so prove nothing about.
    pub fn unreached(&self) -> Vec<&'static str> {
        // No user's history is so long that a call is put off, nothing else writes to the keyspace, and with two kinds a lane
        // seldom meets one that it does not know.
        let beyond = [RetryCause::PutOff, RetryCause::Refused, RetryCause::StaleKinds].map(RetryCause::label);
        let troubles = self.troubles.iter().filter(|(cause, times)| **times == 0 && !beyond.contains(cause));
        let counts = [
            ("approved", self.approved),
            ("suppressed", self.suppressed),
            ("duplicates", self.duplicates),
            ("replays", self.replays),
            ("forgotten", self.forgotten),
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
        self.rebalances += other.rebalances;
        for (cause, times) in &other.troubles {
            *self.troubles.entry(cause).or_default() += times;
        }
    }
}

/// An approved send: user's field, time, id.
type Mark = (Vec<u8>, i64, IdHash);

fn decided_at(out: &Out) -> Option<i64> {
    out.headers.iter().find(|(name, _)| *name == "weir-decided-at")?.1.parse().ok()
}

fn mark(entry: &Sent) -> Mark {
    let (at, id) = mark_of(&entry.1);
    (entry.0.clone(), at, id)
}

/// What was sent until now, as a rebuild reads it: entries of the histories that were whose output is visible.
pub fn sent(world: &World) -> BTreeSet<Sent> {
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
    asks: &'w BTreeMap<(i32, i64), Ask>,
    ever: BTreeSet<Mark>,
    forgotten: BTreeSet<Mark>,
    broken: &'w mut Vec<String>,
}

pub fn check(world: &World, asks: &BTreeMap<(i32, i64), Ask>, broken: &mut Vec<String>) -> Tale {
    let broker = world.broker.borrow();
    let cluster = lock(&world.keyspace.cluster);
    broken.extend(broker.broken.iter().cloned());
    let forgotten: BTreeSet<Mark> =
        cluster.forgotten_by_failover.iter().chain(&cluster.forgotten_by_restore).map(mark).collect();
    let ever = cluster.ever.iter().map(mark).collect();
    let outs: Vec<&Out> = broker.visible().collect();
    let mut judge = Judge { asks, ever, forgotten, broken };
    judge.each_once(&outs);
    judge.in_order(&outs);
    let approved = judge.approved(&outs);
    judge.caps(&approved);
    judge.suppressed(&outs);
    judge.histories(cluster.all_keys().values());
    if world.keyspace.wait_replicas > 0 {
        let forgotten: BTreeSet<Mark> = cluster.forgotten_by_failover.iter().map(mark).collect();
        for (user, sends) in &approved {
            for (at, id, _) in sends.iter().filter(|(at, id, _)| forgotten.contains(&(field_of(user), *at, *id))) {
                judge
                    .broken
                    .push(format!("wait_replicas: a failover forgot what was sent to user {user} at {at} ({id:?})"));
            }
        }
    }
    Tale {
        intents: asks.len(),
        approved: approved.values().map(Vec::len).sum(),
        suppressed: outs.iter().filter(|out| out.to == Destination::Suppressed).count(),
        replays: broker.replays(),
        duplicates: outs.iter().filter(|out| reason(out).is_some_and(|(reason, _)| reason == "duplicate")).count(),
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

    /// The outputs of one key of one partition are in the order of its intents.
    fn in_order(&mut self, outs: &[&Out]) {
        let mut last: BTreeMap<(i32, &str, &str), i64> = BTreeMap::new();
        for out in outs {
            let to = match out.to {
                Destination::Approved => "approved",
                Destination::Suppressed => "suppressed",
                Destination::DeadLetters | Destination::Nowhere => {
                    self.broken.push(format!("no output of an intent: {:?} to {:?}", out.intent, out.to));
                    "neither"
                }
            };
            let offset = out.intent.offset;
            let before = last.insert((out.intent.partition, &out.intent.key, to), offset);
            if before.is_some_and(|before| before > offset) {
                self.broken.push(format!("order: {offset} after {before:?} of user {} in {to}", out.intent.key));
            }
        }
    }

    /// What was sent to each user: when, which id, and whether it is a push. Checks that histories know of it.
    fn approved(&mut self, outs: &[&Out]) -> BTreeMap<String, Vec<(i64, IdHash, bool)>> {
        let mut approved: BTreeMap<String, Vec<(i64, IdHash, bool)>> = BTreeMap::new();
        for out in outs.iter().filter(|out| out.to == Destination::Approved) {
            let Some(ask) = self.asks.get(&(out.intent.partition, out.intent.offset)) else { continue };
            let (Some(at), id) = (decided_at(out), IdHash::of(&ask.id)) else {
                self.broken.push(format!("{ask:?} has no weir-decided-at"));
                continue;
            };
            if !self.ever.contains(&(field_of(&ask.user), at, id)) {
                self.broken.push(format!("C: {ask:?}, approved at {at}, was never recorded"));
            }
            approved.entry(ask.user.clone()).or_default().push((at, id, ask.push));
        }
        approved
    }

    /// C, and no id twice. What a failover or a wipe made the store forget, it could not count.
    fn caps(&mut self, approved: &BTreeMap<String, Vec<(i64, IdHash, bool)>>) {
        for (user, sends) in approved {
            let field = field_of(user);
            let known = |send: &&(i64, IdHash, bool)| !self.forgotten.contains(&(field.clone(), send.0, send.1));
            let sends: Vec<(i64, IdHash, bool)> = sends.iter().filter(known).copied().collect();
            let ids: BTreeSet<IdHash> = sends.iter().map(|(_, id, _)| *id).collect();
            if ids.len() != sends.len() {
                self.broken.push(format!("an id was sent twice to user {user}: {sends:?}"));
            }
            for (name, window, limit, push) in CAPS {
                let counted: Vec<i64> =
                    sends.iter().filter(|(.., pushed)| *pushed || !push).map(|(at, ..)| *at).collect();
                for end in &counted {
                    let used = counted.iter().filter(|at| (end - window + 1..=*end).contains(*at)).count();
                    if used > usize::try_from(limit).unwrap() {
                        self.broken
                            .push(format!("C: user {user} had {used} of {limit} ({name}) in {window} ms until {end}"));
                    }
                }
            }
        }
    }

    /// Nobody is held back without a reason in what was recorded.
    fn suppressed(&mut self, outs: &[&Out]) {
        for (out, (reason, envelope)) in outs.iter().filter_map(|out| Some((out, reason(out)?))) {
            let field = field_of(&out.intent.key);
            let of_user = self.ever.iter().filter(|(of, ..)| *of == field);
            let found = match reason.as_str() {
                "cap" => {
                    let name = envelope["cap"]["name"].as_str().unwrap_or_default();
                    let cap = CAPS.into_iter().find(|(of, ..)| *of == name);
                    let at = envelope["decided_at"].as_str().and_then(weir::domain::time::Time::from_rfc3339);
                    cap.zip(at).is_some_and(|((_, window, limit, _), at)| {
                        of_user.filter(|(_, sent, _)| *sent > at.millis() - window).count()
                            >= usize::try_from(limit).unwrap()
                    })
                }
                "duplicate" => {
                    let id = IdHash::of(envelope["intent_id"].as_str().unwrap_or_default());
                    of_user.into_iter().any(|(.., of)| *of == id)
                }
                _ => false,
            };
            if !found {
                self.broken.push(format!("held back for no reason: {envelope}"));
            }
        }
    }

    /// No send is in a history twice.
    fn histories<'i>(&mut self, items: impl Iterator<Item = &'i Item>) {
        for item in items {
            let Item::Hash(hash) = item else { continue };
            for (field, packed) in hash.iter().filter(|(field, _)| field.len() == 8) {
                // Behind the time: id 6, origin 3.
                let sends: Vec<&[u8]> = packed.chunks_exact(ENTRY).map(|entry| &entry[5..14]).collect();
                if sends.iter().collect::<BTreeSet<_>>().len() != sends.len() {
                    self.broken.push(format!("a send is counted twice in the history of {field:?}: {sends:?}"));
                }
            }
        }
    }
}
