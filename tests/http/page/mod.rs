//! The page at `/`, in a headless Chromium and over HTTP.
//!
//! `UPDATE=1 cargo xtask test -- --test http page` renews the screenshots in docs/images.

pub mod browser;

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    client::Client,
    support::{DEADLINE, POLICY, Scene, contains_all, http, stop},
};
use browser::{Browser, DARK, LIGHT, PHONE, Screen};
use serde_json::{Value, json};
use testkit::{kafka::Record, wait_until, worker::Worker};

/// Viewers at a time, as src/http/page/events.rs has it.
const MAX_VIEWERS: usize = 64;

/// Intents for many users of all segments, and some that are none.
fn intents(round: u32, count: u32) -> impl Iterator<Item = Record> {
    let channels = ["push", "email", "in-app"];
    (0..count).map(move |number| {
        let user = number * 7 % 5000;
        let (channel, campaign) = (channels[number as usize % 3], number % 4);
        let intent = json!({
            "id": format!("{round}-{number}"), "user_id": user, "channel": channel, "category": "promo",
            "campaign": format!("c-{campaign}"),
        });
        let text = if number % 500 == 499 { "not json".to_owned() } else { intent.to_string() };
        Record::new(user.to_string(), text)
    })
}

fn scene(name: &str, http: &str) -> (Scene, Worker) {
    let mut scene = Scene::new(name, 6, POLICY);
    scene.extra = http.to_owned();
    let worker = scene.ready("one");
    (scene, worker)
}

async fn screenshot(browser: &Browser, screen: Screen, name: &str) {
    browser.screen(screen);
    let png = browser.picture().await;
    assert!(png.len() > 10_000, "{name} is an empty picture");
    if std::env::var_os("UPDATE").is_some() {
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
        std::fs::write(images.join(name), png).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_what_the_worker_is_doing_while_it_does_it() {
    let (scene, worker) = scene("page-live", "");
    let browser = Browser::open(&http::address(&worker)).await;
    browser.wait("the page is connected", "return document.getElementById('state').dataset.state === 'ready'").await;
    assert_eq!(browser.script("return document.title").await, "weir");

    let decided = "[...document.querySelectorAll('#reasons tr')].filter((row) => row.children.length === 4)\
                   .reduce((sum, row) => sum + Number(row.lastChild.textContent.replaceAll(',', '')), 0)";
    let mut sent = 0;
    for round in 0..3 {
        scene.publish(intents(round, 5000));
        sent += 5000;
        browser.wait("all intents are counted", &format!("return {decided} === {sent}")).await;
    }
    browser.wait("there is a rate", "return document.getElementById('rate-all').textContent !== '0'").await;
    for (css, words) in [
        ("#reasons", &["approved", "counted", "suppressed", "cap", "dead letter", "not_json"][..]),
        ("#caps", &["new", "daily", "2 in any 24h", "active", "once", "(none)"]),
        ("#versions", &["test-1", "test-set", "ago"]),
        ("#segments", &["new", "1,000", "active", "2,000", "staff"]),
        ("#nodes", &["127.0.0.1:", "answers", "ms", "MiB"]),
        ("footer", &["1 of 1 lanes"]),
    ] {
        let text = browser.text(css).await;
        assert!(words.iter().all(|word| text.contains(word)), "{css} should have {words:?}: {text}");
    }
    let rows = |css: &str| format!("return document.querySelectorAll('{css} tr').length");
    assert_eq!(browser.script(&rows("#nodes")).await, 3, "a row a primary");
    assert_eq!(browser.script(&rows("#lag")).await, 6, "a row a partition");

    assert_eq!(browser.script("return document.getElementById('deferred-card').hidden").await, true);

    // What the page says is what the metrics say.
    let suppressed = http::metric(&worker, "weir_cap_denials_total", "segment=\"new\",cap=\"daily\"").unwrap();
    let said = "const row = [...document.querySelectorAll('#caps tr')].find((row) => row.textContent.startsWith('newdaily'));\
                return Number(row.lastChild.textContent.replaceAll(',', ''))";
    assert_eq!(browser.script(said).await.as_f64(), Some(suppressed));

    looks(&browser).await;
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.strangers(), Vec::<String>::new());
}

/// How it looks: on a desk by day and by night, and on a phone.
async fn looks(browser: &Browser) {
    browser.keys_into("#user", "1001").await;
    browser.click("#explain button").await;
    browser.wait("the user is explained", "return !document.getElementById('user-answer').hidden").await;
    for (screen, name) in [(LIGHT, "page-light.png"), (DARK, "page-dark.png"), (PHONE, "page-phone.png")] {
        screenshot(browser, screen, name).await;
        assert_eq!(browser.faint().await, Vec::<Value>::new(), "{screen:?}");
        let wide = browser.script("return [document.documentElement.scrollWidth, window.innerWidth]").await;
        assert!(wide[0].as_u64() <= wide[1].as_u64(), "{screen:?} scrolls sideways: {wide}");
        assert_eq!(wide[1], screen.width);
    }
    let grounds = "return getComputedStyle(document.body).backgroundColor";
    browser.screen(DARK);
    let dark = browser.script(grounds).await;
    browser.screen(LIGHT);
    assert_ne!(browser.script(grounds).await, dark, "dark is like light");
    assert_eq!(browser.nameless(), Vec::<String>::new());
    let landmarks = "return ['header', 'main', 'footer', '[role=search]', '[aria-live=polite]', 'html[lang]']\
                     .filter((css) => document.querySelectorAll(css).length !== 1)";
    assert_eq!(browser.script(landmarks).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_explained_by_keyboard_alone_to_who_has_the_token() {
    const TAB: &str = "\u{e004}";
    const ENTER: &str = "\u{e007}";
    let (scene, worker) = scene("page-explain", "token = \"the-right-token\"");
    scene.publish((0..3).map(|number| {
        Record::new("7", json!({"id": format!("i-{number}"), "user_id": 7, "channel": "push"}).to_string())
    }));
    scene.wait_until_drained();
    let browser = Browser::open(&http::address(&worker)).await;
    let focus = "return document.activeElement.id || document.activeElement.className";

    // Totals are shown without a token.
    browser.wait("totals are there", "return document.querySelectorAll('#reasons .mark').length === 2").await;
    browser.keys(TAB).await;
    assert_eq!(browser.script(focus).await, "skip", "the first stop leads past the header");
    browser.keys(TAB).await;
    assert_eq!(browser.script(focus).await, "user");
    browser.keys(&format!("7{ENTER}")).await;
    browser.wait("the token is asked for", "return document.activeElement.id === 'token'").await;
    assert!(browser.text("#user-problem").await.contains("wants the bearer token"));

    browser.keys(&format!("a-wrong-token{ENTER}")).await;
    let refused = "return document.getElementById('user-problem').textContent.includes('not accepted')";
    browser.wait("the wrong token is refused", refused).await;
    assert_eq!(browser.script("return sessionStorage.length").await, 0, "a wrong token is not kept");
    browser.wait("the token is asked for again", "return document.activeElement.id === 'token'").await;
    browser.keys(&format!("the-right-token{ENTER}")).await;
    browser.wait("the user is explained", "return !document.getElementById('user-answer').hidden").await;
    let card = browser.text("#user-card").await;
    contains_all(&card, &["User 7", "new", "daily", "any 24h", "2 of 2", "weekly", "push", "Asia/Singapore"]);
    assert_eq!(browser.script("return document.getElementById('token-form').checkVisibility()").await, false);
    let announced = browser.script("return document.getElementById('announce').textContent").await;
    assert!(announced.as_str().unwrap().starts_with("User 7: 2 sends"), "{announced}");
    let kept = "return [sessionStorage.length, localStorage.length, document.cookie]";
    assert_eq!(browser.script(kept).await, json!([1, 0, ""]), "the token is in this tab alone");

    // A user that nobody has heard of, by an id that would be a path or markup.
    for id in ["nobody", "../segments", "<b>x</b>&%2F"] {
        browser.script("document.getElementById('user').value = ''").await;
        browser.keys_into("#user", &format!("{id}{ENTER}")).await;
        let shown = format!(
            "return document.getElementById('user-heading').textContent === {} \
             && document.getElementById('user-sends').textContent.includes('Nothing was sent')",
            json!(format!("User {id}"))
        );
        browser.wait("an unknown user is explained", &shown).await;
    }
    // A browser notes each 401 on its console, and nothing else is there.
    let complaints = browser.complaints();
    assert!(complaints.iter().all(|said| said.contains("401")), "{complaints:?}");
    assert_eq!(browser.strangers(), Vec::<String>::new());
}

/// Status, head and the open connection of a GET.
fn get(address: &str, path: &str) -> (u16, String, BufReader<TcpStream>) {
    let mut stream = Client { address: address.to_owned(), token: None }.connect();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "the server hung up: {head}");
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), reader)
}

