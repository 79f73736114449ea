//! Section 1: what goes through unchanged, where it goes, and in which order.

use serde_json::json;
use testkit::kafka::Record;

use crate::{
    contract::run::{PARTITIONS, RUN, Records},
    support::outcome::{Outcome, OutcomeKind, case, intent},
};

/// Java's murmur2, as Kafka's clients have it, written from its definition.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ u32::try_from(data.len()).unwrap();
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes(chunk.try_into().unwrap()).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// Where Java's default partitioner puts a key.
fn partition_of(key: &[u8], partitions: i32) -> i32 {
    i32::try_from(murmur2(key) & 0x7FFF_FFFF).unwrap() % partitions
}

#[test]
fn the_tests_murmur2_is_javas() {
    // The vectors of Kafka's own UtilsTest.
    let vectors: [(&str, i32); 6] = [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ("abc", 479_470_107),
    ];
    for (key, hash) in vectors {
        assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
    }
}

/// A user of each output: approved, suppressed, none at all.
const KINDS: [(OutcomeKind, &str); 3] =
    [(OutcomeKind::Approved, "610"), (OutcomeKind::Suppressed, "510"), (OutcomeKind::Dead, "")];

fn value_for(kind: OutcomeKind, user: &str, name: &str) -> String {
    match kind {
        OutcomeKind::Approved | OutcomeKind::Suppressed => json!({"id": name, "user_id": user}).to_string(),
        OutcomeKind::Dead => format!("{name} is not JSON"),
    }
}

const KEYS: [(&str, Option<&[u8]>); 6] = [
    ("null key", None),
    ("empty key", Some(b"")),
    ("text key", Some("schlüssel".as_bytes())),
    ("key of bytes", Some(b"\xFF\x00\xC3\x28")),
    ("key of one byte", Some(b"\x00")),
    ("long key", Some(&[b'k'; 5000])),
];

