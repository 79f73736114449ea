use weir_core::{
    basis::{document::Format, origin::Origin},
    decision::{
        envelope::envelope,
        verdict::{Cause, Counts, Verdict},
    },
    intent::{decode::decode, fields::FieldMap},
    policy::file::parse_policy,
};

use super::*;

#[test]
fn a_decision_is_the_envelope_byte_for_byte() {
    let text = "version = \"p\"\ndefault = { caps = \"unlimited\" }\n";
    let policy = parse_policy("policy.toml", text, Format::Toml, 86_400_000).unwrap();
    let value =
        "{ \"id\": \"i\\u0000\", \"user_id\": 18446744073709551615,\n\"payload\": [1e400, {\"a\": 1, \"a\": 2}]}";
    let intent = decode(Some(value.as_bytes()), [], &FieldMap::default()).unwrap();
    let cap = |span| Cause::Cap(DenyingCap { name: "daily", limit: 2, span, used: 3 });
    let budget = Cause::Budget(DenyingBudget { name: "spring", limit: 1_000_000_000_000_000, used: 3 });
    let causes = [cap(CapSpan::Window("24h")), cap(CapSpan::Per("day")), budget].into_iter();
    let eligible_at = Time::from_rfc3339("2026-11-21T08:00:00Z");
    let verdicts = causes
        .chain(SuppressReason::ALL.map(Cause::Plain))
        .map(|cause| Suppressed { cause, eligible_at })
        .flat_map(|why| [Verdict::Suppressed(why), Verdict::ShadowSuppressed(why, Counts::Yes)])
        .chain([Verdict::Approved(Counts::Yes)]);
    for (verdict, segment) in verdicts.zip([None, Some("new")].into_iter().cycle()) {
        let decision = verdict::Decision {
            budgets: &[],
            verdict,
            segment,
            decided_at: Time::default(),
            policy_version: &policy.version,
            segments_version: "s",
            origin: Origin { topic: "/v1/decisions", partition: 0, offset: 0 },
            deferred: None,
        };
        let ours = serde_json::to_string(&Decision::new(&decision, &intent, &policy)).unwrap();
        assert_eq!(ours, String::from_utf8(envelope(&decision, &intent)).unwrap());
    }
}
