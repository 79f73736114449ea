//! Runs the real Lua scripts on the keys of a fake node, with what Redis gives them: `redis`, `struct`, `cmsgpack`,
//! `bit`.

use mlua::{Lua, MultiValue, Value as LuaValue, Variadic};
use redis::Value;

use super::{commands, prelude::*};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Stream(Stream),
}

/// A stream: its entries, and the id of the last one, also where that is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    pub entries: BTreeMap<EntryId, Vec<Vec<u8>>>,
    pub last: EntryId,
}

/// Milliseconds, and a number within these.
pub type EntryId = (i64, u64);

pub type Data = BTreeMap<Vec<u8>, Item>;

thread_local! {
    /// The running script's keys, and its effects on them.
    static KEYS: RefCell<(Data, Effects)> = RefCell::default();
    static LUA: Lua = interpreter().expect("Lua starts");
    static COMPILED: RefCell<BTreeMap<String, mlua::Function>> = RefCell::default();
}

type Bytes = mlua::LuaString;

/// A script as a node has loaded it.
#[derive(Debug, Clone)]
pub struct Script {
    source: String,
    /// The words that its comments explain at the begin of a line: the script's own name is one.
    explained: BTreeSet<String>,
}

impl Script {
    pub fn new(source: String) -> Self {
        let explained = |line: &str| Some(line.strip_prefix("-- ")?.split_once(": ")?.0.to_owned());
        let explained = source.lines().filter_map(explained).collect();
        Self { source, explained }
    }

    /// Whether it is this one of lua/, or has this file in it: the prelude comes first, and each script's own part begins with its name.
    pub fn is(&self, name: &str) -> bool {
        self.explained.contains(name)
    }

    pub fn source(&self) -> &str {
        &self.source
    }
}

/// The keys and the arguments of an EVALSHA.
pub fn keys_and_args(call: &[Vec<u8>]) -> (&[Vec<u8>], &[Vec<u8>]) {
    let count: usize = str::from_utf8(&call[2]).unwrap().parse().unwrap();
    call[3..].split_at(count)
}

/// Runs a script; returns its reply and leaves its effects in `effects`.
pub fn run(script: &Script, keys: &[Vec<u8>], args: &[Vec<u8>], data: &mut Data, effects: &mut Effects) -> Value {
    KEYS.with(|cell| *cell.borrow_mut() = (std::mem::take(data), std::mem::take(effects)));
    let reply = LUA
        .with(|lua| call(lua, &script.source, keys, args))
        .unwrap_or_else(|error| self::error(&format!("ERR {error}")));
    KEYS.with(|cell| {
        (*data, *effects) = std::mem::take(&mut *cell.borrow_mut());
    });
    reply
}

/// The script with another value of one constant.
pub fn with(source: &str, constant: &str, value: u32) -> String {
    let begin = format!("local {constant} = ");
    let line = |line: &'_ str| match line.trim_start().starts_with(&begin) {
        true => format!("{begin}{value}\n"),
        false => format!("{line}\n"),
    };
    source.lines().map(line).collect()
}

pub fn error(text: &str) -> Value {
    let line = format!("-{}\r\n", text.replace(['\r', '\n'], " "));
    redis::parse_redis_value(line.as_bytes()).expect("an error reply")
}

fn call(lua: &Lua, source: &str, keys: &[Vec<u8>], args: &[Vec<u8>]) -> mlua::Result<Value> {
    let list = |items: &[Vec<u8>]| {
        lua.create_sequence_from(items.iter().map(|item| lua.create_string(item)).collect::<Result<Vec<_>, _>>()?)
    };
    lua.globals().set("KEYS", list(keys)?)?;
    lua.globals().set("ARGV", list(args)?)?;
    let known = COMPILED.with(|cell| cell.borrow().get(source).cloned());
    let function = match known {
        Some(function) => function,
        None => {
            let function = lua.load(source.strip_prefix("#!lua").unwrap_or(source)).into_function()?;
            COMPILED.with(|cell| cell.borrow_mut().insert(source.to_owned(), function.clone()));
            function
        }
    };
    reply(function.call(())?)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "Lua's types are not ours to close")]
fn reply(value: LuaValue) -> mlua::Result<Value> {
    Ok(match value {
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Value::Int(number),
        LuaValue::Number(number) => Value::Int(number as i64),
        LuaValue::Table(table) => match table.raw_get::<Option<String>>("err")? {
            Some(text) => error(&text),
            None => Value::Array(table.sequence_values().map(|value| reply(value?)).collect::<Result<_, _>>()?),
        },
        _ => Value::Nil,
    })
}

fn interpreter() -> mlua::Result<Lua> {
    let lua = Lua::new();
    let redis = lua.create_table()?;
    redis.set("call", lua.create_function(|lua, args: Variadic<Bytes>| command(lua, &args))?)?;
    redis.set("error_reply", lua.create_function(|lua, text: Bytes| lua.create_table_from([("err", text)]))?)?;
    let structs = [("pack", lua.create_function(pack)?), ("unpack", lua.create_function(unpack)?)];
    let msgpack = [("unpack", lua.create_function(unpack_msgpack)?)];
    let bit = [("band", lua.create_function(|_, (a, b): (u32, u32)| Ok(a & b))?)];
    let globals = lua.globals();
    globals.set("redis", redis)?;
    globals.set("struct", lua.create_table_from(structs)?)?;
    globals.set("cmsgpack", lua.create_table_from(msgpack)?)?;
    globals.set("bit", lua.create_table_from(bit)?)?;
    Ok(lua)
}

