//! Services that ask before they work: registrations, admissions, and that all instances of weir together give no more than is registered.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{wait_for, wait_until, worker::Worker};
use weir_core::{basis::time::Time, ports::Clock as _};
use weir_worker::clock::SystemClock;

use crate::{
    client::{Client, JSON, Reply},
    support::{
        DEADLINE, POLICY, Scene,
        http::{degraded, metric, wait_degraded},
    },
};

fn instance(client: &Client, service: &str, name: &str, body: &Value) -> Reply {
    let path = format!("/v1/services/{service}/instances/{name}");
    client.send("PUT", &path, &[JSON], body.to_string().as_bytes())
}

fn ask(client: &Client, service: &str) -> Reply {
    client.send("POST", &format!("/v1/services/{service}/admissions"), &[JSON], b"{}")
}

fn end(client: &Client, service: &str, id: &str, body: &str) -> Reply {
    let headers: &[(&str, &str)] = if body.is_empty() { &[] } else { &[JSON] };
    client.send("DELETE", &format!("/v1/services/{service}/admissions/{id}"), headers, body.as_bytes())
}

/// The first admission that is as wanted, and when it was asked for; others are ended. Sooner or later one is given.
fn admitted_where(client: &Client, service: &str, is_wanted: impl Fn(&Value) -> bool) -> (String, Instant) {
    let mut found = None;
    wait_until(DEADLINE, "an admission is given", || {
        let began = Instant::now();
        let reply = ask(client, service);
        if reply.status == 503 {
            let after_s: u64 = reply.headers["retry-after"].parse().unwrap();
            assert!((1..=90).contains(&after_s), "{reply:?}");
            return false;
        }
        let given = reply.json();
        let id = given["id"].as_str().unwrap().to_owned();
        if is_wanted(&given) {
            found = Some((id, began));
        } else {
            end(client, service, &id, "").json();
        }
        found.is_some()
    });
    found.unwrap()
}

fn admitted(client: &Client, service: &str) -> String {
    admitted_where(client, service, |_| true).0
}

/// How an instance of weir shares a service; null where it does not.
fn share(client: &Client, service: &str) -> Value {
    let list = client.get("/v1/services").json();
    let mut services = list["services"].as_array().unwrap().iter();
    services.find(|one| one["name"] == service).cloned().unwrap_or_default()
}

/// A scene without a limit of requests, and two instances of weir on it.
fn two(name: &str) -> (Scene, [Worker; 2]) {
    let mut scene = Scene::new(name, 2, POLICY);
    scene.set("WEIR__HTTP__RATE", "0");
    let workers = scene.all_ready(["a", "b"]);
    (scene, workers)
}

