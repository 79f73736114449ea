//! The limits, each by itself, and what a bug does.

use std::{io::Write as _, num::NonZeroU32, time::Duration};

use testkit::wait_until;
use weir::config::HttpSettings;

use crate::{
    client::{JSON, answer},
    in_process::Server,
    support::DEADLINE,
};

#[test]
fn what_takes_too_long_is_504_and_a_panic_is_500_and_neither_ends_the_server() {
    let server = Server::start(&HttpSettings { timeout: Duration::from_secs(1), ..HttpSettings::default() });
    server.client.get("/v1/users/7").problem(504, "timeout");
    server.client.decide("", &serde_json::json!({"id": "i", "user_id": 1})).problem(504, "timeout");
    server.client.get("/v1/users/panic").problem(500, "bug");
    assert_eq!(server.client.get("/livez").status, 200);
}

#[test]
fn a_server_that_drains_is_not_ready_answers_all_the_same_and_closes_connections_behind_their_answer() {
    let server = Server::start(&HttpSettings::default());
    assert_eq!(server.client.get("/readyz").status, 200);
    let mut kept = server.client.connect();
    let request = format!("GET /v1/segments HTTP/1.1\r\nhost: {}\r\n\r\n", server.client.address);
    server.drain();
    let said = server.client.get("/readyz").problem(503, "not_ready");
    assert!(said["detail"].as_str().unwrap().contains("asked to stop"), "{said}");
    assert_eq!(server.client.get("/livez").status, 200);
    // One who keeps connections open goes elsewhere before the port closes: it reads until the other side closes.
    kept.write_all(request.as_bytes()).unwrap();
    let answer = answer(&mut kept).unwrap();
    assert_eq!((answer.status, answer.headers.get("connection").map(String::as_str)), (200, Some("close")));
    assert_eq!(server.client.get("/v1/segments").status, 200, "new connections are taken");
}

/// <https://github.com/PostgREST/postgrest/issues/4689>
#[test]
fn a_request_that_is_worked_on_when_the_server_is_to_end_is_answered() {
    let options = HttpSettings { concurrency: 1, timeout: Duration::from_secs(6), ..HttpSettings::default() };
    let server = Server::start(&options);
    let mut asking = server.client.connect();
    let request = format!("GET /v1/users/7 HTTP/1.1\r\nhost: {}\r\n\r\n", server.client.address);
    asking.write_all(request.as_bytes()).unwrap();
    wait_until(DEADLINE, "it is worked on", || server.client.get("/v1/segments").status == 503);
    server.stop();
    // Nobody knows the answer: that is one, too.
    answer(&mut asking).expect("an answer").problem(504, "timeout");
}

#[test]
fn more_requests_than_may_be_worked_on_are_503_and_probes_are_answered_all_the_same() {
    let options = HttpSettings { concurrency: 2, timeout: Duration::from_secs(300), ..HttpSettings::default() };
    let server = Server::start(&options);
    let client = &server.client;
    let hanging = [(); 2].map(|()| client.begin("/v1/users/7"));
    wait_until(DEADLINE, "two are worked on", || client.get("/v1/segments").status == 503);
    let reply = client.get("/v1/segments");
    reply.problem(503, "busy");
    assert_eq!(reply.headers["retry-after"], "1");
    assert_eq!((client.get("/livez").status, client.get("/readyz").status), (200, 200));
    drop(hanging);
    wait_until(DEADLINE, "there is room again", || client.get("/v1/segments").status == 200);
}

#[test]
fn more_requests_than_the_rate_are_429_with_when_to_ask_again_but_for_probes() {
    let options =
        HttpSettings { rate: NonZeroU32::new(1), burst: NonZeroU32::new(3).unwrap(), ..HttpSettings::default() };
    let server = Server::start(&options);
    let statuses: Vec<u16> = (0..4).map(|_| server.client.get("/v1/segments").status).collect();
    assert_eq!(statuses[..3], [200, 200, 200]);
    let refused = (0..50).map(|_| server.client.get("/nowhere")).find(|reply| reply.status == 429);
    let refused = refused.expect("50 requests in a row are more than one a second");
    refused.problem(429, "rate");
    assert!(refused.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    assert_eq!(server.client.get("/livez").status, 200);
}

#[test]
fn a_head_that_is_too_large_is_refused_with_a_problem_and_what_is_no_http_with_a_status() {
    let server = Server::start(&HttpSettings::default());
    let client = &server.client;
    let long = format!("/v1/segments?x={}", "x".repeat(8 * 1024));
    client.get(&long).problem(414, "uri_too_long");
    let large = "x".repeat(16 * 1024);
    client.send("GET", "/v1/segments", &[("x-large", &large)], b"").problem(431, "head_too_large");
    let many: Vec<(String, &str)> = (0..101).map(|number| (format!("x-{number}"), "")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    client.send("GET", "/livez", &many, b"").problem(431, "head_too_large");
    assert_eq!(client.send("GET", "/livez", &many[..90], b"").status, 200);
    // Beyond these the connection itself answers, without a body.
    for (request, status) in [("GET / HTTP/1.1\r\nno header\r\n\r\n", 400), ("\0\r\n\r\n", 400)] {
        let mut stream = client.connect();
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(answer(&mut stream).unwrap().status, status, "{request:?}");
    }
}

#[test]
fn a_body_over_the_limit_is_413_whether_its_length_is_said_or_not() {
    let server = Server::start(&HttpSettings { body_bytes: 1024, ..HttpSettings::default() });
    let client = &server.client;
    client.send("POST", "/v1/decisions", &[JSON], &[b' '; 1025]).problem(413, "too_large");
    let chunk = format!("{:x}\r\n{}\r\n0\r\n\r\n", 4096, " ".repeat(4096));
    // A gigabyte that is only announced is not waited for.
    for (length, body) in [("transfer-encoding: chunked", chunk.as_str()), ("content-length: 1000000000", "")] {
        let mut stream = client.connect();
        let head =
            "POST /v1/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close";
        write!(stream, "{head}\r\n{length}\r\n\r\n{body}").unwrap();
        answer(&mut stream).unwrap().problem(413, "too_large");
    }
}
