use super::*;
use crate::{
    decision::verdict::{CapSpan, Cause, Suppressed, Verdict},
    deferral::DeferReason,
    intent::{decode::decode, fields::FieldMap},
};

fn decision<'a>(verdict: Verdict<'a>, segment: Option<&'a str>) -> Decision<'a> {
    Decision { segment, ..Decision::sample(verdict) }
}

fn intent(value: &str) -> Intent<'_> {
    decode(Some(value.as_bytes()), [], &FieldMap::default()).unwrap()
}

const VERSIONS: &str = r#""decided_at":"2026-11-20T09:00:00.000Z","policy_version":"2026-11-20.1","segments_version":"2026-11-20T00:00:00Z""#;

/// The same by serde, from the type that the schema is made of.
fn by_serde(decision: &Decision<'_>, counts: Counts, intent: &Intent<'_>, numbers: Option<ClassNumbers>) -> String {
    let suppressed = decision.verdict.suppressed();
    let class = intent.class();
    let names = [class.channel, class.category, class.campaign].map(|name| name.map(table_name));
    let names = names.each_ref().map(Option::as_deref);
    let length = names.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let budgets: Vec<&str> = decision.budgets.iter().map(|name| &**name).collect();
    let shape = HeaderShape {
        verdict: decision.verdict.as_str(),
        reason: suppressed.map(Suppressed::reason),
        segment: decision.segment,
        cap: suppressed.and_then(|suppressed| suppressed.cause.cap()).copied(),
        budget: suppressed.and_then(|suppressed| suppressed.cause.budget()).copied(),
        eligible_at: suppressed.and_then(|suppressed| suppressed.eligible_at),
        decided_at: decision.decided_at,
        policy_version: decision.policy_version,
        segments_version: decision.segments_version,
        class: &names[..length],
        numbers: numbers.map(|(kind, campaign)| (kind.0, campaign.0)).filter(|numbers| *numbers != (0, 0)),
        cost: (intent.cost != 1).then_some(intent.cost),
        budgets: &budgets,
        deferred: decision.deferred,
        counts: (counts == Counts::No).then_some(false),
        recorded: (counts == Counts::Later).then_some("later"),
        retry: None,
    };
    serde_json::to_string(&shape).unwrap()
}

proptest::proptest! {
    #[test]
    fn a_header_is_what_serde_makes_of_its_type_and_is_read_back(
        names in proptest::array::uniform3(proptest::option::of("\\PC{1,20}|[\u{0}-\u{7f}]{1,300}")),
        (segment, version) in (proptest::option::of(".{0,10}"), ".{0,10}"),
        (cost, counts, shadow) in (1_u8.., 0_usize..3, 0..4),
        numbers in proptest::option::of((0_u16.., 0_u32..0x0100_0000)),
        at in -1_000_000_000_000_i64..10_000_000_000_000,
        deferred in proptest::option::of((0_u32.., 0_u64..1 << 40)),
        budgets in proptest::collection::vec("\\PC{1,20}|[\u{0}-\u{7f}]{1,300}", 0..4),
    ) {
        let value = serde_json::json!({
            "id": "i", "user_id": "u", "cost": cost, "channel": names[0], "category": names[1], "campaign": names[2],
        })
        .to_string();
        let intent = intent(&value);
        let counts = [Counts::Yes, Counts::No, Counts::Later][counts];
        let cap = DenyingCap { name: &version, limit: 2, span: CapSpan::Per("day"), used: 2 };
        let budget = DenyingBudget { name: &version, limit: 1_000_000_000_000_000, used: u64::from(cost) };
        let budgets: Vec<Arc<str>> = budgets.into_iter().map(Arc::from).collect();
        let suppressed = |cause| Suppressed { cause, eligible_at: Some(Time::default()) };
        let verdict = match shadow {
            0 => Verdict::Approved(counts),
            1 => Verdict::ShadowSuppressed(suppressed(Cause::Cap(cap)), counts),
            2 => Verdict::ShadowSuppressed(suppressed(Cause::Budget(budget)), counts),
            _ => Verdict::ShadowSuppressed(suppressed(Cause::Plain(SuppressReason::Expired)), counts),
        };
        let numbers = numbers.map(|(kind, campaign)| (Kind(kind), Campaign(campaign)));
        let at = Time::default().plus(at);
        let deferred = deferred.map(|(count, waited_ms)| Deferred { why: DeferReason::QuietHours, count, waited_ms });
        let decision = Decision {
            decided_at: at, policy_version: &version, deferred, budgets: &budgets, ..decision(verdict, segment.as_deref())
        };
        let written = write(&decision, counts, &intent, numbers);
        proptest::prop_assert_eq!(&written, &by_serde(&decision, counts, &intent, numbers));

        let read = DecisionHeader::read(written.as_bytes()).unwrap();
        proptest::prop_assert_eq!((read.decided_at, read.cost(), read.counts), (at, cost, counts != Counts::No));
        proptest::prop_assert_eq!(read.numbers(), numbers.unwrap_or_default());
        proptest::prop_assert_eq!(read.segment.as_deref(), segment.as_deref());
        let class = names.map(|name| name.map(|name| table_name(&name).into_owned()));
        let same = read.budgets().iter().map(String::as_str).eq(budgets.iter().map(|name| &**name));
        proptest::prop_assert!(same, "{:?} is read as {:?}", budgets, read.budgets());
        proptest::prop_assert_eq!(read.into_class(), class);
    }
}

