//! Runs of the command over files.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::{Value, json};
use testkit::{
    process::{Exit, Guarded, Signal, output, output_given},
    scratch::Scratch,
    wait_until,
};

use crate::support::{DEADLINE, contains_all, is_by_schema, weir};

/// 2026-11-16, a Monday, at midnight UTC.
pub const MONDAY_MS: i64 = 1_794_787_200_000;
pub const HOUR_MS: i64 = 3_600_000;
pub const MINUTE_MS: i64 = 60_000;

/// The files of [`Folder::with`].
pub const ARGS: [&str; 5] = ["--policy", "policy.toml", "--intents", "intents", "--no-segments"];

pub const UNLIMITED: &str = "[default]\ncaps = \"unlimited\"\n";

pub const TWO_A_DAY: &str = "version = \"two\"\n[default]\ncaps = [{ name = \"day\", limit = 2, window = \"24h\" }]\n";
pub const ONE_A_DAY: &str = "version = \"one\"\n[default]\ncaps = [{ name = \"day\", limit = 1, window = \"24h\" }]\n";

pub struct Folder(pub Scratch);

impl Folder {
    pub fn new() -> Self {
        Self(testkit::folder())
    }

    /// With a policy of version v and intents.
    pub fn with(policy: &str, intents: impl IntoIterator<Item = Value>) -> Self {
        let folder = Self::new();
        folder.write("policy.toml", &format!("version = \"v\"\n{policy}"));
        folder.write_lines("intents", intents);
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn write_lines(&self, name: &str, lines: impl IntoIterator<Item = Value>) {
        let lines: Vec<String> = lines.into_iter().map(|line| line.to_string()).collect();
        self.write(name, &lines.join("\n"));
    }

    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(weir());
        command.args(["policy", "simulate"]).args(args).current_dir(self.0.path());
        output(&mut command).unwrap()
    }

