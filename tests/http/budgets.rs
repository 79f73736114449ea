//! `GET /v1/budgets`: what is used and left of each budget, as the ledger, the page and decisions have it.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::Write as _,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{redis::RedisCluster, wait_until};
use weir::config::HttpSettings;
use weir_core::{
    basis::shard::{UserHash, slot_of_shard},
    limit::budget::BudgetId,
};

use crate::{
    client::Client,
    in_process::Server,
    page::browser::{Browser, LIGHT, PHONE},
    support::{
        DEADLINE, Scene, contains_all,
        http::{address, metric, wait_degraded, wait_whole},
        outcome::{intent, time_ms, zone_of_noon},
        stop, unlimited,
    },
};

/// As scenes have it.
const SHARDS: u16 = 64;

const BUDGETS: &str = r#"
version = "1"
default = { caps = "unlimited" }
budgets = [
  { name = "everything", limit = 5_000, total = true },
  { name = "sms", channel = "sms", limit = 20, window = "1h", best_effort = true },
  { name = "money", each = "campaign", limit = 300, per = "month", best_effort = true },
]
"#;

#[track_caller]
fn row(client: &Client, name: &str, campaign: Option<&str>) -> Value {
    let all = client.get("/v1/budgets").json();
    let mut rows = all["budgets"].as_array().unwrap().iter();
    let found = rows.find(|row| row["name"] == name && row["campaign"].as_str() == campaign);
    found.cloned().unwrap_or_else(|| panic!("no {name} of {campaign:?}: {all:#}"))
}

#[track_caller]
fn adds_up(row: &Value) -> u64 {
    let number = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
    assert_eq!(number("used") + number("left"), number("limit"), "{row}");
    assert!(number("held") <= number("leased") && number("leased") <= number("used"), "{row}");
    assert_eq!(row["available"], true, "{row}");
    number("used") - number("held")
}