fn command(lua: &Lua, args: &[Bytes]) -> mlua::Result<LuaValue> {
    let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
    let value = KEYS.with(|cell| {
        let (data, effects) = &mut *cell.borrow_mut();
        commands::simple(&args, data, effects)
    });
    to_lua(lua, value)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "Redis's replies are not ours to close")]
fn to_lua(lua: &Lua, value: Value) -> mlua::Result<LuaValue> {
    Ok(match value {
        Value::Nil => LuaValue::Boolean(false),
        Value::Int(number) => LuaValue::Integer(number),
        Value::BulkString(bytes) => LuaValue::String(lua.create_string(bytes)?),
        Value::Okay => LuaValue::Table(lua.create_table_from([("ok", "OK")])?),
        Value::Array(values) => {
            let values = values.into_iter().map(|value| to_lua(lua, value)).collect::<Result<Vec<_>, _>>()?;
            LuaValue::Table(lua.create_sequence_from(values)?)
        }
        other => return Err(mlua::Error::runtime(format!("{other:?}"))),
    })
}

/// The pieces of a format of `struct`, and how many bytes each has: of all kinds, the scripts use big-endian unsigned numbers (`B`, `I`),
/// bytes as they are (`c`), and such that are not read (`x`).
fn pieces(format: &[u8]) -> impl Iterator<Item = (u8, usize)> + '_ {
    let mut rest = format.strip_prefix(b">").unwrap_or(format).iter().copied().peekable();
    let big_endian = format.first() == Some(&b'>');
    std::iter::from_fn(move || {
        let kind = rest.next()?;
        let digits = std::iter::from_fn(|| rest.next_if(u8::is_ascii_digit));
        let width = digits.fold(0, |width, digit| width * 10 + usize::from(digit - b'0'));
        let known = if width == 0 { matches!(kind, b'B' | b'x') } else { kind == b'c' || kind == b'I' && big_endian };
        assert!(known, "struct: {}{width} in {}", char::from(kind), String::from_utf8_lossy(format));
        Some((kind, width.max(1)))
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "Lua's types are not ours to close")]
fn pack(lua: &Lua, args: MultiValue) -> mlua::Result<Bytes> {
    let mut args = args.into_iter();
    let Some(LuaValue::String(format)) = args.next() else { return Err(mlua::Error::runtime("a format")) };
    let mut out = Vec::with_capacity(16);
    for ((_, width), number) in pieces(&format.as_bytes()).zip(args) {
        let number = match number {
            LuaValue::Integer(number) => number,
            LuaValue::Number(number) => number as i64,
            other => return Err(mlua::Error::runtime(format!("struct.pack of {other:?}"))),
        };
        out.extend_from_slice(&number.to_be_bytes()[8 - width..]);
    }
    lua.create_string(out)
}

fn unpack(lua: &Lua, (format, bytes, place): (Bytes, Bytes, Option<usize>)) -> mlua::Result<Variadic<LuaValue>> {
    let bytes = bytes.as_bytes();
    let mut at = place.unwrap_or(1) - 1;
    let mut out = Variadic::new();
    for (kind, width) in pieces(&format.as_bytes()) {
        let end = at + width;
        let part = bytes.get(at..end).ok_or_else(|| mlua::Error::runtime("data string too short"))?;
        match kind {
            b'c' => out.push(LuaValue::String(lua.create_string(part)?)),
            b'x' => {}
            _ => {
                let number = part.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
                out.push(LuaValue::Number(number as f64));
            }
        }
        at = end;
    }
    out.push(LuaValue::Integer(i64::try_from(at + 1).unwrap()));
    Ok(out)
}

/// Short strings and integers are all that the scripts are given in MessagePack.
fn unpack_msgpack(lua: &Lua, bytes: Bytes) -> mlua::Result<Variadic<LuaValue>> {
    let bytes = bytes.as_bytes();
    let mut rest = &*bytes;
    let mut out = Variadic::new();
    while let Some((&head, behind)) = rest.split_first() {
        let width = match head {
            0xa0..=0xbf => usize::from(head - 0xa0),
            0x00..=0x7f | 0xe0..=0xff => 0,
            0xcc..=0xcf => 1 << (head - 0xcc),
            0xd0..=0xd3 => 1 << (head - 0xd0),
            _ => return Err(mlua::Error::runtime("Bad data format in input.")),
        };
        let part = behind.get(..width).ok_or_else(|| mlua::Error::runtime("Missing bytes in input."))?;
        let sign = if head >= 0xd0 && part.first().is_some_and(|byte| *byte >= 0x80) { -1 } else { 0 };
        let number = || part.iter().fold(sign, |number: i64, byte| number << 8 | i64::from(*byte));
        out.push(match head {
            0xa0..=0xbf => LuaValue::String(lua.create_string(part)?),
            0x00..=0x7f | 0xe0..=0xff => LuaValue::Number(f64::from(head.cast_signed())),
            _ => LuaValue::Number(number() as f64),
        });
        rest = &behind[width..];
    }
    Ok(out)
}
