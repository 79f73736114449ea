//! `weir explain` as a process, after a worker has decided.

use serde_json::{Value, json};
use testkit::{kafka::Record, process::output_given, redis::RedisServer, stack::Stack};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use crate::support::{POLICY, Scene, contains_all, outcome::zone_of_noon, stop};

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}", self.err);
        serde_json::from_str(&self.out).unwrap()
    }
}

fn explain(scene: &Scene, args: &[&str], stdin: &str) -> Said {
    let output = output_given(stdin, scene.command(&["explain"]).args(args)).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn record(intent: &Value) -> Record {
    Record::new(intent["user_id"].to_string(), intent.to_string())
}

fn decided(name: &str, redis: Vec<String>, intents: &[Value]) -> Scene {
    let scene = Scene::on_redis(redis, name, 2, POLICY);
    scene.publish(intents.iter().map(record));
    drop(scene.drained("explain"));
    scene
}

fn at(millis: i64) -> Value {
    json!(jiff::Timestamp::from_millisecond(millis).unwrap().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

const DAY_MS: i64 = 24 * 3_600_000;

#[test]
fn it_says_why_a_user_did_not_get_it_and_when_they_may() {
    let push = |id: &str, user: u64| json!({"id": id, "user_id": user, "channel": "push", "category": "promo", "campaign": "autumn"});
    let intents = [push("i-1", 42), push("i-2", 42), push("i-3", 42), push("a-1", 1042)];
    let mut scene = decided("explain", Stack::shared().redis_cluster().to_vec(), &intents);
    let decisions = scene.decisions();
    let [first, second] = ["i-1", "i-2"].map(|id| decisions[id].at_ms);
    assert_eq!(decisions["i-3"].reason(), "cap");

    let said = explain(&scene, &["42", "--output", "json"], "").json();
    let send = |at_ms, id: &Value| {
        json!({"at": at(at_ms), "channel": "push", "category": "promo",
        "campaign": "autumn", "cost": 1, "id_hash": id})
    };
    let hashes = [0, 1].map(|place| said["sends"][place]["id_hash"].clone());
    assert!(hashes.iter().all(|hash| hash.as_str().is_some_and(|hash| hash.len() == 12)) && hashes[0] != hashes[1]);
    assert_eq!(said["sends"], json!([send(first, &hashes[0]), send(second, &hashes[1])]));
    let caps = json!([
        {"name": "daily", "limit": 2, "used": 2, "window": "24h", "next_at": at(first + DAY_MS)},
        {"name": "weekly", "limit": 5, "used": 2, "window": "7d", "next_at": said["asked_at"]},
    ]);
    assert_eq!((&said["caps"], &said["eligible_at"]), (&caps, &at(first + DAY_MS)));
    assert_eq!([&said["user_id"], &said["segment"]], ["42", "new"]);
    assert_eq!([&said["policy_version"], &said["segments_version"]], ["test-1", "test-set"]);
    // explain reports the worker's decision on the suppressed topic for the same intent under another id.
    let envelope = decisions["i-3"].envelope.as_ref().unwrap();
    assert_eq!(envelope["eligible_at"], said["eligible_at"]);
    let intent = push("i-4", 42).to_string();
    let said = explain(&scene, &["42", "--output", "json", "--intent", "-"], &intent).json();
    for field in ["verdict", "reason", "cap", "eligible_at", "segment", "user_id", "policy_version", "schema"] {
        assert_eq!(said["decision"][field], envelope[field], "{field}");
    }

    let said = explain(&scene, &["42"], "");
    let words = ["in segment new", "Asia/Singapore", "2 sends", "autumn", "daily", "in any 24h", "s ago", "from 20"];
    contains_all(&said.out, &words);
    let said = explain(&scene, &["1042"], "");
    contains_all(&said.out, &["in segment active", "each campaign", "channel push", "category partner or promo"]);
    // The send was a moment ago, or in this second.
    assert!(["in 59m", "in 1h"].iter().any(|part| said.out.contains(part)), "{}", said.out);
    for (id, category, part) in [
        ("i-1", "promo", "duplicate: an intent with this id was approved for this user before"),
        ("i-9", "promo", "reason cap: 2 of the 2 that cap daily allows in any 24h are used. "),
        ("i-9", "transactional", "Intent i-9 would be approved now: a bypass of the policy matches it"),
    ] {
        std::fs::write(scene.path("intent.json"), json!({"id": id, "user_id": "42", "category": category}).to_string())
            .unwrap();
        let said = explain(&scene, &["42", "--intent", "intent.json"], "");
        assert!(said.out.contains(part), "{part}: {}{}", said.out, said.err);
    }
    assert_eq!(scene.decisions().len(), 4, "nothing was published");
    wrong_usage(&scene);
    deferral(&mut scene);
    pressure(&scene);
}

/// Who is active is known to running instances alone.
fn pressure(scene: &Scene) {
    let not_looked_at = "unknown: not looked at here; ask GET /v1/pressure of a running instance\n";
    let has_limits = "The policy has limits that all users share; --intent FILE reports what they say of an intent.\n";
    let said = explain(scene, &["42"], "");
    assert!(!said.out.contains(has_limits), "{}", said.out);
    scene.write_policy(&format!("{POLICY}[pressure]\nmax_active_users = 1\naction = \"suppress\"\n"));
    let said = explain(scene, &["42"], "");
    assert!(said.out.ends_with(has_limits), "{}{}", said.out, said.err);
    let intent = json!({"id": "new", "user_id": 42, "category": "transactional"}).to_string();
    let said = explain(scene, &["42", "--intent", "-"], &intent);
    assert!(said.out.contains("Intent new would be approved now"), "{}{}", said.out, said.err);
    assert!(said.out.ends_with(not_looked_at), "{}", said.out);
}

/// An intent that may be sent later is deferred where the worker has topics for it, else suppressed.
fn deferral(scene: &mut Scene) {
    let not_before_ms = SystemClock.now().millis() + 2 * 3_600_000;
    let intent = json!({"id": "later", "user_id": 42, "not_before": not_before_ms}).to_string();
    let args = ["42", "--intent", "-"];
    let not_listed = "Deferred intents are not listed: they wait in Kafka";
    let said = explain(scene, &args, &intent);
    assert!(said.out.contains("Intent later would be suppressed now, reason too_early"), "{}{}", said.out, said.err);
    assert!(!said.out.contains(not_listed), "{}", said.out);
    let said = explain(scene, &[&args[..], &["--output", "json"]].concat(), &intent).json();
    assert_eq!(said.get("deferred_until"), None);

    scene.set("WEIR__KAFKA__DEFERRED", "later");
    let said = explain(scene, &args, &intent);
    assert!(said.out.contains("Intent later would be deferred until 20"), "{}{}", said.out, said.err);
    assert!(said.out.contains("reason too_early: its not_before has not come.\n"), "{}", said.out);
    assert!(said.out.contains(not_listed), "{}", said.out);
    let said = explain(scene, &[&args[..], &["--output", "json"]].concat(), &intent).json();
    let until = said["deferred_until"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    assert!(until % 60_000 == 0 && (0..60_000).contains(&(until - not_before_ms)), "{said:#}");
    assert_eq!(said["decision"]["verdict"], "suppressed", "the envelope is that of a decision now");
}

fn wrong_usage(scene: &Scene) {
    let intent = r#"{"id":"i","user_id":43}"#;
    let cases: [(&[&str], &str, &str); 6] = [
        (&["42", "--intent", "-"], intent, "for user 43, not for 42"),
        (&["42", "--intent", "-"], "{", "not_json"),
        (&["42", "--intent", "-"], "", "empty"),
        (&["42", "--intent", "nowhere.json"], "", "nowhere.json"),
        (&[""], "", "USER"),
        (&[], "", "USER"),
    ];
    for (args, stdin, part) in cases {
        let said = explain(scene, args, stdin);
        assert_eq!(said.code, Some(2), "{args:?}: {}{}", said.out, said.err);
        assert!(said.err.contains(part) && said.out.is_empty(), "{args:?}: {}{}", said.out, said.err);
    }
}

#[test]
fn a_user_without_a_history_is_told_from_one_whose_history_is_lost() {
    let server = RedisServer::start::<&str>(&[]).unwrap();
    let scene = decided("explain-lost", vec![server.url()], &[json!({"id": "i-1", "user_id": "x-1"})]);
    let said = explain(&scene, &["x-2"], "");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("No sends within the history") && said.out.contains("next send now"), "{}", said.out);
    let said = explain(&scene, &["x-1", "--output", "json"], "").json();
    let told = [&said["segment"], &said["held_to"], &said["sends"][0]["channel"]];
    assert_eq!(told, [&Value::Null, &json!("default"), &Value::Null]);

    let keys: Vec<String> = server.query(&["KEYS", &format!("{}:*:e", scene.name)]).unwrap();
    assert_eq!(keys.len(), 64);
    server.query::<()>(&[&["DEL"], &keys.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat()).unwrap();
    let said = explain(&scene, &["x-1"], "");
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    assert!(said.err.starts_with("weir: the history of user x-1 cannot be read: shards ["), "{}", said.err);
    assert!(said.err.contains("lost"), "{}", said.err);

    server.query::<()>(&["FLUSHALL"]).unwrap();
    let said = explain(&scene, &["x-1"], "");
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("no keyspace"), "{}", said.err);
}

/// A budget that has been spent, one that frees, one of the intent's campaign, and one that is not for it.
const BUDGETS: &str = r#"
version = "1"
default = { caps = "unlimited" }
budgets = [
  { name = "all", limit = 10, total = true, best_effort = true },
  { name = "push", channel = "push", limit = 7, window = "1h", best_effort = true },
  { name = "money", each = "campaign", limit = 50, per = "day", best_effort = true },
  { name = "sms", channel = "sms", limit = 5, total = true },
]
"#;

#[test]
fn it_names_the_budgets_that_an_intent_takes_from_with_what_is_left() {
    let policy = format!("timezone = {:?}\n{BUDGETS}", zone_of_noon());
    let (server, scene) = Scene::with_redis("explain-budgets", 1, &policy);
    let push = |id: &str| json!({"id": id, "user_id": 42, "channel": "push", "campaign": "autumn", "cost": 3});
    scene.publish([push("i-1"), push("i-2")].iter().map(record));
    // What it holds goes back.
    stop(&mut scene.drained("explain"));

    let explained = |channel: &str, cost: u8| {
        let intent = json!({"id": "new", "user_id": 42, "channel": channel, "campaign": "autumn", "cost": cost});
        let mut said = explain(&scene, &["42", "--intent", "-", "--output", "json"], &intent.to_string()).json();
        // What is leased is spent, and counts until the lease ends.
        for budget in said["limits"].as_array_mut().into_iter().flatten() {
            assert!(budget.as_object_mut().unwrap().remove("leased").is_some(), "{budget}");
        }
        (said, explain(&scene, &["42", "--intent", "-"], &intent.to_string()).out)
    };
    let row = |name: &str, limit: u64, span: (&str, Value)| {
        let mut row = json!({"kind": "budget", "name": name, "limit": limit, "used": 6, "left": limit - 6, "held": null,
            "members": null, "free_at": null, "why": null, "available": true});
        row[span.0] = span.1;
        row
    };
    let (all, push) = (row("all", 10, ("total", json!(true))), row("push", 7, ("window", json!("1h"))));
    let mut money = row("money", 50, ("per", json!("day")));
    money["campaign"] = json!("autumn");
    let (said, text) = explained("push", 1);
    assert_eq!(said["limits"], json!([all, push, money]));
    assert_eq!(said["decision"]["verdict"], "approved");
    contains_all(&text, &["Intent new would be approved now.", "ALLOWS IT"]);
    contains_all(&text, &["push", "in any 1h", "in total", "per day", "autumn"]);
    assert!(!text.contains("sms") && !text.contains("WARNING: a budget"), "{text}");

    // One more than is left: the first to free is not the one that is named.
    let (said, text) = explained("push", 2);
    let denied = &said["decision"];
    assert_eq!(denied["reason"], "budget");
    assert_eq!(denied["budget"], json!({"name": "push", "limit": 7, "used": 6}));
    assert!(denied["eligible_at"].is_string(), "{denied}");
    let why = "reason budget: 6 of the 7 that budget push allows in any 1h are used. This reason holds until";
    assert!(text.contains(why), "{text}");
    let (said, text) = explained("push", 5);
    assert_eq!((&said["decision"]["budget"]["name"], &said["decision"]["eligible_at"]), (&json!("all"), &Value::Null));
    assert_eq!(said["limits"][0]["why"], "too little is left, and it never frees");
    assert!(text.contains("6 of the 10 that budget all allows in total are used, and it never frees."), "{text}");

    // Without an intent there is nothing of budgets, and nothing was taken all the while.
    let said = explain(&scene, &["42"], "");
    assert!(said.out.contains("User 42") && !said.out.to_lowercase().contains("budget"), "{}", said.out);
    assert_eq!(explained("push", 1).0["limits"], json!([all, push, money]));

    // A budget that cannot be read is said to be so, and is not taken for spent.
    let keys: Vec<String> = server.query(&["KEYS", &format!("{}:*:b4:push", scene.name)]).unwrap();
    assert_eq!(keys.len(), 1);
    server.query::<()>(&["DEL", &keys[0]]).unwrap();
    server.query::<()>(&["HSET", &keys[0], "x", "a test has closed it"]).unwrap();
    let (said, text) = explained("push", 2);
    let unread = &said["limits"][1];
    assert_eq!((&unread["available"], &unread["used"], &unread["left"]), (&json!(false), &Value::Null, &Value::Null));
    assert_eq!(said["decision"]["verdict"], "approved", "{said}");
    contains_all(&text, &["budget  push   ?", "unknown: cannot be read from Redis"]);
    contains_all(&text, &["WARNING: a budget cannot be read from Redis"]);
}
