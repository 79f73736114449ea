//! The example policies mean what they say, to the parser and to the schema, which is the one checked in.

use serde_json::Value;
use weir_core::{
    basis::document::Format,
    history::HistoryBounds,
    policy::file::{PolicyBounds, markdown, parse_policy, schema_text},
};

use super::docs::{is_current, read, repository};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const HISTORY_MS: i64 = 8 * DAY_MS;

fn schema() -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(&schema_text()).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

/// The file name, text and content of every example.
fn examples() -> Vec<(String, String, Value)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(repository("schemas/examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.starts_with("policy-") {
            continue;
        }
        let text = read(&format!("schemas/examples/{name}"));
        let content = match Format::of_name(&name).unwrap() {
            Format::Toml => toml::from_str(&text).unwrap(),
            Format::Json => serde_json::from_str(&text).unwrap(),
        };
        found.push((name, text, content));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn errors(name: &str, text: &str) -> String {
    let format = Format::of_name(name).unwrap();
    parse_policy(name, text, format, HISTORY_MS).map_or_else(|problems| problems.to_string(), |_| "valid".into())
}

#[test]
fn the_schema_checked_in_is_current() {
    is_current("schemas/policy.schema.json", |_| schema_text());
}

#[test]
fn the_documentation_has_every_option() {
    is_current("docs/policy.md", |found| {
        let mut page = found.to_owned();
        for (name, table) in markdown() {
            let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->\n"));
            let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("there is no mark {begin}"));
            let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("there is no mark {end}"));
            page = format!("{before}{begin}\n{table}\n{end}{after}");
        }
        page
    });
}

#[test]
fn examples_are_valid_to_the_parser_and_the_schema_unless_their_name_says_invalid() {
    let (schema, examples) = (schema(), examples());
    assert!(examples.len() >= 6, "{} examples", examples.len());
    for (name, text, content) in examples {
        let expected = !name.contains(".invalid.");
        assert_eq!(errors(&name, &text) == "valid", expected, "{name}: {}", errors(&name, &text));
        assert_eq!(schema.is_valid(&content), expected, "{name}: {:?}", schema.validate(&content).err());
    }
}

#[test]
fn toml_and_json_of_the_same_policy_are_the_same_policy() {
    let examples = examples();
    let policy = |name: &str| {
        let (_, text, _) = examples.iter().find(|example| example.0 == name).unwrap();
        parse_policy(name, text, Format::of_name(name).unwrap(), HISTORY_MS).unwrap()
    };
    assert_eq!(policy("policy-everything.toml"), policy("policy-everything.json"));
}

