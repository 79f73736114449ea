//! Every endpoint on a real worker: what it answers, and every way to ask it wrongly.

use std::{path::Path, process::Command};

use serde_json::{Value, json};
use testkit::wait_until;

use crate::{
    client::{Client, JSON},
    support::{DEADLINE, POLICY, Scene, TOPICS, outcome::intent, succeed, weir},
};

const INSTANCE: &[u8] = br#"{"capacity_per_s":500,"concurrency":200,"timeout_ms":10000}"#;

#[test]
fn every_endpoint_answers_as_documented_and_every_mistake_with_a_problem() {
    let budget =
        "[[budgets]]\nname = \"total\"\nlimit = 1_000_000\ntotal = true\n[pressure]\nmax_active_users = 1_000_000\n";
    let mut scene = Scene::new("http", 2, &format!("{POLICY}{budget}"));
    scene.defer(1);
    let (worker, client) = Client::ready(&scene, "http");
    wait_until(DEADLINE, "the deferred intents are counted", || client.get("/v1/deferred").status == 200);
    let put = |name: &str| client.send("PUT", &format!("/v1/services/hedwig/instances/{name}"), &[JSON], INSTANCE);
    assert_eq!(put("hedwig-0").status, 200);
    wait_until(DEADLINE, "the service gives admissions", || {
        client.send("POST", "/v1/services/hedwig/admissions", &[JSON], b"{}").status == 200
    });
    segments(&client);
    pages(&client);
    users(&client, &scene);
    forgotten(&client, &scene, worker.folder());
    mistakes(&client);
    documented(&client);
    let metrics = client.get("/metrics").body;
    for (route, status) in [("/v1/users/{id}", 200), ("/v1/segments/{name}/members", 400), ("none", 404)] {
        let sample = format!("weir_http_requests_total{{route=\"{route}\",status=\"{status}\"}}");
        assert!(metrics.contains(&sample), "{sample}: {metrics}");
    }
    assert!(!metrics.contains("/v1/users/5"), "a path is no label");
}

fn segments(client: &Client) {
    let expected = json!({"version": "test-set", "user_id": "u32", "segments": [
        {"name": "new", "cardinality": 1000},
        {"name": "active", "cardinality": 2000},
        {"name": "staff", "cardinality": 1000},
    ]});
    assert_eq!(client.get("/v1/segments").json(), expected);
    for (user, member) in [("999", true), ("1000", false), ("0999", false), ("anna", false), ("%C3%A9%2F1", false)] {
        let found = client.get(&format!("/v1/segments/new/members/{user}")).json();
        assert_eq!(found["member"], member, "{user}");
    }
    assert_eq!(client.get("/v1/segments/new/members/7").json(), json!({"user_id": "7", "member": true}));
}

fn pages(client: &Client) {
    let seen = client.members("active", 300);
    assert_eq!(seen, (1000..3000).map(|id| id.to_string()).collect::<Vec<_>>(), "each once, in order");
    let rest = client.get("/v1/segments/active/members?after=2998").json();
    assert_eq!(rest, json!({"members": ["2999"], "next": null}));
    let none = client.get("/v1/segments/active/members?after=18446744073709551615").json();
    assert_eq!(none, json!({"members": [], "next": null}));
}