    /// What it prints; it must succeed.
    #[track_caller]
    pub fn says(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Its report, which is as its schema says.
    #[track_caller]
    pub fn report(&self, args: &[&str]) -> Value {
        let report = serde_json::from_str(&self.says(&[args, &["--output", "json"]].concat())).unwrap();
        is_by_schema("schemas/simulation.schema.json", &report);
        report
    }

    #[track_caller]
    pub fn replay(&self, more: &[&str]) -> Value {
        self.report(&[&ARGS[..], more].concat())
    }

    #[track_caller]
    pub fn fails(&self, args: &[&str], code: i32, words: &[&str]) {
        let output = self.run(args);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(output.stdout.is_empty() && err.starts_with("weir: ") || err.starts_with("error: "), "{args:?}: {err}");
        contains_all(&err, words);
    }
}

/// Approved, suppressed, deferred, still deferred.
pub fn totals(report: &Value, policy: usize) -> [u64; 4] {
    let totals = &report["policies"][policy];
    let counts =
        [&totals["approved"], &totals["suppressed"], &totals["deferred"]["intents"], &totals["deferred"]["waiting"]];
    counts.map(|count| count.as_u64().unwrap())
}

pub fn approved_hourly(report: &Value) -> Vec<u64> {
    report["hours"].as_array().unwrap().iter().map(|hour| hour["outcomes"][0]["approved"].as_u64().unwrap()).collect()
}

/// An intent of user 1 so many milliseconds after Monday's midnight.
pub fn intent(id: &str, after_ms: i64, more: Value) -> Value {
    let mut intent = json!({"id": id, "user_id": 1, "created_at": MONDAY_MS + after_ms});
    intent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    intent
}

fn hourly(users: std::ops::Range<u32>, hours: i64) -> impl Iterator<Item = Value> {
    let one = |user: u32, hour: i64| {
        let of = json!({"user_id": user, "channel": "push"});
        intent(&format!("{user}-{hour}"), hour * HOUR_MS + i64::from(user), of)
    };
    users.flat_map(move |user| (0..hours).map(move |hour| one(user, hour)))
}

#[test]
fn two_policies_are_told_apart_by_everything_that_is_counted() {
    let folder = Folder::new();
    folder.write("one.toml", ONE_A_DAY);
    folder.write("two.toml", TWO_A_DAY);
    // Three users, five intents each; a fourth user with one.
    folder.write_lines("intents", hourly(0..3, 5).chain(hourly(7..8, 1)));
    let args = ["--policy", "two.toml", "--against", "one.toml", "--intents", "intents", "--no-segments"];
    let report = folder.report(&[&args[..], &["--changed-users", "changed.csv", "--show-users", "2"]].concat());
    assert_eq!(report["source"]["records"], 16);
    for (side, version, counts) in [(0, "two", [7, 9, 0, 0]), (1, "one", [4, 12, 0, 0])] {
        assert_eq!(report["policies"][side]["version"], version);
        assert_eq!(totals(&report, side), counts, "{version}");
    }
    assert_eq!(report["segments"][0]["difference"], 3);
    assert_eq!(report["channels"][0]["name"], "push");
    assert_eq!(report["caps"][0]["suppressed"], json!([9, 12]));
    assert_eq!(report["caps"][0]["limits"], json!([2, 1]));
    assert_eq!(report["reasons"][0], json!({"reason": "cap", "suppressed": [9, 12], "difference": -3}));
    let users = &report["users"];
    assert_eq!(users["seen"], 4);
    assert_eq!(users["approved_per_user"], json!([{"approved": 1, "users": [1, 4]}, {"approved": 2, "users": [3, 0]}]));
    assert_eq!((&users["changed"]["more"], &users["changed"]["fewer"]), (&json!(3), &json!(0)));
    assert_eq!(users["changed"]["intents"], json!({"newly_approved": 3, "newly_suppressed": 0}));
    assert_eq!(users["changed"]["first"].as_array().unwrap().len(), 2);
    let changed = std::fs::read_to_string(folder.path("changed.csv")).unwrap();
    assert_eq!(changed, "user_id,segment,approved,approved_against\n0,,2,1\n1,,2,1\n2,,2,1\n");
    let hour = |at: usize| &report["hours"][at]["outcomes"];
    assert_eq!(hour(0)[1]["approved"], 4);
    assert_eq!((&hour(1)[0]["approved"], &hour(1)[1]["approved"]), (&json!(3), &json!(0)));
    assert_eq!(report["hours_of_day"][1][0]["approved"], 3);

    let text = folder.says(&args);
    contains_all(&text, &["16 records of intents", "3 users get more, 0 fewer", "sent (against)", "+3"]);
    contains_all(&text, &["Note: every history began empty"]);
}

#[test]
fn what_was_sent_before_the_first_intent_counts() {
    let folder = Folder::new();
    folder.write("policy.toml", TWO_A_DAY);
    folder.write_lines("intents", [intent("a", 0, json!({})), intent("b", 1, json!({}))]);
    assert_eq!(folder.replay(&[])["policies"][0]["approved"], 2);
    let sent = |id: &str, at: i64| json!({"at": MONDAY_MS + at, "intent": {"id": id, "user_id": "1"}});
    let history = [
        sent("counts", -1),
        sent("is of another window", -24 * HOUR_MS),
        json!({"at": MONDAY_MS - 1, "counts": false, "intent": {"id": "bypassed", "user_id": 1}}),
        json!({"schema": "weir.decision/2", "verdict": "suppressed", "decided_at": MONDAY_MS - 1, "intent": {"id": "no", "user_id": 1}}),
        sent("is one of the intents", 0),
        json!("no intent"),
    ];
    folder.write_lines("approved", history);
    let with = folder.replay(&["--approved", "approved"]);
    assert_eq!((&with["source"]["history"], &with["source"]["history_sends"]), (&json!("approved"), &json!(2)));
    assert_eq!((&with["policies"][0]["approved"], &with["source"]["notes"]), (&json!(1), &json!([])));
    // An id that was sent before is a duplicate, also when no cap counts it any more.
    folder.write_lines("approved", [sent("a", -30 * HOUR_MS)]);
    let with = folder.replay(&["--approved", "approved"]);
    assert_eq!(with["reasons"], json!([{"reason": "duplicate", "suppressed": [1]}]));
}

#[test]
fn lines_are_intents_alone_or_with_their_time_around_them_in_any_order() {
    let folder = Folder::new();
    folder.write("policy.toml", ONE_A_DAY);
    let lines = [
        // The last line is the first in time.
        intent("late", 2 * HOUR_MS, json!({})).to_string(),
        json!({"at": "2026-11-16T01:00:00Z", "intent": {"id": "at", "user_id": 1}}).to_string(),
        json!({"schema": "weir.decision/2", "decided_at": "2026-11-16T00:30:00.000Z", "intent": {"id": "env", "user_id": 2}}).to_string(),
        "   ".to_owned(),
        json!({"id": "timeless", "user_id": 1}).to_string(),
        "{".to_owned(),
        r#"{"user_id":1}"#.to_owned(),
        // A time that is none, and one of another type; an intent's own members of these names are its own.
        r#"{"at":"bad","intent":{"id":"x","user_id":1}}"#.to_owned(),
        r#"{"at":[1],"intent":{"id":"x","user_id":1}}"#.to_owned(),
        r#"{"at":1.5,"intent":{"id":"x","user_id":1}}"#.to_owned(),
        r#"{"at":"home","intent":"to buy","user_id":1}"#.to_owned(),
        format!(r#"{{"id":"big","user_id":1,"payload":"{}"}}"#, "x".repeat(3 << 20)),
        intent("first", 0, json!({})).to_string(),
    ];
    folder.write("intents", &lines.join("\r\n"));
    let report = folder.replay(&[]);
    assert_eq!(report["source"]["records"], 12);
    assert_eq!(report["source"]["without_time"], 1);
    let dead = json!({"bad_time": 1, "missing_field": 2, "not_json": 1, "too_large": 1, "wrong_type": 2});
    assert_eq!(report["source"]["dead_letters"], dead);
    assert_eq!(totals(&report, 0)[..2], [2, 2]);
    assert_eq!([&report["from"], &report["to"]], ["2026-11-16T00:00:00.000Z", "2026-11-16T02:00:00.000Z"]);
    assert_eq!(report["hours"][0]["outcomes"][0]["approved"], 2, "the first in time is sent: {report}");

    let part = folder.replay(&["--since", "2026-11-16T01:00:00Z", "--until", "2026-11-16T02:00:00Z"]);
    assert_eq!((&part["from"], &part["to"]), (&json!("2026-11-16T01:00:00.000Z"), &json!("2026-11-16T01:00:00.000Z")));
    let none = folder.replay(&["--until", "2020-01-01T00:00:00Z"]);
    assert_eq!((&none["from"], &none["policies"][0]["approved"]), (&Value::Null, &json!(0)));
}

#[test]
fn intents_come_from_standard_input_too() {
    let folder = Folder::new();
    folder.write("policy.toml", ONE_A_DAY);
    let mut command = Command::new(weir());
    command.args("policy simulate --policy policy.toml --intents - --no-segments --output json".split(' '));
    let lines: Vec<String> = hourly(0..2, 3).map(|intent| intent.to_string()).collect();
    let output = output_given(lines.join("\n"), command.current_dir(folder.0.path())).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["source"]["intents"], "standard input");
    assert_eq!(report["policies"][0]["approved"], 2);
}

#[test]
fn byte_order_marks_before_intents_and_policies_are_left_out() {
    let folder = Folder::new();
    let caps = json!([{"name": "c", "limit": 2, "window": "24h"}]);
    folder.write("policy.json", &format!("\u{FEFF}{}", json!({"version": "v", "default": {"caps": caps}})));
    folder.write("policy.toml", &format!("\u{FEFF}{TWO_A_DAY}"));
    let lines: Vec<String> = (0..3).map(|at| intent(&format!("i{at}"), at, json!({})).to_string()).collect();
    folder.write("intents", &format!("\u{FEFF}{}", lines.join("\n")));
    for policy in ["policy.json", "policy.toml"] {
        let report = folder.report(&["--policy", policy, "--intents", "intents", "--no-segments"]);
        assert_eq!(totals(&report, 0)[..2], [2, 1], "{policy}: {report:#}");
    }
}

#[test]
fn in_shadow_mode_everything_is_sent_and_what_would_not_be_is_told() {
    let policy = "shadow = true\n[default]\ncaps = [{ name = \"c\", limit = 1, window = \"24h\" }]\n";
    let report = Folder::with(policy, (0..3).map(|at| intent(&format!("i{at}"), at, json!({})))).replay(&[]);
    assert_eq!(totals(&report, 0)[..2], [1, 0]);
    assert_eq!(report["policies"][0]["shadow_suppressed"], 2);
    assert_eq!(report["caps"][0]["suppressed"], json!([2]));
    assert_eq!(report["users"]["approved_per_user"], json!([{"approved": 3, "users": [1]}]));
}

#[test]
fn what_has_to_be_corrected_is_said_with_exit_code_2() {
    let folder = Folder::new();
    folder.write("policy.toml", ONE_A_DAY);
    folder.write("bad.toml", "version = 1");
    folder.write_lines("intents", [intent("a", 0, json!({}))]);
    let cases: [(&str, &[&str]); 9] = [
        ("policy.toml --intents intents", &["--segments", "--no-segments"]),
        ("policy.toml --intents nowhere --no-segments", &["nowhere", "topic:nowhere"]),
        ("policy.toml --intents topic --no-segments", &["--config"]),
        ("bad.toml --intents intents --no-segments", &["bad.toml:1:", "default"]),
        ("gone.toml --intents intents --no-segments", &["gone.toml"]),
        ("policy.toml --intents intents --no-segments --since soon", &["RFC 3339"]),
        ("policy.toml --intents intents --no-segments --since 1h --until 2h", &["is not before"]),
        ("policy.toml --intents intents --no-segments --history 1h", &["looks back"]),
        ("policy.toml --intents intents --no-segments --changed-users x", &["--against"]),
    ];
    for (args, words) in cases {
        folder.fails(&["--policy"].into_iter().chain(args.split(' ')).collect::<Vec<_>>(), 2, words);
    }
    folder.fails(&[&ARGS[..], &["--html", "no/such/folder"]].concat(), 1, &["--html", "no/such/folder"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_it_at_once_and_nothing_is_written() {
    let folder = Folder::new();
    folder.write("policy.toml", ONE_A_DAY);
    // Standard input that never ends, because its reader could write to it: it waits for the rest.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "mkfifo endless && exec \"$@\" <>endless", "sh"]).arg(weir());
    command.args("policy simulate --policy policy.toml --intents - --no-segments --html page".split(' '));
    let mut process = Guarded::spawn("weir", command.current_dir(folder.0.path()), &folder.path("log")).unwrap();
    let pid = process.pid();
    // Until it waits for the signal, SIGINT ends it by itself: wait for its handler (bit 1 of SigCgt). The shell before it may have one, too.
    wait_until(DEADLINE, "SIGINT is handled", || {
        let of = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        if of("comm").trim() != "weir" {
            return false;
        }
        let status = of("status");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
        u64::from_str_radix(&caught, 16).unwrap_or(0) & 2 != 0
    });
    process.signal(Signal::INT);
    let (exit, err) = (process.wait_exit(DEADLINE).unwrap(), process.log());
    assert_eq!(exit, Exit::Code(1), "{err}");
    assert!(err.contains("interrupted") && !folder.path("page").exists(), "{err}");
}