/// Waits until so much of a budget is used that is not held, and gives its row: tokens that go back are in no lease meanwhile, and the ledger is
/// looked at twice a second.
#[track_caller]
fn wait_used(client: &Client, name: &str, campaign: Option<&str>, used: u64) -> Value {
    let mut found = Value::Null;
    wait_until(DEADLINE, &format!("{used} of {name} are used"), || {
        found = row(client, name, campaign);
        adds_up(&found) == used
    });
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn each_budget_is_shown_with_what_is_used_and_left_and_when_it_frees() {
    let policy = format!("timezone = {:?}{BUDGETS}", zone_of_noon());
    let scene = Scene::new("http-budgets", 1, &policy);
    let (mut worker, client) = Client::ready(&scene, "one");
    let fresh = client.get("/v1/budgets").json();
    let bare = |name: &str, limit: u64, span: (&str, Value)| {
        let mut row = json!({"kind": "budget", "name": name, "limit": limit, "used": 0, "left": limit, "leased": 0, "held": 0,
            "members": null, "free_at": null, "why": null, "available": true});
        row[span.0] = span.1;
        row
    };
    let expected = [bare("everything", 5_000, ("total", json!(true))), bare("sms", 20, ("window", json!("1h")))];
    assert_eq!(fresh, json!({"budgets": expected, "omitted": 0}), "no campaign is known yet");

    scene.publish_wave("spring", 10_000..10_100, &json!({"campaign": "spring", "channel": "push"}));
    scene.publish_wave("summer", 10_000..10_040, &json!({"campaign": "summer", "channel": "sms"}));
    scene.drain(&mut worker);
    // 20 of summer are denied by sms.
    let mut spent = Value::Null;
    wait_until(DEADLINE, "the spent budget is shown", || {
        spent = row(&client, "sms", None);
        spent["left"] == 0
    });
    assert_eq!((adds_up(&spent), &spent["why"]), (20, &json!("too little is left")), "{spent}");
    let decided = scene.decisions();
    let approved = decided.values().filter(|decision| decision.approved());
    let after_ms = time_ms(&spent["free_at"]).unwrap() - approved.map(|decision| decision.at_ms).min().unwrap();
    assert!((3_600_000..3_800_000).contains(&after_ms), "{spent}");
    wait_used(&client, "everything", None, 120);
    for (campaign, used) in [("spring", 100), ("summer", 20)] {
        let row = wait_used(&client, "money", Some(campaign), used);
        assert_eq!((&row["per"], &row["free_at"]), (&json!("month"), &Value::Null));
    }
    let all = client.get("/v1/budgets").json();
    let names: Vec<&Value> = all["budgets"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["everything", "sms", "money", "money"], "in the policy's order");

    one_by_name(&client);
    decisions(&client, &spent);
    on_the_page(&Browser::open(&address(&worker)).await).await;
}

fn one_by_name(client: &Client) {
    // Leases end meanwhile: figures are those of their moment.
    let without_leases = |mut row: Value| {
        for figure in ["free_at", "leased", "held", "used", "left", "why"] {
            assert!(row.as_object_mut().unwrap().remove(figure).is_some(), "{figure}: {row}");
        }
        row
    };
    for (name, campaigns) in [("sms", &[None][..]), ("money", &[Some("spring"), Some("summer")])] {
        let listed = client.get(&format!("/v1/budgets/{name}")).json();
        let rows: Vec<Value> = listed["budgets"].as_array().unwrap().iter().cloned().map(without_leases).collect();
        let expected: Vec<Value> =
            campaigns.iter().map(|campaign| without_leases(row(client, name, *campaign))).collect();
        assert_eq!((rows, &listed["omitted"]), (expected, &json!(0)), "{name}");
    }
    let problem = client.get("/v1/budgets/none").problem(404, "no_such_budget");
    assert!(problem["detail"].as_str().unwrap().contains("GET /v1/budgets"), "{problem}");
    for (path, reason) in [("/v1/budgets?x=1", "query"), ("/v1/budgets/sms?x=1", "query"), ("/v1/budgets/%ff", "path")]
    {
        client.get(path).problem(400, reason);
    }
}

/// A decision that a budget denies names it, and a dry run too; both say when it frees.
fn decisions(client: &Client, spent: &Value) {
    for query in ["", "?dry_run=true"] {
        let denied = client.decide(query, &json!({"id": "sms", "user_id": 9_000_001, "channel": "sms"})).json();
        assert_eq!((&denied["verdict"], &denied["reason"]), (&json!("suppressed"), &json!("budget")), "{denied}");
        assert_eq!(denied["budget"], json!({"name": "sms", "limit": 20, "used": 20}));
        let [eligible_ms, free_ms] = [&denied["eligible_at"], &spent["free_at"]].map(|time| time_ms(time).unwrap());
        assert!((eligible_ms - free_ms).abs() < 5_000, "{denied} {spent}");
    }
    let approved = client.decide("", &json!({"id": "push", "user_id": 9_000_002, "channel": "push"})).json();
    assert_eq!((&approved["verdict"], approved.get("budget")), (&json!("approved"), None));
    let document = client.get("/openapi.json").json();
    assert!(document["components"]["schemas"]["DecisionBudget"]["properties"]["used"].is_object());
}

async fn on_the_page(browser: &Browser) {
    let rows = "document.querySelectorAll('#limits td.bar').length";
    browser.wait("the page shows four budgets", &format!("return {rows} === 4")).await;
    assert_eq!(browser.script("return document.getElementById('limits-card').hidden").await, false);
    let shown = browser.text("#limits").await;
    contains_all(&shown, &["everything", "in total", "5,000", "sms", "in any 1h", "per month", "open"]);
    contains_all(&shown, &["money of spring", "money of summer"]);
    let line = "return [...document.querySelectorAll('#limits th .whole')].map((name) => name.getClientRects().length)";
    for screen in [LIGHT, PHONE] {
        browser.screen(screen);
        assert_eq!(browser.script(line).await, json!([1, 1, 1, 1]), "a budget's name is on one line: {screen:?}");
        let wide = browser.script("return [document.documentElement.scrollWidth, window.innerWidth]").await;
        assert!(wide[0].as_u64() <= wide[1].as_u64(), "{screen:?} scrolls sideways: {wide}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.nameless(), Vec::<String>::new());
}

#[test]
fn a_shard_that_does_not_answer_makes_its_budgets_unavailable_and_no_others() {
    let mut cluster = RedisCluster::start_with(3, 0, &["--cluster-require-full-coverage", "no"]).unwrap();
    let mut text = String::new();
    for number in 0..9 {
        let _ = write!(text, "[[budgets]]\nname = \"b{number}\"\nchannel = \"c{number}\"\nlimit = 50\ntotal = true\n");
    }
    let mut scene = Scene::on_redis(cluster.nodes(), "budgets-away", 1, &unlimited(1, &text));
    scene.set("WEIR__REDIS__TIMEOUT", "500ms");
    let mut worker = scene.worker("one");
    wait_whole(&worker);
    let client = Client::of(&worker);
    for number in 0..9 {
        scene.publish_wave(&format!("before {number}"), 10_000..10_003, &json!({"channel": format!("c{number}")}));
    }
    scene.drain(&mut worker);
    let names: Vec<String> = (0..9).map(|number| format!("b{number}")).collect();
    for name in &names {
        wait_used(&client, name, None, 3);
    }

    let victim = 1;
    let owned = cluster.slots_of(victim).unwrap();
    let is_on_it = |name: &&String| {
        let id = BudgetId { name: name.as_str().into(), campaign: None };
        owned.contains(&slot_of_shard(id.shard(SHARDS), SHARDS))
    };
    let (on_it, elsewhere): (Vec<&String>, Vec<&String>) = names.iter().partition(is_on_it);
    assert!(!on_it.is_empty() && !elsewhere.is_empty(), "{on_it:?}");
    cluster.freeze(victim);
    let is_available = |name: &str| row(&client, name, None)["available"].as_bool().unwrap();
    wait_until(DEADLINE, "only its budgets are unavailable", || {
        on_it.iter().all(|name| !is_available(name)) && elsewhere.iter().all(|name| is_available(name))
    });
    for name in &on_it {
        let row = client.get(&format!("/v1/budgets/{name}")).json()["budgets"][0].take();
        let used = row["used"].as_u64().unwrap_or_else(|| panic!("the last known figures are shown: {row}"));
        assert!(used >= 3 && row["left"] == 50 - used, "{row}");
        assert_eq!(row["why"], "cannot be read from Redis", "{row}");
    }
    // It is degraded once this instance needs more of it.
    scene.publish_wave("during", 10_000..10_060, &json!({"channel": format!("c{}", &on_it[0][1..])}));
    wait_until(DEADLINE, "the status names it", || {
        let entry = wait_degraded(&worker, "budget");
        let message = entry["message"].as_str().unwrap();
        assert!(message.contains("on_unavailable") && !elsewhere.iter().any(|name| message.contains(*name)), "{entry}");
        message.contains(on_it[0].as_str())
    });

    cluster.thaw(victim);
    wait_until(DEADLINE, "all are available", || names.iter().all(|name| is_available(name)));
    scene.drain(&mut worker);
    wait_whole(&worker);
}

/// Whoever is refused at once has asked the node nothing.
#[test]
fn requests_for_users_of_a_node_that_is_known_not_to_answer_pay_nothing() {
    const REQUESTS: usize = 50;
    let mut cluster = RedisCluster::start_with(3, 0, &["--cluster-require-full-coverage", "no"]).unwrap();
    let victim = 1;
    let owned = cluster.slots_of(victim).unwrap();
    let is_on_it = |shard: u16| owned.contains(&slot_of_shard(shard, SHARDS));
    let shard_of = |name: &String| BudgetId { name: name.as_str().into(), campaign: None }.shard(SHARDS);
    let name = (0..).map(|number| format!("b{number}")).find(|name| !is_on_it(shard_of(name))).unwrap();
    let user = (0_u64..).find(|user| is_on_it(UserHash::of(&user.to_string()).shard(SHARDS))).unwrap();
    let budget = format!("[[budgets]]\nname = {name:?}\nlimit = 1_000\ntotal = true\n");
    let mut scene = Scene::on_redis(cluster.nodes(), "budgets-refused", 1, &unlimited(1, &budget));
    scene.set("WEIR__REDIS__TIMEOUT", "500ms");
    scene.set("WEIR__HTTP__RATE", "0");
    let (worker, client) = Client::ready(&scene, "one");
    cluster.freeze(victim);
    wait_degraded(&worker, "shards_unavailable");
    for number in 0..REQUESTS {
        let intent = json!({"id": format!("i{number}"), "user_id": user});
        client.decide("", &intent).problem(503, "store_away");
    }
    cluster.thaw(victim);
    wait_whole(&worker);
    wait_used(&client, &name, None, 0);
}

#[test]
fn clients_that_go_away_while_their_intents_wait_for_tokens_pay_nothing() {
    const REQUESTS: u32 = 200;
    let budgets = unlimited(1, "[[budgets]]\nname = \"all\"\nlimit = 1_000_000\nwindow = \"5m\"\n");
    let (mut redis, mut scene) = Scene::with_redis("budgets-gone", 1, &budgets);
    scene.set("WEIR__REDIS__TIMEOUT", "60s");
    scene.set("WEIR__HTTP__TIMEOUT", "5m");
    scene.set("WEIR__HTTP__CONCURRENCY", "400");
    scene.set("WEIR__HTTP__RATE", "0");
    let (mut worker, client) = Client::ready(&scene, "one");
    let approve =
        |id: &str| assert_eq!(client.decide("", &json!({"id": id, "user_id": 1})).json()["verdict"], "approved");
    approve("before");
    wait_until(DEADLINE, "the lease has ended", || row(&client, "all", None)["held"] == 0);

    // A turn at the budget has no answer after a second: by then they have asked, and gone.
    redis.freeze();
    let head = format!("POST /v1/decisions HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json", client.address);
    let ask = |number: u32| {
        let intent = json!({"id": format!("gone-{number}"), "user_id": 10_000 + number}).to_string();
        let mut stream = client.connect();
        write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{intent}", intent.len()).unwrap();
        stream
    };
    let waiting: Vec<_> = (0..REQUESTS).map(ask).collect();
    // One is that of the question.
    let open = || metric(&worker, "weir_http_connections", "").unwrap_or_default();
    wait_until(DEADLINE, "all have asked", || open() > f64::from(REQUESTS));
    drop(waiting);
    wait_until(DEADLINE, "the clients have gone", || open() <= 1.0);
    redis.thaw();
    wait_whole(&worker);
    // On a slow machine Redis may have stood still for longer than a lease. The same id again pays nothing.
    let is_asked = || client.decide("", &json!({"id": "after", "user_id": 1})).status == 200;
    wait_until(DEADLINE, "the budget is asked", is_asked);
    approve("after");
    stop(&mut worker);
    let keys: Vec<String> = redis.query(&["KEYS", &format!("{}:{{*}}:b3:all", scene.name)]).unwrap();
    let fields: BTreeMap<String, String> = redis.query(&["HGETALL", &keys[0]]).unwrap();
    let buckets = fields.iter().filter(|(field, _)| field.parse::<i64>().is_ok());
    let used: u64 = buckets.map(|(_, tokens)| tokens.parse::<u64>().unwrap()).sum();
    assert_eq!(used, 2, "of {REQUESTS} clients that have gone, and two that were answered: {}", worker.log());
}

/// Anybody may ask: a row is a call of a script. What is found answers all who ask within half a second.
#[test]
fn however_often_it_is_asked_the_list_has_1_000_rows_at_most_and_redis_is_looked_at_twice_a_second() {
    const CAMPAIGNS: usize = 600;
    const ROWS: usize = 1_000;
    const FRESH_FOR: Duration = Duration::from_millis(500);
    let each = |name: &str| format!("[[budgets]]\nname = {name:?}\neach = \"campaign\"\nlimit = 1\ntotal = true\n");
    let text = unlimited(1, &[each("one"), each("other")].concat());
    let (redis, mut scene) = Scene::with_redis("budgets-many", 1, &text);
    scene.set("WEIR__HTTP__RATE", "0");
    let (mut worker, client) = Client::ready(&scene, "one");
    let mut waves = 0;
    // An instance knows for a minute which budgets its intents needed.
    wait_until(DEADLINE, "there are more rows than a list has", || {
        waves += 1;
        let of = |number: usize| json!({"campaign": format!("c{number}")});
        let one = |number: usize| intent(&format!("{waves} {number}"), 10_000 + number, of(number));
        scene.decide_by(&mut worker, (0..CAMPAIGNS).map(one));
        client.get("/v1/budgets").json()["omitted"] == 2 * CAMPAIGNS - ROWS
    });
    // Calls of scripts, but for those by which the lane's tokens are taken and given back.
    let asked = || {
        let scripts = redis.calls().unwrap().get("evalsha").copied().unwrap_or(0);
        i64::try_from(scripts).unwrap() - metric(&worker, "weir_ledger_calls_total", "").unwrap() as i64
    };
    let (before, begun) = (asked(), Instant::now());
    for _ in 0..50 {
        let list = client.get("/v1/budgets").json();
        assert!(list["budgets"].as_array().unwrap().len() <= ROWS, "{}", list["omitted"]);
    }
    let asked = asked() - before;
    // The last one more is for turns whose answers are not counted yet.
    let looks = i64::try_from(begun.elapsed().as_millis() / FRESH_FOR.as_millis()).unwrap() + 1;
    assert!(asked <= (looks + 1) * 1_000, "{asked} calls for at most {looks} looks");
}

#[test]
fn a_policy_without_budgets_has_an_empty_list() {
    let server = Server::start(&HttpSettings::default());
    assert_eq!(server.client.get("/v1/budgets").json(), json!({"budgets": [], "omitted": 0}));
    server.client.get("/v1/budgets/any").problem(404, "no_such_budget");
}