const VALUES: [(&str, &str); 5] = [
    ("white space", "\r\n\t {\"id\" : \"white space\",\n \"user_id\":\"611\" }\n\n"),
    ("escapes", r#"{"id":"escapes","user_id":"\u0036\u0031\u0032","payload":"\u00e9\/\ud83d\ude00"}"#),
    ("names twice", r#"{"payload":{"a":1,"a":2},"payload":0,"user_id":"613","id":"names twice"}"#),
    ("numbers", r#"{"id":"numbers","user_id":614,"payload":[1e400,0.10,-0,123456789012345678901234567890]}"#),
    ("unknown fields", r#"{"id":"unknown fields","user_id":"615","\u0000":1,"zz":{"id":[]}}"#),
];

fn headers() -> Vec<(String, Option<Vec<u8>>)> {
    let header = |name: &str, value: Option<&[u8]>| (name.to_owned(), value.map(<[u8]>::to_vec));
    vec![
        header("null", None),
        header("twice", Some(b"1")),
        header("empty", Some(b"")),
        header("twice", Some(b"2")),
        header("bytes", Some(b"\xFF\xFE\x00")),
        header("größe", Some("läuft".as_bytes())),
        header("", Some(b"no name")),
        header("twice", None),
        // Ours come behind, and the last one counts.
        header("weir-decision", Some(br#"{"verdict":"approved","counts":false}"#)),
        header("weir-reason", Some(b"forged")),
        header("__connect.errors.offset", Some(b"-7")),
    ]
}

fn moved_key(kind: OutcomeKind, partition: i32) -> String {
    format!("moved {kind:?} {partition}")
}

const ORDERED: u64 = 3;
const IN_ORDER: usize = 150;

pub fn records() -> Records {
    let mut records = Records::new();
    for (kind, user) in KINDS {
        for (name, key) in KEYS {
            let name = format!("{kind:?} {name}");
            let value = value_for(kind, user, &name);
            records.push(case(&name, Record { key: key.map(<[u8]>::to_vec), ..Record::keyless(value) }));
        }
        for partition in 0..PARTITIONS[0] {
            let name = format!("{kind:?} null key from {partition}");
            let value = value_for(kind, user, &name);
            records.push(case(&name, Record::keyless(value).partition(partition)));
            let name = moved_key(kind, partition);
            records.push(case(&name, Record::new(&name, value_for(kind, user, &name)).partition(partition)));
        }
        let name = format!("{kind:?} headers");
        let mut record = case(&name, Record::new("k", value_for(kind, user, &name)));
        record.headers.extend(headers());
        records.push(record);
    }
    records.extend(VALUES.map(|(name, value)| case(name, Record::new("k", value))));
    for number in 0..IN_ORDER {
        for user in 620..620 + ORDERED {
            records.push(intent(&format!("order {user} {number}"), user, json!({})));
        }
    }
    records
}

fn each() -> impl Iterator<Item = (String, &'static Outcome)> {
    RUN.outcomes.all().map(|(name, outcome)| (name.clone(), outcome))
}

pub fn every_key_comes_out_byte_for_byte() {
    for (kind, _) in KINDS {
        for (name, key) in KEYS {
            let outcome = RUN.outcomes.of(&format!("{kind:?} {name}"));
            assert_eq!((outcome.kind, outcome.record.key.as_deref()), (kind, key), "{kind:?} {name}");
        }
    }
    for (name, outcome) in each() {
        assert_eq!(outcome.record.key, outcome.input.key, "{name}");
    }
}

pub fn approved_and_dead_values_come_out_byte_for_byte() {
    for (name, _) in VALUES {
        assert_eq!(RUN.outcomes.of(name).verdict(), "approved", "{name}");
    }
    for (name, outcome) in each().filter(|(_, outcome)| outcome.kind != OutcomeKind::Suppressed) {
        assert_eq!(outcome.record.value, outcome.input.value, "{name}");
    }
}

pub fn the_intents_headers_come_first_and_unchanged_and_ours_behind_them() {
    for (kind, _) in KINDS {
        let outcome = RUN.outcomes.of(&format!("{kind:?} headers"));
        assert_eq!(outcome.input.headers[1..], headers(), "the record was published as it was meant");
        assert_eq!(outcome.kind, kind);
        assert_eq!(outcome.ours().is_empty(), kind == OutcomeKind::Suppressed, "{:?}", outcome.ours());
    }
    for (_, outcome) in each() {
        outcome.ours();
    }
}

/// How many partitions the output has: the intents are before the outputs, which are in the order of their kinds.
fn partitions_of(kind: OutcomeKind) -> i32 {
    PARTITIONS[1 + kind as usize]
}

pub fn a_record_goes_to_the_partition_of_its_key() {
    let mut moved = 0;
    for (name, outcome) in each() {
        let Some(key) = outcome.record.key.as_deref() else { continue };
        assert_eq!(outcome.record.partition, partition_of(key, partitions_of(outcome.kind)), "{name}");
        moved += usize::from(outcome.input.partition != partition_of(key, PARTITIONS[0]));
    }
    assert!(moved > 5, "{moved} keys came from a partition that is not theirs");
}

pub fn a_null_key_keeps_its_partition_modulo_the_outputs_count() {
    for (kind, _) in KINDS {
        for partition in 0..PARTITIONS[0] {
            let outcome = RUN.outcomes.of(&format!("{kind:?} null key from {partition}"));
            assert_eq!((outcome.input.partition, outcome.record.key.as_deref()), (partition, None));
            assert_eq!(outcome.record.partition, partition % partitions_of(kind), "{kind:?} from {partition}");
        }
    }
}

pub fn a_users_approved_messages_stay_in_order() {
    for user in 620..620 + ORDERED {
        let offset = |number| RUN.outcomes.of(&format!("order {user} {number}")).record.offset;
        let offsets: Vec<i64> = (0..IN_ORDER).map(offset).collect();
        assert!(offsets.is_sorted_by(|one, next| one < next), "{user}: {offsets:?}");
    }
}
