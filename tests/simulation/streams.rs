//! The two commands on streams that weir's scripts send: XADD with MINID and `*`, and XRANGE.

use redis::Value;

use super::{
    commands::{Effects, bulk},
    script::{Data, EntryId, Item, Stream},
};

fn text(bytes: &[u8]) -> &str {
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
pub fn add(args: &[Vec<u8>], data: &mut Data, effects: &mut Effects) -> Value {
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
pub fn range(args: &[Vec<u8>], stream: &Stream) -> Value {
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
