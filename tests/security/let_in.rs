//! Access by TLS, password or certificate, and the error without it.

use testkit::{clock::ProcessClock, process::Exit};
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use crate::{
    stage::{EntryPoint, KAFKA_PASSWORD, STAGE, USER, check, lines, works},
    support::{DEADLINE, Scene, http::metric, outcome::intent},
};

fn scene_with(name: &str, entry_point: EntryPoint, user: &'static str) -> Scene {
    let scene = STAGE.scene(name, entry_point);
    STAGE.grant(user, &lines("kafka run", &scene));
    scene
}

#[test]
fn by_scram_over_tls_the_worker_works_with_exactly_the_documented_rights() {
    let mut scene = scene_with("scram", EntryPoint::Scram("SCRAM-SHA-512", KAFKA_PASSWORD), USER);
    works(&scene);
    STAGE.grant(USER, &lines("kafka check", &scene));
    for mechanism in ["SCRAM-SHA-512", "SCRAM-SHA-256"] {
        scene.set("WEIR__KAFKA__PROPERTIES__SASL_MECHANISM", mechanism);
        let (exit, said) = check(&scene, &[], &[]);
        assert_eq!(exit, Exit::Code(0), "{mechanism}: {said}");
        assert!(!said.contains("ERROR") && !said.contains("max.message.bytes are not known"), "{said}");
    }
    let file = scene.path("kafka-password");
    std::fs::write(&file, format!("{KAFKA_PASSWORD}\n")).unwrap();
    scene.env.retain(|(name, _)| *name != "WEIR__KAFKA__PROPERTIES__SASL_PASSWORD");
    scene.set("WEIR__KAFKA__PROPERTY_FILES__SASL_PASSWORD", file.display().to_string());
    let (exit, said) = check(&scene, &[], &[]);
    assert_eq!(exit, Exit::Code(0), "with the password in a file: {said}");
}

#[test]
fn with_exactly_the_documented_rights_intents_are_deferred_and_come_back() {
    let mut scene = STAGE.scene("defers", EntryPoint::Mutual("defers"));
    scene.defer(1);
    STAGE.grant("defers", &["kafka run", "kafka deferred"].map(|block| lines(block, &scene)).concat());
    let clock = ProcessClock::ahead(0).unwrap();
    let worker = scene.worker_by("i", &clock, &[]);
    // Due at the next full minute, or the one behind it.
    let soon_ms = SystemClock.now().millis() + 30_000;
    scene.publish([intent("later", "user-1", serde_json::json!({"not_before": soon_ms}))]);
    testkit::wait_until(DEADLINE, "it is deferred", || metric(&worker, "weir_deferred_total", "") >= Some(1.0));
    clock.set(120).unwrap();
    testkit::wait_until(DEADLINE, "it comes back", || {
        assert_eq!(worker.exit(), None, "{}", worker.log());
        !scene.output("approved").is_empty()
    });
    let checked = check(&scene, &[], &[]);
    assert_eq!(checked.0, Exit::Code(0), "{}", checked.1);
    assert!(checked.1.contains("-later/i/check"), "a transaction of that group is opened: {}", checked.1);
}

#[test]
fn by_a_certificate_the_worker_works_with_exactly_the_documented_rights() {
    works(&scene_with("mutual", EntryPoint::Mutual("by-certificate"), "by-certificate"));
}

#[test]
fn at_least_once_takes_no_transactional_id_and_no_right_on_the_cluster() {
    let mut scene = STAGE.scene("at-least", EntryPoint::Mutual("at-least"));
    scene.delivery = "at_least_once";
    let lines = lines("kafka run", &scene);
    let lines: Vec<String> = lines.into_iter().filter(|line| !line.contains("--transactional-id")).collect();
    STAGE.grant("at-least", &lines);
    works(&scene);
}

