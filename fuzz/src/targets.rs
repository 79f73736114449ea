//! The targets. Each takes any bytes, and panics where a promise is broken.

use std::{collections::BTreeMap, sync::Arc};

use serde::de::IgnoredAny;
use serde_json::Value;
use weir_core::{
    basis::{
        document::Format,
        header::HeaderName,
        shard::{IdHash, UserHash},
        time::Time,
        zone::Zone,
    },
    decision::approved::{self, ApprovedRecord},
    deferral::Deferral,
    history::{ENTRY_BYTES, pack, refund::RefundReader, reply::read_reply, unpack},
    intent::{
        IntentValue, MAX_ID_BYTES, MAX_INTENT_BYTES,
        class::{Campaign, ClassNames},
        decode::{Header, decode},
        fields::{FieldMap, IntentField},
    },
    policy::{IntentFacts, PolicyEval, file::parse_policy},
    segment::{
        Manifest, UserIdKind,
        format::{read_members, write_members},
    },
};

use super::bounded;

/// 8 days, the default of `redis.history`.
const HISTORY_MS: i64 = 8 * 24 * 3600 * 1000;

/// The bytes before the first 0xFF, which is in no UTF-8 text, and those behind it.
fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|&byte| byte == 0xFF).unwrap_or(data.len());
    (&data[..at], data.get(at + 1..).unwrap_or_default())
}

fn maps() -> [FieldMap; 2] {
    let moved = [
        (IntentField::UserId, "/recipient/id"),
        (IntentField::Id, "/message/0/id"),
        (IntentField::Channel, "/a~1b/m~0n"),
        (IntentField::Cost, "/recipient/cost"),
    ];
    [FieldMap::default(), FieldMap::new(moved).expect("these are pointers to different places")]
}

/// The intent decoder: a value, then after 0xFF the value of `content-type`, and after another one that of `ce_id`.
pub fn intent(data: &[u8]) {
    let (value, rest) = split(data);
    let (content_type, ce_id) = split(rest);
    let headers = [
        Header { key: b"content-type", value: Some(content_type) },
        Header { key: b"ce_id", value: Some(ce_id) },
        Header { key: b"ce_subject", value: None },
    ];
    let headers = if rest.is_empty() { &headers[..0] } else { &headers[..] };
    for map in maps() {
        let found = bounded(data, 4, || decode(Some(value), headers.iter().copied(), &map).map_err(drop));
        let Ok(intent) = found else { continue };
        assert!(value.len() <= MAX_INTENT_BYTES);
        assert!((1..=MAX_ID_BYTES).contains(&intent.id.len()), "an id of {} bytes", intent.id.len());
        assert!((1..=MAX_ID_BYTES).contains(&intent.user_id.len()), "a user of {} bytes", intent.user_id.len());
        assert!(intent.cost >= 1);
        let text = std::str::from_utf8(value).expect("a valid intent is UTF-8");
        assert_eq!(intent.value(), IntentValue::Json(text), "the value is passed on as it came");
        // Not a `Value`: numbers may be larger than it holds.
        let members: Result<BTreeMap<String, IgnoredAny>, _> = serde_json::from_slice(value);
        assert!(members.is_ok(), "an intent is a JSON object to others too: {members:?}");
    }
}

/// The reader of refunds: what it takes for intent and user is what any reader of JSON finds under their names.
pub fn refund(data: &[u8]) {
    let reader = RefundReader::default();
    let Ok((user, id)) = bounded(data, 4, || reader.read(Some(data)).map_err(drop)) else { return };
    assert!(data.len() <= MAX_INTENT_BYTES);
    // Not every number fits into a `Value`; and a CloudEvent may give both by other names.
    let Ok(Value::Object(members)) = serde_json::from_slice(data) else { return };
    if members.contains_key("specversion") {
        return;
    }
    let hash = |intent: &str| match members.get("source") {
        Some(Value::String(source)) => IdHash::of_event(source, intent),
        _ => IdHash::of(intent),
    };
    assert_eq!(members["intent_id"].as_str().map(hash), Some(id));
    let user_id = &members["user_id"];
    let named = user_id.as_str().map_or_else(|| user_id.to_string(), str::to_owned);
    assert_eq!(UserHash::of(&named), user, "the user is {named:?}");
}

/// An approved record, as `weir rebuild` reads it: a value, then after a 0xFF the header `weir-decision`; after another one
/// a second such header, of which the last one counts.
pub fn approved(data: &[u8]) {
    let (value, rest) = split(data);
    let headers: Vec<Header<'_>> = rest
        .split(|byte| *byte == 0xFF)
        .filter(|_| !rest.is_empty())
        .map(|header| Header { key: HeaderName::Decision.as_str().as_bytes(), value: Some(header) })
        .collect();
    for map in maps() {
        let found = bounded(data, 4, || approved::read(Some(value), headers.iter().copied(), &map).map_err(drop));
        let Ok(ApprovedRecord::Counts(sent)) = found else { continue };
        let intent = decode(Some(value), headers.iter().copied(), &map).expect("what counts was an intent");
        assert_eq!((sent.user, sent.id), (UserHash::of(&intent.user_id), IdHash::of(&intent.id)));
        assert!(sent.cost >= 1, "a send takes something from caps");
        assert!(sent.numbers.1 <= Campaign::OVERFLOW, "a campaign's number is below 2^24");
        let _ = sent.class();
    }
}

