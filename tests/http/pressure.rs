//! `GET /v1/pressure` and its row on the page: the active users, the maximum, and whether weir throttles.

use std::time::Duration;

use serde_json::{Value, json};
use weir_core::{
    ports::Clock as _,
    segment::{Members, SegmentSet, UserIdKind},
};
use weir_worker::{
    clock::SystemClock,
    pressure::{PressureSeen, PressureStatus, Silence},
};

use crate::{
    in_process::{Server, set},
    page::browser::Browser,
};

const RULE: &str = "[pressure]\nmax_active_users = 50_000\nwindow = \"30m\"\naction = \"suppress\"\n";

fn segments() -> SegmentSet {
    set(UserIdKind::U32, Members::U32([1].into_iter().collect()))
}

/// What a keeper would show that synced just now.
fn seen(active_users: u64, throttling: bool) -> PressureSeen {
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

#[test]
fn it_is_shown_how_pressure_stands_and_since_when_it_is_not_synced() {
    let status = PressureStatus::default();
    let server = Server::pressed(segments(), RULE, status.clone());
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
    assert!(document["paths"]["/v1/pressure"]["get"]["responses"]["200"].is_object());
}

#[test]
fn a_policy_without_pressure_has_none_whatever_was_seen_before() {
    let status = PressureStatus::default();
    status.set(Some(seen(1, false)), None);
    let server = Server::pressed(segments(), "", status);
    let problem = server.client.get("/v1/pressure").problem(404, "no_pressure");
    assert!(problem["detail"].as_str().unwrap().contains("no [pressure]"), "{problem}");
}

#[test]
fn the_page_has_a_row_where_the_policy_limits_the_active_users() {
    let status = PressureStatus::default();
    let server = Server::pressed(segments(), RULE, status.clone());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let browser = Browser::open(&server.client.address).await;
        browser
            .wait("the page is connected", "return document.getElementById('weir-version').textContent !== ''")
            .await;
        let hidden = "return document.getElementById('limits-card').hidden";
        assert_eq!(browser.script(hidden).await, true, "nothing is known yet");

        status.set(Some(seen(12_500, false)), None);
        browser.wait("there is a row", &format!("{hidden} === false")).await;
        let shown = browser.text("#limits").await;
        for part in ["active users", "in any 30m; of 3 instances", "50,000", "12,500", "37,500", "6,100", "open"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("not bounded"), "the maximum bounds all of them: {shown}");
        let filled = "return document.querySelector('#limits .bar span').style.getPropertyValue('--share')";
        assert_eq!(browser.script(filled).await, "0.2500");

        let exempt_users = 1_300;
        status.set(Some(PressureSeen { members: 1, exempt_users, ..seen(50_400, true) }), None);
        let state = "document.querySelector('#limits tr').lastChild.textContent";
        browser.wait("it throttles", &format!("return {state}.startsWith('throttling')")).await;
        let shown = browser.text("#limits").await;
        for part in ["of 1 instance;", "1,300 came through this instance by intents that", "are not bounded"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(browser.script(filled).await, "1.0000", "more than all is all");
        assert_eq!(browser.faint().await, Vec::<Value>::new());

        let unsynced = Some(Silence { since: SystemClock.passed(), why: "no answer".to_owned() });
        status.set(Some(seen(50_400, true)), unsynced);
        browser.wait("it is not synced", &format!("return {state} === 'unknown: no answer'")).await;
        let shown = browser.text("#limits").await;
        assert!(shown.contains("not synced for "), "{shown}");
        assert!(
            shown.contains("are not bounded") && !shown.contains("came through"),
            "others brought them in: {shown}"
        );
        assert_eq!(browser.complaints(), Vec::<String>::new());
        assert_eq!(browser.nameless(), Vec::<String>::new());
    });
}
