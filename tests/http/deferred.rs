//! `GET /v1/deferred`: how many intents are due in each coming hour, as the metric and the page say it, too.

use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::{clock::ProcessClock, redis::RedisServer, wait_until};
use weir::{config::HttpSettings, deferred::DeferredCount};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use crate::{
    client::Client,
    in_process::{Server, Shown},
    page::browser::Browser,
    support::{
        DEADLINE, Scene,
        http::{address, metric, wait_ready},
        outcome::intent,
    },
};

const POLICY: &str =
    "version = \"1\"\n[default]\ncaps = [{ name = \"day\", limit = 9, window = \"24h\" }]\n[defer]\nmax = \"72h\"\n";

/// Waits until so many intents are due in these hours, and no others.
fn wait_due(client: &Client, expected: &[(&str, u64)]) -> Value {
    let hours: Vec<Value> = expected.iter().map(|(from, intents)| json!({"from": from, "intents": intents})).collect();
    let mut found = Value::Null;
    let due = || {
        let reply = client.get("/v1/deferred");
        found = serde_json::from_str(&reply.body).unwrap();
        reply.status == 200 && found["hours"] == json!(hours)
    };
    wait_until(DEADLINE, &format!("these are due: {expected:?}"), due);
    assert_eq!(found["waiting"], expected.iter().map(|(_, intents)| intents).sum::<u64>(), "{found}");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn deferred_intents_are_shown_by_the_hour_that_they_are_due_in_until_they_are_released() {
    let ahead_s = |at: &str| at.parse::<Timestamp>().unwrap().as_second() - SystemClock.now().millis() / 1_000;
    let clock = ProcessClock::ahead(ahead_s("2026-11-20T21:30:00Z")).unwrap();
    let redis = RedisServer::start_by(&clock).unwrap();
    let mut scene = Scene::on_redis(vec![redis.url()], "http-deferred", 1, POLICY);
    scene.defer(1);
    let worker = scene.worker_by("one", &clock, &[]);
    wait_ready(&worker);
    let client = Client::of(&worker);
    let browser = Browser::open(&address(&worker)).await;
    let empty = wait_due(&client, &[]);
    let topics = ["hours", "minutes"].map(|ring| scene.topic(&format!("deferred-{ring}")));
    assert_eq!(empty["topics"], json!(topics));

    // In 10 minutes, in 3 hours, in 30.
    let dues = ["2026-11-20T21:40:00Z", "2026-11-21T00:30:00Z", "2026-11-22T03:30:00Z"];
    scene.publish(dues.iter().enumerate().map(|(user, due)| intent(due, user, json!({"not_before": due}))));
    let later = [("2026-11-21T00:00:00.000Z", 1), ("2026-11-22T03:00:00.000Z", 1)];
    let due = wait_due(&client, &[("2026-11-20T21:00:00.000Z", 1), later[0], later[1]]);
    let at: Timestamp = due["at"].as_str().unwrap().parse().unwrap();
    assert!(at >= "2026-11-20T21:30:00Z".parse().unwrap() && at < "2026-11-20T21:40:00Z".parse().unwrap(), "{due}");
    let gauge = |topic: &str| metric(&worker, "weir_deferred_waiting", &format!("topic=\"{topic}\""));
    assert_eq!([gauge(&topics[0]), gauge(&topics[1])], [Some(2.0), Some(1.0)]);
    let rows = "[...document.querySelectorAll('#deferred tr')].filter((row) => row.querySelector('.bar'))";
    browser.wait("the page shows three hours", &format!("return {rows}.length === 3")).await;
    let shown = browser.text("#deferred-card").await;
    assert!(shown.contains("this hour") && shown.contains("3 at the most"), "{shown}");

    // A bucket that was emptied counts nothing, though the end of a transaction is behind its last record.
    clock.set(ahead_s("2026-11-20T21:40:01Z")).unwrap();
    wait_due(&client, &later);
    assert_eq!(scene.decisions().keys().collect::<Vec<_>>(), [dues[0]]);
    assert_eq!([gauge(&topics[0]), gauge(&topics[1])], [Some(2.0), Some(0.0)]);
    browser.wait("the page shows two hours", &format!("return {rows}.length === 2")).await;
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.nameless(), Vec::<String>::new());
}

#[test]
fn without_deferral_there_is_nothing_of_the_name_and_before_the_first_count_it_is_not_known() {
    let server = Server::start(&HttpSettings::default());
    let problem = server.client.get("/v1/deferred").problem(404, "not_deferring");
    assert!(problem["detail"].as_str().unwrap().contains("kafka.deferred is not set"), "{problem}");
    let server = Server::showing("", Shown { deferred: Some(DeferredCount::default()), ..Shown::default() });
    let reply = server.client.get("/v1/deferred");
    reply.problem(503, "not_counted_yet");
    assert!(reply.headers["retry-after"].parse::<u64>().unwrap() >= 1, "{reply:?}");
}
