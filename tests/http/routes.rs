//! `GET /v1/routes`, and on the page its rows and that of the active users: the pace of each route, what waits for it, and why.

use std::sync::Arc;

use serde_json::{Value, json};
use weir_core::{
    basis::document::Format,
    limit::route::{
        pace::Throttle,
        permits::PermitGrant,
        routes::{RouteKnown, Routes},
    },
    policy::file::parse_policy,
    ports::Clock as _,
};
use weir_worker::{
    clock::SystemClock,
    pressure::{PressureSeen, PressureStatus, Silence},
};

use crate::{
    in_process::{Server, Shown},
    page::browser::Browser,
    pressure::{RULE, seen},
    support::{contains_all, unlimited},
};

const ROUTES: &str = "[[routes]]\nname = \"email\"\nchannel = \"email\"\nahead = \"30s\"\nrate = 500\n\
                      [[routes]]\nname = \"push\"\nahead = \"30s\"\nrate = 900\n";

/// What a keeper would know of a route that delivery holds back.
fn held_back() -> RouteKnown {
    let mut policy = parse_policy("policy.toml", &unlimited(1, ROUTES), Format::Toml, 86_400_000).unwrap();
    RouteKnown {
        rule: Some(policy.routes.remove(0).into()),
        drain_per_s: 480.0,
        lag: Some(14_200),
        waiting: vec![48_000, 0],
        oldest_waiting_ms: Some(75_000),
        ceiling_per_s: Some(500),
        grant: PermitGrant { permits: 210, held_by_others: 260, members: 2, ..PermitGrant::default() },
        reserved: 40,
        throttle: Throttle::Lag,
        why: Throttle::Lag.in_words().map(str::to_owned),
        available: true,
        ..RouteKnown::default()
    }
}

#[test]
fn it_is_shown_how_routes_stand_once_they_have_been_looked_at() {
    let routes = Routes::new();
    let server = Server::showing(ROUTES, Shown { routes: Arc::clone(&routes), ..Shown::default() });
    assert_eq!(server.client.get("/v1/routes").json(), json!([]));
    routes.state("email").learn(held_back());
    let mut expected = json!([{"kind": "route", "name": "email", "per": "second", "limit": 500, "used": null, "left": null,
        "held": 210, "leased": 470, "members": 2, "free_at": null, "why": "delivery takes no more", "available": true,
        "drain_per_s": 480.0, "registered_per_s": null, "reserved": 40, "lag": 14_200, "waiting": 48_000,
        "waiting_by_partition": [48_000, 0], "oldest_waiting_s": 75.0, "expected_wait_s": 100.0}]);
    assert_eq!(server.client.get("/v1/routes").json(), expected);
    let why = Some("the group is not known".to_owned());
    routes.state("email").learn(RouteKnown { why, available: false, ..held_back() });
    (expected[0]["why"], expected[0]["available"]) = (json!("the group is not known"), json!(false));
    assert_eq!(server.client.get("/v1/routes").json(), expected);
    server.client.get("/v1/routes?x=1").problem(400, "query");
}

#[test]
fn the_page_has_a_row_for_the_active_users_and_one_for_each_route() {
    let (status, routes) = (PressureStatus::default(), Routes::new());
    let shown = Shown { pressure: status.clone(), routes: Arc::clone(&routes), ..Shown::default() };
    let server = Server::showing(&format!("{RULE}{ROUTES}"), shown);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let browser = Browser::open(&server.client.address).await;
        let version = "return document.getElementById('weir-version').textContent !== ''";
        browser.wait("the page is connected", version).await;
        let hidden = "return document.getElementById('limits-card').hidden";
        assert_eq!(browser.script(hidden).await, true, "nothing is known yet");

        status.set(Some(seen(12_500, false)), None);
        browser.wait("there is a row", &format!("{hidden} === false")).await;
        let shown = browser.text("#limits").await;
        contains_all(&shown, &["active users", "in any 30m; of 3 instances", "open"]);
        contains_all(&shown, &["50,000", "12,500", "37,500", "6,100"]);
        assert!(!shown.contains("not bounded"), "the maximum bounds all of them: {shown}");
        let filled = "return document.querySelector('#limits .bar span').style.getPropertyValue('--share')";
        assert_eq!(browser.script(filled).await, "0.2500");

        let exempt_users = 1_300;
        status.set(Some(PressureSeen { members: 1, exempt_users, ..seen(50_400, true) }), None);
        let state = "document.querySelector('#limits tr').lastChild.textContent";
        browser.wait("it throttles", &format!("return {state}.startsWith('throttling')")).await;
        let shown = browser.text("#limits").await;
        contains_all(&shown, &["of 1 instance;", "1,300 came through this instance by intents that"]);
        contains_all(&shown, &["are not bounded"]);
        assert_eq!(browser.script(filled).await, "1.0000", "more than all is all");
        assert_eq!(browser.faint().await, Vec::<Value>::new());

        let unsynced = Some(Silence { since: SystemClock.passed(), why: "no answer".to_owned() });
        status.set(Some(seen(50_400, true)), unsynced);
        browser.wait("it is not synced", &format!("return {state} === 'unknown: no answer'")).await;
        let shown = browser.text("#limits").await;
        contains_all(&shown, &["not synced for ", "are not bounded"]);
        assert!(!shown.contains("came through"), "others brought them in: {shown}");

        routes.state("email").learn(held_back());
        let two = "return document.querySelectorAll('#limits td.bar').length === 2";
        browser.wait("there is a row of the route", two).await;
        let shown = browser.text("#limits").await;
        contains_all(&shown, &["per second; delivery takes 480 a second; 14,200 are not delivered", "500", "210"]);
        contains_all(&shown, &["email", "delivery takes no more"]);
        contains_all(&shown, &["48,000 wait, the oldest for 1 min 15 s, all of them for 1 min 40 s"]);
        assert_eq!(browser.faint().await, Vec::<Value>::new());
        assert_eq!(browser.complaints(), Vec::<String>::new());
        assert_eq!(browser.nameless(), Vec::<String>::new());
    });
}
