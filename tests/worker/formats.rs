//! The promise: intents in Avro, Protobuf and JSON with the frame of a Schema Registry are decided as those in JSON are. The bytes of
//! approved records are those that were published, a suppressed envelope has them whole, a record that cannot be decoded is a
//! dead letter with its reason, and an outage of the registry makes intents wait and loses none.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};
use testkit::{
    kafka::Record,
    process::output_given,
    registry::{PASSWORD, Registry, USER},
    tls::Authority,
    wait_until,
    worker::Worker,
};

use super::formats_written::{ID_AND_USER, schema_of, written};
use crate::support::{
    DEADLINE, POLICY, Scene,
    http::{get, metric, wait_ready},
    is_by_schema,
    outcome::{Outcome, OutcomeKind},
};

/// Where the intents of these tests have what is not at its usual place.
const FIELDS: &str = "[intent.fields]\nid = \"/intent/id\"\nchannel = \"/intent/channel\"\n";
/// Long before any of these tests.
const PAST_MS: i64 = 1_600_000_000_000;

struct Framed {
    scene: Scene,
    registry: Registry,
    authority: Authority,
    format: &'static str,
    writer: Writer,
}

#[derive(Debug, Clone, Copy)]
enum Writer {
    /// These tests, byte by byte.
    Hand,
    /// confluent-kafka for Python.
    Python,
    /// Flink's for Java, with Confluent's client of the registry: Avro alone.
    Java,
}

impl Framed {
    fn new(format: &'static str) -> Self {
        Self::written_by(Writer::Hand, format)
    }

    fn written_by(writer: Writer, format: &'static str) -> Self {
        let authority = Authority::new().unwrap();
        let registry = Registry::start(&authority).unwrap();
        let mut scene = Scene::new(&format!("format-{}", format.replace('_', "-")), 2, POLICY);
        let password = scene.path("registry-password");
        std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
        scene.extra = format!(
            "[intent]\nformat = \"{format}\"\n{FIELDS}[schemas]\nregistry = \"{}\"\nusername = \"{USER}\"\n\
             password_file = {password:?}\nca_file = {:?}\n",
            registry.url(),
            authority.ca_file()
        );
        Self { scene, registry, authority, format, writer }
    }

    fn publish(&self, intents: &[Value]) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut program = match self.writer {
            Writer::Hand => return self.publish_by_hand(intents),
            Writer::Python => {
                let mut python = Command::new(folder.join(".weir/serializers/bin/python"));
                python.arg(folder.join("testkit/registry/publish.py")).arg(self.format);
                python
            }
            Writer::Java => {
                let mut java = Command::new("java");
                java.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
                java.arg("-cp").arg(folder.join(".weir/flink-libs/*"));
                java.arg(folder.join("testkit/registry/flink/Publish.java"));
                java
            }
        };
        program.args([self.scene.kafka.bootstrap(), &self.scene.topic("intents"), self.registry.url(), USER, PASSWORD]);
        program.arg(self.authority.ca_file());
        let lines: String = intents.iter().map(|intent| format!("{intent}\n")).collect();
        let ended = output_given(lines, &mut program).expect("cargo xtask test fetches it where it runs ignored tests");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    fn publish_by_hand(&self, intents: &[Value]) {
        let id = self.registry.register("intents-value", &schema_of(self.format));
        let record = |intent: &Value| {
            let case = intent["intent"]["id"].as_str().unwrap();
            let value = framed(id, &written(self.format, intent));
            Record::new(intent["user_id"].to_string(), value).header("case", case)
        };
        self.scene.publish(intents.iter().map(record));
    }

    fn publish_raw(&self, case: &str, value: impl AsRef<[u8]>) {
        self.scene.publish([Record::new("raw", value).header("case", case)]);
    }
}

fn intent(id: &str, user_id: u64, more: &Value) -> Value {
    let mut intent =
        json!({"payload": {"subject": "Hi é"}, "intent": {"id": id, "channel": "push"}, "user_id": user_id});
    for (name, value) in more.as_object().unwrap() {
        intent[name] = value.clone();
    }
    intent
}

/// The envelope of a suppressed intent, which is as its schema says.
fn envelope(outcome: &Outcome) -> Value {
    let envelope = outcome.envelope();
    is_by_schema("schemas/decision.schema.json", &envelope);
    envelope
}

