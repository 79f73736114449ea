//! The rule for services that ask weir before they deliver: permanent errors end it; temporary ones are tried again after
//! Retry-After, else by exponential backoff with full jitter, and both are bounded.

use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{ports::Port, process::Exit};

use crate::{
    language::{self, Language},
    services::{Answer, PROVIDER, Request, Services},
};

const ADMISSIONS: &str = "/v1/services/push-gateway/admissions";
const TOKEN: &str = "of-the-examples";
/// How often a message is tried at most.
const ATTEMPTS: usize = 5;
/// The pauses between these, if each is as long as it may be: 0.2, 0.4, 0.8 and 1.6 s.
const LONGEST: Duration = Duration::from_secs(3);
/// What starting a program and five requests may take on a busy machine.
const OVERHEAD: Duration = Duration::from_secs(20);

/// The outcome that a language's program prints, and how it ends.
pub fn deliver(language: Language, weir: &str, provider: &str) -> (String, Exit) {
    let mut program = language.program("deliver");
    program.env("WEIR_HTTP", weir).env("WEIR_TOKEN", TOKEN);
    language::run(program.args(["push-gateway", &format!("{provider}{PROVIDER}"), "Hello"]))
}

/// A delivery to services with these answers has this outcome; its requests.
#[track_caller]
fn expect(
    language: Language,
    admissions: &'static [Answer],
    provider: &'static [Answer],
    outcome: &str,
) -> Vec<Request> {
    let services = Services::start(admissions, provider);
    let code = if outcome == "ok" { 0 } else { 1 };
    assert_eq!(deliver(language, &services.url, &services.url), (outcome.to_owned(), Exit::Code(code)));
    services.requests()
}

/// Requests in short: `admission`, `message`, or the outcome of a report.
fn steps(requests: &[Request]) -> Vec<String> {
    let step = |request: &Request| match (request.method.as_str(), request.path.as_str()) {
        ("POST", ADMISSIONS) => "admission".to_owned(),
        ("POST", PROVIDER) => "message".to_owned(),
        ("DELETE", path) => {
            assert_eq!(path, format!("{ADMISSIONS}/a-1"));
            let report: Value = serde_json::from_str(&request.body).unwrap();
            assert!(report["took_ms"].is_u64(), "{report}");
            report["outcome"].as_str().unwrap().to_owned()
        }
        other => panic!("{other:?}"),
    };
    requests.iter().map(step).collect()
}

pub fn run(language: Language) {
    let (said, exit) = language::run(&language.delays());
    assert!(exit == Exit::Code(0) && said.contains("10 delays"), "{said}");
    waits_for_retry_after(language);
    ends_at_permanent_errors(language);
    tries_again_after_temporary_errors(language);
    is_bounded(language);
}

fn waits_for_retry_after(language: Language) {
    let requests = expect(language, &[(503, Some(1)), (503, Some(1)), (200, None)], &[(200, None)], "ok");
    assert_eq!(steps(&requests), ["admission", "admission", "admission", "message", "ok"]);
    for pair in requests[..3].windows(2) {
        assert!(pair[1].at - pair[0].at >= Duration::from_secs(1), "{requests:?}");
    }
    assert_eq!(requests[3].body, "Hello");
    // The token is weir's, and not shown to the provider.
    for request in &requests {
        let expected = (request.path != PROVIDER).then(|| format!("Bearer {TOKEN}"));
        assert_eq!(request.authorization, expected, "{request:?}");
    }
}

fn ends_at_permanent_errors(language: Language) {
    let requests = expect(language, &[(404, Some(0))], &[(200, None)], "permanent");
    assert_eq!(steps(&requests), ["admission"]);
    let requests = expect(language, &[(200, None)], &[(410, Some(0))], "permanent");
    assert_eq!(steps(&requests), ["admission", "message", "permanent"]);
}

fn tries_again_after_temporary_errors(language: Language) {
    let requests = expect(language, &[(429, None), (200, None)], &[(500, Some(1)), (200, None)], "ok");
    let all = ["admission", "admission", "message", "temporary", "admission", "message", "ok"];
    assert_eq!(steps(&requests), all);
    assert!(requests[4].at - requests[2].at >= Duration::from_secs(1), "{requests:?}");
}

/// All tries of a message take no longer than their pauses.
pub fn is_quick(language: Language) {
    let took = is_bounded(language);
    assert!(took < LONGEST + OVERHEAD, "{took:?}");
}

/// How long all tries of a message took.
fn is_bounded(language: Language) -> Duration {
    let start = Instant::now();
    let requests = expect(language, &[(503, None)], &[(200, None)], "temporary");
    assert_eq!(steps(&requests), ["admission"; ATTEMPTS]);
    let took = start.elapsed();
    // A Retry-After beyond the longest wait ends it at once: weir is not asked early.
    let requests = expect(language, &[(503, Some(3_600))], &[(200, None)], "temporary");
    assert_eq!(steps(&requests), ["admission"]);
    // Nobody answers.
    let nobody = Port::lease().unwrap();
    let url = format!("http://127.0.0.1:{}", nobody.number());
    assert_eq!(deliver(language, &url, &url), ("temporary".to_owned(), Exit::Code(1)));
    took
}