#[test]
fn every_mistake_is_reported_with_its_place_and_what_to_do() {
    let examples = examples();
    let errors = |name: &str| errors(name, &examples.iter().find(|example| example.0 == name).unwrap().1);
    let toml = "policy-many-mistakes.invalid.toml";
    let expected = r#"
:1:1: the document needs `[default]`: the caps of users who are in no segment
:1:1: the document needs `version`
:2:12: timezone must be the IANA name of a time zone, such as "Asia/Singapore" or "UTC", not "Asia/Singapur"
:3:11: max_age must be a length of time such as "24h", "7d", "90m" or "500ms", not 3600
:7:29: segments.new.caps[0].limit must be a whole number from 0 to 4294967295, not -1
:8:3: segments.new.caps[1] needs `window` (such as "24h") or `per` ("day", "week" or "month")
:8:33: segments.new.caps[1].windows is not a known key; did you mean `window`?
:9:40: segments.new.caps[2].per looks back up to 31d 1h, but redis.history keeps 8d: choose a shorter one, or raise redis.history
:11:1: segments.active needs `caps`: a list of caps, or caps = "unlimited" where nothing is to be counted against its users
:12:1: segments.active.cap is not a known key; did you mean `caps`?
:14:8: segments.staff.caps must be a list of caps, or "unlimited", not "unlimitd"
:16:1: bypass[0] needs at least one of `channel`, `category` and `campaign`: which intents are never capped
:21:6: quiet_hours.to must be a time of day as "HH:MM", from "00:00" to "23:59", not "8:00"
:22:10: quiet_hours.action must be one of "suppress", "defer", not "postpone"
:24:1: quiet_hours.shadow is not a known key; `shadow` belongs to the policy itself: in TOML, write it above the first line that begins with `[`
:26:1: pressure needs `max_active_users`
:27:1: pressure.max_active_user is not a known key; did you mean `max_active_users`?
:28:10: pressure.window must be whole minutes, from 1m to 2h, not 1m 30s
:29:11: pressure.channel must not be an empty list: leave the key out for all, or name at least one
:30:10: pressure.action must be one of "suppress", "defer", not "wait""#;
    assert_eq!(errors(toml).replace(toml, ""), expected.trim());
    let toml = "policy-budget-mistakes.invalid.toml";
    let expected = r#"
:9:9: budgets[0].limit must be a whole number from 0 to 1000000000000000, not 1000000000000001
:10:10: budgets[0].window must be from 10s to 366d, not 5s
:12:1: budgets[1] has `window` and `per`: keep one
:12:1: budgets[1] needs `limit`
:14:1: budgets[1].limits is not a known key; did you mean `limit`?
:17:8: budgets[1].each must be one of "campaign", not "user"
:18:14: budgets[1].when_spent must be one of "suppress", "defer", not "wait"
:19:18: budgets[1].on_unavailable must be one of "wait", "suppress", not "approve"
:25:14: budgets[2].when_spent = "defer" needs `window` or `per`: what is spent in total never frees
:32:1: budgets has two budgets named "autumn": decisions name the budget that denied"#;
    assert_eq!(errors(toml).replace(toml, ""), expected.trim());
    let json = "policy-many-mistakes.invalid.json";
    let expected = r#"
:3:3: timezon is not a known key; did you mean `timezone`?
:4:35: default.caps[0].name must not be empty
:4:48: default.caps[0].limit must be a whole number from 0 to 4294967295, not "2"
:4:63: default.caps[0].window must be longer than 0
:4:80: default.caps[0].channel must not be an empty list: leave the key out for all, or name at least one
:5:41: budgets[0].limit must be a whole number from 0 to 1000000000000000, not "9"
:5:55: budgets[0].total must be true, or left out
:5:64: budgets[1] needs `window` (such as "1h"), `per` ("day", "week" or "month") or `total = true`
:6:37: pressure.max_active_users must be a whole number from 1 to 100000000, not "1000"
:6:55: pressure.window must be whole minutes, from 1m to 2h, not 2h 1m"#;
    assert_eq!(errors(json).replace(json, ""), expected.trim());
}

