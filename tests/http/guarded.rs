//! Who may see users' data.

use serde_json::json;
use testkit::wait_until;

use crate::{
    client::{Client, JSON},
    support::{DEADLINE, POLICY, Scene, http::wait_ready},
};

const TOKEN: &str = "correct-horse.battery_staple~1";
const GUARDED: [&str; 3] = ["/v1/users/7", "/v1/segments/new/members", "/v1/segments/new/members/7"];
const OPEN: [&str; 5] = ["/livez", "/readyz", "/metrics", "/openapi.json", "/v1/segments"];

#[test]
fn with_a_token_users_data_is_for_those_who_have_it_and_the_token_is_told_nowhere() {
    let mut scene = Scene::new("token", 1, POLICY);
    std::fs::write(scene.path("token"), format!("{TOKEN}, the-next-one\n")).unwrap();
    scene.set("WEIR__HTTP__TOKEN_FILE", scene.path("token").display().to_string());
    scene.set("WEIR__LOG__LEVEL", "debug");
    let worker = scene.ready("token");
    let stranger = Client::of(&worker);
    let wrong = Client { token: Some("correct-horse"), ..stranger.clone() };
    let friends = [TOKEN, "the-next-one"].map(|token| Client { token: Some(token), ..stranger.clone() });
    for path in OPEN {
        assert_eq!(stranger.get(path).status, 200, "{path}");
    }
    for path in GUARDED {
        let reply = stranger.get(path);
        reply.problem(401, "unauthorized");
        assert_eq!(reply.headers["www-authenticate"], "Bearer realm=\"weir\"");
        let reply = wrong.get(path);
        reply.problem(401, "unauthorized");
        assert!(reply.headers["www-authenticate"].contains("error=\"invalid_token\""), "{reply:?}");
        for friend in &friends {
            friend.get(path).json();
        }
    }
    let intent = json!({"id": "i", "user_id": 7});
    stranger.decide("", &intent).problem(401, "unauthorized");
    stranger.send("DELETE", "/v1/users/7", &[], b"").problem(401, "unauthorized");
    let report = |client: &Client| client.send("POST", "/v1/activity", &[JSON], br#"{"user_ids":[7]}"#);
    report(&stranger).problem(401, "unauthorized");
    let problem = report(&friends[0]).problem(404, "no_pressure");
    assert!(problem["detail"].as_str().unwrap().contains("[pressure]"), "{problem}");
    let services = [
        ("PUT", "/v1/services/email/instances/e-0"),
        ("DELETE", "/v1/services/email/instances/e-0"),
        ("POST", "/v1/services/email/admissions"),
        ("DELETE", "/v1/services/email/admissions/a.7"),
    ];
    for (method, path) in services {
        stranger.send(method, path, &[], b"").problem(401, "unauthorized");
    }
    friends[0].send("POST", "/v1/services/email/admissions", &[JSON], b"{}").problem(503, "no_instances");
    assert_eq!(friends[0].get("/v1/users/7").json()["sends"], json!([]));
    assert_eq!(friends[0].decide("", &intent).json()["verdict"], "approved");
    // The file is replaced, first by one that holds no token.
    std::fs::write(scene.path("token"), "").unwrap();
    wait_until(DEADLINE, "the empty file is reported", || worker.log().contains("stay in force"));
    assert_eq!(friends[0].get("/v1/users/7").status, 200);
    std::fs::write(scene.path("token"), "the-next-one").unwrap();
    wait_until(DEADLINE, "the first token is gone", || friends[0].get("/v1/users/7").status == 401);
    assert_eq!(friends[1].get("/v1/users/7").status, 200);
    for said in [worker.log(), stranger.get("/metrics").body, stranger.get("/openapi.json").body] {
        assert!(!said.contains(TOKEN) && !said.contains("the-next-one"));
    }
}

#[test]
fn without_a_token_users_data_is_shown_on_loopback_alone() {
    let mut scene = Scene::new("loopback", 1, POLICY);
    let here = scene.worker("here");
    scene.set("WEIR__HTTP__LISTEN", "0.0.0.0:0");
    let everywhere = scene.worker("everywhere");
    [&here, &everywhere].into_iter().for_each(wait_ready);
    let (here, open) = (Client::of(&here), Client::of(&everywhere));
    let intent = json!({"id": "i", "user_id": 7});
    for path in GUARDED {
        here.get(path).json();
        open.get(path).problem(403, "forbidden");
    }
    open.decide("", &intent).problem(403, "forbidden");
    assert!(everywhere.log().contains("http.token is not set"), "{}", everywhere.log());
    for path in OPEN {
        assert_eq!(open.get(path).status, 200, "{path}");
    }
}
