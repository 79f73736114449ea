//! The few commands that weir sends, on the keys of one node. Of those on streams: XADD with MINID and `*`, and XRANGE.

use redis::Value;

use super::{
    prelude::*,
    script::{EntryId, error},
};

/// The effect of a write on a hash field or a string.
#[derive(Debug)]
pub struct Change {
    pub key: Vec<u8>,
    pub field: Vec<u8>,
    pub old: Option<Vec<u8>>,
    pub new: Option<Vec<u8>>,
}

/// The effects of a command or script, and the time by the node's clock.
#[derive(Debug, Default)]
pub struct Effects {
    pub now_ms: i64,
    /// The node's INFO.
    pub run_id: String,
    pub replicas: usize,
    pub changes: Vec<Change>,
    /// Keys that expire within the run, and after how many milliseconds; `None`: not any more.
    pub expiries: Vec<(Vec<u8>, Option<u64>)>,
    /// How many milliseconds the keys have left that will expire.
    pub left_ms: BTreeMap<Vec<u8>, u64>,
}

impl Effects {
    fn expire(&mut self, key: &[u8], ms: &[u8]) {
        const LONGEST_RUN_MS: u64 = 3_600_000;
        let ms: u64 = str::from_utf8(ms).unwrap().parse().unwrap();
        if ms < LONGEST_RUN_MS {
            self.expiries.push((key.to_vec(), Some(ms)));
            self.left_ms.insert(key.to_vec(), ms);
        } else {
            self.persist(key);
        }
    }

    fn persist(&mut self, key: &[u8]) {
        if self.left_ms.remove(key).is_some() {
            self.expiries.push((key.to_vec(), None));
        }
    }

    pub fn note(&mut self, key: &[u8], field: &[u8], old: Option<Vec<u8>>, new: Option<Vec<u8>>) {
        self.changes.push(Change { key: key.to_vec(), field: field.to_vec(), old, new });
    }
}

pub fn bulk(bytes: impl Into<Vec<u8>>) -> Value {
    Value::BulkString(bytes.into())
}

fn optional(bytes: Option<&Vec<u8>>) -> Value {
    bytes.map_or(Value::Nil, |bytes| bulk(bytes.clone()))
}

fn number(count: usize) -> Value {
    Value::Int(i64::try_from(count).unwrap())
}

fn of_another_kind() -> Value {
    error("WRONGTYPE Operation against a key holding the wrong kind of value")
}

fn pairs(hash: &BTreeMap<Vec<u8>, Vec<u8>>) -> Value {
    Value::Array(hash.iter().flat_map(|(field, value)| [bulk(field.clone()), bulk(value.clone())]).collect())
}

pub fn simple(args: &[Vec<u8>], data: &mut Data, effects: &mut Effects) -> Value {
    let name = args[0].to_ascii_uppercase();
    if name == b"TIME" {
        let (seconds, ms) = (effects.now_ms.div_euclid(1000), effects.now_ms.rem_euclid(1000));
        return Value::Array(vec![bulk(seconds.to_string()), bulk((1000 * ms).to_string())]);
    }
    if name == b"INFO" {
        let Effects { run_id, replicas, .. } = effects;
        return bulk(format!("run_id:{run_id}\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:{replicas}\r\n"));
    }
    let Some(key) = args.get(1) else { return error("ERR wrong number of arguments") };
    match (name.as_slice(), data.get(key)) {
        (b"GET", Some(Item::Text(text))) => bulk(text.clone()),
        (b"GET" | b"HGET", None) => Value::Nil,
        (b"EXISTS", found) => number(usize::from(found.is_some())),
        (b"PEXPIRE", found) => {
            if found.is_some() {
                effects.expire(key, &args[2]);
            }
            number(usize::from(found.is_some()))
        }
        (b"PTTL", None) => Value::Int(-2),
        (b"PTTL", Some(_)) => Value::Int(effects.left_ms.get(key).map_or(-1, |ms| i64::try_from(*ms).unwrap())),
        (b"PERSIST", _) => {
            effects.persist(key);
            Value::Int(1)
        }
        (b"HGET", Some(Item::Hash(hash))) => optional(hash.get(&args[2])),
        (b"HEXISTS", Some(Item::Hash(hash))) => number(usize::from(hash.contains_key(&args[2]))),
        (b"HLEN", Some(Item::Hash(hash))) => number(hash.len()),
        (b"HLEN" | b"HEXISTS", None) => number(0),
        (b"HMGET", Some(Item::Hash(hash))) => {
            Value::Array(args[2..].iter().map(|field| optional(hash.get(field))).collect())
        }
        (b"HMGET", None) => Value::Array(args[2..].iter().map(|_| Value::Nil).collect()),
        (b"HGETALL", Some(Item::Hash(hash))) => pairs(hash),
        (b"HKEYS", Some(Item::Hash(hash))) => Value::Array(hash.keys().map(|field| bulk(field.clone())).collect()),
        (b"SET" | b"DEL" | b"HSET" | b"HSETNX" | b"HDEL", _) => writing(&name, args, data, effects),
        (b"XADD", _) => add(args, data, effects),
        (b"XRANGE", Some(Item::Stream(stream))) => range(args, stream),
        (b"HGETALL" | b"HKEYS" | b"XRANGE", None) => Value::Array(Vec::new()),
        (_, Some(Item::Text(_) | Item::Hash(_) | Item::Stream(_))) => of_another_kind(),
        (_, None) => error(&format!("ERR the simulation does not know {}", String::from_utf8_lossy(&name))),
    }
}