fn users(client: &Client, scene: &Scene) {
    let user = client.get("/v1/users/5").json();
    assert_eq!((&user["user_id"], &user["segment"], &user["sends"]), (&json!("5"), &json!("new"), &json!([])));
    assert_eq!(user["caps"][0]["used"], 0);
    // What a lane sends shows.
    let of = json!({"channel": "push", "campaign": "spring", "cost": 2});
    scene.publish((0..2).map(|number| intent(&format!("u5-{number}"), 5, of.clone())));
    let mut user = Value::Null;
    wait_until(DEADLINE, "the send shows", || {
        user = client.get("/v1/users/5").json();
        user["sends"] != json!([])
    });
    let send = &user["sends"][0];
    let class = [&send["channel"], &send["category"], &send["campaign"], &send["cost"]];
    assert_eq!(class, [&json!("push"), &json!(null), &json!("spring"), &json!(2)]);
    let (daily, weekly) = (&user["caps"][0], &user["caps"][1]);
    assert_eq!((&daily["name"], &daily["limit"], &daily["used"]), (&json!("daily"), &json!(2), &json!(2)));
    assert_eq!((&daily["window"], &weekly["used"]), (&json!("24h"), &json!(2)));
    let sent: jiff::Timestamp = send["at"].as_str().unwrap().parse().unwrap();
    let next: jiff::Timestamp = daily["next_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(next.duration_since(sent), jiff::SignedDuration::from_hours(24));
    assert_eq!(user["eligible_at"], daily["next_at"]);
    assert_eq!(client.get("/v1/users/nobody%20here").json()["segment"], Value::Null);
}

/// A user is deleted over HTTP, and another by the command; what comes later begins a new history.
fn forgotten(client: &Client, scene: &Scene, folder: &Path) {
    let sends = |user: u64| client.get(&format!("/v1/users/{user}")).json()["sends"].as_array().unwrap().len();
    scene.publish([intent("f6", 6, json!({})), intent("f7", 7, json!({}))]);
    wait_until(DEADLINE, "the sends show", || sends(6) == 1 && sends(7) == 1);
    let delete = || client.send("DELETE", "/v1/users/6", &[], b"").json();
    // The file names these; the worker's environment adds the topics of what is deferred.
    let topics = TOPICS.map(|topic| scene.topic(topic)).to_vec();
    let wheel = ["hours", "minutes"].map(|ring| scene.topic(&format!("deferred-{ring}")));
    let with_wheel: Vec<&String> = topics.iter().chain(&wheel).collect();
    let answer = |user: &str, deleted: u64, topics: &[&String]| {
        let stays = "With [pressure] in the policy, a hash of the user id stays in the log of activity for its window, \
                     and at most for twice that and 6 minutes.";
        json!({"user_id": user, "deleted": deleted, "stays_in_redis": stays, "kafka_topics": topics})
    };
    assert_eq!(delete(), answer("6", 1, &with_wheel));
    assert_eq!(delete(), answer("6", 0, &with_wheel));
    let forget = |args: &[&str]| {
        let config = folder.join("weir.toml");
        let output = succeed(Command::new(weir()).args(["forget", "7", "--config"]).arg(config).args(args));
        String::from_utf8(output.stdout).unwrap()
    };
    let said: Value = serde_json::from_str(&forget(&["--output", "json"])).unwrap();
    assert_eq!(said, answer("7", 1, &topics.iter().collect::<Vec<_>>()));
    let said = forget(&[]);
    assert!(said.contains("a hash of the user id stays in the log of activity"), "{said}");
    assert!(said.contains("Deleted 0 sends of user 7") && topics.iter().all(|topic| said.contains(topic)), "{said}");
    assert_eq!((sends(6), sends(7)), (0, 0));
    scene.publish([intent("f6", 6, json!({}))]);
    wait_until(DEADLINE, "an id of before is no duplicate", || sends(6) == 1);
    client.send("DELETE", &format!("/v1/users/{}", "x".repeat(257)), &[], b"").problem(400, "user_id");
}

fn mistakes(client: &Client) {
    let long = "x".repeat(257);
    let cases = [
        ("/v1/users/%ff", 400, "path"),
        (&format!("/v1/users/{long}"), 400, "user_id"),
        (&format!("/v1/segments/new/members/{long}"), 400, "user_id"),
        ("/v1/users/", 404, "no_such_path"),
        ("/v1/nothing", 404, "no_such_path"),
        ("/v1/segments/none/members/7", 404, "no_such_segment"),
        ("/v1/segments/none/members", 404, "no_such_segment"),
        ("/v1/segments/new/members?after=", 400, "after"),
        ("/v1/segments/new/members?befor=1", 400, "query"),
        ("/v1/segments/new/members?limit=1&limit=2", 400, "query"),
        ("/v1/segments?x=1", 400, "query"),
        ("/v1/deferred?x=1", 400, "query"),
        ("/v1/budgets/none", 404, "no_such_budget"),
        ("/v1/segments/new/members/7?x=1", 400, "query"),
        ("/v1/users/7?x=1", 400, "query"),
    ];
    for (path, status, reason) in cases {
        client.get(path).problem(status, reason);
    }
    for (method, path, allow) in [
        ("POST", "/v1/segments", "GET,HEAD"),
        ("POST", "/v1/deferred", "GET,HEAD"),
        ("DELETE", "/v1/segments", "GET,HEAD"),
        ("GET", "/v1/decisions", "POST"),
        ("PUT", "/livez", "GET,HEAD"),
    ] {
        let reply = client.send(method, path, &[], b"");
        reply.problem(405, "no_such_method");
        assert_eq!(reply.headers["allow"], allow, "{method} {path}");
    }
    let json = [JSON];
    let bodies: [(&[u8], &str); 7] = [
        (b"", "empty"),
        (b"{", "not_json"),
        (b"[]", "wrong_type"),
        (br#"{"id":"i"}"#, "missing_field"),
        (br#"{"id":"i","user_id":1.5}"#, "wrong_type"),
        (br#"{"id":"i","user_id":1,"expires_at":"soon"}"#, "bad_time"),
        (b"\xff", "not_utf8"),
    ];
    for (body, reason) in bodies {
        client.send("POST", "/v1/decisions", &json, body).problem(400, reason);
    }
    let good = br#"{"id":"i","user_id":1}"#;
    client.send("POST", "/v1/decisions?dry_run=1", &json, good).problem(400, "query");
    client.send("POST", "/v1/decisions?dryrun=true", &json, good).problem(400, "query");
    client.send("POST", "/v1/decisions", &[], good).problem(415, "media_type");
    client.send("POST", "/v1/decisions", &[("content-type", "text/plain")], good).problem(415, "media_type");
    let zipped = [json[0], ("content-encoding", "gzip")];
    let reply = client.send("POST", "/v1/decisions", &zipped, good);
    reply.problem(415, "content_encoding");
    assert_eq!(reply.headers["accept-encoding"], "identity");
    let plain = [json[0], ("content-encoding", "identity")];
    assert_eq!(client.send("POST", "/v1/decisions?dry_run=true", &plain, good).status, 200);
    let large = vec![b' '; (1 << 20) + 1];
    client.send("POST", "/v1/decisions", &json, &large).problem(413, "too_large");
}

/// Every path of the document answers, with a status that the document has.
fn documented(client: &Client) {
    let document = client.get("/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 21, "{:?}", paths.keys());
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            let real =
                path.replace("{id}", "5").replace("{user}", "5").replace("{name}", "new").replace("{budget}", "total");
            let real =
                real.replace("{service}", "hedwig").replace("{instance}", "hedwig-1").replace("{admission}", "a.7");
            let body: &[u8] = match (method.as_str(), path.as_str()) {
                ("put", _) => INSTANCE,
                ("post", "/v1/services/{service}/admissions") => b"{}",
                ("post", "/v1/activity") => br#"{"user_ids":["d"]}"#,
                ("post", _) => br#"{"id":"documented","user_id":"d"}"#,
                _ => b"",
            };
            let reply = client.send(&method.to_uppercase(), &real, &[JSON], body);
            assert_eq!(reply.status, 200, "{method} {path}: {reply:?}");
            let content = &operation["responses"]["200"]["content"];
            let media_type = reply.headers["content-type"].split(';').next().unwrap();
            assert!(content[media_type].is_object(), "{method} {path}: {media_type} in {content}");
            for status in ["400", "404", "405", "414", "429", "431", "500", "503", "504"] {
                let problem = &operation["responses"][status]["content"]["application/problem+json"]["schema"];
                assert_eq!(problem["$ref"], "#/components/schemas/Problem", "{method} {path} {status}");
            }
        }
    }
    // The example is what is answered.
    let example = &document["components"]["schemas"]["Decision"]["examples"][0];
    let answered = client.decide("?dry_run=true", &serde_json::json!({"id": "example", "user_id": 5})).json();
    assert_eq!((&example["origin"], &example["schema"]), (&answered["origin"], &answered["schema"]));
}
