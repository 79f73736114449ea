//! `weir demo` serves the same interface, from its store in memory, and keeps intents coming.

use serde_json::json;
use testkit::{process::Exit, wait_for, wait_until, worker::Worker};

use crate::{
    client::Client,
    support::{DEADLINE, contains_all, weir},
};

/// The intents that are decided and committed.
fn decided(client: &Client) -> f64 {
    let metrics = client.get("/metrics").body;
    let counts = metrics.lines().filter(|line| line.starts_with("weir_decisions_total{"));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[test]
fn the_demo_answers_about_the_users_that_it_has_sent_to() {
    let args = |_| ["demo", "--publish", "2000", "--keep"].map(Into::into).to_vec();
    let mut demo = Worker::start(weir(), "", args, &[]).unwrap();
    let find = || {
        let log = demo.log();
        let line = log.lines().find(|line| line.contains("/openapi.json says"))?;
        Some(line.trim().strip_prefix("http://")?.split('/').next()?.to_owned())
    };
    let address = wait_for(DEADLINE, find).unwrap_or_else(|| panic!("it does not stay up: {}", demo.log()));
    let client = Client { address, token: None };
    assert_eq!(client.get("/v1/segments").json()["version"], "demo-1");
    // The demo has nothing for this user.
    let decision = client.decide("", &json!({"id": "mine", "user_id": 70_007, "channel": "push"})).json();
    assert_eq!(decision["verdict"], "approved");
    let sends = client.get("/v1/users/70007").json()["sends"].clone();
    assert!(sends.as_array().unwrap().iter().any(|send| send["at"] == decision["decided_at"]), "{sends}");
    // The intents may all be decided before the last lane has joined the group.
    let ready = wait_for(DEADLINE, || (client.get("/readyz").status == 200).then_some(()));
    assert!(ready.is_some(), "{:?}: {}", client.get("/readyz").body, demo.log());
    // Looked at once a second.
    let mut pressure = json!(null);
    wait_until(DEADLINE, "the users of the demo are active", || {
        pressure = client.get("/v1/pressure").json();
        pressure["used"].as_u64().unwrap() > 1_000
    });
    assert_eq!(pressure["limit"], 15_000, "{pressure}");
    assert_eq!((&pressure["members"], &pressure["available"]), (&json!(1), &json!(true)), "{pressure}");
    // Receipts reach everybody: some of its users came by them alone.
    let [exempt, active] = ["exempt_users", "used"].map(|name| pressure[name].as_u64().unwrap());
    assert!((1..active).contains(&exempt), "{pressure}");
    // Its texts have been approved: they wait for nobody. The ends of transactions are committed when the lane finds nothing more.
    let mut routes = json!(null);
    let waits_for_nobody = wait_for(DEADLINE, || {
        routes = client.get("/v1/routes").json();
        let sms = &routes[0];
        (sms["waiting"] == 0 && sms["lag"].is_u64() && sms["available"] == true).then_some(())
    });
    assert!(waits_for_nobody.is_some(), "{routes}");
    assert_eq!(routes[0]["name"], "sms", "{routes}");
    let before = decided(&client);
    wait_until(DEADLINE, "intents keep coming", || decided(&client) >= before + 1_500.0);
    let log = demo.log();
    contains_all(&log, &["2000 intents: ", " 2 deferred, 2 dead letters"]);
    contains_all(&log, &["deferred      until 20", "weir-why: too_early"]);
    contains_all(&log, &["Route sms, ", "The demo stays up, with 500 intents per second."]);
    contains_all(&log, &[" -C -o end -u -f '%s %h\\n' | grep mine-\n"]);
    demo.interrupt();
    assert_eq!(demo.wait_exit(DEADLINE).unwrap(), Exit::Code(0), "{}", demo.log());
}
