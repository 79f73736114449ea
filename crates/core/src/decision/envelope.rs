//! The envelope that reports a decision: JSON, `weir.decision/2`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::verdict::{CapSpan, Cause, Decision, Deferred, DenyingBudget, DenyingCap, SuppressReason};
use crate::{
    basis::{json::Json, origin::Origin, time::Time},
    intent::{Intent, IntentValue},
};

/// Name and version of the envelope's shape.
pub const SCHEMA: &str = "weir.decision/2";

/// The most bytes that an envelope adds to its intent's value as it carries it ([`IntentValue::envelope_bytes`]), given names (topic, segment, cap, versions) of at most
/// `names_bytes` bytes together. Ids have at most 256 bytes each, and JSON writes a byte in at most six.
pub const fn overhead_bytes(names_bytes: usize) -> usize {
    1024 + 6 * (2 * crate::intent::MAX_ID_BYTES + names_bytes)
}

/// Reports a decision on an intent: the value of a suppressed record, as its schema says.
pub fn envelope(decision: &Decision<'_>, intent: &Intent<'_>) -> Vec<u8> {
    EnvelopeTemplate::of(decision).envelope(decision, intent)
}

/// What the envelopes of one batch have in common, written once: policy, segments and topic, and as a rule the time.
///
/// Envelopes are written member by member, which takes a fifth of what serde does; a test compares the two.
#[derive(Debug)]
pub struct EnvelopeTemplate {
    decided_at: Time,
    /// The topic that its intents came on.
    topic: Box<str>,
    /// That time, as it is shown.
    shown: [u8; 24],
    /// From the time to the record's partition.
    versions_and_topic: Vec<u8>,
}

