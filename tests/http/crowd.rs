//! Crowds and slow clients: bounded, and the lanes do not feel them.

use std::{io::Write as _, time::Duration};

use serde_json::json;
use testkit::wait_until;

use crate::{
    client::{Client, answer, is_closed_within},
    support::{DEADLINE, POLICY, Scene, http::metric},
};

#[test]
fn thousands_of_idle_connections_keep_nobody_from_being_answered() {
    let mut scene = Scene::new("crowd", 1, POLICY);
    scene.set("WEIR__HTTP__CONNECTIONS", "4096");
    scene.set("WEIR__HTTP__READ_TIMEOUT", "5m");
    let roomy = scene.ready("roomy");
    let client = Client::of(&roomy);
    let idle: Vec<_> = (0..2000).map(|_| client.connect()).collect();
    wait_until(DEADLINE, "all are open", || metric(&roomy, "weir_http_connections", "").unwrap() >= 2000.0);
    scene.decide_wave("idle", 0..1000, &json!({}));
    assert_eq!(client.get("/livez").status, 200);
    client.get("/v1/users/7").json();
    drop(idle);
    drop(roomy);

    // With room for 100, the longest idle connections are closed.
    scene.env[0].1 = "100".into();
    let narrow = scene.ready("narrow");
    let client = Client::of(&narrow);
    let mut idle: Vec<_> = (0..1000).map(|_| client.connect()).collect();
    assert_eq!(client.get("/livez").status, 200);
    assert!(metric(&narrow, "weir_http_connections", "").unwrap() <= 100.0);
    assert!(metric(&narrow, "weir_http_evictions_total", "").unwrap() >= 900.0);
    assert!(is_closed_within(&mut idle[0], DEADLINE));
    scene.decide_wave("evicted", 0..1000, &json!({}));
    assert_eq!(client.get("/readyz").status, 200);
}

#[test]
fn slow_clients_are_cut_off() {
    let mut scene = Scene::new("slow", 1, POLICY);
    scene.set("WEIR__HTTP__READ_TIMEOUT", "2s");
    let (_worker, client) = Client::ready(&scene, "slow");
    let mut silent = client.connect();
    let mut half_a_head = client.connect();
    half_a_head.write_all(b"GET /livez HTTP/1.1\r\nhost: lo").unwrap();
    let mut half_a_body = client.connect();
    let head = "POST /v1/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    half_a_body.write_all(head.as_bytes()).unwrap();
    let mut no_http = client.connect();
    no_http.write_all(b"\x16\x03\x01 hello\r\n\r\n").unwrap();

    assert!(is_closed_within(&mut silent, Duration::from_secs(60)));
    assert!(is_closed_within(&mut half_a_head, Duration::from_secs(60)));
    answer(&mut half_a_body).unwrap().problem(408, "slow_body");
    assert_eq!(answer(&mut no_http).map(|reply| reply.status), Some(400));
    assert_eq!(client.get("/livez").status, 200);
}
