//! The few commands that weir sends, on the keys of one node.

use redis::Value;

use super::script::{Data, Item, error};

fn bulk(bytes: impl Into<Vec<u8>>) -> Value {
    Value::BulkString(bytes.into())
}

fn optional(bytes: Option<&Vec<u8>>) -> Value {
    bytes.map_or(Value::Nil, |bytes| bulk(bytes.clone()))
}

fn number(count: usize) -> Value {
    Value::Int(i64::try_from(count).unwrap())
}

/// Runs a command on keys, whoever sends it. Keys that it writes are added to `written`.
pub fn simple(args: &[Vec<u8>], data: &mut Data, written: &mut Vec<Vec<u8>>) -> Value {
    let name = args[0].to_ascii_uppercase();
    let Some(key) = args.get(1).cloned() else { return error("ERR wrong number of arguments") };
    match (name.as_slice(), data.get_mut(&key)) {
        (b"GET", Some(Item::Text(text))) => bulk(text.clone()),
        (b"SET", found) => {
            if found.is_some() && args.iter().skip(3).any(|arg| arg == b"NX") {
                return Value::Nil;
            }
            written.push(key.clone());
            data.insert(key, Item::Text(args[2].clone()));
            Value::Okay
        }
        (b"INFO", _) => bulk("# Replication\r\nconnected_slaves:1\r\n"),
        (b"EXISTS", found) => number(usize::from(found.is_some())),
        (b"PEXPIRE", found) => number(usize::from(found.is_some())),
        (b"HGET", Some(Item::Hash(hash))) => optional(hash.get(&args[2])),
        (b"HLEN", Some(Item::Hash(hash))) => number(hash.len()),
        (b"HLEN", None) => number(0),
        (b"HMGET", Some(Item::Hash(hash))) => {
            Value::Array(args[2..].iter().map(|field| optional(hash.get(field))).collect())
        }
        (b"HMGET", None) => Value::Array(args[2..].iter().map(|_| Value::Nil).collect()),
        (b"HGETALL", Some(Item::Hash(hash))) => {
            Value::Array(hash.iter().flat_map(|(field, value)| [bulk(field.clone()), bulk(value.clone())]).collect())
        }
        (b"HGETALL", None) => Value::Array(Vec::new()),
        (b"GET" | b"HGET", None) => Value::Nil,
        (b"HSET" | b"HSETNX", found) => {
            if let Some(Item::Text(_)) = found {
                return error("WRONGTYPE Operation against a key holding the wrong kind of value");
            }
            written.push(key.clone());
            let Item::Hash(hash) = data.entry(key).or_insert_with(|| Item::Hash(Default::default())) else {
                unreachable!("seen above")
            };
            let mut new = 0;
            for pair in args[2..].chunks_exact(2) {
                if name == b"HSETNX" && hash.contains_key(&pair[0]) {
                    continue;
                }
                new += usize::from(hash.insert(pair[0].clone(), pair[1].clone()).is_none());
            }
            number(new)
        }
        (_, Some(Item::Text(_) | Item::Hash(_))) => {
            error("WRONGTYPE Operation against a key holding the wrong kind of value")
        }
        (_, None) => error(&format!("ERR the simulation does not know {}", String::from_utf8_lossy(&name))),
    }
}