#[test]
fn viewers_are_bounded_told_the_same_and_see_the_end() {
    end_with_viewers("page-viewers");
}

#[test]
#[ignore = "bounds real time: cargo xtask ci --extent everything"]
fn viewers_do_not_hold_up_the_end() {
    let took = end_with_viewers("page-ends");
    assert!(took < Duration::from_secs(20), "open pages held it up for {took:?}");
}

/// As many viewers as there may be: how long the end took.
fn end_with_viewers(name: &str) -> Duration {
    let (_scene, mut worker) = scene(name, "");
    let address = http::address(&worker);
    let (status, head, _) = get(&address, "/");
    assert_eq!(status, 200);
    let words = ["default-src 'none'; script-src 'self'", "nosniff", "referrer-policy: no-referrer", "text/html"];
    contains_all(&head, &words);
    let opened = Instant::now();
    let mut viewers: Vec<_> = (0..MAX_VIEWERS).map(|_| get(&address, "/events")).collect();
    let mut looks = BTreeSet::new();
    for (status, head, reader) in &mut viewers {
        assert!(*status == 200 && head.contains("text/event-stream"), "{head}");
        let look = reader.lines().map(Result::unwrap).find(|line| line.starts_with("data: ")).unwrap();
        let look: Value = serde_json::from_str(look.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!((&look["policy"]["version"], &look["waiting"]), (&json!("test-1"), &json!([])));
        assert!(!look.to_string().contains("user_id"));
        looks.insert(look["at"].to_string());
    }
    // A look is for all who ask within half a second of it.
    let most = 1 + opened.elapsed().as_millis() / 500;
    assert!(looks.len() as u128 <= most, "{} looks for {MAX_VIEWERS} viewers, {most} at most", looks.len());
    let (status, head, _) = get(&address, "/events");
    assert!(status == 503 && head.contains("retry-after"), "{head}");
    viewers.truncate(MAX_VIEWERS - 1);
    wait_until(DEADLINE, "a place is free again", || get(&address, "/events").0 == 200);

    let began = Instant::now();
    stop(&mut worker);
    let took = began.elapsed();
    let mut rest = String::new();
    viewers[0].2.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "the stream was cut off: {rest}");
    took
}
