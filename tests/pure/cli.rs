//! The commands as processes: what they print, where, and with which exit code.

use std::{path::Path, process::Command};

use crate::{
    program::{configure, run},
    support::{POLICY, contains_all, is_a_paragraph, weir},
};
use serde_json::{Value, json};
use testkit::process::output;

#[track_caller]
fn says(args: &[&str], folder: &Path, code: i32) -> (String, String) {
    let (found, out, err) = run(folder, args, &[]);
    assert_eq!(found, code, "{args:?}: {out}{err}");
    (out, err)
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn help_and_version_are_everywhere() {
    let folder = testkit::folder();
    let verbs = "|demo|run|check|explain|forget|rebuild|segments|segments build|segments inspect|segments lookup|\
                 segments members|policy|policy check|policy simulate|plan|health|config|config show|completions|man";
    for verb in verbs.split('|').map(words) {
        let (out, err) = says(&[&verb[..], &["--help"]].concat(), folder.path(), 0);
        assert!(out.contains("Usage: weir") && err.is_empty(), "{verb:?}: {out}{err}");
        let (out, err) = says(&[&verb[..], &["--version"]].concat(), folder.path(), 0);
        assert!(out.contains(env!("CARGO_PKG_VERSION")) && err.is_empty(), "{verb:?}: {out}{err}");
    }
}

#[test]
fn wrong_usage_ends_with_2() {
    let folder = testkit::folder();
    let cases = "|check --accept-lost-history|no-verb|explain|forget|run --no-flag|check --output xml|segments build --into x|\
                 policy check|completions|completions tcsh|man|check --log-level weir=loud|check --log-level warning|\
                 check --log-level weir_kafka=debug|policy check policy.toml --history 5M|demo --publish 0|\
                 plan --users 0 --rate 1 --peak 1";
    for args in cases.split('|').map(words) {
        let (out, err) = says(&args, folder.path(), 2);
        assert!(out.is_empty() && !err.is_empty(), "{args:?}: {out}");
    }
    for verb in ["run", "check", "explain 42", "forget 42"] {
        let (_, err) = says(&words(&format!("{verb} --config nowhere.toml")), folder.path(), 2);
        is_a_paragraph(&err);
        assert!(err.contains("nowhere.toml"), "{err}");
    }
}

#[test]
fn the_demo_shows_the_whole_thing() {
    let folder = testkit::folder();
    let (out, _) = says(&["demo", "--publish", "2000"], folder.path(), 0);
    assert!(out.starts_with("2000 intents: "), "{out}");
    let parts = ["approved", "suppressed", "dead letter", "duplicate", "weir-decision", "weir.decision/2", "Route sms"];
    contains_all(&out, &parts);
    let counts: Vec<u64> = out
        .lines()
        .next()
        .unwrap()
        .split(|sign: char| !sign.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect();
    assert_eq!(counts[0], counts[1..].iter().sum::<u64>(), "{out}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");
}

#[test]
fn the_demo_tells_programs_what_it_tells_people() {
    let folder = testkit::folder();
    let (out, _) = says(&["demo", "--publish", "2000", "--output", "json"], folder.path(), 0);
    let said: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    let count = |field: &str| said[field].as_u64().unwrap_or_else(|| panic!("{field}: {said}"));
    let kinds = ["approved", "suppressed", "deferred", "dead_letters"].map(count);
    assert_eq!((count("intents"), kinds.iter().sum::<u64>()), (2000, 2000), "{said}");
    let became = said["became"].as_array().unwrap();
    assert_eq!(became.iter().map(|row| row["intents"].as_u64().unwrap()).sum::<u64>(), 2000, "{said}");
    assert!(became.iter().any(|row| row["became"] == "dead_letter") && said.get("kept").is_none(), "{said}");
    assert!(said["texts"]["route"] == "sms" && said["texts"]["approved"].as_u64() > Some(0), "{said}");
}

/// The exit code of a command whose output nobody reads, and what it says on stderr.
fn unread(args: &[&str], folder: &Path) -> (Option<i32>, String) {
    // A pipe whose reader is gone before the command begins.
    let script = "pipe=nobody.$$; mkfifo $pipe; cat < $pipe > /dev/null & exec 3> $pipe; kill $!; wait $! 2> /dev/null; \
                  rm $pipe; exec \"$@\" >&3 3>&-";
    let output = output(Command::new("/bin/sh").args(["-c", script, "sh"]).arg(weir()).args(args).current_dir(folder));
    let output = output.unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_command_whose_output_nobody_reads_fails_for_nothing_but_what_it_found() {
    let folder = testkit::folder();
    configure(folder.path(), "b:9092", "");
    std::fs::write(folder.path().join("bad.toml"), "version = 1\n").unwrap();
    let fine =
        "config show|policy check policy.toml|plan --users 1M --rate 10 --peak 100|completions bash|demo --publish 10";
    // Side by side: a demo takes its time.
    std::thread::scope(|threads| {
        for args in fine.split('|') {
            for form in ["--output json", ""] {
                if args.starts_with("completions") && !form.is_empty() {
                    continue;
                }
                let (args, folder) = ([words(args), words(form)].concat(), folder.path());
                threads.spawn(move || assert_eq!(unread(&args, folder), (Some(0), String::new()), "{args:?}"));
            }
        }
    });
    // The segments are not there, and the policy is none.
    for args in ["check --offline", "policy check bad.toml"] {
        for form in ["text", "json"] {
            let (code, err) = unread(&words(&format!("{args} --output {form}")), folder.path());
            assert!(code == Some(2) && !err.contains("cannot print"), "{args:?}: {code:?} {err}");
        }
    }
}

#[test]
fn a_command_logs_where_the_command_line_says_so_and_by_no_other_variable() {
    let logged = |level: &str| {
        let line = format!("demo --publish 10 {level}");
        let args = words(&line);
        let (code, _, err) = run(Path::new("."), &args, &[("RUST_LOG", "trace")]);
        assert_eq!(code, 0, "{err}");
        err.lines().filter(|line| line.contains("\"level\":")).count()
    };
    let asked = ["", "--log-level off", "--log-level info", "--log-level WARN,weir=info"];
    // Side by side: a demo takes its time.
    let [nothing, off, info, mixed] = std::thread::scope(|threads| {
        asked.map(|level| threads.spawn(move || logged(level))).map(|demo| demo.join().unwrap())
    });
    assert_eq!((nothing, off), (0, 0));
    assert!(info > 0 && mixed > 0, "{info}, {mixed}");
}

#[test]
fn policy_check_says_what_a_policy_means_or_all_that_is_wrong() {
    let folder = testkit::folder();
    std::fs::write(folder.path().join("good.toml"), POLICY).unwrap();
    std::fs::write(folder.path().join("bad.toml"), "version = 1\n[segments.a]\ncaps = []\n").unwrap();
    let (out, err) = says(&["policy", "check", "good.toml"], folder.path(), 0);
    assert!(out.contains("push-today") && out.contains("test-1") && err.is_empty(), "{out}{err}");
    let (out, _) = says(&["policy", "check", "good.toml", "--output", "json"], folder.path(), 0);
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&said["valid"], &said["version"]), (&json!(true), &json!("test-1")));

    let (out, err) = says(&["policy", "check", "bad.toml"], folder.path(), 2);
    assert!(out.is_empty(), "{out}");
    contains_all(&err, &["bad.toml:1:", "bad.toml:3:", "default"]);
    let (out, _) = says(&["policy", "check", "bad.toml", "--output", "json"], folder.path(), 2);
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["valid"], false);
    assert!(said["problems"].as_array().unwrap().len() >= 3, "{said}");
    let (_, err) = says(&["policy", "check", "nowhere.toml"], folder.path(), 2);
    assert!(err.contains("nowhere.toml"), "{err}");
    let (_, err) = says(&["policy", "check", "good.toml", "--history", "1d"], folder.path(), 2);
    assert_eq!(err.matches("segments.new.caps[1].window looks back up to 7d").count(), 1, "{err}");
}

#[test]
fn segments_that_are_absent_are_a_wrong_argument_and_torn_ones_a_failure() {
    let folder = testkit::folder();
    std::fs::write(folder.path().join("new.ids"), "3\n1\n2\n").unwrap();
    says(&words("segments build --into set --user-id u32 new=new.ids"), folder.path(), 0);
    let (_, err) = says(&words("segments members set/manifest.json nobody"), folder.path(), 2);
    assert!(err.contains("nobody"), "{err}");
    for args in ["inspect set/no-manifest.json", "lookup set/no-manifest.json 1", "members set/no-manifest.json 1"] {
        let (_, err) = says(&words(&format!("segments {args}")), folder.path(), 2);
        assert!(err.contains("no-manifest.json: it does not exist"), "{args}: {err}");
    }
    // What is there but cannot be used is a failure of the run, not of the arguments.
    for object in std::fs::read_dir(folder.path().join("set")).unwrap().map(|entry| entry.unwrap().path()) {
        if object.extension().is_some_and(|ending| ending == "roaring") {
            std::fs::write(object, "torn").unwrap();
        }
    }
    let (_, err) = says(&words("segments inspect set/manifest.json"), folder.path(), 1);
    is_a_paragraph(&err);
}