/// The history codec.
pub fn history(data: &[u8]) {
    match bounded(data, 4, || unpack(data)) {
        Ok(entries) => {
            // Whether other costs than 1 are there, a history that is not weir's may say or not; what is written says it.
            let whole = entries.len() * ENTRY_BYTES;
            let written = pack(&entries);
            assert!(written[..whole] == data[..whole], "a history is written as it was read");
            assert!(written.len() <= whole + 1, "and no more");
        }
        Err(torn) => assert!(!data.len().is_multiple_of(ENTRY_BYTES) && torn.bytes == data.len()),
    }
}

/// The reply of the admit script. The first byte is how many sends were asked for.
pub fn reply(data: &[u8]) {
    let Some((sends, reply)) = data.split_first() else { return };
    let sends = usize::from(*sends);
    if let Some(reply) = bounded(data, 8, || read_reply(reply, sends, 0)) {
        assert_eq!(reply.outcomes.len(), sends, "one outcome per send");
    }
}

/// The manifest of a set of segments.
pub fn manifest(data: &[u8]) {
    let Ok(manifest) = bounded(data, 64, || Manifest::parse(data).map_err(drop)) else { return };
    let again = Manifest::parse(manifest.to_json().as_bytes());
    assert_eq!(again.as_ref(), Ok(&manifest), "a manifest is read as it was written");
}

/// The bitmap of a segment. The first byte says which kind.
pub fn bitmap(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    let kind = [UserIdKind::U32, UserIdKind::U64, UserIdKind::Hash64][usize::from(kind % 3)];
    let declared = u64::try_from(bytes.len()).ok();
    let read = |mut bytes: &[u8]| read_members(kind, declared, &mut bytes);
    // A container of two bytes a run becomes one of 8 KiB at most when it is read.
    let Ok(members) = bounded(data, 4096, || read(bytes).map_err(drop)) else { return };
    let mut written = Vec::new();
    write_members(&members, &mut written).expect("a vector takes all");
    let mut rest = written.as_slice();
    let again = read_members(kind, u64::try_from(written.len()).ok(), &mut rest).expect("what we write, we read");
    assert_eq!(again.len(), members.len());
    let mut twice = Vec::new();
    write_members(&again, &mut twice).expect("a vector takes all");
    assert_eq!(written, twice, "the same members give the same bytes");
}

/// A policy, in TOML or (with a first byte of `{`) in JSON; a valid one is asked about a few intents.
pub fn policy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let format = if text.starts_with('{') { Format::Json } else { Format::Toml };
    let parsed =
        bounded(data, 1024, || parse_policy("policy", text, format, HISTORY_MS).map_err(|p| drop(p.to_string())));
    let Ok(policy) = parsed else { return };
    let names: Arc<[Box<str>]> = policy.segments.keys().take(3).map(|name| Box::<str>::from(name.as_str())).collect();
    let policy = Arc::new(policy);
    let zone = Zone::named("America/Sao_Paulo");
    for now in [0, 1_577_836_800_000, 1_793_000_000_000, 4_102_444_800_000] {
        let mut eval = PolicyEval::new(Arc::clone(&policy), Arc::clone(&names), Time::default().plus(now));
        for segment in std::iter::once(None).chain((0..names.len()).map(Some)) {
            let class = ClassNames { channel: Some("push"), category: Some("promo"), campaign: Some("c") };
            for zone in [None, zone.as_ref()] {
                let intent = IntentFacts { segment, class, zone, ..IntentFacts::default() };
                if eval.denial(&intent).is_none() {
                    eval.route(&intent);
                }
            }
        }
        drop(eval.take_cap_sets());
    }
}

/// The headers of a deferred record: either they are refused, or they are read, and written again say the same.
pub fn deferral(data: &[u8]) {
    const NAMES: [&[u8]; 5] = [b"weir-due", b"weir-origin", b"weir-first-at", b"weir-why", b"weir-count"];
    let mut values = data.split(|byte| *byte == b'\n');
    let headers = NAMES.map(|name| (name, values.next()));
    let Some(deferral) = bounded(data, 40, || Deferral::of(headers)) else { return };
    let written = deferral.headers();
    let again: Vec<_> = written.iter().map(|(name, value)| (name.as_bytes(), Some(value.as_bytes()))).collect();
    let again: [_; 5] = again.try_into().expect("weir writes five headers");
    assert_eq!(Deferral::of(again), Some(deferral));
}