impl EnvelopeTemplate {
    /// What a decision has in common with the others of its batch.
    pub fn of(decision: &Decision<'_>) -> Self {
        let Decision { decided_at, policy_version, segments_version, origin, .. } = *decision;
        let mut json = Json::default();
        json.raw(r#"","policy_version":"#).text(policy_version).raw(r#","segments_version":"#).text(segments_version);
        json.raw(r#","origin":{"topic":"#).text(origin.topic).raw(r#","partition":"#);
        Self { decided_at, topic: origin.topic.into(), shown: decided_at.rfc3339(), versions_and_topic: json.0 }
    }

    /// Reports a decision of the same batch on an intent.
    pub fn envelope(&self, decision: &Decision<'_>, intent: &Intent<'_>) -> Vec<u8> {
        let Decision { verdict, segment, decided_at, origin, deferred, .. } = *decision;
        if deferred.is_some() && origin.topic != &*self.topic {
            // It was deferred when intents came on another topic.
            return Self::of(decision).envelope(decision, intent);
        }
        let suppressed = verdict.suppressed();
        // Enough for names and ids of usual lengths.
        let mut json = Json(Vec::with_capacity(intent.value().envelope_bytes() + self.versions_and_topic.len() + 448));
        json.raw(r#"{"schema":"weir.decision/2","verdict":""#).raw(verdict.as_str());
        if let Some(suppressed) = suppressed {
            json.raw(r#"","reason":""#).raw(suppressed.reason().as_str());
        }
        json.raw(r#"","intent_id":"#).text(&intent.id).raw(r#","user_id":"#).text(&intent.user_id);
        json.raw(r#","segment":"#).text_or_null(segment);
        if let Some(suppressed) = suppressed {
            put_denying(&mut json, &suppressed.cause);
        }
        json.raw(r#","eligible_at":"#).time_or_null(suppressed.and_then(|suppressed| suppressed.eligible_at));
        let shown = if decided_at == self.decided_at { self.shown } else { decided_at.rfc3339() };
        json.raw(r#","decided_at":""#).bytes(&shown).bytes(&self.versions_and_topic).number(origin.partition.into());
        json.raw(r#","offset":"#).number(origin.offset).raw("}");
        if let Some(deferred) = deferred {
            put_deferred(&mut json, &deferred);
        }
        match intent.value() {
            IntentValue::Json(text) => json.raw(r#","intent":"#).raw(text),
            IntentValue::Bytes(bytes) => json.raw(r#","intent_base64":""#).base64(bytes).raw("\""),
        };
        json.raw("}");
        json.0
    }
}

pub(crate) fn put_deferred(json: &mut Json, deferred: &Deferred) {
    let Deferred { why, count, waited_ms } = *deferred;
    json.raw(r#","deferred":{"why":""#).raw(why.as_str()).raw(r#"","count":"#).number(count.into());
    json.raw(r#","waited_ms":"#).number(i64::try_from(waited_ms).unwrap_or(i64::MAX)).raw("}");
}

/// Adds the member `cap` or `budget`, where one of them denied.
pub(crate) fn put_denying(json: &mut Json, cause: &Cause<'_>) {
    match cause {
        Cause::Cap(cap) => put_cap(json, cap),
        Cause::Budget(budget) => put_budget(json, budget),
        Cause::Plain(_) => {}
    }
}

fn put_budget(json: &mut Json, budget: &DenyingBudget<'_>) {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    json.raw(r#","budget":{"name":"#).text(budget.name).raw(r#","limit":"#).number(number(budget.limit));
    json.raw(r#","used":"#).number(number(budget.used)).raw("}");
}

fn put_cap(json: &mut Json, cap: &DenyingCap<'_>) {
    json.raw(r#","cap":{"name":"#).text(cap.name).raw(r#","limit":"#).number(cap.limit.into());
    match cap.span {
        CapSpan::Window(window) => json.raw(r#","window":"#).text(window),
        CapSpan::Per(period) => json.raw(r#","per":"#).text(period),
    };
    json.raw(r#","used":"#).number(cap.used.into()).raw("}");
}

/// That a cap is named for reason `cap` and for no other, a budget for reason `budget`, and that the intent is there once.
fn members_together() -> serde_json::Value {
    let reason_is = |word| serde_json::json!({"properties": {"reason": {"const": word}}, "required": ["reason"]});
    serde_json::json!([
        {"if": reason_is("cap"), "then": {"required": ["cap"]}, "else": {"properties": {"cap": false}}},
        {"if": reason_is("budget"), "then": {"required": ["budget"]}, "else": {"properties": {"budget": false}}},
        {
            "if": {"properties": {"verdict": {"const": "approved"}}},
            "then": {"properties": {"reason": false}},
            "else": {"required": ["reason"]}
        },
        {"oneOf": [{"required": ["intent"]}, {"required": ["intent_base64"]}]}
    ])
}

/// A decision on one intent. Ignore unknown members.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "weir decision", extend("$id" = "weir.decision/2", "allOf" = members_together()))]
pub(crate) struct Envelope<'a> {
    /// Name and version of this format.
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// The verdict. The suppressed topic has `suppressed` only.
    #[schemars(extend("enum" = ["approved", "shadow-suppressed", "suppressed"]))]
    verdict: &'static str,
    /// Why it is suppressed; absent if it is approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SuppressReason")]
    reason: Option<SuppressReason>,
    /// The intent's id.
    #[schemars(length(min = 1, max = 256))]
    intent_id: &'a str,
    /// The user: a string, even if the intent has a number.
    #[schemars(length(min = 1, max = 256))]
    user_id: &'a str,
    /// The user's segment; null for a user in none.
    segment: Option<&'a str>,
    /// The cap that denied, for reason `cap` only; if several denied, the one that frees last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DenyingCap<'_>")]
    cap: Option<DenyingCap<'a>>,
    /// The budget that denied, for reason `budget` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DenyingBudget<'_>")]
    budget: Option<DenyingBudget<'a>>,
    /// The first moment at which this reason would allow the same intent, if nothing else is approved; null if there
    /// is none.
    eligible_at: Option<Time>,
    /// The time at which the caps were evaluated.
    decided_at: Time,
    /// The policy that decided.
    policy_version: &'a str,
    /// The segments that decided.
    segments_version: &'a str,
    /// The first record of the intent.
    origin: Origin<'a>,
    /// What came before, if the intent had been deferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Deferred")]
    deferred: Option<Deferred>,
    /// The intent as received, if it is JSON, without the frame of a Schema Registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    intent: Option<&'a RawValue>,
    /// The value of an intent in Avro or Protobuf as received, its frame included, in base64 (RFC 4648).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("contentEncoding" = "base64"))]
    intent_base64: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        decision::verdict::{Counts, Suppressed, Verdict},
        deferral::DeferReason,
        intent::{decode::decode, fields::FieldMap},
    };

    /// The same by serde, from the type that the schema is made of.
    fn by_serde(decision: &Decision<'_>, intent: &Intent<'_>) -> String {
        let suppressed = decision.verdict.suppressed();
        let envelope = Envelope {
            schema: SCHEMA,
            verdict: decision.verdict.as_str(),
            reason: suppressed.map(Suppressed::reason),
            intent_id: &intent.id,
            user_id: &intent.user_id,
            segment: decision.segment,
            cap: suppressed.and_then(|suppressed| suppressed.cause.cap()).copied(),
            budget: suppressed.and_then(|suppressed| suppressed.cause.budget()).copied(),
            eligible_at: suppressed.and_then(|suppressed| suppressed.eligible_at),
            decided_at: decision.decided_at,
            policy_version: decision.policy_version,
            segments_version: decision.segments_version,
            origin: decision.origin,
            deferred: decision.deferred,
            intent: intent.value().json().map(|text| serde_json::from_str(text).unwrap()),
            intent_base64: None,
        };
        serde_json::to_string(&envelope).unwrap()
    }

    proptest! {
        #[test]
        fn an_envelope_is_what_serde_makes_of_its_type(
            (id, user, segment, name) in ("\\PC{1,20}|[\u{0}-\u{7f}]{1,40}", "[\u{0}-\u{7f}é😀]{1,20}", any::<Option<String>>(), any::<String>()),
            (cause, shadow, limit, used) in (any::<prop::sample::Index>(), any::<bool>(), any::<u32>(), any::<u32>()),
            (partition, offset) in (any::<i32>(), any::<i64>()),
            times in (any::<Option<i32>>(), any::<i64>()),
            versions in (any::<String>(), any::<String>()),
            deferred in proptest::option::of((any::<u32>(), 0_u64..1 << 40)),
        ) {
            let cap = |span| Cause::Cap(DenyingCap { name: &name, limit, span, used });
            let budget = DenyingBudget { name: &name, limit: limit.into(), used: u64::from(used) << 20 };
            let mut causes = SuppressReason::ALL.map(Cause::Plain).to_vec();
            causes.extend([cap(CapSpan::Window(&versions.0)), cap(CapSpan::Per("day")), Cause::Budget(budget)]);
            let eligible_at = times.0.map(|millis| Time::default().plus(millis.into()));
            let suppressed = Suppressed { cause: *cause.get(&causes), eligible_at };
            let verdict =
                if shadow { Verdict::ShadowSuppressed(suppressed, Counts::Yes) } else { Verdict::Suppressed(suppressed) };
            let value = serde_json::json!({"id": id, "user_id": user}).to_string();
            let intent = decode(Some(value.as_bytes()), [], &FieldMap::default()).unwrap();
            for verdict in [verdict, Verdict::Approved(Counts::No)] {
                let decision = Decision {
                    segment: segment.as_deref(),
                    decided_at: Time::default().plus(times.1),
                    policy_version: &versions.0,
                    segments_version: &versions.1,
                    origin: Origin { topic: &name, partition, offset },
                    deferred: deferred.map(|(count, waited_ms)| Deferred { why: DeferReason::Cap, count, waited_ms }),
                    ..Decision::sample(verdict)
                };
                let written = String::from_utf8(envelope(&decision, &intent)).unwrap();
                prop_assert_eq!(written, by_serde(&decision, &intent));
            }
        }
    }

    #[test]
    fn an_envelope_adds_no_more_than_it_says() {
        let ids = "\\u0001".repeat(crate::intent::MAX_ID_BYTES);
        let value = format!(r#"{{"id":"{ids}","user_id":"{ids}"}}"#);
        let name = "\u{1}".repeat(100);
        let cap = DenyingCap { name: &name, limit: u32::MAX, span: CapSpan::Window("1000000000ms"), used: u32::MAX };
        let budget = DenyingBudget { name: &name, limit: u64::MAX, used: u64::MAX };
        let deferred = Deferred { why: DeferReason::QuietHours, count: u32::MAX, waited_ms: i64::MAX.cast_unsigned() };
        for cause in [Cause::Cap(cap), Cause::Budget(budget)] {
            let verdict = Verdict::Suppressed(Suppressed { cause, eligible_at: Some(Time::MAX) });
            let decision = Decision {
                segment: Some(&name),
                policy_version: &name,
                segments_version: &name,
                origin: Origin { topic: &name, partition: i32::MIN, offset: i64::MIN },
                deferred: Some(deferred),
                ..Decision::sample(verdict)
            };
            let intent = decode(Some(value.as_bytes()), [], &FieldMap::default()).unwrap();
            for written in [IntentValue::Json(&value), IntentValue::Bytes(value.as_bytes())] {
                let intent = Intent { value: written, ..intent.clone() };
                let added = envelope(&decision, &intent).len() - written.envelope_bytes();
                assert!(added <= overhead_bytes(5 * name.len()), "{added} bytes");
            }
        }
    }

    #[test]
    fn an_intent_that_is_not_json_is_embedded_in_base64() {
        let intent = decode(Some(br#"{"id":"i","user_id":1}"#), [], &FieldMap::default()).unwrap();
        let decision = Decision::sample(Verdict::Approved(Counts::Yes));
        for (bytes, text) in
            [(&[0, 0, 0, 0, 7, 0xff, 0x3f][..], "AAAAAAf/Pw=="), (&[0, 1, 2], "AAEC"), (&[0xfb], "+w==")]
        {
            let intent = Intent { value: IntentValue::Bytes(bytes), ..intent.clone() };
            let written = String::from_utf8(envelope(&decision, &intent)).unwrap();
            assert!(written.ends_with(&format!(r#"}},"intent_base64":"{text}"}}"#)), "{written}");
            assert_eq!(text.len(), intent.value().envelope_bytes());
            serde_json::from_str::<serde_json::Value>(&written).unwrap();
        }
    }
}