/// Rules of a policy: the text, what it has (where `\n` ends a line), what is another one there, and what is said of it. Those with a `!`
/// are known to weir alone, and not to the schema.
const RULES: &str = r#"
cap window = "8d" => valid
cap! window = "8d 1ms" => 3:43: default.caps[0].window looks back up to 8d 1ms, but redis.history keeps 8d
cap! window = "1d" | limit = 1, -> limit = 10001, => 3:31: default.caps[0].limit is 10001, but redis.max_entries keeps the newest 10000 sends of a user
cap window = "1d" | limit = 1, -> limit = 10000, => valid
cap! window = "1us" => whole milliseconds
cap! window = "0ms" => longer than 0
cap window = "-1h" => length of time
cap! window = "99999999999999999999d" => length of time
cap! window = "90000d" => 3660 days
cap window = 24 => length of time
cap per = "day" => valid
cap per = "week" => valid
cap! per = "month" => looks back up to 31d 1h
cap per = "days" => one of "day", "week", "month", not "days"; did you mean "day"?
cap per = "day", window = "1h" => has both `window` and `per`
cap channel = "push" => needs `window`
cap window = "1h", channel = "" => channel must not be empty
cap window = "1h", channel = ["a", 2] => channel[1] must be a string, not 2
cap window = "1h", category = [] => must not be an empty list
cap window = "1h", each = "campaign" => valid
cap window = "1h", each = "user" => each must be one of "campaign"
cap window = "1h", version = "2" => `version` belongs to the policy itself
cap window = "1h", colour = "red" => known here: name, limit, window, per, channel, category, each, action
cap window = "1h", action = "defer" => valid
cap window = "1h", action = "wait" => action must be one of "suppress", "defer"
with  => valid
with  | "1" -> 1 => 1:11: version must be a string, not 1
with  | version -> "$schema" = "policy.schema.json"\nversion => valid
with  | version -> schema = "policy.schema.json"\nversion => 1:1: schema is not a known key; did you mean `$schema`?
with "$schema" = 1 => default.$schema is not a known key; known here: caps
with  | "unlimited" -> [] => must not be an empty list: write caps = "unlimited"
with  | "unlimited" -> [{ name = "a", limit = -1, window = "1h" }, { name = "a", limit = 1 }] => default.caps has two caps named "a": decisions name the cap that denied
with  | "unlimited" -> 3 => must be a list of caps, or "unlimited", not 3
with! [segments.""]\ncaps = "unlimited" => the segment's name "" must not be empty
with [segments]\nnew = 3 => segments.new must be a table
with [bypass]\nchannel = "push" => two brackets
with [[bypass]]\nchannel = "push"\ncounts = "no" => bypass[0].counts must be true or false
with [on_unavailable]\naction = "wait" => two brackets
with [[on_unavailable]]\nchannel = "push"\naction = "defer" => on_unavailable[0].action must be
with [[on_unavailable]]\nchannel = "push" => action
with [[on_unavailable]]\naction = "suppress" => valid
with [[bypass]]\ncampaign = ["a", "b"] => valid
quiet from = "22:00"\nto = "08:00" => valid
quiet from = "22:00" => quiet_hours needs `to`
quiet! from = "22:00"\nto = "22:00" => must not be the same
quiet from = "22:00"\nto = "24:00" => "00:00" to "23:59", not "24:00"
quiet from = "22:0é"\nto = "08:00" => time of day
quiet from = 22:00:00\nto = "08:00" => not the date 22:00:00
defers  | action = "defer" -> action = "suppress" => valid
defers spread = "30m" => valid
defers! spread = "13h" => quiet_hours.spread must be at most 12h
defers! spread = "30m" | "defer" -> "suppress" => quiet_hours.spread needs action = "defer"
with [defer]\nmax = "94h" => valid
with! [defer]\nmax = "95h" => defer.max must be at most 3d 22h
with [defer] => defer needs `max`
with [defer]\nmax = 72 => length of time
with [[stop]]\ncampaign = "spring" => valid
with [[stop]]\nchannel = ["push"]\ncategory = "promo" => valid
with [[stop]] => stop[0] needs at least one of
with [stop]\ncampaign = "spring" => two brackets
with [quiet_hours]\nfrom = "22:00"\nto = "08:00" => quiet_hours needs `action`
budget window = "10s" => valid
budget window = "366d" => valid
budget! window = "9999ms" => budgets[0].window must be from 10s to 366d, not 9s 999ms
budget! window = "366d 1ms" => from 10s to 366d, not 366d 1ms
budget window = 60 => 4:37: budgets[0].window must be a length of time
budget per = "month" => valid
budget per = "hour" => budgets[0].per must be one of "day", "week", "month"
budget total = true => valid
budget total = false => budgets[0].total must be true, or left out
budget total = 1 => budgets[0].total must be true or false, not 1
budget best_effort = true => needs `window` (such as "1h"), `per`
budget window = "1h", total = true => 4:3: budgets[0] has `window` and `total`: keep one
budget window = "1h", per = "day", total = true => has `window` and `per` and `total`: keep one
budget total = true, best_effort = 1 => budgets[0].best_effort must be true or false
budget per = "day", when_spent = "defer" => valid
budget! total = true, when_spent = "defer" => when_spent = "defer" needs `window` or `per`
budget per = "day", when_spent = "approve" => when_spent must be one of "suppress", "defer"
budget per = "day", on_unavailable = "suppress" => valid
budget per = "day", on_unavailable = "approve" => must be one of "wait", "suppress"
budget per = "day", each = "campaign", campaign = ["a", "b"] => valid
budget per = "day", each = "user" => budgets[0].each must be one of "campaign"
budget per = "day", channel = [] => budgets[0].channel must not be an empty list
budget per = "day", campaign = 1 => budgets[0].campaign must be a string or a list of strings
budget per = "day", category = "" => budgets[0].category must not be empty
budget per = "day", action = "defer" => budgets[0].action is not a known key
budget per = "day" | limit = 1 -> limit = 0 => valid
budget per = "day" | limit = 1 -> limit = 1_000_000_000_000_000 => valid
budget per = "day" | limit = 1 -> limit = 1_000_000_000_000_001 => budgets[0].limit must be
budget per = "day" | limit = 1 -> limit = -1 => not -1
budget per = "day" | limit = 1 -> limit = 1.5 => not 1.5
budget per = "day" | limit = 1,  ->  => budgets[0] needs `limit`
budget per = "day" | name = "a",  ->  => budgets[0] needs `name`
budget per = "day" | "a" -> "" => budgets[0].name must not be empty
with [budgets]\nname = "a" => in TOML, write [[budgets]] with two brackets
pressure  => valid
pressure  | 1_000_000 -> 1 => valid
pressure  | 1_000_000 -> 100_000_000 => valid
pressure  | 1_000_000 -> 0 => pressure.max_active_users must be a whole number from 1 to
pressure  | 1_000_000 -> 100_000_001 => from 1 to 100000000, not 100000001
pressure  | 1_000_000 -> 1.5 => not 1.5
with [pressure]\nwindow = "30m" => pressure needs `max_active_users`
pressure window = "1m" => valid
pressure window = "2h" => valid
pressure! window = "59s" => pressure.window must be whole minutes, from 1m to 2h, not 59s
pressure! window = "1m 1ms" => must be whole minutes
pressure! window = "121m" => not 2h 1m
pressure! window = "300h" => must be whole minutes
pressure window = 30 => length of time
pressure channel = ["push", "sms"]\ncategory = "promo" => valid
pressure channel = [] => pressure.channel must not be an empty list
pressure campaign = "spring" => pressure.campaign is not a known key
pressure action = "defer" => valid
pressure action = "approve" => pressure.action must be one of "suppress", "defer"
with pressure = 5 => pressure
route rate = 1 => valid
route consumer_group = "hedwig"\nchannel = ["email", "sms"]\ncampaign = "spring" => valid
route service = "hedwig"\nnetwork = "1m"\nmax_attempts = 100 => valid
route  => 4:1: routes[0] needs `consumer_group` (paced by its lag), `rate` (per second) or `service`
route rate = 0 => 6:8: routes[0].rate must be a whole number from 1 to 1000000000, not 0
route rate = 1_000_000_001 => not 1000000001
route rate = 1\nahead = "5s" => valid
route rate = 1\nahead = "1h" => valid
route! rate = 1\nahead = "4999ms" => routes[0].ahead must be from 5s to 1h, not 4s 999ms
route! rate = 1\nahead = "1h 1ms" => from 5s to 1h, not 1h 1ms
route rate = 1\nahead = 30 => routes[0].ahead must be a length of time
route service = "hedwig/email" => 6:11: routes[0].service must be at most 64 letters (a to z), digits,
route service = "a"\n[[routes]]\nname = "text"\nservice = "b" => valid
route! service = "a"\n[[routes]]\nname = "text"\nservice = "a" => 9:11: routes[1].service = "a" is of two routes, "email" and "text": each would take all of it: make them one route, with `reserved` for
route! service = "a"\nnetwork = "61s" => routes[0].network must be at most 1m, not 1m 1s
route rate = 1\nmax_attempts = 0 => routes[0].max_attempts must be a whole number from 1 to 100, not 0
route rate = 1\nwhen_full = "suppress" => valid
route rate = 1\nwhen_full = "drop" => routes[0].when_full must be one of "wait", "suppress", not "drop"
route rate = 1\nwhen_full = "defer" => routes[0].when_full must be one of "wait", "suppress", not "defer"
route rate = 1\nfair_by = "user" => valid
route rate = 1\nfair_by = "users" => routes[0].fair_by must be one of
route rate = 1\nreserved = { category = "service", share = 0.2 } => valid
route rate = 1\nreserved = { share = 0.2 } => routes[0].reserved needs at least one of `channel`
route rate = 1\nreserved = { channel = "a" } => routes[0].reserved needs `share`
route rate = 1\nreserved = { channel = "a", share = 1 } => routes[0].reserved.share must be a share from
route rate = 1\nreserved = { channel = "a", share = 0.0001 } => not 0.0001
route rate = 1\nrates = 2 => routes[0].rates is not a known key; did you mean `rate`?
route rate = 1 | email -> e mail => routes[0].name must be at most 64 letters (a to z), digits
route! rate = 1\n[[routes]]\nname = "email"\nrate = 2 => routes has two routes named "email"
with [routes]\nname = "a" => in TOML, write [[routes]] with two brackets
"#;

