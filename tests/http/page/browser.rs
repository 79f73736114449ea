//! A browser with the page open, and what is asked of it.

use std::fmt::Debug;

use fantoccini::{Client, ClientBuilder, Locator, elements::Element};
use serde_json::{Value, json};
use testkit::{browser::Driver, http, wait_for};

use crate::support::DEADLINE;

/// A browser; ends with this value.
pub struct Browser {
    client: Client,
    session: String,
    origin: String,
    // Last: the session is its.
    driver: Driver,
}

/// The answer of the WebDriver, which has to come before the deadline.
async fn answer<T, E: Debug>(asked: impl Future<Output = Result<T, E>>) -> T {
    let answer = tokio::time::timeout(DEADLINE, asked).await;
    answer.unwrap_or_else(|_| panic!("the WebDriver does not answer within {DEADLINE:?}")).unwrap()
}

/// A size of the window, and what the system prefers.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    pub width: u32,
    pub height: u32,
    pub scheme: &'static str,
}

pub const LIGHT: Screen = Screen { width: 1280, height: 1180, scheme: "light" };
pub const DARK: Screen = Screen { scheme: "dark", ..LIGHT };
pub const PHONE: Screen = Screen { width: 390, height: 844, scheme: "light" };

impl Browser {
    /// Opens the page of the worker that listens there.
    pub async fn open(address: &str) -> Self {
        let driver = Driver::start().unwrap();
        let mut builder = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        let client = answer(builder.capabilities(driver.capabilities()).connect(&driver.url())).await;
        let session = answer(client.session_id()).await.unwrap();
        let browser = Self { client, session, origin: format!("http://{address}"), driver };
        browser.screen(LIGHT);
        answer(browser.client.goto(&format!("{}/", browser.origin))).await;
        browser
    }

    /// A command that WebDriver leaves to the driver's maker.
    fn command(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}/session/{}/{path}", self.driver.url(), self.session);
        let (status, answer) = http::send("POST", &url, body).unwrap();
        assert_eq!(status, 200, "{path}: {answer}");
        serde_json::from_str::<Value>(&answer).unwrap()["value"].take()
    }

    pub fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.command("goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    pub fn screen(&self, Screen { width, height, scheme }: Screen) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", features);
    }

    pub async fn script(&self, script: &str) -> Value {
        answer(self.client.execute(script, Vec::new())).await
    }

    /// Waits until what it shows now is drawn, and takes a picture (PNG).
    pub async fn picture(&self) -> Vec<u8> {
        // Two frames later it is drawn.
        let drawn = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(true)));";
        answer(self.client.execute_async(drawn, Vec::new())).await;
        answer(self.client.screenshot()).await
    }

    async fn find(&self, css: &str) -> Element {
        answer(self.client.find(Locator::Css(css))).await
    }

    /// The text of an element, as it is shown.
    pub async fn text(&self, css: &str) -> String {
        answer(self.find(css).await.text()).await
    }

    pub async fn click(&self, css: &str) {
        answer(self.find(css).await.click()).await;
    }

    pub async fn wait(&self, what: &str, script: &str) {
        let handle = tokio::runtime::Handle::current();
        let found = tokio::task::block_in_place(|| {
            wait_for(DEADLINE, || handle.block_on(self.script(script)).as_bool().filter(|found| *found))
        });
        if found.is_none() {
            panic!("waited in vain until {what}; the page: {}", self.text("body").await);
        }
    }

    /// Presses keys, wherever the focus is.
    pub async fn keys(&self, keys: &str) {
        answer(answer(self.client.active_element()).await.send_keys(keys)).await;
    }

    /// The same, with the focus in an element.
    pub async fn keys_into(&self, css: &str, keys: &str) {
        answer(self.find(css).await.send_keys(keys)).await;
    }

    /// What the console has said that is worse than information.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({"type": "browser"}));
        let bad = |entry: &&Value| entry["level"] == "SEVERE" || entry["level"] == "WARNING";
        log.as_array().unwrap().iter().filter(bad).map(ToString::to_string).collect()
    }

    /// Requests of the page that went elsewhere than to the worker. What the browser's own first tab loads of itself
    /// is not the page's.
    pub fn strangers(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({"type": "performance"}));
        let entries = log.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap());
        let messages = entries.map(|text| serde_json::from_str::<Value>(text).unwrap()["message"].take());
        let urls: Vec<String> = messages
            .filter(|message| message["method"] == "Network.requestWillBeSent")
            .filter(|message| {
                message["params"]["documentURL"].as_str().is_some_and(|url| url.starts_with(&self.origin))
            })
            .map(|message| message["params"]["request"]["url"].as_str().unwrap().to_owned())
            .collect();
        assert!(!urls.is_empty(), "the log of requests is empty: the test looks in the wrong place");
        urls.into_iter().filter(|url| !url.starts_with(&self.origin)).collect()
    }

    /// What a screen reader is told without a name.
    pub fn nameless(&self) -> Vec<String> {
        let tree = self.devtools("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().unwrap();
        let wanted = ["button", "textbox", "searchbox", "link", "image", "region", "search", "columnheader"];
        let role = |node: &Value| node["role"]["value"].as_str().unwrap_or_default().to_owned();
        assert!(nodes.iter().any(|node| role(node) == "searchbox"), "there is no search box");
        let nameless = |node: &&Value| {
            let name = node["name"]["value"].as_str().unwrap_or_default();
            node["ignored"] != true && wanted.contains(&role(node).as_str()) && name.trim().is_empty()
        };
        nodes.iter().filter(nameless).map(ToString::to_string).collect()
    }

    /// Texts that are hard to read on what is behind them.
    pub async fn faint(&self) -> Vec<Value> {
        self.script(CONTRAST).await.as_array().unwrap().clone()
    }
}

/// WCAG 2's contrast of each visible text; gives those below 4.5 (3 for large ones).
const CONTRAST: &str = r"
const channels = (text) => text.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = channels(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const faint = [];
let seen = 0;
for (const element of document.querySelectorAll('body *')) {
  const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join('');
  const box = element.getBoundingClientRect();
  if (!text || box.width < 2 || box.height < 2 || element.closest('svg, noscript, script')) continue;
  seen += 1;
  const style = getComputedStyle(element);
  const [one, two] = [light(channels(style.color)), light(behind(element))];
  const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (ratio < (large ? 3 : 4.5)) faint.push({ text, ratio, color: style.color });
}
return seen > 20 ? faint : [{ text: 'the page shows next to nothing', seen }];
";
