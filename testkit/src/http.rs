//! HTTP requests that end at their deadline, whatever the server does.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use ureq::{Agent, AsSendBody, http::Request};

/// How long a request may take, from the connection to the end of the answer.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(60);

/// Status and body of a GET; a status such as 503 is an answer like any other.
pub fn get(url: &str) -> Result<(u16, String)> {
    get_within(REQUEST_DEADLINE, url)
}

pub fn get_within(deadline: Duration, url: &str) -> Result<(u16, String)> {
    Client::new(deadline).get(url)
}

/// Status and body of a request with a body of JSON.
pub fn send(method: &str, url: &str, json: &Value) -> Result<(u16, String)> {
    Client::new(REQUEST_DEADLINE).send(method, url, json)
}

/// Keeps its connection from request to request.
pub struct Client(Agent);

impl Client {
    #[expect(clippy::disallowed_methods, reason = "this is the agent with a deadline")]
    pub fn new(deadline: Duration) -> Self {
        Self(Agent::config_builder().timeout_global(Some(deadline)).http_status_as_error(false).build().into())
    }

    pub fn get(&self, url: &str) -> Result<(u16, String)> {
        self.run(Request::get(url).body(())?)
    }

    pub fn send(&self, method: &str, url: &str, json: &Value) -> Result<(u16, String)> {
        let request = Request::builder().method(method).uri(url).header("content-type", "application/json");
        self.run(request.body(json.to_string())?)
    }

    fn run(&self, request: Request<impl AsSendBody>) -> Result<(u16, String)> {
        let what = format!("{} {}", request.method(), request.uri());
        let mut answer = self.0.run(request).with_context(|| format!("{what}: no answer"))?;
        let body = answer.body_mut().read_to_string().with_context(|| format!("{what}: no whole answer"))?;
        Ok((answer.status().as_u16(), body))
    }
}