fn writing(name: &[u8], args: &[Vec<u8>], data: &mut Data, effects: &mut Effects) -> Value {
    let key = &args[1];
    match (name, data.get_mut(key)) {
        (b"SET", Some(_)) if args.iter().skip(3).any(|arg| arg == b"NX") => Value::Nil,
        (b"SET", _) => {
            effects.note(key, b"", None, Some(args[2].clone()));
            data.insert(key.clone(), Item::Text(args[2].clone()));
            if let Some([_, ms]) = args[3..].windows(2).find(|pair| pair[0].eq_ignore_ascii_case(b"PX")) {
                effects.expire(key, ms);
            }
            Value::Okay
        }
        (b"DEL", _) => number(args[1..].iter().map(|key| usize::from(delete(key, data, effects))).sum()),
        (b"HDEL", None) => number(0),
        (b"HDEL", Some(Item::Hash(hash))) => {
            let mut gone = 0;
            for field in &args[2..] {
                if let Some(old) = hash.remove(field) {
                    effects.note(key, field, Some(old), None);
                    gone += 1;
                }
            }
            if hash.is_empty() {
                data.remove(key);
                effects.persist(key);
            }
            number(gone)
        }
        (_, Some(Item::Text(_) | Item::Stream(_))) => of_another_kind(),
        (_, Some(Item::Hash(_)) | None) => {
            let Item::Hash(hash) = data.entry(key.clone()).or_insert_with(|| Item::Hash(BTreeMap::new())) else {
                unreachable!("seen above")
            };
            let mut new = 0;
            for pair in args[2..].chunks_exact(2) {
                if name == b"HSETNX" && hash.contains_key(&pair[0]) {
                    continue;
                }
                let old = hash.insert(pair[0].clone(), pair[1].clone());
                new += usize::from(old.is_none());
                effects.note(key, &pair[0], old, Some(pair[1].clone()));
            }
            number(new)
        }
    }
}

fn delete(key: &[u8], data: &mut Data, effects: &mut Effects) -> bool {
    match data.remove(key) {
        None => return false,
        Some(Item::Text(text)) => effects.note(key, b"", Some(text), None),
        Some(Item::Hash(hash)) => {
            hash.into_iter().for_each(|(field, value)| effects.note(key, &field, Some(value), None));
        }
        Some(Item::Stream(_)) => unreachable!("weir deletes no stream"),
    }
    true
}

pub fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// An id as it is written; without a number, `number`.
fn id(bytes: &[u8], number: u64) -> EntryId {
    let (ms, number) = match text(bytes).split_once('-') {
        Some((ms, number)) => (ms, number.parse().unwrap()),
        None => (text(bytes), number),
    };
    (ms.parse().unwrap(), number)
}

/// `XADD key MINID id * field value ...`
fn add(args: &[Vec<u8>], data: &mut Data, effects: &mut Effects) -> Value {
    let [_, key, minid, begin, new, fields @ ..] = args else { panic!("XADD without MINID") };
    assert_eq!((minid.as_slice(), new.as_slice()), (&b"MINID"[..], &b"*"[..]));
    let Item::Stream(stream) = data.entry(key.clone()).or_insert_with(|| Item::Stream(Stream::default())) else {
        panic!("a stream at {}", text(key))
    };
    let next = (stream.last.0, stream.last.1 + 1);
    stream.last = if effects.now_ms > stream.last.0 { (effects.now_ms, 0) } else { next };
    stream.entries.insert(stream.last, fields.to_vec());
    stream.entries = stream.entries.split_off(&id(begin, 0));
    let (ms, number) = stream.last;
    let added = format!("{ms}-{number}").into_bytes();
    effects.note(key, &added, None, Some(Vec::new()));
    bulk(added)
}

/// `XRANGE key from to [COUNT count]`
fn range(args: &[Vec<u8>], stream: &Stream) -> Value {
    let from = match args[2].strip_prefix(b"(") {
        Some(after) => (id(after, 0).0, id(after, 0).1 + 1),
        None => id(&args[2], 0),
    };
    let to = if args[3] == b"+" { (i64::MAX, u64::MAX) } else { id(&args[3], u64::MAX) };
    let count = args.get(5).map_or(usize::MAX, |count| text(count).parse().unwrap());
    let entry = |((ms, number), fields): (&EntryId, &Vec<Vec<u8>>)| {
        let fields = fields.iter().map(|field| bulk(field.clone())).collect();
        Value::Array(vec![bulk(format!("{ms}-{number}")), Value::Array(fields)])
    };
    if from > to {
        return Value::Array(Vec::new());
    }
    Value::Array(stream.entries.range(from..=to).take(count).map(entry).collect())
}
