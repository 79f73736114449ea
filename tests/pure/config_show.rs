//! `weir config show`: every setting, where it comes from, and no secret.

use std::path::Path;

use serde_json::{Value, json};
use weir::config::keys::SETTINGS;

use crate::program::run;

const CONFIG: &str = r#"
[kafka]
brokers = "b:9092"
intents = "i"
approved = "a"
suppressed = "s"
dead_letters = "d"
instance = "one"
[kafka.properties]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "weir"
"sasl.password" = "hunter2"
"ssl.key.password" = "hunter2"
"ssl.key.pem" = "hunter2"
[redis]
nodes = ["redis://weir:hunter2@r:6379", "redis://r:6380"]
password = "hunter2"
[segments]
source = "s3://bucket/manifest.json"
[policy]
source = "policy.toml"
[worker]
batch = 500
"#;

/// Names like those of secrets, whose values are none.
const TABLES: &str = r#"[kafka.property_files]
"ssl.keystore.password" = "token"
[kafka.approved_by_channel]
password-reset = "otp"
[schemas.files]
7 = "intent.avsc"
"#;

fn show(folder: &Path, env: &[(&str, &str)], args: &[&str]) -> (i32, String, String) {
    run(folder, &[&["config", "show"], args].concat(), env)
}

#[test]
fn every_setting_is_shown_with_its_source_and_without_secrets() {
    let folder = testkit::folder();
    std::fs::create_dir(folder.path().join("etc")).unwrap();
    std::fs::write(folder.path().join("etc/weir.toml"), format!("{CONFIG}{TABLES}")).unwrap();
    std::fs::write(folder.path().join("etc/token"), "hunter2").unwrap();
    let env = [
        ("WEIR_CONFIG", "etc/weir.toml"),
        ("WEIR__WORKER__BATCH", "700"),
        ("WEIR__HTTP__TOKEN_FILE", "token"),
        ("WEIR__KAFKA__PROPERTIES__SASL_OAUTHBEARER_CLIENT_SECRET", "hunter2"),
    ];
    let (code, out, err) = show(folder.path(), &env, &["--output", "json"]);
    assert_eq!((code, &*err), (0, ""), "{out}");
    assert!(!out.contains("hunter2"), "{out}");
    let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
    let row = |setting: &str| rows.iter().find(|row| row["setting"] == setting).unwrap_or_else(|| panic!("{setting}"));
    for setting in SETTINGS.iter().filter(|setting| !setting.form.has_entries()) {
        row(setting.key);
    }
    let from = |setting: &str, value: Value, source: &str, place: Option<&str>| {
        let mut expected = json!({"setting": setting, "value": value, "source": source});
        if let Some(place) = place {
            expected["place"] = place.into();
        }
        assert_eq!(row(setting), &expected);
    };
    let file = |line: &str| format!("etc/weir.toml:{line}");
    from("kafka.brokers", json!("b:9092"), "file", Some(&file("3:11")));
    from("kafka.group", json!("weir"), "default", None);
    from("kafka.refunds", Value::Null, "default", None);
    from("worker.batch", json!(700), "variable", Some("WEIR__WORKER__BATCH"));
    from("worker.lanes", json!(0), "default", None);
    from("policy.source", json!("etc/policy.toml"), "file", Some(&file("22:10")));
    from("segments.source", json!("s3://bucket/manifest.json"), "file", Some(&file("20:10")));
    from("http.token_file", json!("etc/token"), "variable", Some("WEIR__HTTP__TOKEN_FILE"));
    from("redis.password", json!("********"), "file", Some(&file("18:12")));
    from("redis.nodes", json!(["redis://weir:********@r:6379", "redis://r:6380"]), "file", Some(&file("17:9")));
    from("kafka.properties.\"sasl.username\"", json!("weir"), "file", Some(&file("12:1")));
    for secret in ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"] {
        assert_eq!(row(&format!("kafka.properties.\"{secret}\""))["value"], "********");
    }
    from("kafka.property_files.\"ssl.keystore.password\"", json!("etc/token"), "file", Some(&file("26:1")));
    from("kafka.approved_by_channel.\"password-reset\"", json!("otp"), "file", Some(&file("28:1")));
    from("schemas.files.\"7\"", json!("etc/intent.avsc"), "file", Some(&file("30:1")));

    let (code, out, _) = show(folder.path(), &env, &[]);
    assert!(code == 0 && !out.contains("hunter2"), "{out}");
    let words = |setting: &str| -> Vec<&str> {
        out.lines().map(|line| line.split_whitespace().collect()).find(|row: &Vec<&str>| row[0] == setting).unwrap()
    };
    assert_eq!(words("worker.batch"), ["worker.batch", "700", "WEIR__WORKER__BATCH"]);
    assert_eq!(words("kafka.intents"), ["kafka.intents", "i", "etc/weir.toml:4:11"]);
    assert_eq!(words("redis.unavailable_after"), ["redis.unavailable_after", "(never)", "default"]);
    assert_eq!(out.lines().count(), rows.len());
}

#[test]
fn a_wrong_configuration_is_reported_as_weir_check_reports_it() {
    let folder = testkit::folder();
    std::fs::write(folder.path().join("weir.toml"), CONFIG.replace("batch = 500", "batch = 0")).unwrap();
    let (code, out, err) = show(folder.path(), &[], &[]);
    assert_eq!((code, &*out), (2, ""));
    assert!(err.starts_with("weir: weir.toml:24:9: worker.batch must be a whole number from 1 to 100000"), "{err}");
}

#[test]
fn the_host_name_is_the_instance_unless_it_is_given() {
    let folder = testkit::folder();
    std::fs::write(folder.path().join("weir.toml"), CONFIG.replace("instance = \"one\"\n", "")).unwrap();
    let (_, out, _) = show(folder.path(), &[], &["--output", "json"]);
    let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
    let row = rows.iter().find(|row| row["setting"] == "kafka.instance").unwrap();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!((&row["value"], &row["source"]), (&json!(host.trim()), &json!("default")));
}
