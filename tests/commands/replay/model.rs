//! That a replay in batches is the same as deciding each intent by itself at its own time, and as Kafka's worker does.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::{Value, json};
use weir_core::{
    basis::{
        document::Format,
        shard::{IdHash, OriginMark},
        time::Time,
    },
    history::{
        Entry,
        decide::{AdmitVerdict, Cap, RecordWhen, Send, decide},
    },
    intent::{
        Intent,
        class::{Campaign, KindTable},
        decode::decode,
        fields::FieldMap,
    },
    policy::{Action, GateReason, IntentFacts, Policy, PolicyEval, file::parse_policy},
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

/// The same policy, with intents deferred that may be sent later.
fn deferring() -> String {
    let caps = POLICY
        .replace("limit = 5, window = \"24h\"", "limit = 5, window = \"24h\", action = \"defer\"")
        .replace("each = \"campaign\"", "each = \"campaign\", action = \"defer\"");
    caps.replace("action = \"suppress\"", "action = \"defer\"\nspread = \"40m\"")
}

/// The decision on an intent: the reason, the cap, when, and how often it was deferred.
type Became = (Option<&'static str>, Option<String>, Time, u32);

/// One intent after the other, those that are due before those that come: the policy at its time, and the reference
/// decision. `None` where an intent is still deferred at the end.
fn one_by_one(policy: &Arc<Policy>, lines: &[String]) -> Vec<Option<Became>> {
    let mut model = Model { policy, histories: HashMap::new(), campaigns: HashMap::new(), kinds: KindTable::default() };
    let fields = FieldMap::default();
    let intents: Vec<Intent<'_>> =
        lines.iter().map(|line| decode(Some(line.as_bytes()), [], &fields).unwrap()).collect();
    let mut became = vec![None; lines.len()];
    // What is to be judged, by time: due ones before new ones, then in the order in which they came there.
    let new = |(number, intent): (usize, &Intent<'_>)| ((intent.created_at.unwrap(), 1, number), (number, 0));
    let mut queue: BTreeMap<(Time, u8, usize), (usize, u32)> = intents.iter().enumerate().map(new).collect();
    let last = intents.iter().filter_map(|intent| intent.created_at).max().unwrap();
    let mut order = 0;
    while let Some(((now, _, _), (number, before))) = queue.pop_first()
        && now <= last
    {
        let (reason, cap, due) = model.decide(number, &intents[number], now);
        let due = due.map(|due| Time::default().plus((due.millis() + 59_999).div_euclid(60_000) * 60_000));
        match due.filter(|due| *due <= now.plus(policy.defer_max_ms)) {
            Some(due) => {
                order += 1;
                queue.insert((due, 0, order), (number, before + 1));
            }
            None => became[number] = Some((reason, cap, now, before)),
        }
    }
    became
}

struct Model<'m> {
    policy: &'m Arc<Policy>,
    histories: HashMap<String, Vec<Entry>>,
    campaigns: HashMap<String, Campaign>,
    kinds: KindTable,
}

impl Model<'_> {
    /// The reason, the cap, and until when it is deferred.
    fn decide(
        &mut self,
        number: usize,
        intent: &Intent<'_>,
        now: Time,
    ) -> (Option<&'static str>, Option<String>, Option<Time>) {
        let mut eval = PolicyEval::new(Arc::clone(self.policy), Arc::default(), now);
        let class = intent.class();
        let facts = IntentFacts {
            class,
            created_at: intent.created_at,
            zone: intent.timezone.as_ref(),
            ..IntentFacts::default()
        };
        if let Some((reason, eligible_at)) = eval.denial(&facts) {
            let quiet = self.policy.quiet_hours.as_ref().filter(|quiet| quiet.action == Action::Defer);
            let due = if reason == GateReason::QuietHours {
                quiet.map(|quiet| eligible_at.unwrap().plus(quiet.spread_of(intent.user)))
            } else {
                eligible_at
            };
            return (Some(reason.word().as_str()), None, due);
        }
        let Some(cap_set) = eval.route(&facts) else { return (None, None, None) };
        let names = (class.channel.map(str::to_owned), class.category.map(str::to_owned));
        let kind = self.kinds.number(&names).unwrap_or_else(|| self.kinds.push(Some(names)));
        let next = Campaign(u32::try_from(self.campaigns.len() + 1).unwrap());
        let campaign =
            class.campaign.map_or(Campaign::NONE, |name| *self.campaigns.entry(name.to_owned()).or_insert(next));
        let caps: Vec<Cap> = eval.take_cap_sets()[cap_set]
            .iter()
            .map(|query| Cap {
                window: query.window,
                limit: query.limit,
                kinds: self.kinds.matching(&query.filter),
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
        let history = self.histories.entry(intent.user_id.to_string()).or_default();
        match decide(history, &send, &caps, now, HISTORY_MS.into()).verdict {
            AdmitVerdict::Allowed | AdmitVerdict::Replayed => (None, None, None),
            AdmitVerdict::Duplicate => (Some("duplicate"), None, None),
            AdmitVerdict::Denied { cap, blocking, .. } => {
                let denied = eval.denied(cap_set, cap, blocking).unwrap();
                let due = denied.eligible_at.filter(|_| denied.cap.action == Action::Defer);
                (Some("cap"), Some(denied.cap.name.to_string()), due)
            }
        }
    }
}

#[test]
fn a_replay_is_the_same_as_deciding_one_intent_after_the_other() {
    for seed in 0..4 {
        let (deferred, _, reasons, caps) = compare(POLICY, seed);
        assert_eq!((deferred, caps), (0, 4));
        assert!(["cap", "duplicate", "quiet_hours"].iter().all(|reason| reasons.contains(reason)), "{reasons:?}");
    }
}

#[test]
fn a_replay_that_defers_is_the_same_as_deciding_one_intent_after_the_other() {
    for seed in 0..2 {
        let (deferred, waiting, reasons, _) = compare(&deferring(), seed);
        assert!(deferred > 300 && waiting > 0, "{deferred} deferred, {waiting} still at the end");
        // Older than max_age once the cap has room.
        assert!(reasons.contains("expired"), "{reasons:?}");
    }
}

/// How many were deferred, how many are so still at the end, for which reasons intents were suppressed, and by how many caps.
fn compare(policy_text: &str, seed: u32) -> (u64, u64, BTreeSet<&'static str>, usize) {
    let policy = Arc::new(parse_policy("model", policy_text, Format::Toml, HISTORY_MS).unwrap());
    let intents = intents(seed.into(), 4000 * (1 + seed % 2 * 2));
    let lines: Vec<String> = intents.iter().map(Value::to_string).collect();
    let became = one_by_one(&policy, &lines);
    let folder = Folder::new();
    folder.write("policy.toml", policy_text);
    folder.write("intents", &lines.join("\n"));
    let report = folder.replay(&[]);

    let (mut reasons, mut caps) = (BTreeMap::<&'static str, u64>::new(), BTreeMap::<String, u64>::new());
    let (mut hours, mut users) = (BTreeMap::<i64, (u64, u64)>::new(), BTreeMap::<u64, u64>::new());
    let (mut deferred, mut waiting) = (0, 0);
    for (intent, became) in intents.iter().zip(&became) {
        let sent = users.entry(intent["user_id"].as_u64().unwrap()).or_default();
        let Some((reason, cap, at, deferrals)) = became else {
            (deferred, waiting) = (deferred + 1, waiting + 1);
            continue;
        };
        deferred += u64::from(*deferrals > 0);
        // Berlin is whole hours from UTC.
        let hour = hours.entry(at.millis().div_euclid(HOUR_MS)).or_default();
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
    let rows = |of: &'static str| report[of].as_array().unwrap().iter();
    let told: BTreeMap<&str, u64> =
        rows("reasons").map(|row| (row["reason"].as_str().unwrap(), row["suppressed"][0].as_u64().unwrap())).collect();
    assert_eq!(told, reasons, "seed {seed}");
    let told: BTreeMap<String, u64> = rows("caps")
        .map(|row| (row["cap"].as_str().unwrap().to_owned(), row["suppressed"][0].as_u64().unwrap()))
        .collect();
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|(cap, count)| caps.get(cap).unwrap_or(&0) == count), "seed {seed}: {told:?} {caps:?}");
    let told: Vec<(i64, (u64, u64))> = rows("hours")
        .map(|row| {
            let begin = Time::from_rfc3339(row["begin"].as_str().unwrap()).unwrap().millis();
            let count = |of: &str| row["outcomes"][0][of].as_u64().unwrap();
            (begin.div_euclid(HOUR_MS), (count("approved"), count("suppressed")))
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
    assert_eq!(report["policies"][0]["deferred"], json!({"intents": deferred, "waiting": waiting}), "seed {seed}");
    (deferred, waiting, reasons.into_keys().collect(), caps.len())
}
