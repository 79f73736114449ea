//! A Redis Cluster: primaries with one replica each, slots that move, nodes that forget. One lock, one thread.

use redis::Value;

use super::{
    commands,
    ledger::Writer,
    permits,
    prelude::*,
    rules::MOST,
    script::{self, error, keys_and_args},
    till::Till,
};

pub const FIRST_PORT: u16 = 7000;
const SLOTS: u16 = 16_384;
/// More than any worker's clock is off, so that two wrong clocks do not agree.
const WRONG_BY_MS: i64 = 24 * 3_600_000;

/// A primary and its replica: nodes 2g and 2g + 1.
#[derive(Debug, Default)]
pub struct Group {
    pub primary: usize,
    pub replica_data: Data,
    /// Writes in flight to the replica, and when they arrive.
    pub log: VecDeque<(Duration, Vec<u8>, Option<Item>)>,
    /// The replica receives nothing before this.
    pub deaf_until: Duration,
    /// It has lost data that is not completely restored.
    pub wiped: bool,
}

#[derive(Debug, Default)]
pub struct Node {
    pub data: Data,
    pub scripts: BTreeMap<String, Script>,
    /// Counts restarts: connections of an earlier one are broken.
    pub incarnation: u64,
    pub down_until: Duration,
    pub stalled_until: Duration,
    pub refuses: Option<(&'static str, Duration)>,
}

#[derive(Debug)]
pub struct Cluster {
    pub env: Env,
    pub groups: Vec<Group>,
    pub nodes: Vec<Node>,
    owners: BTreeMap<u16, usize>,
    /// Migrating slots, and their targets.
    pub moving: BTreeMap<u16, usize>,
    pub expiries: BTreeMap<Vec<u8>, Duration>,
    /// Commands that have written something.
    pub writes: u64,
    /// How often a node came back with an old snapshot; and how often one had, when all was rebuilt last.
    pub returned: usize,
    pub returned_before_rebuild: usize,
    /// The group whose nodes have a wrong clock: one of three must not stop a worker.
    pub wrong_clock: Option<usize>,
    /// A group whose nodes grant tokens by a wrong clock, and until when.
    pub jumped_clock: Option<(usize, Duration)>,
    pub ledger: Ledger,
    pub till: Till,
    pub limits_lost: LimitsLost,
    /// Failovers that lost names.
    pub names_lost: usize,
}

/// A key, what a node had there, and what it has.
type Replaced<'i> = (&'i [u8], Option<&'i Item>, Option<&'i Item>);

/// What nodes forgot of what members of limits hold, and when.
#[derive(Debug, Default)]
pub struct LimitsLost {
    pub heard: SharedHeard,
    /// How many permits that processes held.
    pub permits: Vec<(Duration, u64)>,
    pub services: Vec<(Duration, Forgotten)>,
}

impl LimitsLost {
    /// A node that had one thing at a key has another one now, as it had some time before, or after a loss of all.
    pub fn forget(&mut self, (now, of): (Duration, Forgotten), (key, had, kept): Replaced<'_>) {
        lock(&self.heard).fails_over(had, kept);
        self.permits.push((now, permits::forgotten(had, kept, wall_ms(now))));
        // Those of a service, as `lua/share.lua` knows them.
        if key.ends_with(b":members") && had != kept {
            self.services.push((now, of));
        }
    }
}

/// The slot of the names and the tables: that of the hash tag `{weir}`, the default prefix.
pub const NAMES: u16 = 3_236;
const NAME_TABLES: [&[u8]; 2] = [b"weir:{weir}:campaigns", b"weir:{weir}:kinds"];

