use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: PolicyCheckArgs,
}

/// What `weir policy check` prints of an example, and its error.
fn run(file: &str, more: &[&str]) -> (String, Option<String>) {
    let file = format!("{}/schemas/examples/{file}", env!("CARGO_MANIFEST_DIR"));
    let line = ["check", &file].into_iter().chain(more.iter().copied());
    let mut out = Vec::new();
    let result = check(&Line::parse_from(line).args, &mut out);
    let error = result.err().map(|error| error.downcast::<UsageError>().unwrap().to_string());
    (String::from_utf8(out).unwrap().replace(&file, "policy"), error.map(|error| error.replace(&file, "policy")))
}

#[test]
fn a_policy_is_said_in_words() {
    let expected = "\
policy is valid: version 2026-11-20.1.
Time zone Asia/Singapore where an intent names none.
Intents older than 6h have expired.
Intents of category marketing or promo are deferred from 22:00 to 08:00 by the user's clock, and spread over the 30m after that.
Stopped: campaign autumn or winter.
Pressure: at most 1,000,000 users are active in 30m (takes 22.89 MiB of memory); then intents of channel push and category marketing or promo of other users are deferred, and spread over the window.
Budget spring: at most 1,000,000 in any 1h, for campaign spring; then intents are suppressed. Tokens are granted one by one.
Budget provider: at most 500 per day of each campaign, for channel email; then intents are deferred. While Redis is unavailable for longer than redis.unavailable_after, intents without a token are suppressed.
Budget money: at most 250,000,000 in total, for category partner or promo; then intents are suppressed.
Budget everything: at most 9,000 in any 1m, for all intents; then intents are suppressed.
Budget closed: never any, for channel fax and campaign autumn or spring; intents are suppressed.
Route email: channel email, no more than group hedwig takes in 30s, at most 500 per second, at most what service hedwig-email has registered (20ms away); 20% is kept for category service; other intents wait, campaigns by turns. A delivery is tried 8 times.
Route fax_2.promo: channel fax or letter and category promo and campaign spring, at most 5 per second; other intents are suppressed. A delivery is tried 5 times.
Route everything-else: all intents without a route before it, at most what service push has registered (50ms away); other intents wait, users by turns. A delivery is tried 5 times.
Intents are deferred for at most 2d.
Never capped: category transactional (not recorded).
Never capped: channel push or sms and campaign alarm (recorded, and counts).
While Redis is unavailable for longer than redis.unavailable_after: category transactional is approved, and recorded later.
While Redis is unavailable for longer than redis.unavailable_after: channel push or sms is suppressed.

 active            daily       at most 4 in any 24h
                   push-today  at most 2 per day, of channel push
                   promo-week  at most 3 in any 7d, of category partner or promo
                   this-week   at most 9 per week
                   once        at most 1 in any 1h 30m, of each campaign; others are deferred
 new               daily       at most 2 in any 24h
                   weekly      at most 5 in any 7d
 staff                         unlimited
 unsubscribed      never       never any
 (everybody else)  daily       at most 1 in any 24h
";
    assert_eq!(run("policy-everything.toml", &[]), (expected.to_owned(), None));
    assert!(run("policy-absent.toml", &[]).1.unwrap().contains("No such file"));
    assert!(run("../../README.md", &[]).1.unwrap().contains("neither a .toml nor a .json"));
}

#[test]
fn a_policy_is_said_in_json() {
    let (printed, error) = run("policy-everything.json", &["--output", "json"]);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(error, None);
    assert_eq!(printed["valid"], true);
    assert_eq!(printed["segments"]["staff"], "unlimited");
    assert_eq!(printed["segments"]["active"][1]["per"], "day");
    assert_eq!(printed["default"][0]["window"], "24h");
    let limits: Vec<&str> = printed["limits"].as_array().unwrap().iter().map(|limit| limit.as_str().unwrap()).collect();
    let (text, _) = run("policy-everything.json", &[]);
    assert!(text.contains(&limits.join("\n")), "those of the text, in its order: {limits:?}");
    for kind in ["Pressure: ", "Budget spring: ", "Route email: "] {
        assert!(limits.iter().any(|limit| limit.starts_with(kind)), "{kind}: {limits:?}");
    }
    let budgets = printed["budgets"].as_array().unwrap();
    assert_eq!(budgets.len(), limits.iter().filter(|limit| limit.starts_with("Budget ")).count());
    let budget = |name: &str| budgets.iter().find(|budget| budget["name"] == name).unwrap();
    assert_eq!((&budget("spring")["window"], &budget("spring")["limit"]), (&json!("1h"), &json!(1_000_000)));
    assert_eq!((&budget("provider")["per"], &budget("money")["total"]), (&json!("day"), &json!(true)));
    let in_words = "Budget everything: at most 9,000 in any 1m, for all intents; then intents are suppressed.";
    assert_eq!(budget("everything")["in_words"], in_words);
}