#[test]
fn an_admission_is_given_once_a_service_is_known_and_every_mistake_is_a_problem() {
    let scene = Scene::new("services", 1, POLICY);
    let (worker, client) = Client::ready(&scene, "one");
    assert_eq!(client.get("/v1/services").json(), json!({"services": []}));
    client.get("/v1/services/email").problem(404, "no_such_service");
    let unknown = ask(&client, "email");
    unknown.problem(503, "no_instances");
    // Not all who ask come back at once.
    let after_s = |_| ask(&client, "email").headers["retry-after"].parse::<u64>().unwrap();
    let waits: BTreeSet<u64> = (0..40).map(after_s).collect();
    assert!(waits.len() > 1 && waits.iter().all(|wait| (10..=15).contains(wait)), "{waits:?}");

    let good = json!({"capacity_per_s": 50, "concurrency": 2, "timeout_ms": 60_000});
    let registered = instance(&client, "email", "e-0", &good).json();
    assert_eq!(registered, json!({"instances": 1, "capacity_per_s": 50, "concurrency": 2}));
    let reply = ask(&client, "email");
    reply.problem(503, "service_starting");
    assert!(reply.headers["retry-after"].parse::<u64>().unwrap() >= 3, "{reply:?}");
    let first = admitted(&client, "email");
    let second = admitted(&client, "email");
    let reply = ask(&client, "email");
    reply.problem(503, "over_concurrency");
    assert!(reply.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    assert_eq!(share(&client, "email")["outstanding"], 2);
    assert_eq!(metric(&worker, "weir_service_outstanding", ""), Some(2.0));
    assert_eq!(end(&client, "email", &first, r#"{"took_ms":12,"outcome":"ok"}"#).json(), json!({"ended": "now"}));
    assert_eq!(end(&client, "email", &first, "").json(), json!({"ended": "before"}));
    assert_eq!(end(&client, "email", &second, r#"{"outcome":"temporary"}"#).json(), json!({"ended": "now"}));
    wait_until(DEADLINE, "the mean is known", || !client.get("/v1/services/email").json()["mean_took_ms"].is_null());
    let mut seen = client.get("/v1/services/email").json();
    let lives_for_ms = seen["instances"][0]["lives_for_ms"].take().as_u64().unwrap();
    assert!((1..=30_000).contains(&lives_for_ms), "{lives_for_ms}");
    let own = json!({"instance": "e-0", "capacity_per_s": 50, "concurrency": 2, "timeout_ms": 60_000, "network_ms": 50,
        "lives_for_ms": null});
    let expected = json!({"kind": "service", "name": "email", "per": "second", "limit": 50, "used": null, "left": 0, "held": null,
        "leased": 50, "members": 1, "free_at": null, "why": null, "available": true, "instances": [own], "concurrency": 2,
        "given_concurrency": 2, "mean_took_ms": 12.0});
    assert_eq!(seen, expected);
    for (outcome, count) in [("admitted", 2.0), ("ended", 2.0), ("over_concurrency", 1.0)] {
        let labels = format!("service=\"email\",outcome=\"{outcome}\"");
        let found = metric(&worker, "weir_service_admissions_total", &labels).unwrap_or(0.0);
        assert!(found >= count, "{outcome}: {found}");
    }

    mistakes(&client, &good);
    let removed = |name: &str| {
        let path = format!("/v1/services/email/instances/{name}");
        client.send("DELETE", &path, &[], b"").json()["removed"].clone()
    };
    assert_eq!((removed("e-0"), removed("e-0")), (json!(true), json!(false)));
    wait_until(DEADLINE, "nobody registers it", || ask(&client, "email").body.contains("\"no_instances\""));
}

fn mistakes(client: &Client, good: &Value) {
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    let bodies = [
        (json!([]), "wrong_type"),
        (json!({}), "missing_field"),
        (json!({"capacity_per_s": 5, "concurrency": 5}), "missing_field"),
        (with("capacity_per_s", json!(0)), "wrong_type"),
        (with("capacity_per_s", json!(1_000_001)), "wrong_type"),
        (with("capacity_per_s", json!(1.5)), "wrong_type"),
        (with("concurrency", json!(-1)), "wrong_type"),
        (with("timeout_ms", json!("10s")), "wrong_type"),
        (with("timeout_ms", json!(3_600_001)), "wrong_type"),
        (with("interval_ms", json!(999)), "wrong_type"),
        (with("network_ms", json!(60_001)), "wrong_type"),
        (with("capacity", json!(1)), "wrong_type"),
    ];
    for (body, reason) in bodies {
        let problem = instance(client, "email", "e-0", &body).problem(400, reason);
        assert!(problem["detail"].as_str().unwrap().len() > 20, "{problem}");
    }
    let path = "/v1/services/email/instances/e-0";
    for (body, reason) in [(&b""[..], "empty"), (b"{", "not_json"), (b"\xff", "not_utf8")] {
        client.send("PUT", path, &[JSON], body).problem(400, reason);
    }
    let body = good.to_string();
    client.send("PUT", path, &[], body.as_bytes()).problem(415, "media_type");
    client.send("PUT", path, &[JSON, ("content-encoding", "gzip")], body.as_bytes()).problem(415, "content_encoding");
    client.send("PUT", &format!("{path}?x=1"), &[JSON], body.as_bytes()).problem(400, "query");
    client.send("POST", path, &[], b"").problem(405, "no_such_method");
    // What a page in a browser can send without asking takes no admission.
    let admissions = "/v1/services/email/admissions";
    let form = ("content-type", "application/x-www-form-urlencoded");
    for kind in [&[("content-type", "text/plain")][..], &[form], &[]] {
        for body in [&b""[..], b"{}"] {
            client.send("POST", admissions, kind, body).problem(415, "media_type");
        }
    }
    let page = [JSON, ("origin", "http://weir.example")];
    client.send("POST", admissions, &page, b"{}").problem(403, "forbidden");
    let wrong = [(&b""[..], "empty"), (b"{", "not_json"), (b"7", "wrong_type"), (b"{\"x\":1}", "wrong_type")];
    for (body, reason) in wrong {
        client.send("POST", admissions, &[JSON], body).problem(400, reason);
    }
    let long = "x".repeat(65);
    for name in ["a%20b", "%C3%A9", &long] {
        instance(client, name, "e-0", good).problem(400, "service_name");
        instance(client, "email", name, good).problem(400, "service_name");
        ask(client, name).problem(400, "service_name");
        client.get(&format!("/v1/services/{name}")).problem(400, "service_name");
    }
    for id in ["7", "A.7", "a.x", "a.18446744073709551616"] {
        end(client, "email", id, "").problem(400, "admission");
    }
    for (body, reason) in
        [("{\"took_ms\":-1}", "wrong_type"), ("{\"outcome\":\"lost\"}", "wrong_type"), ("[", "not_json")]
    {
        end(client, "email", "a.7", body).problem(400, reason);
    }
}

/// An admission as a service sees it. weir gave it between `sent` and `received`.
#[derive(Debug, Clone, Copy)]
struct Given {
    sent: Instant,
    received: Instant,
    /// When the service said that it has ended.
    ended: Option<Instant>,
}

/// The pace of a load: a service's work takes time.
#[expect(clippy::disallowed_methods, reason = "no condition is waited for")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// The least that a load gets: with less of it nothing was tried.
const LEAST: u64 = 50;

/// Asks at one instance until `stop`, as fast as it answers, and works for a moment on each admission.
fn load(client: &Client, stop: &AtomicBool, count: &AtomicU64) -> Vec<Given> {
    let mut all = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let reply = ask(client, "email");
        let received = Instant::now();
        if reply.status != 200 {
            assert_eq!(reply.status, 503, "{reply:?}");
            pause(Duration::from_millis(5));
            continue;
        }
        let id = reply.json()["id"].as_str().unwrap().to_owned();
        pause(Duration::from_millis(fastrand::u64(..30)));
        // Some are never ended.
        let ended = (fastrand::u8(..20) > 0).then(Instant::now);
        if ended.is_some() {
            end(client, "email", &id, "{\"took_ms\":10}").json();
        }
        all.push(Given { sent, received, ended });
        count.fetch_add(1, Ordering::Relaxed);
    }
    all
}

/// Loads these instances for so long, and on a slow machine for longer.
fn load_all(clients: &[&Client], time: Duration) -> Vec<Given> {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            clients.iter().cycle().take(12).map(|client| scope.spawn(|| load(client, &stop, &count))).collect();
        pause(time);
        let enough = wait_for(DEADLINE, || (count.load(Ordering::Relaxed) >= LEAST).then_some(()));
        stop.store(true, Ordering::Relaxed);
        assert!(enough.is_some(), "nothing was tried: {count:?}");
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// The most admissions that were certainly given within one second: asked for and answered within it.
fn most_in_a_second(given: &[Given]) -> usize {
    let within = |begin: Instant| {
        given.iter().filter(|one| one.sent >= begin && one.received < begin + Duration::from_secs(1)).count()
    };
    given.iter().map(|one| within(one.sent)).max().unwrap_or(0)
}

/// The most admissions that certainly had not ended at the same time.
fn most_at_once(given: &[Given], timeout: Duration) -> usize {
    let is_open = |one: &Given, at: Instant| {
        let over = one.sent + timeout;
        at >= one.received && at < one.ended.map_or(over, |ended| ended.min(over))
    };
    given.iter().map(|one| given.iter().filter(|other| is_open(other, one.received)).count()).max().unwrap_or(0)
}

/// What the two instances of the next tests may give together.
const PER_S: usize = 150;
const AT_ONCE: usize = 8;

/// The most that two instances gave within a second, and at once, while shares moved and one of them was killed.
fn give_together(name: &str) -> (usize, usize) {
    const TIMEOUT: Duration = Duration::from_millis(1_500);
    let (_scene, [mut a, b]) = two(name);
    let (at_a, at_b) = (Client::of(&a), Client::of(&b));
    let body = json!({"capacity_per_s": PER_S, "concurrency": AT_ONCE, "timeout_ms": TIMEOUT.as_millis() as u64});
    let body = &body;
    assert_eq!(instance(&at_a, "email", "e-0", body).status, 200);
    for client in [&at_a, &at_b] {
        let id = admitted(client, "email");
        end(client, "email", &id, "").json();
    }
    let both = load_all(&[&at_a, &at_b], Duration::from_secs(3));
    let one = load_all(&[&at_b], Duration::from_secs(3));
    a.kill();
    instance(&at_b, "email", "e-0", body).json();
    // The dead one's share is free 4 s later.
    let rest = load_all(&[&at_b], Duration::from_secs(6));
    let parts = [&both, &one, &rest].map(Vec::len);
    let all: Vec<Given> = [both, one, rest].concat();
    let (in_a_second, at_once) = (most_in_a_second(&all), most_at_once(&all, TIMEOUT));
    assert!(in_a_second <= PER_S, "{in_a_second} within a second, of {PER_S}; {parts:?} in all");
    assert!(at_once <= AT_ONCE, "{at_once} at once, of {AT_ONCE}; {parts:?} in all");
    // What a dead instance had is given to the other one.
    wait_until(DEADLINE, "b has all of it", || {
        let of_b = share(&at_b, "email");
        ask(&at_b, "email");
        of_b["held"] == PER_S && of_b["share_concurrency"] == AT_ONCE
    });
    (in_a_second, at_once)
}

#[test]
fn two_instances_together_give_no_more_than_is_registered_while_shares_move_and_one_is_killed() {
    give_together("services-two");
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn two_instances_together_give_much_of_what_is_registered() {
    let (in_a_second, at_once) = give_together("services-near");
    assert!(in_a_second > PER_S / 4 && at_once > AT_ONCE / 2, "nothing was near the limits");
}

/// How soon an instance that is silent is removed, and how soon an admission that nobody ends is.
fn remove_and_time_out(name: &str) -> [Duration; 2] {
    let (_scene, workers) = two(name);
    let [a, b] = &workers.each_ref().map(Client::of);
    let registration = |timeout_ms: u64, interval_ms: u64| json!({"capacity_per_s": 500, "concurrency": 20, "timeout_ms": timeout_ms, "interval_ms": interval_ms});
    let body = registration(2_500, 1_000);
    let total = |client: &Client| client.get("/v1/services/email").json()["limit"].clone();
    let mut silent_since = Instant::now();
    wait_until(DEADLINE, "both are registered", || {
        instance(a, "email", "e-0", &body).json();
        silent_since = Instant::now();
        instance(a, "email", "e-1", &body).json();
        total(a) == 1_000 && total(b) == 1_000
    });
    wait_until(DEADLINE, "the silent one is removed", || {
        instance(b, "email", "e-0", &body).json();
        total(a) == 500
    });
    let removed_after = silent_since.elapsed();
    assert!(removed_after >= Duration::from_secs(3), "after {removed_after:?}");
    // From now on it lives for three minutes.
    let body = registration(2_500, 60_000);
    let keep = || drop(instance(b, "email", "e-0", &body).json());
    // The sum that is given follows, and goes no further.
    wait_until(DEADLINE, "both share what is left", || {
        keep();
        [a, b].into_iter().for_each(|client| drop(ask(client, "email")));
        let shares = [a, b].map(|client| share(client, "email")["held"].as_u64().unwrap_or(0));
        shares.iter().all(|share| *share > 0) && shares.iter().sum::<u64>() <= 500
    });

    let outstanding = |client: &Client| share(client, "email")["outstanding"].as_u64().unwrap();
    wait_until(DEADLINE, "nothing is open", || {
        keep();
        outstanding(a) == 0 && outstanding(b) == 0
    });
    // Its timeout is far away, so that it is the end that frees it.
    instance(b, "email", "e-0", &registration(60_000, 60_000)).json();
    let (id, _) = admitted_where(a, "email", |given| given["timeout_ms"] == 60_000);
    assert_eq!((outstanding(a), outstanding(b)), (1, 0));
    assert_eq!(end(b, "email", &id, "{\"took_ms\":7}").json(), json!({"ended": "handed_on"}));
    wait_until(DEADLINE, "its holder has freed it", || outstanding(a) == 0);
    let labels = "service=\"email\",outcome=\"ended\"";
    let ended = metric(&workers[0], "weir_service_admissions_total", labels);
    assert!(ended >= Some(1.0), "{ended:?}");

    keep();
    let (_, began) = admitted_where(a, "email", |given| given["timeout_ms"] == 2_500);
    wait_until(DEADLINE, "it times out", || outstanding(a) == 0);
    let timed_out_after = began.elapsed();
    assert!(timed_out_after >= Duration::from_millis(2_500), "{timed_out_after:?}");
    [removed_after, timed_out_after]
}

#[test]
fn an_instance_that_does_not_renew_is_removed_and_ends_and_timeouts_free_at_any_instance() {
    remove_and_time_out("services-ends");
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn silent_instances_and_admissions_that_time_out_are_removed_within_seconds() {
    let [removed, timed_out] = remove_and_time_out("services-soon");
    assert!(removed < Duration::from_secs(6) && timed_out < Duration::from_secs(5), "{removed:?}, {timed_out:?}");
}

#[test]
fn while_redis_hangs_admissions_end_with_the_lease_and_come_back_with_it() {
    hang_redis("services-frozen");
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn while_redis_hangs_admissions_end_within_seconds_and_not_at_once() {
    let after = hang_redis("services-hangs");
    // A lease is 3 s, and renewed each second.
    assert!((Duration::from_secs(1)..Duration::from_secs(6)).contains(&after), "after {after:?}");
}

/// How soon the lease has ended.
fn hang_redis(name: &str) -> Duration {
    let (mut redis, mut scene) = Scene::with_redis(name, 1, POLICY);
    scene.set("WEIR__HTTP__RATE", "0");
    let (worker, client) = Client::ready(&scene, "one");
    let body = json!({"capacity_per_s": 1_000, "concurrency": 10_000, "timeout_ms": 60_000, "interval_ms": 60_000});
    instance(&client, "email", "e-0", &body).json();
    admitted(&client, "email");
    let (frozen, frozen_at) = (Instant::now(), SystemClock.now());
    redis.freeze();
    wait_until(DEADLINE, "the lease has ended", || {
        let reply = ask(&client, "email");
        let retry_after = || reply.headers["retry-after"].parse::<u64>().unwrap();
        assert!(reply.status == 200 || (1..=2).contains(&retry_after()), "{reply:?}");
        reply.status == 503
    });
    let reply = ask(&client, "email");
    reply.problem(503, "no_lease");
    let after = frozen.elapsed();
    let shown = share(&client, "email");
    assert!(shown["available"] == false && shown["why"].is_string(), "{shown}");
    let reply = instance(&client, "email", "e-1", &body);
    reply.problem(503, "store_away");
    let entry = wait_degraded(&worker, "service");
    assert!(entry["message"].as_str().unwrap().contains("the service email"), "{entry}");
    let since: Time = serde_json::from_value(entry["since"].clone()).unwrap();
    // A turn that was under way began up to a second before; the wall's clock and the monotonic one are not read at once.
    assert!(since > frozen_at.plus(-2_000) && since < SystemClock.now(), "{since} of {frozen_at}");
    redis.thaw();
    admitted(&client, "email");
    wait_until(DEADLINE, "it is shown", || {
        let is_degraded = degraded(&worker).iter().any(|(what, _)| what == "service");
        share(&client, "email")["available"] == true && !is_degraded
    });
    wait_until(DEADLINE, "registrations are answered", || instance(&client, "email", "e-1", &body).status == 200);
    after
}