/// Intents of a serializer and records by hand, decided; what is the same in all formats is checked.
fn decided(framed: &Framed, raw: &[(&str, Vec<u8>, &str)]) {
    let scene = &framed.scene;
    // New users may have two a day; what is transactional passes, and is in no history.
    let mut intents: Vec<Value> = (0..3).map(|at| intent(&format!("cap-{at}"), 7, &json!({}))).collect();
    intents.push(intent("bypass", 7, &json!({"category": "transactional"})));
    intents.push(intent("late", 8, &json!({"expires_at": PAST_MS})));
    intents.push(intent("staff", 3_500, &json!({"category": "promo"})));
    framed.publish(&intents);
    for (case, value, _) in raw {
        framed.publish_raw(case, value);
    }
    let _worker = scene.drained("weir-0");

    let outcomes = scene.outcomes();
    let others = [("cap-2", "cap daily 2/2"), ("late", "expired")].map(|(case, verdict)| (case, verdict.to_owned()));
    let approved = ["bypass", "cap-0", "cap-1", "staff"].map(|case| (case, "approved".to_owned()));
    let dead = raw.iter().map(|(case, _, why)| (*case, format!("dead {why}")));
    let expected: BTreeMap<&str, String> = dead.chain(others).chain(approved).collect();
    let verdicts: BTreeMap<&str, String> =
        outcomes.all().map(|(case, found)| (case.as_str(), found.verdict())).collect();
    assert_eq!(verdicts, expected);
    for (case, outcome) in outcomes.all() {
        let value = outcome.input.value.as_ref().unwrap();
        if outcome.kind != OutcomeKind::Suppressed {
            assert_eq!(outcome.record.value.as_ref(), Some(value), "{case}: bytes are those that were published");
            continue;
        }
        let envelope = envelope(outcome);
        if framed.format == "json_schema" {
            let of_value: Value = serde_json::from_slice(&value[5..]).unwrap();
            assert_eq!((&envelope["intent"], envelope.get("intent_base64")), (&of_value, None), "{case}");
        } else {
            let embedded = BASE64_STANDARD.decode(envelope["intent_base64"].as_str().unwrap()).unwrap();
            assert_eq!((&embedded, envelope.get("intent")), (value, None), "{case}");
        }
    }
}

fn framed(id: u32, content: &[u8]) -> Vec<u8> {
    [&[0], id.to_be_bytes().as_slice(), content].concat()
}

