//! The consumer group: members, generations, eager rebalances.

use super::prelude::*;

/// After so long without a sign of life a member is out.
const SESSION: Duration = Duration::from_secs(10);
/// After so long a rebalance goes on without those who have not joined.
const REBALANCE: Duration = Duration::from_secs(30);
/// Within so many milliseconds a member learns of a rebalance.
const HEARTBEAT_MS: u64 = 1500;

struct Member {
    process: u64,
    /// The topic that it reads.
    log: Log,
    /// Has answered the rebalance under way.
    joined: bool,
    /// The generation it was in last.
    generation: i32,
    partitions: Vec<i32>,
    /// Frozen or dead since.
    silent_since: Option<Duration>,
    learns_at: Duration,
}

/// What a member finds when it asks the coordinator.
pub enum Look {
    Nothing,
    /// It is not, or no longer, in the group.
    Unknown,
    /// It must give up what it holds and join again.
    Rejoin,
    Assigned(i32, Vec<i32>),
}

pub struct Group {
    env: Env,
    pub generation: i32,
    /// The partitions of each topic that its members read.
    partitions: Vec<(Log, i32)>,
    /// Until when others are waited for.
    rebalancing: Option<Duration>,
    members: BTreeMap<u64, Member>,
    next: u64,
    pub rebalances: u64,
}

impl Group {
    pub fn new(env: &Env, partitions: Vec<(Log, i32)>) -> Self {
        Self {
            env: env.clone(),
            generation: 0,
            partitions,
            rebalancing: None,
            members: BTreeMap::new(),
            next: 1,
            rebalances: 0,
        }
    }

    /// A topic has so many partitions from now on; its members are given them with the next assignment.
    pub fn set_partitions(&mut self, log: Log, partitions: i32) {
        self.partitions.iter_mut().filter(|(of, _)| *of == log).for_each(|(_, count)| *count = partitions);
    }

    pub fn join(&mut self, process: u64, log: Log) -> u64 {
        self.pass_time();
        let id = self.next;
        self.next += 1;
        let now = self.env.passed();
        let member = Member {
            process,
            log,
            joined: true,
            generation: -1,
            partitions: Vec::new(),
            silent_since: None,
            learns_at: now,
        };
        self.rebalance();
        self.members.insert(id, member);
        self.env.note(|| format!("member {id} of process {process} joins"));
        id
    }

    pub fn rejoin(&mut self, id: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.joined = true;
        }
        self.pass_time();
    }

    pub fn leave(&mut self, id: u64) {
        if self.members.remove(&id).is_some() {
            self.env.note(|| format!("member {id} leaves"));
            self.rebalance();
        }
    }

    pub fn look(&mut self, id: u64, held: i32) -> Look {
        self.pass_time();
        let (now, generation, rebalancing) = (self.env.passed(), self.generation, self.rebalancing.is_some());
        let Some(member) = self.members.get_mut(&id) else { return Look::Unknown };
        if rebalancing && !member.joined && now >= member.learns_at {
            Look::Rejoin
        } else if !rebalancing && member.generation == generation && held != generation && now >= member.learns_at {
            Look::Assigned(generation, member.partitions.clone())
        } else {
            Look::Nothing
        }
    }

    /// Whether a commit of offsets by this member in this generation is taken.
    pub fn accepts(&mut self, id: u64, generation: i32) -> bool {
        self.pass_time();
        generation == self.generation && self.members.get(&id).is_some_and(|member| member.generation == generation)
    }

    /// Whether somebody is a member, in whatever generation.
    pub fn has(&self, id: u64) -> bool {
        self.members.contains_key(&id)
    }

    pub fn silence(&mut self, process: u64, since: Option<Duration>) {
        self.pass_time();
        for member in self.members.values_mut().filter(|member| member.process == process) {
            member.silent_since = since;
        }
    }

    pub fn rebalance(&mut self) {
        let now = self.env.passed();
        if self.rebalancing.is_none() {
            self.rebalancing = Some(now + REBALANCE);
            for member in self.members.values_mut() {
                member.joined = false;
                member.learns_at = now + self.env.millis(0, HEARTBEAT_MS);
            }
        }
    }

    fn pass_time(&mut self) {
        let now = self.env.passed();
        let out: Vec<u64> = self
            .members
            .iter()
            .filter(|(_, member)| member.silent_since.is_some_and(|since| now >= since + SESSION))
            .map(|(id, _)| *id)
            .collect();
        for id in out {
            self.env.note(|| format!("member {id} is out: its session timed out"));
            self.members.remove(&id);
            self.rebalance();
        }
        let Some(until) = self.rebalancing else { return };
        if now >= until {
            self.members.retain(|_, member| member.joined);
        }
        if self.members.values().all(|member| member.joined) {
            self.assign(now);
        }
    }

    fn assign(&mut self, now: Duration) {
        self.rebalancing = None;
        self.generation += 1;
        self.rebalances += 1;
        for (log, partitions) in &self.partitions {
            let mut members: Vec<&mut Member> = self.members.values_mut().filter(|member| member.log == *log).collect();
            let (count, turn) = (members.len(), self.env.index(members.len().max(1)));
            for (place, member) in members.iter_mut().enumerate() {
                let mine = |partition: &i32| (usize::try_from(*partition).unwrap() + turn) % count == place;
                member.partitions = (0..*partitions).filter(mine).collect();
                member.generation = self.generation;
                member.learns_at = now + self.env.millis(1, 100);
            }
        }
        self.env.note(|| {
            let given = |(id, member): (&u64, &Member)| match member.log {
                Log::Input => format!("{id}: {:?}", member.partitions),
                Log::Ring(ring) => format!("{id}: {} of the {}", member.partitions.len(), ring.as_str()),
                Log::Waiting => format!("{id}: {:?} of what waits", member.partitions),
                Log::Retries => format!("{id}: {:?} of the retries", member.partitions),
            };
            format!("generation {}: {:?}", self.generation, self.members.iter().map(given).collect::<Vec<_>>())
        });
    }
}
