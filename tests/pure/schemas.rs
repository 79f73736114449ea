//! The schemas and examples in `schemas/` are those of the code, and that of an intent takes what the code does. `UPDATE=1 cargo test --test
//! pure schemas` rewrites the others.

use std::{collections::BTreeSet, fs, path::PathBuf, sync::Arc};

use serde_json::Value;
use weir_core::{
    basis::{document::Format, origin::Origin, time::Time, zone::Zone},
    decision::{
        decision_header::{self, DecisionHeader},
        envelope::envelope,
        verdict::{
            CapSpan, Cause, Counts, Decision, Deferred, DenyingBudget, DenyingCap, SuppressReason, Suppressed, Verdict,
        },
    },
    deferral::DeferReason,
    intent::{
        Intent,
        class::{Campaign, Kind},
        dead_letter::DeadLetterReason,
        decode::{Header, decode},
        fields::{FieldMap, IntentField},
    },
    policy::file::parse_policy,
    replay::{Judged, ReplaySource, ReplayTally, Replayed, Report},
    schema,
    segment::{Members, Segment, SegmentSet, Sha256, UserIdKind, UserIds},
};

use super::docs::{is_current, repository};

#[path = "../fixtures/hostile.rs"]
mod hostile;

#[track_caller]
fn same(name: &str, text: &str) {
    is_current(&format!("schemas/{name}"), |_| format!("{text}\n"));
}

fn validator(schema: schemars::Schema) -> jsonschema::Validator {
    jsonschema::validator_for(schema.as_value()).unwrap()
}

#[track_caller]
fn assert_valid(validator: &jsonschema::Validator, name: &str, value: &Value) {
    let problems: Vec<String> = validator.iter_errors(value).map(|problem| problem.to_string()).collect();
    assert!(problems.is_empty(), "{name}: {problems:?}");
}

fn examples(of: &str) -> Vec<(String, String)> {
    let mut files: Vec<_> =
        fs::read_dir(repository("schemas/examples").join(of)).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    files.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

fn plain(text: &str) -> Intent<'_> {
    decode(Some(text.as_bytes()), [], &FieldMap::default()).unwrap()
}

/// The schema of an intent whose fields are by their names at the top. It never refuses what weir takes. weir refuses more, which no schema can
/// say: fields given twice, ids of over 256 bytes in fewer characters, names of time zones that do not exist, strings that are no times, `1.0`
/// as an integer.
fn intent_schema() -> Value {
    serde_json::from_str(&fs::read_to_string(repository("schemas/intent.schema.json")).unwrap()).unwrap()
}

#[test]
fn the_schemas_are_those_of_the_types() {
    same("decision.schema.json", &format!("{:#}", schema::decision().as_value()));
    same("decision-header.schema.json", &format!("{:#}", schema::decision_header().as_value()));
    same("simulation.schema.json", &format!("{:#}", schema::simulation().as_value()));
}

#[test]
fn the_intent_schema_names_the_fields_that_are_read_and_the_payload() {
    let schema = intent_schema();
    let names: BTreeSet<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    let fields = IntentField::ALL.iter().map(|field| field.as_str()).chain(["payload"]).collect();
    assert_eq!(names, fields);
}

#[test]
fn every_example_of_an_intent_is_valid_and_is_read() {
    let validator = jsonschema::validator_for(&intent_schema()).unwrap();
    for (name, text) in examples("intents") {
        let value: Value = serde_json::from_str(&text).unwrap();
        let headers = name
            .starts_with("cloudevent-structured")
            .then_some(Header { key: b"content-type", value: Some(b"application/cloudevents+json; charset=UTF-8") });
        if headers.is_none() {
            assert_valid(&validator, &name, &value);
        }
        let intent = decode(Some(text.as_bytes()), headers, &FieldMap::default());
        assert!(intent.is_ok(), "{name}: {intent:?}");
    }
}

