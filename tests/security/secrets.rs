//! No output of weir contains secrets, whatever goes wrong and however much it logs.

use testkit::{process::Exit, wait_until, worker::Worker};

use crate::{
    stage::{EntryPoint, KAFKA_PASSWORD, REDIS_PASSWORD, S3_SECRET, STAGE, USER, check, lines, works},
    support::{DEADLINE, Scene, http::get, weir},
};

/// The prefix of all secrets of these tests.
const MARK: &str = "MARKED-";
const TOKEN: &str = "MARKED-http-token";
const WRONG: &str = "MARKED-wrong-password";

fn scene(name: &str) -> Scene {
    for secret in [KAFKA_PASSWORD, REDIS_PASSWORD, S3_SECRET, TOKEN, WRONG] {
        assert!(secret.starts_with(MARK));
    }
    let mut scene = STAGE.scene(name, EntryPoint::Scram("SCRAM-SHA-512", KAFKA_PASSWORD));
    scene.set("WEIR__HTTP__TOKEN", TOKEN);
    scene.set("WEIR__LOG__LEVEL", "trace");
    STAGE.grant(USER, &lines("kafka run", &scene));
    scene
}

/// A scene with all secrets, for commands that ask neither Kafka nor Redis.
fn offline(name: &str) -> Scene {
    let mut scene = STAGE.files(name);
    for (setting, secret) in [
        ("WEIR__KAFKA__PROPERTIES__SASL_PASSWORD", KAFKA_PASSWORD),
        ("WEIR__REDIS__PASSWORD", REDIS_PASSWORD),
        ("WEIR__HTTP__TOKEN", TOKEN),
    ] {
        scene.set(setting, secret);
    }
    scene
}

#[track_caller]
fn clean(what: &str, text: &str) {
    let found = text.lines().find(|line| line.contains(MARK));
    assert!(found.is_none(), "a secret is in {what}: {found:?}");
}

#[test]
fn a_worker_that_works_and_logs_everything_shows_none() {
    let scene = scene("quiet");
    let mut worker = scene.worker("metrics");
    clean("/metrics", &get(&worker, "/metrics").1);
    clean("/readyz", &get(&worker, "/readyz").1);
    worker.kill();
    clean("the log", &worker.log());
    let log = works(&scene).log();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the log has everything: {log}");
    clean("the log", &log);
}

#[test]
fn a_worker_in_trouble_shows_none() {
    let scene = scene("trouble");
    let url = format!("rediss://somebody:{WRONG}@127.0.0.1:{}", STAGE.redis.port());
    /// The defect, the exit code of a check (1: a server refuses, 2: something is written incorrectly), and the settings.
    type Case<'c> = (&'c str, u8, &'c [(&'c str, &'c str)]);
    let cases: &[Case<'_>] = &[
        ("a wrong password at Kafka", 1, &[("WEIR__KAFKA__PROPERTIES__SASL_PASSWORD", WRONG)]),
        ("a wrong password at Redis", 1, &[("WEIR__REDIS__PASSWORD", WRONG)]),
        ("a password in the URL", 1, &[("WEIR__REDIS__NODES", &url), ("WEIR__REDIS__PASSWORD", WRONG)]),
        ("a URL that is none", 2, &[("WEIR__REDIS__NODES", "http://MARKED-user:MARKED-url@127.0.0.1")]),
        ("a wrong secret at S3", 2, &[("AWS_SECRET_ACCESS_KEY", WRONG)]),
        ("a mistyped property", 2, &[("WEIR__KAFKA__PROPERTIES__SASL_PASWORD", WRONG)]),
        ("a value that no property takes", 2, &[("WEIR__KAFKA__PROPERTIES__SECURITY_PROTOCOL", WRONG)]),
        ("a token with a control character", 2, &[("WEIR__HTTP__TOKEN", "MARKED-\u{7}")]),
        ("Kafka away", 1, &[("WEIR__KAFKA__BROKERS", "127.0.0.1:1")]),
    ];
    // In parallel: most of the time librdkafka waits to retry.
    std::thread::scope(|threads| {
        for (what, code, env) in cases {
            let scene = &scene;
            for form in ["text", "json"] {
                threads.spawn(move || {
                    let (exit, said) = check(scene, env, &["--output", form]);
                    assert_eq!(exit, Exit::Code((*code).into()), "{what}: {said}");
                    clean(what, &said);
                });
            }
            threads.spawn(move || {
                let mut worker = scene.worker_with("trouble", env);
                // It has ended, or reports that it retries.
                wait_until(DEADLINE, "it is in trouble", || {
                    worker.exit().is_some() || worker.log().contains("trying again")
                });
                worker.kill();
                clean(what, &worker.log());
            });
        }
    });
}

#[test]
fn a_configuration_that_cannot_be_read_shows_none() {
    let scene = offline("unreadable");
    let config = scene.config("i");
    let breaks = [
        ("[worker]", "[redis.extra]\npassword = \"MARKED-open\n[worker]"),
        ("[worker]", "[http]\ntoken = MARKED-bare\n[worker]"),
        ("lanes = 1", "lanes = 1\npassword = \"MARKED-misplaced\""),
        ("\"session.timeout.ms\" = \"6000\"", "\"sasl.password\" = [\"MARKED-list\"]"),
    ];
    for (from, to) in breaks {
        let broken = config.replace(from, to);
        assert_ne!(broken, config, "{from}");
        let args = |config: std::path::PathBuf| vec!["check".into(), "--config".into(), config.into()];
        let mut check = Worker::start(weir(), &broken, args, &[]).unwrap();
        assert_eq!(check.wait_exit(DEADLINE).unwrap(), Exit::Code(2), "{}", check.log());
        clean(to, &check.log());
    }
}

#[test]
fn no_help_shows_the_environment_s_secrets() {
    let scene = offline("help");
    let verbs = "|demo|run|check|explain|rebuild|plan|segments build|segments inspect|segments lookup|segments members|\
                 policy check|policy simulate";
    let env: Vec<(&str, &str)> = scene.env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for verb in verbs.split('|') {
        let arguments: Vec<std::ffi::OsString> = verb.split_whitespace().chain(["--help"]).map(Into::into).collect();
        let mut help = Worker::start(weir(), "", |_| arguments, &env).unwrap();
        assert_eq!(help.wait_exit(DEADLINE).unwrap(), Exit::Code(0), "{}", help.log());
        assert!(help.log().contains("Usage"), "{}", help.log());
        clean("--help", &help.log());
    }
}
