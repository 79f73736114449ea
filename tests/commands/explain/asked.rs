//! Queries on the embedded store and a Redis Cluster.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Value, json};
use testkit::stack::Stack;
use weir::{
    metrics::Metrics,
    query::{EntryPoint, QueryService, SendView},
};
use weir_core::{
    basis::{document::Format, time::Time},
    batch::decider::Decider,
    decision::verdict::SuppressReason,
    limit::{
        HeldLimits,
        pressure::{Pressure, PressureState},
    },
    policy::file::parse_policy,
    ports::{Clock as _, Histories, Store, embedded::EmbeddedStore},
};

use crate::{
    explain::{Hand, RETENTION_MS, decider, query},
    redis_support::{DAY_MS, fresh_store, options},
    support::{
        POLICY,
        model::{Sent, Standing, segment_of, standing},
        unlimited,
        workload::pick,
    },
};

const USERS: [u32; 5] = [7, 1001, 1002, 3001, 9999];
const STEPS: usize = 300;

/// An intent of this id, and what is to be known of it if it is sent.
fn an_intent(random: &mut fastrand::Rng, id: &str, user: u32, now: Time) -> (Value, Sent) {
    let channel = pick(random, &[None, Some("push"), Some("email")]);
    let category = pick(random, &[None, Some("promo"), Some("partner"), Some("news"), Some("transactional")]);
    let campaign = pick(random, &[None, Some("autumn"), Some("winter"), Some("=")]);
    let cost = pick(random, &[1, 1, 1, 2, 5]);
    let mut intent = json!({
        "id": id, "user_id": user, "channel": channel, "category": category, "campaign": campaign, "cost": cost,
        "timezone": pick(random, &[None, Some("Asia/Singapore")]), "payload": {"a": [1, 1.5e300]},
    });
    match random.u8(..12) {
        0 => intent["expires_at"] = json!(now.plus(-1)),
        1 => intent["not_before"] = json!(now.plus(5000)),
        _ => {}
    }
    let campaign = campaign.map(str::to_owned);
    (intent, Sent { id: id.to_owned(), user: user.into(), channel, category, campaign, cost, not_before_ms: None })
}

/// Random intents, each asked about and then decided: the one says what the other does, and the user's view is what
/// the decisions come to when they are counted by hand.
async fn walk<S: Store + Histories>(store: S) {
    let mut random = fastrand::Rng::with_seed(4);
    let clock = Hand::new();
    let mut query = query(POLICY, EntryPoint::Http, store, &clock);
    let mut sent: HashMap<u32, Vec<(i64, Sent)>> = HashMap::new();
    let mut verdicts = HashMap::<String, usize>::new();
    for step in 0..STEPS {
        clock.turn(pick(&mut random, &[0, 1, 1000, 60_000, 3_600_000, DAY_MS / 2 - 1]));
        let user = pick(&mut random, &USERS);
        let id = format!("i-{}", if random.u8(..8) == 0 { step / 2 } else { step });
        let (intent, new) = an_intent(&mut random, &id, user, clock.now());
        let bytes = serde_json::to_vec(&intent).unwrap();

        let said = serde_json::to_value(query.would(&bytes).await.unwrap()).unwrap();
        let decided = serde_json::to_value(query.decide(&bytes).await.unwrap()).unwrap();
        assert_eq!(said, decided, "step {step}: {intent}");
        assert_eq!(decided["intent"], intent);
        let known = sent.entry(user).or_default();
        let why = decided["reason"].as_str().or(decided["verdict"].as_str()).unwrap();
        *verdicts.entry(why.to_owned()).or_default() += 1;
        let now_ms = clock.now().millis();
        known.retain(|(at_ms, _)| *at_ms > now_ms - RETENTION_MS);
        let fresh = !known.iter().any(|(_, sent)| sent.id == id);
        if why == "approved" && new.category != Some("transactional") && fresh {
            known.push((now_ms, new));
        }
        view_is_the_model(&mut query, user, known, now_ms).await;
    }
    for why in ["approved", "cap", "expired", "too_early"] {
        assert!(verdicts.get(why).is_some_and(|count| *count >= 10), "{why}: {verdicts:?}");
    }
}

async fn view_is_the_model<S: Histories>(
    query: &mut QueryService<S, Hand>,
    user: u32,
    sent: &[(i64, Sent)],
    now_ms: i64,
) {
    let view = query.user(&user.to_string()).await.unwrap();
    let names = |send: &SendView| (send.channel.clone(), send.category.clone(), send.campaign.clone());
    let seen: Vec<_> = view.sends.iter().map(|send| (send.at.millis(), names(send), u64::from(send.cost))).collect();
    let owned = |name: Option<&str>| name.map(str::to_owned);
    let names = |sent: &Sent| (owned(sent.channel), owned(sent.category), sent.campaign.clone());
    let expected: Vec<_> = sent.iter().map(|(at_ms, sent)| (*at_ms, names(sent), sent.cost)).collect();
    assert_eq!(seen, expected, "user {user}");

    let at_ms = |at: Option<Time>| at.unwrap().millis();
    let caps = view.caps.iter();
    let seen: Vec<Standing> =
        caps.map(|cap| (cap.name.clone(), cap.limit.into(), cap.used.into(), at_ms(cap.next_at))).collect();
    let expected = standing(user.into(), sent, now_ms);
    assert_eq!(seen, expected, "user {user}: {sent:?}");
    assert_eq!(at_ms(view.eligible_at), expected.iter().map(|cap| cap.3).max().unwrap_or(now_ms));
    assert_eq!((view.segment.as_deref(), view.unlimited), (segment_of(user.into()), user == 3001));
}