pub fn slot_of(key: &[u8]) -> u16 {
    let open = key.iter().position(|byte| *byte == b'{');
    let tag = open.and_then(|open| {
        let length = key[open + 1..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[open + 1..open + 1 + length])
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS
}

fn port_of(node: usize) -> u16 {
    FIRST_PORT + u16::try_from(node).unwrap()
}

impl Cluster {
    /// So many groups, which own these slots in turn.
    pub fn new(env: &Env, groups: usize, slots: impl IntoIterator<Item = u16>) -> Self {
        let group = |group| Group { primary: 2 * group, ..Group::default() };
        Self {
            env: env.clone(),
            groups: (0..groups).map(group).collect(),
            nodes: (0..2 * groups).map(|_| Node::default()).collect(),
            owners: slots.into_iter().zip((0..groups).cycle()).collect(),
            moving: BTreeMap::new(),
            expiries: BTreeMap::new(),
            writes: 0,
            returned: 0,
            returned_before_rebuild: 0,
            wrong_clock: None,
            jumped_clock: None,
            ledger: Ledger::default(),
            till: Till::default(),
            limits_lost: LimitsLost::default(),
            names_lost: 0,
        }
    }

    /// The keys of budgets that belong to a group, of all that ever were.
    pub fn accounts_of(&self, group: usize) -> Vec<Vec<u8>> {
        self.till.keys().filter(|key| self.owner(slot_of(key)) == group).cloned().collect()
    }

    /// Replicas that heard nothing have all writes.
    pub fn hear_again(&mut self) {
        let now = self.env.passed();
        for group in &mut self.groups {
            group.deaf_until = Duration::ZERO;
            group.log.iter_mut().for_each(|(at, ..)| *at = (*at).min(now));
        }
    }

    fn group_of(&self, node: usize) -> usize {
        node / 2
    }

    fn primary(&self, group: usize) -> usize {
        self.groups[group].primary
    }

    pub fn slots(&self) -> Vec<u16> {
        self.owners.keys().copied().collect()
    }

    pub fn owner(&self, slot: u16) -> usize {
        self.owners.get(&slot).copied().unwrap_or(0)
    }

    /// A key's value, on whichever node.
    pub fn key(&self, key: &[u8]) -> Option<&Item> {
        self.groups.iter().find_map(|group| self.nodes[group.primary].data.get(key))
    }

    pub fn all_keys(&self) -> Data {
        self.groups.iter().flat_map(|group| self.nodes[group.primary].data.clone()).collect()
    }

    /// Puts keys where they belong, on primary and replica.
    pub fn put(&mut self, keys: Data) {
        for (key, item) in keys {
            let group = self.owner(slot_of(&key));
            let primary = self.primary(group);
            self.nodes[primary].data.insert(key.clone(), item.clone());
            self.groups[group].replica_data.insert(key, item);
        }
    }

    /// Runs one command on a node. `asking`: ASKING came right before.
    pub fn execute(&mut self, node: usize, args: &[Vec<u8>], asking: bool) -> Value {
        let now = self.env.passed();
        self.expire(now);
        if let Some((error_text, until)) = self.nodes[node].refuses
            && now < until
        {
            return error(error_text);
        }
        if let Some(reply) = self.answer_without_keys(node, args) {
            return reply;
        }
        // The planted bug waits for no replica, since it is told that there are none.
        let replicas = usize::from(self.env.sabotage() != Sabotage::NumbersByLength);
        let run_id = format!("{:x}{:08x}", node + 1, self.nodes[node].incarnation);
        let off_ms = if self.wrong_clock == Some(self.group_of(node)) { WRONG_BY_MS } else { 0 };
        let now_ms = self.env.time().wall_ms() + off_ms;
        let mut effects = Effects { now_ms, run_id, replicas, ..Effects::default() };
        let name = args[0].to_ascii_uppercase();
        let script = name == b"EVALSHA";
        let keys = match name.as_slice() {
            b"EVALSHA" => keys_and_args(args).0,
            b"TIME" | b"INFO" => return commands::simple(args, &mut Data::new(), &mut effects),
            b"DEL" => &args[1..],
            _ => &args[1..2],
        };
        if let Err(redirect) = self.serves(node, keys, asking) {
            return redirect;
        }
        let now_us = now.as_micros();
        for key in keys {
            if let Some(at) = self.expiries.get(key) {
                let left_us = at.as_micros().saturating_sub(now_us);
                effects.left_ms.insert(key.clone(), u64::try_from(left_us / 1000).unwrap());
            }
        }
        let has_jumped = self.jumped_clock.is_some_and(|(group, until)| group == self.group_of(node) && now < until);
        let mut data = std::mem::take(&mut self.nodes[node].data);
        let (reply, writer) = if script {
            let sha = String::from_utf8_lossy(&args[1]).into_owned();
            match self.nodes[node].scripts.get(&sha) {
                None => (error("NOSCRIPT No matching script. Please use EVAL."), Writer::Other),
                Some(script) => {
                    effects.now_ms += if has_jumped && script.is("take") { WRONG_BY_MS } else { 0 };
                    let reply = script::run(script, keys, keys_and_args(args).1, &mut data, &mut effects);
                    self.till.ran(script, args, (&reply, effects.changes.as_slice()), &data);
                    lock(&self.limits_lost.heard).ran(script, keys, &data);
                    (reply, Writer::of_script(script))
                }
            }
        } else {
            (commands::simple(args, &mut data, &mut effects), Writer::Plain)
        };
        self.nodes[node].data = data;
        self.note_expiries(&effects);
        self.replicate(node, writer, &effects.changes);
        reply
    }

    fn answer_without_keys(&mut self, node: usize, args: &[Vec<u8>]) -> Option<Value> {
        match args[0].to_ascii_uppercase().as_slice() {
            b"PING" => Some(Value::SimpleString("PONG".to_owned())),
            b"CLUSTER" => Some(self.cluster_slots()),
            b"CONFIG" => {
                let value = [&b"hash-max-ziplist-value"[..], b"1024"].map(|text| Value::BulkString(text.to_vec()));
                Some(Value::Array(value.into()))
            }
            b"SCRIPT" if args[1].eq_ignore_ascii_case(b"LOAD") => {
                let source = str::from_utf8(&args[2]).unwrap().to_owned();
                let mut source = self.env.sabotage().edit(&Script::new(source));
                // Its fast path, which does not count entries, ends sooner than with the least that `redis.max_entries` may be.
                if self.ledger.bound == Some(MOST as usize) {
                    source = script::with(&source, "MAX_FAST_BYTES", 80);
                }
                if self.env.is_impatient() {
                    source = script::with(&source, "MAX_WORK", 10);
                }
                let sha = format!("{:040x}", xxhash_rust::xxh3::xxh3_64(source.as_bytes()));
                self.nodes[node].scripts.insert(sha.clone(), Script::new(source));
                Some(Value::BulkString(sha.into_bytes()))
            }
            _ => None,
        }
    }

    fn note_expiries(&mut self, effects: &Effects) {
        // A replica that takes over without a deletion still has the key, and when it expires.
        for change in effects.changes.iter().filter(|change| change.new.is_some() && change.field.is_empty()) {
            self.expiries.remove(&change.key);
        }
        let now = self.env.passed();
        for (key, ms) in &effects.expiries {
            match ms {
                Some(ms) => self.expiries.insert(key.clone(), now + Duration::from_millis(*ms)),
                None => self.expiries.remove(key),
            };
        }
    }

    fn expire(&mut self, now: Duration) {
        let due: Vec<_> = self.expiries.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.expiries.remove(&key);
            for node in &mut self.nodes {
                node.data.remove(&key);
            }
            for group in &mut self.groups {
                group.replica_data.remove(&key);
                group.log.iter_mut().filter(|(_, written, _)| *written == key).for_each(|(.., item)| *item = None);
            }
        }
    }

    /// Whether a node serves these keys, or its redirection.
    fn serves(&self, node: usize, keys: &[Vec<u8>], asking: bool) -> Result<(), Value> {
        let (slot, group) = (slot_of(&keys[0]), self.group_of(node));
        let owner = self.owner(slot);
        let at = |group: usize| format!("127.0.0.1:{}", port_of(self.primary(group)));
        let moved = || Err(error(&format!("MOVED {slot} {}", at(owner))));
        if self.primary(group) != node {
            return moved();
        }
        let missing = keys.iter().filter(|key| !self.nodes[node].data.contains_key(*key)).count();
        let apart = || Err(error("TRYAGAIN Multiple keys request during rehashing of slot"));
        match self.moving.get(&slot) {
            Some(to) if owner == group && missing == keys.len() => Err(error(&format!("ASK {slot} {}", at(*to)))),
            Some(_) if owner == group && missing > 0 => apart(),
            Some(to) if *to == group && asking && keys.len() > 1 && missing > 0 => apart(),
            Some(to) if *to == group && asking => Ok(()),
            Some(_) | None if owner == group => Ok(()),
            Some(_) | None => moved(),
        }
    }

    fn cluster_slots(&self) -> Value {
        let one = |(slot, group): (&u16, &usize)| {
            let slot = Value::Int(i64::from(*slot));
            let port = i64::from(port_of(self.primary(*group)));
            let primary = Value::Array(vec![Value::BulkString(b"127.0.0.1".to_vec()), Value::Int(port)]);
            Value::Array(vec![slot.clone(), slot, primary])
        };
        Value::Array(self.owners.iter().map(one).collect())
    }

    /// Starts replicating the writes of one command: a replica has all of them or none.
    fn replicate(&mut self, node: usize, writer: Writer, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let now = self.env.passed();
        changes.iter().for_each(|change| self.ledger.write(now, writer, change));
        self.writes += 1;
        let keys: BTreeSet<&Vec<u8>> = changes.iter().map(|change| &change.key).collect();
        let group = self.group_of(node);
        let group = &mut self.groups[group];
        let before = group.log.back().map_or(Duration::ZERO, |(at, ..)| *at);
        let at = (now + self.env.millis(0, 20)).max(group.deaf_until).max(before);
        for key in keys {
            group.log.push_back((at, key.clone(), self.nodes[node].data.get(key).cloned()));
        }
    }

    /// When the replica will have all present writes of this node.
    pub fn replicated_at(&self, node: usize) -> Duration {
        self.groups[self.group_of(node)].log.back().map_or(Duration::ZERO, |(at, ..)| *at)
    }

    fn bring_replica(&mut self, group: usize, now: Duration) {
        let group = &mut self.groups[group];
        while group.log.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, key, item)) = group.log.pop_front() else { break };
            match item {
                Some(item) => group.replica_data.insert(key, item),
                None => group.replica_data.remove(&key),
            };
        }
    }

    /// The primary is lost, and its replica takes over with the writes that it has.
    pub fn fail_over(&mut self, group: usize, away: Duration) {
        let now = self.env.passed();
        self.bring_replica(group, now);
        let old = self.primary(group);
        let new = 2 * group + (1 - old % 2);
        let behind: BTreeSet<Vec<u8>> = self.groups[group].log.drain(..).map(|(_, key, _)| key).collect();
        let mut lost = 0;
        for key in &behind {
            let (had, kept) = (self.nodes[old].data.get(key), self.groups[group].replica_data.get(key));
            lost += self.ledger.fails_over(now, had, kept);
            self.till.fails_over(key, had, &self.groups[group].replica_data);
            self.limits_lost.forget((now, Forgotten::Last), (key, had, kept));
            self.names_lost += usize::from(NAME_TABLES.contains(&key.as_slice()) && had != kept);
        }
        self.env
            .note(|| format!("redis group {group} fails over from node {old} to {new}: {lost} entries are forgotten"));
        let data = self.groups[group].replica_data.clone();
        let incarnation = self.nodes[old].incarnation + 1;
        self.nodes[old] = Node { incarnation, down_until: now + away, ..Node::default() };
        self.nodes[new].data = data;
        self.groups[group].primary = new;
    }

    pub fn restart(&mut self, group: usize, keeps: Keeps, away: Duration) {
        let now = self.env.passed();
        let primary = self.primary(group);
        self.env.note(|| format!("redis node {primary} restarts: {keeps:?}"));
        let node = &mut self.nodes[primary];
        node.incarnation += 1;
        node.scripts.clear();
        node.down_until = now + away / 2;
        node.refuses = Some(("LOADING Redis is loading the dataset in memory", now + away));
        if keeps == Keeps::Nothing {
            let data = std::mem::take(&mut node.data);
            data.values().for_each(|item| self.ledger.wiped(item));
            let accounts = self.accounts_of(group);
            accounts.iter().for_each(|key| self.till.wiped(key));
            for (key, item) in &data {
                // The registry of a service is gone with its members.
                self.limits_lost.forget((now, Forgotten::All), (key, Some(item), None));
            }
            data.keys().for_each(|key| _ = self.expiries.remove(key));
            let group = &mut self.groups[group];
            group.replica_data.clear();
            group.log.clear();
            group.wiped = true;
        }
    }

    /// Whether a node whose clock is right has a slot after this one has moved: weir does not ask the others for their time.
    pub fn keeps_right_clock(&self, slot: u16, to: usize) -> bool {
        let right = |group: &usize| self.wrong_clock != Some(*group);
        let stays = |(at, of): (&u16, &usize)| *at != slot && right(of) && self.moving.get(at).is_none_or(right);
        right(&to) || self.owners.iter().any(stays)
    }

    /// Moves the next key of a migrating slot; the slot changes owners when none is left.
    pub fn move_on(&mut self, slot: u16) {
        let Some(&to) = self.moving.get(&slot) else { return };
        let from = self.owner(slot);
        let (old, new) = (self.primary(from), self.primary(to));
        let Some(key) = self.nodes[old].data.keys().find(|key| slot_of(key) == slot).cloned() else {
            self.env.note(|| format!("slot {slot} now belongs to group {to}"));
            self.moving.remove(&slot);
            self.owners.insert(slot, to);
            return;
        };
        // A MIGRATE is not done before the replicas know of it.
        let now = self.env.passed() + Duration::from_secs(3600);
        self.bring_replica(from, now);
        self.bring_replica(to, now);
        if let Some(item) = self.nodes[old].data.remove(&key) {
            self.groups[from].replica_data.remove(&key);
            self.groups[to].replica_data.insert(key.clone(), item.clone());
            self.nodes[new].data.insert(key, item);
        }
    }
}

/// A node's data after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    Data,
    Nothing,
}
