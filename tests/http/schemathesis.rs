//! Schemathesis asks what people do not think of: every answer has to be one that the OpenAPI document has.

use std::{path::Path, process::Command, time::Duration};

use testkit::{process::output_within, wait_until};

use crate::{
    client::Client,
    support::{DEADLINE, POLICY, Scene, http::metric},
};

const TOKEN: &str = "for-schemathesis";
/// What every answer is held to.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,unsupported_method,allow_header_conformance,ignored_auth";
/// How long a run may take: less than a test, which begins with a worker's start, so that what it has printed is told.
const RUN_DEADLINE: Duration = Duration::from_secs(140);
/// Cases that a run makes at the least.
const CASES: u32 = 500;

#[test]
fn schemathesis_finds_no_answer_that_the_document_does_not_have() {
    let budgets = "[[budgets]]\nname = \"total\"\nlimit = 1_000\ntotal = true\n\
                   [[budgets]]\nname = \"spring\"\neach = \"campaign\"\nlimit = 1_000\nwindow = \"1h\"\n";
    let pressure = "[pressure]\nmax_active_users = 100_000\naction = \"suppress\"\n";
    let mut scene = Scene::new("schemathesis", 1, &format!("{POLICY}{budgets}{pressure}"));
    scene.defer(1);
    scene.set("WEIR__HTTP__TOKEN", TOKEN);
    scene.set("WEIR__HTTP__RATE", "0");
    let (worker, client) = Client::ready(&scene, "schemathesis");
    wait_until(DEADLINE, "the deferred intents are counted", || client.get("/v1/deferred").status == 200);
    wait_until(DEADLINE, "who is active is read", || client.get("/v1/pressure").status == 200);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".weir/python/bin/schemathesis");
    assert!(program.exists(), "{} is missing: run cargo xtask setup", program.display());
    let refused = || metric(&worker, "weir_http_requests_total", "status=\"50").unwrap_or(0.0);
    let before = refused();
    let mut command = Command::new(program);
    command
        .current_dir(scene.path(""))
        .args(["run", &format!("http://{}/openapi.json", client.address), "--checks", CHECKS])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "60", "--seed", "1"])
        // A service that has no capacity left is answered with 503.
        .args(["--exclude-operation-id", "admit"])
        .args(["--request-timeout", "20", "--continue-on-failure", "--warnings", "off"]);
    let output = output_within(RUN_DEADLINE, &mut command).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let generated = said.lines().find_map(|line| line.trim().split_once(" generated")?.0.parse::<u32>().ok());
    assert!(generated.is_some_and(|cases| cases >= CASES), "{said}");
    assert_eq!(refused(), before, "no 5xx: {said}");
}