/// Settings, and what is said of them.
const REFUSED: &str = "
WEIR__KAFKA__PROPERTIES__SASL_PASSWORD=wrong => kafka: | uthentication | sasl.password
WEIR__KAFKA__PROPERTIES__SASL_USERNAME=nobody => kafka: | sasl.username
WEIR__KAFKA__PROPERTIES__SASL_MECHANISM=PLAIN => kafka: | sasl.mechanism
WEIR__KAFKA__PROPERTIES__SSL_CA_LOCATION=FOREIGN-CA => kafka: | certificate | ssl.ca.location
WEIR__KAFKA__PROPERTIES__SECURITY_PROTOCOL=PLAINTEXT => kafka: | TLS and SASL
WEIR__KAFKA__PROPERTIES__SSL_CERTIFICATE_LOCATION=FOREIGN-CERTIFICATE WEIR__KAFKA__PROPERTIES__SSL_KEY_LOCATION=FOREIGN-KEY \
 => kafka: | ssl.certificate.location
WEIR__REDIS__PASSWORD=wrong => redis: | redis.username and redis.password
WEIR__REDIS__CA_FILE=FOREIGN-CA => redis: | certificate | redis.ca_file
WEIR__REDIS__CERT_FILE=FOREIGN-CERTIFICATE WEIR__REDIS__KEY_FILE=FOREIGN-KEY => redis: | redis.cert_file
WEIR__S3__CA_FILE=FOREIGN-CA => segments: | policy: | certificate | s3.ca_file
WEIR__S3__CA_FILE=NO-CA => s3.ca_file | no certificate in it
WEIR__S3__ENDPOINT=NO-TLS => segments: | s3.endpoint
AWS_SECRET_ACCESS_KEY=wrong => segments: | access was denied | credentials
AWS_ACCESS_KEY_ID=NOBODY => policy: | s3:GetObject on arn:aws:s3:::weir/weir/
";

#[test]
fn who_is_not_let_in_is_told_what_to_look_at() {
    let scene = scene_with("strangers", EntryPoint::Scram("SCRAM-SHA-512", KAFKA_PASSWORD), USER);
    let certified = scene_with("uncertified", EntryPoint::Mutual("uncertified"), "uncertified");
    let foreign = STAGE.stranger.client("uncertified").unwrap();
    let plain = STAGE.s3.secured_endpoint().unwrap().replace("https", "http");
    let value = |word: &str| match word {
        "FOREIGN-CA" => STAGE.stranger.ca_file().display().to_string(),
        "FOREIGN-CERTIFICATE" => foreign.certificate.display().to_string(),
        "FOREIGN-KEY" => foreign.key.display().to_string(),
        "NO-CA" => scene.path("policy.toml").display().to_string(),
        "NO-TLS" => plain.clone(),
        word => word.to_owned(),
    };
    let cases = REFUSED.trim().lines().map(|line| {
        let (settings, said) = line.split_once(" => ").unwrap();
        let env = settings.split(' ').map(|setting| setting.split_once('=').unwrap());
        let scene = if settings.contains("SSL_KEY_LOCATION") { &certified } else { &scene };
        (scene, env.map(|(name, word)| (name, value(word))).collect::<Vec<_>>(), said)
    });
    let cases: Vec<_> = cases.collect();
    // In parallel: most of the time librdkafka waits to retry.
    std::thread::scope(|threads| {
        for (scene, env, expected) in &cases {
            threads.spawn(move || {
                let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let (exit, said) = check(scene, &env, &[]);
                // 1: a server refuses. 2: a file or object cannot be read, so no worker starts.
                let at_a_server = ["WEIR__KAFKA__", "WEIR__REDIS__", "WEIR__S3__ENDPOINT"];
                let refused = at_a_server.iter().any(|name| env[0].0.starts_with(name));
                assert_eq!(exit, Exit::Code(if refused { 1 } else { 2 }), "{env:?}: {said}");
                for word in expected.split(" | ") {
                    assert!(said.contains(word), "{env:?} should say {word:?}: {said}");
                }
            });
        }
    });
}