#[test]
fn each_rule_of_a_policy_is_kept() {
    let cap = |rest: &str| format!("version = \"1\"\n[default]\ncaps = [{{ name = \"a\", limit = 1, {rest} }}]");
    let with = |rest: &str| format!("version = \"1\"\n[default]\ncaps = \"unlimited\"\n{rest}");
    let quiet = |rest: &str| with(&format!("[quiet_hours]\naction = \"suppress\"\n{rest}"));
    let defers =
        |rest: &str| with(&format!("[quiet_hours]\nfrom = \"22:00\"\nto = \"08:00\"\naction = \"defer\"\n{rest}"));
    let many = |caps: usize| {
        let caps: Vec<_> = (0..caps).map(|n| format!("{{ name = \"{n}\", limit = 1, window = \"1h\" }}")).collect();
        format!("version = \"1\"\n[default]\ncaps = [{}]", caps.join(", "))
    };
    let budget = |rest: &str| {
        format!(
            "version = \"1\"\ndefault = {{ caps = \"unlimited\" }}\nbudgets = [\n  {{ name = \"a\", limit = 1, {rest} }}]"
        )
    };
    let pressure = |rest: &str| with(&format!("[pressure]\nmax_active_users = 1_000_000\n{rest}"));
    let route = |rest: &str| with(&format!("[[routes]]\nname = \"email\"\n{rest}"));
    let names: Vec<String> = (0..256).map(|number| format!("budget-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let budgets = |names: &[&str]| {
        let one = |name: &&str| format!("[[budgets]]\nname = \"{name}\"\nlimit = 1\ntotal = true\n");
        with(&names.iter().map(one).collect::<String>())
    };
    // Whether the schema sees it, too.
    let others = [
        (many(255), true, "valid"),
        (many(256), true, "not have more than 255 caps; it has 256"),
        (with("").replace("\"1\"", "\"a\\nb\""), false, "control characters"),
        (budget("per = \"day\"").replace("\"a\"", &format!("\"{}\"", "n".repeat(256))), true, "valid"),
        (budget("per = \"day\"").replace("\"a\"", &format!("\"{}\"", "n".repeat(257))), true, "longer than 256 bytes"),
        (budgets(&["a", "b"]), true, "valid"),
        (budgets(&["a", "b", "a"]), false, "budgets has two budgets named \"a\""),
        (budgets(&names[..255]), true, "valid"),
        (budgets(&names), true, "budgets must not have more than 255 budgets; it has 256"),
        (route("rate = 1").replace("email", &"e".repeat(64)), true, "valid"),
        (route("rate = 1").replace("email", &"e".repeat(65)), true, "it is a part of a topic's name"),
        (with(&"[[routes]]\nname = \"a\"\nrate = 1\n".repeat(65)), true, "not have more than 64 routes; it has 65"),
    ];
    let rule = |line: &'static str| {
        let (text, expected) = line.split_once(" => ").unwrap();
        let (kind, rest) = text.split_once(' ').unwrap();
        let rest = rest.replace("\\n", "\n");
        let (rest, (old, new)) = rest
            .split_once(" | ")
            .map_or((&*rest, ("\0", "")), |(rest, change)| (rest, change.split_once(" -> ").unwrap()));
        let text = match kind.trim_end_matches('!') {
            "cap" => cap(rest),
            "quiet" => quiet(rest),
            "defers" => defers(rest),
            "budget" => budget(rest),
            "pressure" => pressure(rest),
            "route" => route(rest),
            _ => with(rest),
        };
        (text.replace(old, new), !kind.ends_with('!'), expected)
    };
    let schema = schema();
    for (text, sees, expected) in RULES.trim().lines().map(rule).chain(others) {
        let found = errors("p.toml", &text);
        assert!(found.contains(expected), "{text}\nshould say: {expected}\nsays: {found}");
        let content: Value = toml::from_str(&text).unwrap();
        assert_eq!(schema.is_valid(&content), found == "valid" || !sees, "the schema on\n{text}");
    }
}

