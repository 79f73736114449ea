mod budgets;
mod capacity;
mod fate;
mod offer;
mod pressure;

use super::*;
use crate::{
    decision_header,
    document::Format,
    origin::Origin,
    policy_file::parse_policy,
    record::NoHeaders,
    segment::{UserIdKind, UserIds},
    verdict::{Cause, Counts, DenyingBudget, Suppressed},
};

fn decider(budgets: &str) -> Decider {
    let text = format!("version = \"1\"\ndefault = {{ caps = \"unlimited\" }}\n{budgets}");
    let policy = parse_policy("p.toml", &text, Format::Toml, 86_400_000).unwrap();
    let set = SegmentSet::new("s".to_owned(), UserIds::new(UserIdKind::U32, ""), Vec::new());
    Decider {
        topic: "intents".into(),
        fields: Arc::new(FieldMap::default()),
        segments: Current::new(Arc::new(set)),
        policy: Current::new(Arc::new(policy)),
        limits: Arc::default(),
        wheel: None,
        pressure: None,
        routes: None,
        approved_by_channel: Arc::default(),
    }
}

fn intent() -> Intent<'static> {
    decode(Some(br#"{"id":"i","user_id":"u"}"#), [], &FieldMap::default()).unwrap()
}

#[test]
fn there_is_room_for_the_names_of_all_budgets() {
    // Each character is written as six bytes.
    let name = "\u{7}".repeat(256);
    let names: Vec<Arc<str>> = (0..255).map(|_| Arc::from(name.as_str())).collect();
    let plain = decider("").names_bytes();
    let many: String =
        (0..255).map(|n| format!("[[budgets]]\nname = \"{n:0256}\"\nlimit = 1\ntotal = true\n")).collect();
    let with_budgets = decider(&many);
    let decision = Decision {
        verdict: Verdict::Approved(Counts::No),
        segment: None,
        decided_at: Time::default(),
        policy_version: "1",
        segments_version: "s",
        origin: Origin { topic: "intents", partition: 0, offset: 0 },
        deferred: None,
        budgets: &names,
    };
    let written = decision_header::write(&decision, Counts::No, &intent(), None).len();
    assert!(written > decision_header::max_bytes(plain), "{written} bytes fit without room for budgets");
    assert!(written <= decision_header::max_bytes(with_budgets.names_bytes()), "{written} bytes");
}

#[test]
fn an_intent_is_deferred_until_its_budget_frees_if_the_budget_defers() {
    let decider = decider(
        "[[budgets]]\nname = \"waits\"\nlimit = 5\nper = \"day\"\nwhen_spent = \"defer\"\n\
         [[budgets]]\nname = \"goes\"\nlimit = 5\nper = \"day\"\n",
    );
    assert!(decider.policy.get().defers());
    let now = Time::from_rfc3339("2026-11-20T09:00:00Z").unwrap();
    let batch = decider.begin_batch(now);
    let gate_result = GateResult { disposition: Disposition::Bypass { shadowed: None }, segment: None, budgets: None };
    let to_defer = |name, frees_in_ms: Option<i64>| {
        let cause = Cause::Budget(DenyingBudget { name, limit: 5, used: 5 });
        let suppressed = Suppressed { cause, eligible_at: frees_in_ms.map(|ms| now.plus(ms)) };
        batch.to_defer(&gate_result, &intent(), &Verdict::Suppressed(suppressed), now)
    };
    let hour_ms = 60 * 60 * 1000;
    assert_eq!(to_defer("waits", Some(hour_ms)), Some((DeferReason::Budget, now.plus(hour_ms))));
    assert_eq!(to_defer("waits", None), None, "it never frees");
    assert_eq!(to_defer("waits", Some(73 * hour_ms)), None, "longer than an intent may be deferred");
    assert_eq!(to_defer("goes", Some(hour_ms)), None);
}

/// Intents of a campaign each.
struct Campaigns(Vec<String>);

impl Records for Campaigns {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> RecordView<'_> {
        let value = Some(self.0[index].as_bytes());
        RecordView { key: None, value, partition: 0, offset: 0, timestamp: None, headers: &NoHeaders, deferral: None }
    }
}

#[test]
fn a_batch_of_more_budgets_than_two_bytes_count_takes_from_those_of_each_campaign() {
    const CAMPAIGNS: usize = 300;
    let each: String = (0..255)
        .map(|n| format!("[[budgets]]\nname = \"{n}\"\neach = \"campaign\"\nlimit = 1\ntotal = true\n"))
        .collect();
    let mut batch = decider(&each).begin_batch(Time::default());
    let intent = |n: usize| format!(r#"{{"id":"{n}","user_id":{n},"campaign":"{n}"}}"#);
    let records = Campaigns((0..CAMPAIGNS).map(intent).collect());
    let decoded = batch.decode(&records);
    let patience = Patience { unavailable_after: None, may_defer: false };
    let claim = batch.claim(&records, &decoded, Duration::ZERO, patience).unwrap();
    assert_eq!((claim.budgets.len(), claim.wants.len()), (255 * CAMPAIGNS, CAMPAIGNS));
    for (number, want) in claim.wants.iter().enumerate() {
        let campaigns = claim.sets[want.set as usize].iter().map(|place| &claim.budgets[*place as usize].id.campaign);
        let other = campaigns.flatten().find(|campaign| ***campaign != *number.to_string());
        assert_eq!(other, None, "intent {number} takes from the budget of another campaign");
    }
}
