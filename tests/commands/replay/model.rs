//! That a replay in batches is the same as deciding each intent by itself at its own time, and as Kafka's worker does.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::{Value, json};
use weir_core::{
    class::{Campaign, KindTable},
    decide::{AdmitVerdict, Cap, RecordWhen, Send, decide},
    decode::decode,
    document::Format,
    fields::FieldMap,
    policy::{Gate, IntentFacts, Policy, PolicyEval},
    policy_file::parse_policy,
    shard::{IdHash, OriginMark},
    time::Time,
};

use super::runs::{Folder, HOUR_MS, MONDAY_MS};

const POLICY: &str = r#"
version = "model"
timezone = "Europe/Berlin"
max_age = "20h"
[default]
caps = [
  { name = "daily", limit = 5, window = "24h" },
  { name = "today", limit = 2, per = "day", channel = "push" },
  { name = "week",  limit = 9, per = "week" },
  { name = "once",  limit = 1, window = "3h", each = "campaign" },
]
[[bypass]]
category = "alarm"
counts = true
[quiet_hours]
from = "23:00"
to = "05:30"
action = "suppress"
category = "promo"
"#;
const HISTORY_MS: i64 = 8 * 24 * HOUR_MS;
const ZONES: [Option<&str>; 5] =
    [None, Some("Asia/Kathmandu"), Some("America/New_York"), Some("Australia/Lord_Howe"), Some("Pacific/Apia")];

/// Intents over two weeks in which clocks are moved in Berlin, New York and on Lord Howe; more than one batch holds.
fn intents(seed: u64, count: u32) -> Vec<Value> {
    let mut random = fastrand::Rng::with_seed(seed);
    // 2026-10-22: Berlin's clocks go back on the 25th, New York's on November 1st.
    let begin = MONDAY_MS - 25 * 24 * HOUR_MS;
    let mut times: Vec<i64> = (0..count).map(|_| begin + random.i64(0..14 * 24 * HOUR_MS)).collect();
    times.sort_unstable();
    let intent = |(number, at): (usize, i64)| {
        let mut intent = json!({"id": format!("i{}", random.u32(0..count * 4)), "user_id": random.u32(0..count / 40), "created_at": at});
        let mut maybe = |name: &str, value: Value| {
            if random.u8(0..3) > 0 {
                intent[name] = value;
            }
        };
        maybe("channel", json!(["push", "email"][number % 2]));
        maybe("category", json!(["promo", "news", "alarm"][number % 3]));
        maybe("campaign", json!(format!("c{}", number % 7)));
        maybe("cost", json!(1 + number % 3));
        if let Some(zone) = ZONES[number % ZONES.len()] {
            maybe("timezone", json!(zone));
        }
        intent
    };
    times.into_iter().enumerate().map(intent).collect()
}

/// The decision on an intent: the reason, and the cap.
type Became = (Option<&'static str>, Option<String>);

/// One intent after the other: the policy at its time, and the reference decision.
fn one_by_one(policy: &Arc<Policy>, lines: &[String]) -> Vec<Became> {
    let (mut histories, mut campaigns) = (HashMap::new(), HashMap::new());
    let mut kinds = KindTable::default();
    let fields = FieldMap::default();
    let mut became = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let intent = decode(Some(line.as_bytes()), [], &fields).unwrap();
        let now = intent.created_at.unwrap();
        let mut eval = PolicyEval::new::<&str>(Arc::clone(policy), &[], now);
        let class = intent.class();
        let facts = IntentFacts {
            class,
            created_at: intent.created_at,
            zone: intent.timezone.as_ref(),
            ..IntentFacts::default()
        };
        let cap_set = match eval.gate(&facts) {
            Gate::Suppress { reason, .. } => {
                let reason = match reason {
                    weir_core::policy::GateReason::Stopped => "stopped",
                    weir_core::policy::GateReason::Expired => "expired",
                    weir_core::policy::GateReason::TooEarly => "too_early",
                    weir_core::policy::GateReason::QuietHours => "quiet_hours",
                };
                became.push((Some(reason), None));
                continue;
            }
            Gate::Bypass => {
                became.push((None, None));
                continue;
            }
            Gate::CheckCaps { cap_set } => cap_set,
        };
        let names = (class.channel.map(str::to_owned), class.category.map(str::to_owned));
        let kind = kinds.number(&names).unwrap_or_else(|| kinds.push(names));
        let next = Campaign(u32::try_from(campaigns.len() + 1).unwrap());
        let campaign = class.campaign.map_or(Campaign::NONE, |name| *campaigns.entry(name.to_owned()).or_insert(next));
        let caps: Vec<Cap> = eval.take_cap_sets()[cap_set]
            .iter()
            .map(|query| Cap {
                window: query.window,
                limit: query.limit,
                kinds: kinds.matching(&query.filter),
                scope: query.scope,
            })
            .collect();
        let send = Send {
            id: IdHash::of(&intent.id),
            origin: OriginMark::of(&"t".into(), 0, i64::try_from(number).unwrap()),
            kind,
            campaign,
            cost: intent.cost,
            record: RecordWhen::IfAllowed,
        };
        let history = histories.entry(intent.user_id.to_string()).or_insert_with(Vec::new);
        became.push(match decide(history, &send, &caps, now, HISTORY_MS.into()).verdict {
            AdmitVerdict::Allowed | AdmitVerdict::Replayed => (None, None),
            AdmitVerdict::Duplicate => (Some("duplicate"), None),
            AdmitVerdict::Denied { cap, blocking, .. } => {
                (Some("cap"), eval.denied(cap_set, cap, blocking).map(|denied| denied.cap.name.to_string()))
            }
        });
    }
    became
}

