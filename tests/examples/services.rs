//! Services on loopback that answer as a script says: one in weir's place, and the provider that messages are delivered to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    time::Instant,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use tokio::{net::TcpListener, runtime::Runtime};

/// The path of the provider.
pub const PROVIDER: &str = "/messages";

/// An answer: status, and Retry-After in seconds.
pub type Answer = (u16, Option<u64>);

/// A request, and when it came.
#[derive(Debug)]
pub struct Request {
    pub at: Instant,
    pub method: Method,
    pub path: String,
    pub authorization: Option<String>,
    pub body: String,
}

/// Running services; dropping them ends them.
#[derive(Debug)]
pub struct Services {
    pub url: String,
    requests: Receiver<Request>,
    runtime: Runtime,
}

/// The answers to one kind of request, in order; the last one repeats.
#[derive(Debug)]
struct Script(&'static [Answer], AtomicUsize);

impl Script {
    fn next(&self) -> Answer {
        let turn = self.1.fetch_add(1, Ordering::Relaxed);
        self.0[turn.min(self.0.len() - 1)]
    }
}

#[derive(Debug, Clone)]
struct Stage {
    scripts: Arc<[Script; 2]>,
    requests: Sender<Request>,
}

impl Services {
    /// Services that answer requests for an admission so, and the provider's so.
    pub fn start(admissions: &'static [Answer], provider: &'static [Answer]) -> Self {
        let (sender, requests) = mpsc::channel();
        let scripts = Arc::new([admissions, provider].map(|answers| Script(answers, AtomicUsize::new(0))));
        let router = Router::new().fallback(answer).with_state(Stage { scripts, requests: sender });
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async { axum::serve(listener, router).await });
        Self { url, requests, runtime }
    }

    /// All requests, in order; ends the services.
    pub fn requests(self) -> Vec<Request> {
        let Self { requests, runtime, .. } = self;
        drop(runtime);
        requests.iter().collect()
    }
}

async fn answer(State(stage): State<Stage>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let request = Request {
        at: Instant::now(),
        method: method.clone(),
        path: uri.path().to_owned(),
        authorization: headers.get(header::AUTHORIZATION).map(|value| text(value.as_bytes())),
        body: text(&body),
    };
    stage.requests.send(request).unwrap();
    // As weir does.
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes() == b"application/json");
    if uri.path() != PROVIDER && !is_json {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    if method == Method::DELETE {
        return StatusCode::NO_CONTENT.into_response();
    }
    let [admissions, provider] = &*stage.scripts;
    let script = if uri.path() == PROVIDER { provider } else { admissions };
    let (status, retry_after) = script.next();
    let mut response = (StatusCode::from_u16(status).unwrap(), Json(json!({"id": "a-1"}))).into_response();
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