#[test]
fn syntax_errors_have_line_column_and_reason() {
    let deep = "[".repeat(200);
    let cases = [
        ("p.toml", "version = \"1\"\n[default\ncaps = 1", "p.toml:2:9: is not TOML: "),
        ("p.toml", "version = \"1\"\nversion = \"2\"", "p.toml:2:1: is not TOML: duplicate key"),
        ("p.toml", "a = 1 =\nb = = 2", "p.toml:2:5: is not TOML: "),
        ("p.json", "{\n  \"version\": \"1\",\n}", "p.json:3:1: is not JSON: key must be a string"),
        ("p.json", "{\"version\": \"1\", \"version\": \"2\"}", "p.json:1:18: `version` is given twice"),
        ("p.json", "{\"é\":\n\"\\ud800\"}", "p.json:2:8: is not JSON: "),
        ("p.json", "[1]", "p.json:1:1: the document must be a table"),
        ("p.json", "", "p.json:1:1: is not JSON: EOF while parsing a value"),
        ("p.json", &format!("{deep}{}", deep.replace('[', "]")), "nested deeper than 32 levels"),
    ];
    for (name, text, expected) in cases {
        let found = errors(name, text);
        assert!(found.contains(expected), "{text}\nshould say: {expected}\nsays: {found}");
    }
}

