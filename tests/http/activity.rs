//! `POST /v1/activity`: who is active by it, and every way to report wrongly.

use std::sync::Arc;

use serde_json::{Value, json};
use weir::config::HttpSettings;
use weir_core::{
    basis::{document::Format, shard::UserHash},
    limit::pressure::{Pressure, PressureState, activity::Minute},
    policy::file::parse_policy,
    ports::Clock as _,
};
use weir_worker::clock::SystemClock;

use crate::{
    client::{Client, JSON, Reply},
    in_process::{Server, Shown},
    support::unlimited,
};

const PRESSURE: &str = "[pressure]\nmax_active_users = 100_000\nwindow = \"30m\"\naction = \"suppress\"\n";

/// What is in force once the policy's window has been read.
fn in_force() -> Arc<PressureState> {
    let policy = parse_policy("policy.toml", &unlimited(1, PRESSURE), Format::Toml, 86_400_000).unwrap();
    Arc::new(PressureState::new(policy.pressure.as_ref().unwrap()))
}

fn server(pressure: &Arc<Pressure>) -> Server {
    let shown = Shown { noted: Some(Arc::clone(pressure)), ..Shown::default() };
    let options = HttpSettings { body_bytes: 200_000, ..HttpSettings::default() };
    Server::with(&options, PRESSURE, shown)
}

fn report(client: &Client, body: &Value) -> Reply {
    client.send("POST", "/v1/activity", &[JSON], body.to_string().as_bytes())
}

fn is_active(state: &PressureState, user: &str) -> bool {
    state.users.is_active(UserHash::of(user).into(), Minute::from(SystemClock.now()))
}

fn minutes_ago(minutes: i64) -> String {
    SystemClock.now().plus(-60_000 * minutes).to_string()
}

#[test]
fn reported_users_are_active_and_late_reports_have_no_effect() {
    let (pressure, _told) = Pressure::new();
    let server = server(&pressure);
    let client = &server.client;
    let reply = report(client, &json!({"user_ids": [1]}));
    reply.problem(503, "not_read_yet");
    assert_eq!(reply.headers["retry-after"], "1");

    let state = in_force();
    pressure.replace(Some(Arc::clone(&state)));
    assert_eq!(report(client, &json!({"user_ids": [42, "anna"]})).json(), json!({"taken": 2}));
    let late = json!({"user_ids": [43, 44], "at": minutes_ago(31)});
    assert_eq!(report(client, &late).json(), json!({"taken": 0}));
    let earlier = json!({"user_ids": ["45"], "at": minutes_ago(20)});
    assert_eq!(report(client, &earlier).json(), json!({"taken": 1}));
    let soon = json!({"user_ids": [46], "at": SystemClock.now().plus(30_000).to_string()});
    assert_eq!(report(client, &soon).json(), json!({"taken": 1}));
    let active = ["42", "anna", "43", "44", "45", "46"].map(|user| is_active(&state, user));
    assert_eq!(active, [true, true, false, false, true, true]);

    let many: Vec<u64> = (1_000_000..1_010_000).collect();
    assert_eq!(report(client, &json!({"user_ids": many})).json(), json!({"taken": 10_000}));
    assert!(many.iter().all(|user| is_active(&state, &user.to_string())));
}

#[test]
fn a_mistaken_report_is_a_problem_and_nobody_is_active_by_it() {
    let (pressure, _told) = Pressure::new();
    let state = in_force();
    pressure.replace(Some(Arc::clone(&state)));
    let server = server(&pressure);
    let client = &server.client;
    let many: Vec<u64> = (0..10_001).collect();
    for (body, reason) in [
        (json!([]), "wrong_type"),
        (json!({}), "missing_field"),
        (json!({"user_ids": [42, null]}), "wrong_type"),
        (json!({"user_ids": many}), "wrong_type"),
        (json!({"user_ids": [42], "att": "now"}), "wrong_type"),
        (json!({"user_ids": [42], "at": "now"}), "bad_time"),
        (json!({"user_ids": [42], "at": minutes_ago(-2)}), "bad_time"),
    ] {
        report(client, &body).problem(400, reason);
    }
    let post = |path: &str, header, body: &[u8]| client.send("POST", path, &[header], body);
    post("/v1/activity", JSON, b"{").problem(400, "not_json");
    post("/v1/activity?dry_run=true", JSON, br#"{"user_ids":[42]}"#).problem(400, "query");
    post("/v1/activity", ("content-type", "text/plain"), b"{}").problem(415, "media_type");
    post("/v1/activity", JSON, &[b' '; 200_001]).problem(413, "too_large");
    client.get("/v1/activity").problem(405, "no_such_method");
    assert_eq!(state.users.estimate(), 0, "nothing of them counts");
}