#[test]
fn a_replay_is_the_same_as_deciding_one_intent_after_the_other() {
    let policy = Arc::new(parse_policy("model", POLICY, Format::Toml, HISTORY_MS).unwrap());
    for seed in 0..4_u32 {
        let intents = intents(seed.into(), 4000 * (1 + seed % 2 * 2));
        let lines: Vec<String> = intents.iter().map(Value::to_string).collect();
        let became = one_by_one(&policy, &lines);
        let folder = Folder::new();
        folder.write("policy.toml", POLICY);
        folder.write("intents", &lines.join("\n"));
        let report = folder.report(&["--policy", "policy.toml", "--intents", "intents", "--no-segments"]);

        let (mut reasons, mut caps) = (BTreeMap::<&str, u64>::new(), BTreeMap::<String, u64>::new());
        let (mut hours, mut users) = (BTreeMap::<i64, (u64, u64)>::new(), BTreeMap::<u64, u64>::new());
        for (intent, (reason, cap)) in intents.iter().zip(&became) {
            // Berlin is whole hours from UTC.
            let hour = hours.entry(intent["created_at"].as_i64().unwrap().div_euclid(HOUR_MS)).or_default();
            let sent = users.entry(intent["user_id"].as_u64().unwrap()).or_default();
            match reason {
                None => (hour.0, *sent) = (hour.0 + 1, *sent + 1),
                Some(reason) => {
                    hour.1 += 1;
                    *reasons.entry(*reason).or_default() += 1;
                }
            }
            if let Some(cap) = cap {
                *caps.entry(cap.clone()).or_default() += 1;
            }
        }
        let told: BTreeMap<&str, u64> = report["reasons"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| (row["reason"].as_str().unwrap(), row["suppressed"][0].as_u64().unwrap()))
            .collect();
        assert_eq!(told, reasons, "seed {seed}");
        assert!(["cap", "duplicate", "quiet_hours"].iter().all(|reason| reasons.contains_key(reason)), "{reasons:?}");
        let told: BTreeMap<String, u64> = report["caps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| (row["cap"].as_str().unwrap().to_owned(), row["suppressed"][0].as_u64().unwrap()))
            .collect();
        assert!(caps.len() == 4 && told == caps, "seed {seed}: {told:?} {caps:?}");
        let told: Vec<(i64, (u64, u64))> = report["hours"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                let begin = Time::from_rfc3339(row["begin"].as_str().unwrap()).unwrap().millis();
                let counts = &row["outcomes"][0];
                (
                    begin.div_euclid(HOUR_MS),
                    (counts["approved"].as_u64().unwrap(), counts["suppressed"].as_u64().unwrap()),
                )
            })
            .collect();
        assert_eq!(told, hours.into_iter().collect::<Vec<_>>(), "seed {seed}");
        let mut spread = BTreeMap::<u64, u64>::new();
        for sent in users.values() {
            *spread.entry(*sent).or_default() += 1;
        }
        let told: BTreeMap<u64, u64> = report["users"]["approved_per_user"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| (row["approved"].as_u64().unwrap(), row["users"][0].as_u64().unwrap()))
            .collect();
        assert_eq!(told, spread, "seed {seed}");
    }
}