#[test]
fn null_in_json_is_the_same_as_left_out() {
    let text = r#"{"$schema": null, "version": "1", "timezone": null, "quiet_hours": null, "max_age": null,
        "segments": null, "bypass": null, "budgets": null, "shadow": null,
        "default": {"caps": [{"name": "a", "limit": 1, "window": "1h", "channel": null}]}}"#;
    assert_eq!(errors("p.json", text), "valid");
    assert!(schema().is_valid(&serde_json::from_str(text).unwrap()));
}

#[test]
fn a_policy_that_defers_needs_topics_to_defer_to_and_no_more_than_the_history() {
    let text = r#"
        version = "1"
        default = { caps = [{ name = "a", limit = 1, window = "1h", action = "defer" }] }
        quiet_hours = { from = "22:00", to = "08:00", action = "defer" }
        defer = { max = "49h" }
        budgets = [{ name = "a", limit = 1, per = "day", when_spent = "defer" }]
        pressure = { max_active_users = 1, action = "defer" }
        routes = [{ name = "a", rate = 1, when_full = "wait" }, { name = "b", rate = 1 }]
    "#;
    let history = HistoryBounds { retention_ms: 48 * 3_600_000, max_entries: 200 };
    let found = parse_policy("p.toml", text, Format::Toml, PolicyBounds { history, may_defer: false, may_wait: false })
        .unwrap_err();
    let expected = r#"
p.toml:3:78: default.caps[0].action = "defer" needs topics to defer intents to: set kafka.deferred in the configuration (such as deferred = "send-deferred"), or write "suppress"
p.toml:4:64: quiet_hours.action = "defer" needs topics to defer intents to: set kafka.deferred in the configuration (such as deferred = "send-deferred"), or write "suppress"
p.toml:5:25: defer.max must be at most 2d (redis.history: a replay must still be recognized)
p.toml:6:71: budgets[0].when_spent = "defer" needs topics to defer intents to: set kafka.deferred in the configuration (such as deferred = "send-deferred"), or write "suppress"
p.toml:7:53: pressure.action = "defer" needs topics to defer intents to: set kafka.deferred in the configuration (such as deferred = "send-deferred"), or write "suppress"
p.toml:8:55: routes[0].when_full = "wait" (the default) needs topics for intents that wait: set kafka.waiting in the configuration (such as waiting = "send-waiting"), or write "suppress"
p.toml:8:65: routes[1].when_full = "wait" (the default) needs topics for intents that wait: set kafka.waiting in the configuration (such as waiting = "send-waiting"), or write "suppress""#;
    assert_eq!(found.to_string(), expected.trim());
    // Where the policy does not say, it is 72 h, or the history.
    let longest = |history_ms: i64| {
        let bare = "version = \"1\"\n[default]\ncaps = \"unlimited\"";
        parse_policy("p.toml", bare, Format::Toml, history_ms).unwrap().defer_max_ms / 3_600_000
    };
    assert_eq!((longest(48 * 3_600_000), longest(HISTORY_MS)), (48, 72));
}

#[test]
fn a_hostile_document_is_refused() {
    refuse_hostile_documents();
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn a_hostile_document_is_refused_quickly() {
    let took = refuse_hostile_documents();
    assert!(took < std::time::Duration::from_secs(20), "{took:?}");
}

fn refuse_hostile_documents() -> std::time::Duration {
    let keys = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let cases = [
        ("p.toml", keys(30_000, &|number| format!("key{number} = 1\n")), "and 80 more"),
        ("p.toml", "= \n".repeat(30_000), "and 80 more"),
        ("p.json", format!("{{{}\"a\": 1}}", keys(30_000, &|_| "\"a\": 1, ".into())), "and 80 more"),
        ("p.json", " ".repeat((4 << 20) + 1), "at most 4194304 are read"),
        ("p.toml", format!("a = {}", "[".repeat(100_000)), "is not TOML"),
        (
            "p.json",
            format!(
                "{{\"segments\": {{\"{}\": {{{}\"caps\": []}}}}}}",
                "s".repeat(1 << 21),
                keys(100_000, &|number| format!("\"key{number}\": 1, "))
            ),
            "must not be longer than 256 bytes; it has 2097152",
        ),
    ];
    let start = std::time::Instant::now();
    for (name, text, expected) in cases {
        let found = errors(name, &text);
        assert!(found.contains(expected), "{found}");
    }
    start.elapsed()
}