#[test]
fn a_header_takes_no_more_than_it_says() {
    let name = "\u{1}".repeat(100);
    let long = "\\u0001".repeat(MAX_NAME_BYTES);
    let value = format!(
        r#"{{"id":"i","user_id":"u","cost":255,"channel":"{long}","category":"{long}","campaign":"{long}","payload":0}}"#
    );
    let cap = DenyingCap { name: &name, limit: u32::MAX, span: CapSpan::Window("1000000000ms"), used: u32::MAX };
    // As the decider counts them: each name and a byte.
    let budgets: Vec<Arc<str>> = (0..=u8::MAX).map(|_| Arc::from(name.as_str())).collect();
    let budgets_bytes = budgets.len() * (name.len() + 1);
    let budget = DenyingBudget { name: &name, limit: u64::MAX, used: u64::MAX };
    let deferred = Deferred { why: DeferReason::QuietHours, count: u32::MAX, waited_ms: i64::MAX.cast_unsigned() };
    let every = [Counts::Yes, Counts::No, Counts::Later];
    for (counts, cause) in
        every.into_iter().flat_map(|counts| [(counts, Cause::Cap(cap)), (counts, Cause::Budget(budget))])
    {
        let suppressed = Suppressed { cause, eligible_at: Some(Time::MAX) };
        let decision = Decision {
            verdict: Verdict::ShadowSuppressed(suppressed, counts),
            segment: Some(&name),
            policy_version: &name,
            segments_version: &name,
            deferred: Some(deferred),
            budgets: &budgets,
            ..decision(Verdict::Approved(counts), None)
        };
        let written = write(&decision, counts, &intent(&value), Some((Kind::OVERFLOW, Campaign::OVERFLOW)));
        let bytes = HeaderName::Decision.as_str().len() + written.len();
        assert!(bytes <= max_bytes(4 * name.len() + budgets_bytes), "{bytes} bytes");
    }
}

fn header(value: Option<&[u8]>) -> Header<'_> {
    Header { key: b"weir-decision", value }
}

#[test]
fn of_several_headers_the_last_one_is_read_and_one_that_weir_does_not_write_is_refused() {
    let good = format!(r#"{{"verdict":"approved",{VERSIONS},"counts":false}}"#);
    let other = Header { key: b"weir-reason", value: Some(b"forged") };
    assert_eq!(DecisionHeader::of([other]), None);
    let forged = [header(Some(b"forged")), header(Some(good.as_bytes())), other];
    assert_eq!(DecisionHeader::of(forged).unwrap().map(|header| header.counts), Ok(false));
    assert!(DecisionHeader::of([header(Some(good.as_bytes())), header(None)]).unwrap().is_err());
    for (right, wrong) in [
        (r#""approved""#, r#""suppressed""#),
        (r#"{"verdict":"approved","#, "{"),
        (r#""2026-11-20T09:00:00.000Z""#, "1795165200000"),
        (r#""2026-11-20T09:00:00.000Z""#, r#""noon""#),
        (r#""counts":false"#, r#""counts":"false""#),
        (r#""counts":false"#, r#""cost":0"#),
        (r#""counts":false"#, r#""cost":256"#),
        (r#""counts":false"#, r#""class":["a","b","c","d"]"#),
        (r#""counts":false"#, r#""numbers":[65536,1]"#),
        (r#""counts":false"#, r#""numbers":[1,16777216]"#),
        (r#""counts":false"#, r#""numbers":[1]"#),
        (r#""counts":false"#, r#""budgets":"spring""#),
        (r#""counts":false"#, r#""budgets":[1]"#),
    ] {
        let wrong = good.replace(right, wrong);
        let refused = DecisionHeader::of([header(Some(wrong.as_bytes()))]).unwrap();
        assert!(refused.unwrap_err().to_string().contains("weir-decision"), "{wrong}");
    }
}

#[test]
fn a_retry_is_the_same_decision_with_its_number() {
    let first = r#"{"verdict":"approved","decided_at":"2026-11-20T09:00:00.000Z","policy_version":"1","segments_version":"1","class":["push"],"counts":false}"#;
    let once = with_retry(first.as_bytes(), 1).unwrap();
    assert_eq!(once, first.replace('}', r#","retry":1}"#));
    let again = with_retry(once.as_bytes(), 12).unwrap();
    assert_eq!(again, first.replace('}', r#","retry":12}"#));
    let [read, read_first] = [&*again, first].map(|text| DecisionHeader::read(text.as_bytes()).unwrap());
    assert_eq!((read.retry, read_first.retry), (12, 0));
    assert_eq!(DecisionHeader { retry: 0, ..read }, read_first);
    for text in [&*first.replace('}', r#", "retry": 1 }"#), "{}", ""] {
        assert!(with_retry(text.as_bytes(), 2).is_err(), "{text}");
    }
}