#[test]
fn the_intent_schema_refuses_nothing_that_is_an_intent_and_most_of_what_is_none() {
    let validator = jsonschema::validator_for(&intent_schema()).unwrap();
    let (mut taken, mut refused) = (0, 0);
    for case in hostile::hostile().iter().filter(|case| case.headers.is_empty()) {
        let Some(value) = case.value.as_deref().and_then(|bytes| serde_json::from_slice(bytes).ok()) else { continue };
        match case.expected {
            hostile::Expected::Intent => {
                assert_valid(&validator, case.name, &value);
                taken += 1;
            }
            hostile::Expected::DeadLetter(_) => refused += usize::from(!validator.is_valid(&value)),
        }
    }
    assert!(taken >= 30 && refused >= 30, "{taken} taken, {refused} refused");
}

/// What two policies say of three intents of one user.
fn simulation() -> Report {
    let parsed = |name: &str, text: &str| Arc::new(parse_policy(name, text, Format::Toml, 8 * 86_400_000).unwrap());
    let budget = "[[budgets]]\nname = \"spring\"\nlimit = 1\ntotal = true\n";
    let policy = |limit: u32| {
        let caps = format!("caps = [{{ name = \"daily\", limit = {limit}, window = \"24h\" }}]");
        parsed("p", &format!("version = \"at-most-{limit}\"\n[segments.new]\n{caps}\n[default]\n{caps}\n{budget}"))
    };
    let members = Arc::new(Members::U32([42].into_iter().collect()));
    let segment = Segment { name: "new".to_owned(), sha256: Sha256([0; 32]), bytes: 0, members };
    let segments = SegmentSet::new("v".to_owned(), UserIds::new(UserIdKind::U32, ""), vec![segment]);
    let mut replayed = Replayed::new(Arc::new(segments));
    replayed.tallies = [2, 1].map(|limit| ReplayTally::new(&policy(limit), Zone::utc(), Time::default())).into();
    let cap = |limit| Cause::Cap(DenyingCap { name: "daily", limit, span: CapSpan::Window("24h"), used: limit });
    let denied = |limit| Verdict::Suppressed(Suppressed { cause: cap(limit), eligible_at: None });
    let approved = Verdict::Approved(Counts::Yes);
    let spent = Cause::Budget(DenyingBudget { name: "spring", limit: 1, used: 1 });
    let spent = Verdict::Suppressed(Suppressed { cause: spent, eligible_at: None });
    let judged = [[approved, approved], [approved, denied(1)], [denied(2), spent]];
    let intent = plain(r#"{"id":"i-1","user_id":42,"channel":"push"}"#);
    for (verdicts, hour) in judged.iter().zip(0..) {
        let at = Time::from_rfc3339("2026-11-20T09:00:00Z").unwrap().plus(hour * 3_600_000);
        replayed.read(&intent, at);
        for (tally, verdict) in replayed.tallies.iter_mut().zip(verdicts) {
            let number = tally.number([Some(&intent)]);
            tally.add(&Judged { number, intent: &intent, segment: Some("new"), at, deferred: false }, verdict);
        }
    }
    let spent_at = Time::from_rfc3339("2026-11-20T11:00:00Z").unwrap();
    replayed.tallies[1].budgets.first_spent.insert("spring".into(), spent_at);
    let mut source = ReplaySource { intents: "intents.jsonl".to_owned(), records: 4, ..ReplaySource::default() };
    source.dead_letter(DeadLetterReason::NotJson);
    source.segments_version = Some("2026-11-20T00:00:00Z".to_owned());
    replayed.report(source, &["new.toml".to_owned(), "policy.toml".to_owned()], 20)
}

#[test]
fn the_example_of_a_simulation_is_valid_and_adds_up() {
    let report = serde_json::to_value(simulation()).unwrap();
    let validator = validator(schema::simulation());
    assert_valid(&validator, "simulation", &report);
    same("examples/simulation.json", &format!("{report:#}"));
    for name in report.as_object().unwrap().keys() {
        let mut torn = report.clone();
        torn.as_object_mut().unwrap().remove(name);
        assert!(name == "from" || name == "to" || !validator.is_valid(&torn), "without {name}");
    }
    assert_eq!(report["segments"][0]["difference"], 1);
    assert_eq!(report["users"]["changed"]["first"][0]["approved"], serde_json::json!([2, 1]));
    assert_eq!(report["caps"].as_array().unwrap().len(), 2, "a cap that never held anything back is there");
}

/// One decision of each kind.
fn decisions() -> Vec<(String, Verdict<'static>)> {
    const AGAIN_AT: [(SuppressReason, Option<&str>); 6] = [
        (SuppressReason::Duplicate, None),
        (SuppressReason::Stopped, None),
        (SuppressReason::Expired, None),
        (SuppressReason::Unavailable, None),
        (SuppressReason::Pressure, Some("2026-11-20T09:01:00Z")),
        (SuppressReason::Capacity, Some("2026-11-20T09:00:20Z")),
    ];
    let eligible_at = Time::from_rfc3339("2026-11-21T08:00:00Z");
    let suppressed = |cause, eligible_at| Verdict::Suppressed(Suppressed { cause, eligible_at });
    let cap = |limit, span, used| Cause::Cap(DenyingCap { name: "daily", limit, span, used });
    let budget = |limit, used| Cause::Budget(DenyingBudget { name: "spring", limit, used });
    let quiet = Suppressed { cause: Cause::Plain(SuppressReason::QuietHours), eligible_at };
    let named = [
        ("approved", Verdict::Approved(Counts::Yes)),
        ("shadow-suppressed", Verdict::ShadowSuppressed(quiet, Counts::Yes)),
        ("suppressed-cap", suppressed(cap(2, CapSpan::Window("24h"), 2), eligible_at)),
        ("suppressed-cap-calendar", suppressed(cap(2, CapSpan::Per("day"), 1), eligible_at)),
        ("suppressed-cap-never", suppressed(cap(0, CapSpan::Window("24h"), 0), None)),
        ("suppressed-budget", suppressed(budget(1_000_000, 1_000_000), eligible_at)),
        ("suppressed-budget-never", suppressed(budget(500_000_000, 499_999_900), None)),
    ];
    let all = SuppressReason::ALL.into_iter();
    let plain = all.filter(|reason| ![SuppressReason::Cap, SuppressReason::Budget].contains(reason)).map(|reason| {
        let again_at = AGAIN_AT.iter().find(|(of, _)| *of == reason);
        let eligible_at = again_at.map_or(eligible_at, |(_, at)| at.and_then(Time::from_rfc3339));
        let name = format!("suppressed-{}", reason.as_str().replace('_', "-"));
        (name, suppressed(Cause::Plain(reason), eligible_at))
    });
    named.into_iter().map(|(name, verdict)| (name.to_owned(), verdict)).chain(plain).collect()
}

fn decision<'a>(verdict: Verdict<'a>) -> Decision<'a> {
    let deferred = Deferred { why: DeferReason::QuietHours, count: 1, waited_ms: 36_000_000 };
    let stopped =
        verdict.suppressed().is_some_and(|suppressed| suppressed.cause == Cause::Plain(SuppressReason::Stopped));
    Decision {
        deferred: stopped.then_some(deferred),
        budgets: &[],
        verdict,
        segment: Some("new"),
        decided_at: Time::from_rfc3339("2026-11-20T09:00:00Z").unwrap(),
        policy_version: "2026-11-20.1",
        segments_version: "2026-11-20T00:00:00Z",
        origin: Origin { topic: "send-intents", partition: 3, offset: 1234 },
    }
}

