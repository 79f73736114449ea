//! `weir policy simulate` over a million intents: `cargo bench --bench simulate`. Prints the seconds and intents/s of each
//! run of the command, from its start to its end, reading of the file included. `-- COUNT [WEIR]` takes another number
//! of intents and another binary.

#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up should say so and end")]

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use testkit::process::printed_within;

const USERS: u32 = 200_000;
/// 2026-11-16T00:00:00Z; intents come over a week from then.
const BEGIN_MS: u64 = 1_794_787_200_000;
const WEEK_MS: u64 = 7 * 24 * 3_600_000;
const ROUNDS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(3_600);
/// Three segments, a calendar window, a filter, a cap for each campaign, quiet hours.
const POLICY: &str = r#"
version = "bench"
timezone = "Asia/Singapore"
[segments.new]
caps = [{ name = "daily", limit = 2, window = "24h" }, { name = "weekly", limit = 5, window = "7d" }]
[segments.active]
caps = [
  { name = "daily",      limit = 4, window = "24h" },
  { name = "push-today", limit = 2, per = "day", channel = "push" },
  { name = "promo-week", limit = 3, window = "7d", category = ["promo", "partner"] },
  { name = "once",       limit = 1, window = "1h", each = "campaign" },
]
[segments.staff]
caps = "unlimited"
[default]
caps = [{ name = "daily", limit = 1, window = "24h" }]
[[bypass]]
category = "transactional"
counts = false
[quiet_hours]
from = "22:00"
to = "08:00"
action = "suppress"
category = ["promo"]
"#;
/// Spent for most of the time.
const BUDGET: &str = "[[budgets]]\nname = \"hourly\"\nlimit = 2_000\nwindow = \"1h\"\n";

#[expect(clippy::print_stdout, reason = "a bench tells its figures")]
fn main() {
    // Cargo gives `--bench`.
    let given: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let count: u32 = given.first().map_or(1_000_000, |count| count.parse().unwrap());
    let weir = given.get(1).map_or(env!("CARGO_BIN_EXE_weir"), String::as_str);
    let folder = testkit::folder();
    prepare(folder.path(), weir, count);
    for (name, policy, intents, more) in [
        ("one policy", "policy.toml", "intents.jsonl", &[][..]),
        ("one policy, intents in no order", "policy.toml", "shuffled.jsonl", &[]),
        ("one policy with a budget", "budget.toml", "intents.jsonl", &[]),
        ("two policies", "policy.toml", "intents.jsonl", &["--against", "other.toml"]),
        ("with the page", "policy.toml", "intents.jsonl", &["--html", "page.html"]),
    ] {
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let mut command = Command::new(weir);
            command.args(["policy", "simulate", "--policy", policy, "--intents", intents]);
            command.args(["--segments", "set/manifest.json", "--output", "json"]).args(more).current_dir(folder.path());
            printed_within(DEADLINE, &mut command).unwrap();
            let seconds = begun.elapsed().as_secs_f64();
            println!("{name}: {count} intents in {seconds:.2} s, {:.0} intents/s", f64::from(count) / seconds);
        }
    }
}

fn prepare(folder: &Path, weir: &str, count: u32) {
    std::fs::write(folder.join("policy.toml"), POLICY).unwrap();
    std::fs::write(folder.join("budget.toml"), format!("{POLICY}{BUDGET}")).unwrap();
    std::fs::write(folder.join("other.toml"), POLICY.replace("limit = 4", "limit = 3")).unwrap();
    let mut build = Command::new(weir);
    build.args(["segments", "build", "--user-id", "u32", "--into", "set"]).current_dir(folder);
    let segments = [("new", 0..50_000), ("active", 50_000..150_000), ("staff", 150_000..152_000)];
    for (name, users) in segments {
        let ids: String = users.map(|user: u32| format!("{user}\n")).collect();
        std::fs::write(folder.join(name), ids).unwrap();
        build.arg(format!("{name}={name}"));
    }
    printed_within(DEADLINE, &mut build).unwrap();
    let mut lines = Vec::new();
    let mut random = fastrand::Rng::with_seed(42);
    for number in 0..count {
        let user = random.u32(0..USERS);
        let at = BEGIN_MS + u64::from(number) * WEEK_MS / u64::from(count);
        let channel = ["push", "email", "sms"][random.usize(0..3)];
        let category = ["promo", "news", "reminder", "transactional"][random.usize(0..4)];
        let campaign = random.u32(0..50);
        lines.push(format!(
            r#"{{"id":"bench-{number}","user_id":{user},"channel":"{channel}","category":"{category}","campaign":"c-{campaign}","created_at":{at},"payload":{{"template":"t-{campaign}","title":"Hello","body":"A message of some length, as they are in practice, with a link to a page"}}}}"#
        ));
    }
    for (name, shuffled) in [("intents.jsonl", false), ("shuffled.jsonl", true)] {
        if shuffled {
            random.shuffle(&mut lines);
        }
        let mut file = BufWriter::new(File::create(folder.join(name)).unwrap());
        lines.iter().for_each(|line| writeln!(file, "{line}").unwrap());
        file.flush().unwrap();
    }
}