fn avro_by(writer: Writer) {
    let avro = Framed::written_by(writer, "avro");
    let number = avro.registry.register("numbers", &json!({"schema": "\"long\""}));
    let proto = avro.registry.register("protos", &json!({"schema": "message M {}", "schemaType": "PROTOBUF"}));
    decided(
        &avro,
        &[
            ("json", br#"{"id":"i","user_id":7}"#.to_vec(), "not_decodable"),
            ("short", vec![0, 0, 0, 0], "not_decodable"),
            ("unknown", framed(999, &[0]), "unknown_schema"),
            ("unknown-again", framed(999, &[1]), "unknown_schema"),
            ("other-format", framed(proto, &[0]), "unknown_schema"),
            ("no-fields", framed(number, &[84]), "missing_field"),
            ("cut-off", framed(number, &[0x80]), "not_decodable"),
            ("too-long", framed(number, &[84, 84]), "not_decodable"),
        ],
    );
    // 4 ids: each was asked for once, whatever the number of records.
    assert_eq!(avro.registry.asked(), 4);
    let simulated = avro.scene.summary(&["policy", "simulate", "--intents", "topic", "--policy", &avro.scene.policy]);
    let reasons = json!({"missing_field": 1, "not_decodable": 4, "unknown_schema": 3});
    assert_eq!((&simulated["source"]["records"], &simulated["source"]["dead_letters"]), (&json!(14), &reasons));
    // A bypassed intent is in no history, and staff has no caps but a history.
    let rebuilt = avro.scene.summary(&["rebuild", "--all", "--settle", "3s"]);
    assert_eq!((&rebuilt["sends"], &rebuilt["uncounted"], &rebuilt["unreadable"]), (&json!(3), &json!(1), &json!(0)));
}

fn protobuf_by(writer: Writer) {
    let protobuf = Framed::written_by(writer, "protobuf");
    let schema = "syntax = \"proto3\"; message M { M intent = 1; string id = 2; uint32 user_id = 3; }";
    let id = protobuf.registry.register("messages", &json!({"schema": schema, "schemaType": "PROTOBUF"}));
    decided(
        &protobuf,
        &[
            ("unknown", framed(999, &[0]), "unknown_schema"),
            ("no-user", framed(id, &[0, 0x0a, 3, 0x12, 1, b'i']), "missing_field"),
            ("no-message", framed(id, &[2, 2, 0x0a, 0]), "not_decodable"),
            ("cut-off", framed(id, &[0, 0x0a, 9]), "not_decodable"),
            ("not-utf8", framed(id, &[0, 0x0a, 3, 0x12, 1, 0xff, 0x18, 7]), "not_decodable"),
        ],
    );
}

fn json_by(writer: Writer) {
    let json = Framed::written_by(writer, "json_schema");
    decided(
        &json,
        &[
            ("plain", br#"{"intent":{"id":"i"},"user_id":7}"#.to_vec(), "not_decodable"),
            ("not-json", framed(1, b"{"), "not_json"),
            ("no-user", framed(999, br#"{"intent":{"id":"i"}}"#), "missing_field"),
        ],
    );
    assert_eq!(json.registry.asked(), 0, "JSON is read without its schema");
}

#[test]
fn avro_is_decided() {
    avro_by(Writer::Hand);
}

#[test]
fn protobuf_is_decided() {
    protobuf_by(Writer::Hand);
}

#[test]
fn json_behind_a_frame_is_decided() {
    json_by(Writer::Hand);
}

#[test]
#[ignore = "needs serializers that a change does not fetch: cargo xtask ci --extent everything"]
fn what_confluents_serializers_wrote_is_decided() {
    avro_by(Writer::Python);
    protobuf_by(Writer::Python);
    json_by(Writer::Python);
}

#[test]
#[ignore = "needs serializers that a change does not fetch: cargo xtask ci --extent everything"]
fn avro_that_java_wrote_is_decided() {
    let avro = Framed::written_by(Writer::Java, "avro");
    decided(&avro, &[("unknown", framed(999, &[0]), "unknown_schema")]);
    assert_eq!(avro.registry.asked(), 2);
}

#[test]
fn intents_wait_for_a_registry_that_does_not_answer() {
    let avro = Framed::new("avro");
    let scene = &avro.scene;
    avro.publish(&[intent("i-1", 3_500, &json!({}))]);
    avro.registry.set_failing(true);
    let worker = scene.worker("weir-0");
    wait_until(DEADLINE, "the registry was asked twice", || {
        metric(&worker, "weir_schema_failures_total", "") >= Some(2.0)
    });
    let (_, status) = get(&worker, "/v1/status");
    assert!(status.contains("the schema registry, asked for /schemas/ids/1: it answers 503"), "{status}");
    assert_eq!((scene.done(), scene.count("approved")), (0, 0), "nothing is decided");
    avro.registry.set_failing(false);
    scene.wait_until_drained();
    assert_eq!(scene.outcomes().of("i-1").verdict(), "approved");
    wait_ready(&worker);
    let (_, status) = get(&worker, "/v1/status");
    assert!(!status.contains("the schema registry"), "{status}");
}

#[test]
fn a_password_and_an_authority_that_were_replaced_are_used_without_a_restart() {
    let mut avro = Framed::new("avro");
    let (password, ca) = (avro.scene.path("registry-password"), avro.scene.path("registry-ca.pem"));
    std::fs::copy(avro.authority.ca_file(), &ca).unwrap();
    let given = format!("{:?}", avro.authority.ca_file());
    avro.scene.extra = avro.scene.extra.replace(&given, &format!("{ca:?}"));
    // Each intent has a schema of its own, which is asked for.
    let publish = |case: &str| {
        let text = format!(
            r#"{{"type":"record","name":"I","doc":"{case}","fields":[{{"name":"intent","type":
                {{"type":"record","name":"M","fields":[{{"name":"id","type":"string"}}]}}}},{{"name":"user_id","type":"long"}}]}}"#
        );
        let id = avro.registry.register("intents-value", &json!({"schema": text}));
        // A string of one character, and user 42.
        avro.publish_raw(case, framed(id, &[2, case.as_bytes()[0], 84]));
    };
    publish("a");
    let worker = avro.scene.worker("weir-0");
    avro.scene.wait_until_drained();
    let refused = |words: &str| {
        wait_until(DEADLINE, words, || get(&worker, "/v1/status").1.contains(words));
    };

    avro.registry.set_password("another");
    publish("b");
    refused("it answers 401");
    std::fs::write(&password, "another\n").unwrap();
    avro.scene.wait_until_drained();

    let other = Authority::new().unwrap();
    avro.registry.set_authority(&other).unwrap();
    publish("c");
    refused("certificate");
    // Half a file is no reason to trust nobody.
    std::fs::write(&ca, "").unwrap();
    wait_until(DEADLINE, "the warning", || {
        worker.log().contains("the certificate authorities from before stay in force")
    });
    std::fs::copy(other.ca_file(), &ca).unwrap();
    avro.scene.wait_until_drained();
    let outcomes = avro.scene.outcomes();
    assert!(["a", "b", "c"].iter().all(|case| outcomes.of(case).kind != OutcomeKind::Dead), "{outcomes:?}");
}

fn of_file(name: &str) -> Scene {
    let mut scene = Scene::new(name, 2, POLICY);
    let schema: PathBuf = scene.path("intent.avsc");
    std::fs::write(&schema, ID_AND_USER).unwrap();
    scene.extra = format!("[intent]\nformat = \"avro\"\n[schemas]\nfiles = {{ 7 = {schema:?} }}\n");
    scene
}

#[test]
fn a_schema_in_a_file_needs_no_registry() {
    let scene = of_file("format-file");
    // `a`, `b` and `c`, for user 7.
    let value = |id: u8| framed(7, &[2, id, 14]);
    let record = |id: u8| Record::new("7", value(id)).header("case", [id]);
    scene.publish([
        record(b'a'),
        record(b'b'),
        record(b'c'),
        Record::new("7", framed(8, &[0])).header("case", "unknown"),
    ]);
    let mut worker: Worker = scene.worker("weir-0");
    scene.drain(&mut worker);
    let outcomes = scene.outcomes();
    for (case, id) in [("a", b'a'), ("b", b'b')] {
        assert_eq!(outcomes.of(case).verdict(), "approved");
        assert_eq!(outcomes.of(case).record.value, Some(value(id)));
    }
    assert_eq!(envelope(outcomes.of("c"))["reason"], "cap");
    assert_eq!(outcomes.of("unknown").verdict(), "dead unknown_schema");
}