#[test]
fn every_kind_of_decision_has_an_example_that_is_valid() {
    let validator = validator(schema::decision());
    let mut reasons = BTreeSet::new();
    for (name, verdict) in decisions() {
        let bytes = envelope(
            &decision(verdict),
            &plain(r#"{"id":"i-1","user_id":42,"channel":"push","payload":{"title":"Hello"}}"#),
        );
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        assert_valid(&validator, &name, &value);
        same(&format!("examples/decisions/{name}.json"), std::str::from_utf8(&bytes).unwrap());
        reasons.extend(verdict.suppressed().map(Suppressed::reason));
    }
    assert_eq!(reasons, BTreeSet::from(SuppressReason::ALL));
    assert_eq!(examples("decisions").len(), decisions().len());
}

fn headers() -> Vec<(&'static str, Verdict<'static>, Counts, &'static str)> {
    const PLAIN: &str = r#"{"id":"i-1","user_id":42,"channel":"push","category":"promo","campaign":"spring"}"#;
    let of = Cause::Plain;
    let eligible_at = Time::from_rfc3339("2026-11-21T08:00:00Z");
    let cap = Cause::Cap(DenyingCap { name: "daily", limit: 2, span: CapSpan::Window("24h"), used: 2 });
    let budget = Cause::Budget(DenyingBudget { name: "spring", limit: 1_000_000, used: 1_000_000 });
    let shadow = |cause, eligible_at| Verdict::ShadowSuppressed(Suppressed { cause, eligible_at }, Counts::Yes);
    let receipt = r#"{"id":"i-1","user_id":42,"category":"transactional","cost":3}"#;
    let next_minute = Time::from_rfc3339("2026-11-20T09:01:00Z");
    vec![
        ("approved", Verdict::Approved(Counts::Yes), Counts::Yes, PLAIN),
        ("not-counted", Verdict::Approved(Counts::No), Counts::No, receipt),
        ("recorded-later", Verdict::Approved(Counts::Later), Counts::Later, PLAIN),
        ("retried", Verdict::Approved(Counts::Yes), Counts::Yes, PLAIN),
        ("took-from-budgets", Verdict::Approved(Counts::Yes), Counts::Yes, PLAIN),
        ("shadow-budget", shadow(budget, eligible_at), Counts::Yes, PLAIN),
        ("shadow-cap", shadow(cap, eligible_at), Counts::Yes, PLAIN),
        ("shadow-duplicate", shadow(of(SuppressReason::Duplicate), None), Counts::Yes, PLAIN),
        ("shadow-pressure", shadow(of(SuppressReason::Pressure), next_minute), Counts::Yes, PLAIN),
    ]
}

#[test]
fn every_kind_of_header_has_an_example_that_is_valid_and_is_read() {
    let validator = validator(schema::decision_header());
    for (name, verdict, counts, intent) in headers() {
        let numbers = (counts == Counts::Yes).then_some((Kind(12), Campaign(345)));
        let budgets: Vec<Arc<str>> =
            if name.contains("budget") { vec!["spring".into(), "push-hour".into()] } else { Vec::new() };
        let decided = Decision { budgets: &budgets, ..decision(verdict) };
        let text = decision_header::write(&decided, counts, &plain(intent), numbers);
        let text = if name == "retried" { decision_header::with_retry(text.as_bytes(), 2).unwrap() } else { text };
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_valid(&validator, name, &value);
        same(&format!("examples/decision-headers/{name}.json"), &text);
        let header = Header { key: b"weir-decision", value: Some(text.as_bytes()) };
        let read = DecisionHeader::of([header]).unwrap().unwrap();
        assert_eq!((read.counts, read.numbers()), (counts != Counts::No, numbers.unwrap_or_default()), "{name}");
        assert!(read.budgets().iter().map(String::as_str).eq(budgets.iter().map(|name| &**name)), "{name}");
        for (name, wrong) in
            [("verdict", "suppressed"), ("counts", "no"), ("numbers", "12"), ("cost", "3"), ("budgets", "spring")]
        {
            let mut wrongly = value.clone();
            wrongly[name] = wrong.into();
            assert!(!validator.is_valid(&wrongly), "{text} with another {name}");
        }
    }
    assert_eq!(examples("decision-headers").len(), headers().len());
}

#[test]
fn the_decision_schema_refuses_a_cap_without_its_reason_and_a_reason_without_its_cap() {
    let validator = validator(schema::decision());
    for (_, verdict) in decisions() {
        let bytes = envelope(&decision(verdict), &plain(r#"{"id":"i-1","user_id":42}"#));
        let valid: Value = serde_json::from_slice(&bytes).unwrap();
        for name in valid.as_object().unwrap().keys() {
            let mut torn = valid.clone();
            torn.as_object_mut().unwrap().remove(name);
            assert!(name == "deferred" || !validator.is_valid(&torn), "{} without {name}", verdict.as_str());
        }
        for (name, wrong) in [
            ("reason", Value::from("mood")),
            ("cap", Value::from(1)),
            ("budget", Value::from(1)),
            ("user_id", Value::from(42)),
            ("schema", Value::from("weir.decision/1")),
            ("decided_at", Value::from(0)),
            ("intent", Value::from("x")),
        ] {
            let mut wrongly = valid.clone();
            wrongly[name] = wrong;
            assert!(!validator.is_valid(&wrongly), "{} with another {name}", verdict.as_str());
        }
    }
}
