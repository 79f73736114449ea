//! A weir whose service has no capacity left answers 503; the programs wait for its Retry-After, deliver, and report.

use std::thread;

use serde_json::{Value, json};
use testkit::{process::Exit, wait_for, wait_until, worker::Worker};

use crate::{
    deliveries::deliver,
    language::Language,
    services::Services,
    support::{
        DEADLINE, POLICY, Scene,
        http::{address, get_json, metric, send},
    },
};

const SERVICE: &str = "/v1/services/push-gateway";

/// Status and body of a request about the service.
fn ask(worker: &Worker, method: &str, path: &str, body: &Value) -> (u16, String) {
    send(worker, method, &format!("{SERVICE}{path}"), body)
}

/// The id of an admission, if there is a place.
fn admit(worker: &Worker) -> Option<String> {
    let (status, body) = ask(worker, "POST", "/admissions", &json!({}));
    let admission: Value = serde_json::from_str(&body).unwrap();
    (status == 200).then(|| admission["id"].as_str().unwrap().to_owned())
}

fn end(worker: &Worker, admission: &str) {
    let report = json!({"took_ms": 1, "outcome": "ok"});
    assert_eq!(ask(worker, "DELETE", &format!("/admissions/{admission}"), &report).0, 200);
}

fn denied(worker: &Worker) -> f64 {
    metric(worker, "weir_http_requests_total", "status=\"503\"").unwrap_or(0.0)
}

pub fn run(language: Language) {
    let scene = Scene::new("examples-admitted", 1, POLICY);
    let worker = scene.ready("only");
    let weir = format!("http://{}", address(&worker));
    let capacity = json!({"capacity_per_s": 10, "concurrency": 1, "timeout_ms": 60_000, "interval_ms": 60_000});
    assert_eq!(ask(&worker, "PUT", "/instances/a", &capacity).0, 200);
    let held = wait_for(DEADLINE, || admit(&worker)).expect("an admission, which takes the only place");
    let provider = Services::start(&[(500, None)], &[(200, None)]);
    let before = denied(&worker);
    let outcome = thread::scope(|scope| {
        let delivery = scope.spawn(|| deliver(language, &weir, &provider.url));
        wait_until(DEADLINE, "it is denied an admission", || denied(&worker) > before);
        end(&worker, &held);
        delivery.join().unwrap()
    });
    assert_eq!(outcome, ("ok".to_owned(), Exit::Code(0)));
    assert_eq!(provider.requests().len(), 1, "it delivers once");
    let free = admit(&worker).expect("it has ended its admission");
    end(&worker, &free);
    wait_until(DEADLINE, "its report is there", || get_json(&worker, SERVICE)["mean_took_ms"].is_f64());
}
