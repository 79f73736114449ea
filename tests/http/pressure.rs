//! `GET /v1/pressure` and the page's gauge: the active users, the maximum, and whether weir throttles.

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
        unsynced: None,
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
    let expected = json!({"active_users": 31_700, "exempt_users": 120, "max_active_users": 50_000, "window": "30m",
        "throttling": false, "members": 3, "places": 6_100, "sync_age_s": null, "unsynced": null});
    assert_eq!(shown, expected);

    let before = SystemClock.now();
    let unsynced = Some(Silence { since: SystemClock.passed(), why: "127.0.0.1:1: no answer".to_owned() });
    status.set(Some(PressureSeen { unsynced, ..seen(49_900, true) }), None);
    let shown = server.client.get("/v1/pressure").json();
    assert_eq!((&shown["throttling"], &shown["unsynced"]["message"]), (&json!(true), &json!("127.0.0.1:1: no answer")));
    let since: jiff::Timestamp = shown["unsynced"]["since"].as_str().unwrap().parse().unwrap();
    assert!((since.as_millisecond() - before.millis()).abs() < 60_000, "{shown}");

    server.client.get("/v1/pressure?x=1").problem(400, "query");
    let document = server.client.get("/openapi.json").json();
    assert!(document["components"]["schemas"]["PressureView"]["properties"]["exempt_users"].is_object());
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
fn the_page_has_a_gauge_where_the_policy_limits_the_active_users() {
    let status = PressureStatus::default();
    let server = Server::pressed(segments(), RULE, status.clone());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let browser = Browser::open(&server.client.address).await;
        browser.wait("the page is connected", "return document.getElementById('weir-version').textContent !== ''").await;
        let hidden = "return document.getElementById('pressure-card').hidden";
        assert_eq!(browser.script(hidden).await, true, "nothing is known yet");

        status.set(Some(seen(12_500, false)), None);
        browser.wait("there is a gauge", &format!("{hidden} === false")).await;
        let shown = browser.text("#pressure-card").await;
        for part in ["12,500", "of 50,000 in 30m", "Not throttling", "of 3 instances"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let filled = "const gauge = document.getElementById('pressure-gauge');\
                      return gauge.firstElementChild.style.getPropertyValue('--share')";
        assert_eq!(browser.script(filled).await, "0.2500");
        let meter = "const gauge = document.getElementById('pressure-gauge');\
                     return ['valuemin', 'valuenow', 'valuemax'].map((name) => Number(gauge.getAttribute(`aria-${name}`)))";
        assert_eq!(browser.script(meter).await, json!([0, 12_500, 50_000]));
        assert!(!browser.is_displayed("#pressure-exempt").await, "the maximum bounds all of them");

        let exempt_users = 1_300;
        status.set(Some(PressureSeen { members: 1, exempt_users, ..seen(50_400, true) }), None);
        let throttling = "document.getElementById('pressure-state').textContent.startsWith('Throttling')";
        browser.wait("it throttles", &format!("return {throttling}")).await;
        let exempt = browser.text("#pressure-exempt").await;
        assert!(exempt.starts_with("1,300 of them came through this instance by intents that"), "{exempt}");
        assert_eq!(browser.script(filled).await, "1.0000", "more than all is all");
        assert_eq!(browser.script(meter).await, json!([0, 50_400, 50_400]));
        assert!(browser.text("#pressure-card").await.contains("of 1 instance"));
        assert_eq!(browser.faint().await, Vec::<Value>::new());

        let unsynced = Some(Silence { since: SystemClock.passed(), why: "no answer".to_owned() });
        status.set(Some(PressureSeen { unsynced, ..seen(50_400, true) }), None);
        let said = "document.getElementById('pressure-note').textContent";
        browser.wait("it is not synced", &format!("return /^not synced for .*: no answer$/.test({said})")).await;
        let exempt = browser.text("#pressure-exempt").await;
        assert!(exempt.starts_with("The maximum does not bound reports"), "others brought them in: {exempt}");
        assert_eq!(browser.complaints(), Vec::<String>::new());
        assert_eq!(browser.nameless(), Vec::<String>::new());
    });
}
