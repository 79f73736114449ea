//! `GET /v1/pressure`: the active users, the maximum, and whether weir throttles.

use std::time::Duration;

use serde_json::json;
use weir_core::ports::Clock as _;
use weir_worker::{
    clock::SystemClock,
    pressure::{PressureSeen, PressureStatus, Silence},
};

use crate::in_process::{Server, Shown};

pub const RULE: &str = "[pressure]\nmax_active_users = 50_000\nwindow = \"30m\"\naction = \"suppress\"\n";

/// What a keeper would show that synced just now.
pub fn seen(active_users: u64, throttling: bool) -> PressureSeen {
    PressureSeen {
        active_users,
        exempt_users: 0,
        max_active_users: 50_000,
        window_minutes: 30,
        throttling,
        members: 3,
        places: 6_100,
        synced_at: SystemClock.passed(),
    }
}

fn server(rule: &str, status: &PressureStatus) -> Server {
    Server::showing(rule, Shown { pressure: status.clone(), ..Shown::default() })
}

#[test]
fn it_is_shown_how_pressure_stands_and_since_when_it_is_not_synced() {
    let status = PressureStatus::default();
    let server = server(RULE, &status);
    let reply = server.client.get("/v1/pressure");
    reply.problem(503, "not_read_yet");
    assert!(reply.headers["retry-after"].parse::<u64>().unwrap() >= 1, "{reply:?}");

    status.set(Some(PressureSeen { exempt_users: 120, ..seen(31_700, false) }), None);
    let mut shown = server.client.get("/v1/pressure").json();
    let age_s = shown["sync_age_s"].take().as_f64().unwrap();
    assert!((0.0..60.0).contains(&age_s), "{age_s}");
    let expected = json!({"kind": "pressure", "name": "active users", "window": "30m", "limit": 50_000, "used": 31_700,
        "left": 18_300, "held": 6_100, "leased": null, "members": 3, "free_at": null, "why": null, "available": true,
        "exempt_users": 120, "throttling": false, "sync_age_s": null});
    assert_eq!(shown, expected);

    status.set(Some(PressureSeen { synced_at: Duration::ZERO, ..seen(49_900, true) }), None);
    let shown = server.client.get("/v1/pressure").json();
    assert_eq!((&shown["throttling"], &shown["available"], &shown["left"]), (&json!(true), &json!(true), &json!(100)));
    assert!(shown["why"].as_str().unwrap().starts_with("throttling: "), "{shown}");
    assert!(shown["sync_age_s"].as_f64() > Some(age_s), "{shown}");

    let unsynced = Some(Silence { since: SystemClock.passed(), why: "127.0.0.1:1: no answer".to_owned() });
    status.set(Some(seen(49_900, true)), unsynced);
    let shown = server.client.get("/v1/pressure").json();
    assert_eq!((&shown["available"], &shown["why"]), (&json!(false), &json!("127.0.0.1:1: no answer")), "{shown}");

    server.client.get("/v1/pressure?x=1").problem(400, "query");
    let document = server.client.get("/openapi.json").json();
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["PressureView"]["allOf"][0]["$ref"], "#/components/schemas/LimitView");
    assert!(schemas["PressureView"]["allOf"][1]["properties"]["exempt_users"].is_object());
}

#[test]
fn a_policy_without_pressure_has_none_whatever_was_seen_before() {
    let status = PressureStatus::default();
    status.set(Some(seen(1, false)), None);
    let server = server("", &status);
    let problem = server.client.get("/v1/pressure").problem(404, "no_pressure");
    assert!(problem["detail"].as_str().unwrap().contains("no [pressure]"), "{problem}");
}
