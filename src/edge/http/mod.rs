//! HTTP: health and metrics.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

/// What the endpoints ask of the worker.
pub trait Health: Send + Sync + 'static {
    /// Why the process cannot make progress, if so.
    fn stuck(&self) -> Result<(), String>;
    /// What it still waits for, if anything.
    fn waiting(&self) -> Result<(), Vec<String>>;
    /// All metrics, in the text format of OpenMetrics.
    fn metrics(&self) -> String;
}

/// The media type of what `/metrics` gives.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of an error (RFC 9457).
const PROBLEM: &str = "application/problem+json";
/// How long open requests may go on once the server is told to stop.
const LAST_WORDS: Duration = Duration::from_secs(2);

fn problem(status: StatusCode, title: &str, detail: &[String]) -> Response {
    let body = serde_json::json!({"title": title, "status": status.as_u16(), "detail": detail.join("; ")});
    (status, [(header::CONTENT_TYPE, PROBLEM)], body.to_string()).into_response()
}

async fn livez<H: Health>(State(health): State<Arc<H>>) -> Response {
    match health.stuck() {
        Ok(()) => "ok\n".into_response(),
        Err(why) => problem(StatusCode::SERVICE_UNAVAILABLE, "stuck", &[why]),
    }
}

async fn readyz<H: Health>(State(health): State<Arc<H>>) -> Response {
    match health.waiting() {
        Ok(()) => "ready\n".into_response(),
        Err(what) => problem(StatusCode::SERVICE_UNAVAILABLE, "not ready", &what),
    }
}

async fn metrics<H: Health>(State(health): State<Arc<H>>) -> Response {
    ([(header::CONTENT_TYPE, OPENMETRICS)], health.metrics()).into_response()
}

async fn nothing() -> Response {
    problem(StatusCode::NOT_FOUND, "not found", &["weir answers /livez, /readyz and /metrics".to_owned()])
}

async fn not_so() -> Response {
    problem(StatusCode::METHOD_NOT_ALLOWED, "method not allowed", &["use GET".to_owned()])
}

/// Listens.
///
/// # Errors
/// The address is taken, or is none of this machine.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address} (http.listen): {error}. Choose a free address"))
}

/// Serves until `stop` is done, and a little longer for what is open.
pub async fn serve<H: Health>(listener: TcpListener, health: Arc<H>, stop: impl Future<Output = ()> + Send + 'static) {
    let routes = Router::new()
        .route("/livez", get(livez::<H>))
        .route("/readyz", get(readyz::<H>))
        .route("/metrics", get(metrics::<H>))
        .fallback(nothing)
        .method_not_allowed_fallback(not_so)
        .with_state(health);
    let (said, saying) = tokio::sync::oneshot::channel::<()>();
    let server = axum::serve(listener, routes).with_graceful_shutdown(async {
        stop.await;
        drop(said);
    });
    let patience = async {
        let _ = saying.await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        result = server => if let Err(error) = result {
            tracing::error!(%error, "the HTTP server ended");
        },
        () = patience => {}
    }
}
