//! A headless Chromium, driven over WebDriver.

use std::{process::Command, time::Duration};

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::{
    ports::Port,
    process::{Guarded, program},
    scratch::Scratch,
};

const START_DEADLINE: Duration = Duration::from_secs(60);

/// What Chromium is started with: nothing that asks for anything of the outside. As root it has no sandbox. Over the
/// pipe it hears that its driver is gone, however that ended, and ends itself.
const FLAGS: &str = "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run \
                     --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
                     --remote-debugging-pipe";

/// A WebDriver server; the browsers that it starts end with it.
#[derive(Debug)]
pub struct Driver {
    // Before `profile`: the browser ends before its folder goes.
    _process: Guarded,
    port: Port,
    profile: Scratch,
}

impl Driver {
    pub fn start() -> Result<Self> {
        let (port, profile) = (Port::lease()?, Scratch::new("browser")?);
        program("chromium")?;
        let mut command = Command::new(program("chromedriver")?);
        command.arg(format!("--port={}", port.number())).current_dir(profile.path());
        // What Chromium keeps besides its profile goes there, too.
        command.env("HOME", profile.path()).env("TMPDIR", profile.path());
        let mut process = Guarded::spawn("chromedriver", &command, &profile.join("driver.log"))?;
        let address = ([127, 0, 0, 1], port.number()).into();
        process
            .wait_ready(START_DEADLINE, || std::net::TcpStream::connect_timeout(&address, START_DEADLINE).is_ok())?;
        Ok(Self { _process: process, port, profile })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
    }

    /// What a session asks for: a browser with a new, empty profile that logs its console and its requests.
    pub fn capabilities(&self) -> Map<String, Value> {
        let profile = format!("--user-data-dir={}", self.profile.join("profile").display());
        let flags: Vec<&str> = FLAGS.split(' ').chain([profile.as_str()]).collect();
        let wanted = [
            ("browserName", json!("chrome")),
            ("goog:chromeOptions", json!({"args": flags})),
            ("goog:loggingPrefs", json!({"browser": "ALL", "performance": "ALL"})),
        ];
        wanted.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
    }
}