#[tokio::test]
async fn a_dry_run_says_what_the_decision_is_and_the_view_what_they_come_to() {
    walk(EmbeddedStore::new(RETENTION_MS)).await;
}

#[tokio::test]
async fn a_dry_run_says_what_the_decision_is_and_the_view_what_they_come_to_on_a_cluster() {
    walk(fresh_store(&options(Stack::shared().redis_cluster())).await).await;
}

/// A policy with all that a gate may say, and what is sent all the same.
const GATES: &str = r#"
version = "gates-1"
timezone = "Asia/Singapore"
max_age = "1h"
shadow = false
[default]
caps = [ { name = "daily", limit = 2, window = "24h" }, { name = "never", limit = 0, per = "week", channel = "push" } ]
[[bypass]]
category = "transactional"
counts = true
[[bypass]]
category = "news"
counts = false
[quiet_hours]
from = "22:00"
to = "08:00"
action = "suppress"
category = "promo"
"#;

#[tokio::test]
async fn a_dry_run_says_what_the_decision_is_whatever_the_gates_and_in_shadow_mode() {
    let mut seen = std::collections::BTreeSet::new();
    for policy in [GATES.to_owned(), GATES.replace("shadow = false", "shadow = true")] {
        let store = fresh_store(&options(Stack::shared().redis_cluster())).await;
        let clock = Hand::new();
        let mut random = fastrand::Rng::with_seed(5);
        let mut query = query(&policy, EntryPoint::Http, store, &clock);
        for step in 0..STEPS {
            clock.turn(pick(&mut random, &[0, 1000, 3_600_000, 7_200_000]));
            let id = format!("i-{}", if random.u8(..4) == 0 { step / 2 } else { step });
            let user = pick(&mut random, &USERS);
            let (mut intent, _) = an_intent(&mut random, &id, user, clock.now());
            intent["created_at"] = json!(clock.now().plus(-pick(&mut random, &[0, 0, 0, 3_600_001])));
            let bytes = serde_json::to_vec(&intent).unwrap();
            let said = serde_json::to_value(query.would(&bytes).await.unwrap()).unwrap();
            let decided = serde_json::to_value(query.decide(&bytes).await.unwrap()).unwrap();
            assert_eq!(said, decided, "step {step}: {intent}");
            seen.insert(format!("{} {}", decided["verdict"], decided["reason"]).replace('"', ""));
        }
    }
    for verdict in ["suppressed", "shadow-suppressed"] {
        for reason in ["cap", "expired", "too_early", "quiet_hours"] {
            assert!(seen.contains(&format!("{verdict} {reason}")), "{verdict} {reason}: {seen:?}");
        }
    }
}

#[tokio::test]
async fn a_dry_run_says_that_pressure_denies_and_takes_no_place() {
    let pressed = unlimited(1, "[pressure]\nmax_active_users = 1_000\nchannel = [\"push\"]\naction = \"suppress\"\n");
    let policy = parse_policy("policy.toml", &pressed, Format::Toml, RETENTION_MS).unwrap();
    let (pressure, _told) = Pressure::new();
    let state = Arc::new(PressureState::new(policy.pressure.as_ref().unwrap()));
    pressure.replace(Some(Arc::clone(&state)));
    let held = HeldLimits { pressure: Some(pressure), ..HeldLimits::default() };
    let decider = Decider { held, ..decider(&pressed) };
    let (clock, store) = (Hand::new(), EmbeddedStore::new(RETENTION_MS));
    let mut query = QueryService::new(&decider, EntryPoint::Http, store, clock.clone(), Arc::new(Metrics::default()));
    let intent = |id: &str, user: u32, channel: &str| {
        serde_json::to_vec(&json!({"id": id, "user_id": user, "channel": channel})).unwrap()
    };
    let denied = query.would(&intent("i-1", 7, "push")).await.unwrap();
    assert_eq!((&*denied.verdict, denied.reason), ("suppressed", Some(SuppressReason::Pressure)));
    assert_eq!(denied.eligible_at, Some(clock.now().plus(60_000)));
    let json = |decision| serde_json::to_value(decision).unwrap();
    assert_eq!(json(query.decide(&intent("i-1", 7, "push")).await.unwrap()), json(denied));

    state.places.add(1);
    for _ in 0..3 {
        assert_eq!(query.would(&intent("i-2", 7, "push")).await.unwrap().verdict, "approved");
    }
    assert_eq!((state.places.left(), state.users.estimate()), (1, 0), "a dry run takes none");
    // Another channel needs no place, and its user is active all the same.
    assert_eq!(query.decide(&intent("i-3", 8, "email")).await.unwrap().verdict, "approved");
    assert_eq!(query.decide(&intent("i-2", 7, "push")).await.unwrap().verdict, "approved");
    assert_eq!((state.places.left(), state.users.estimate()), (0, 2));
    for (user, verdict) in [(7, "approved"), (8, "approved"), (9, "suppressed")] {
        assert_eq!(query.would(&intent("i-4", user, "push")).await.unwrap().verdict, verdict, "{user}");
    }
}
