//! HTTP: health and metrics, segments, users and decisions. docs/http.md is for those who ask.

mod activity;
mod auth;
mod body;
mod connections;
mod decisions;
mod extract;
mod health;
mod limits;
mod openapi;
mod page;
mod problem;
mod queries;
mod router;
mod segments;
mod server;
mod services;
mod single_flight;
mod standing;
mod status;
mod users;
mod write_timeout;

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use axum::body::Bytes;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use weir_core::segment::SegmentSet;
use weir_oracle::desk::ServiceDesk;
use weir_worker::refresh::Refreshed;

pub use self::{
    activity::ActivityReports,
    health::Health,
    queries::{Answering, DecisionMode, Queries, QueryPool},
    server::Server,
    status::{Degradation, Degraded, Status},
};
use self::{auth::Access, page::Viewers, problem::Problem, server::Ending, single_flight::SingleFlight};
use crate::{config::HttpSettings, metrics::Metrics, query::UserView, vitals::Vitals};

/// What the endpoints are made of.
pub struct Sources {
    pub health: Arc<dyn Health>,
    pub segments: Arc<Refreshed<SegmentSet>>,
    pub queries: Arc<dyn Queries>,
    pub activity: ActivityReports,
    pub services: ServiceDesk,
    pub metrics: Arc<Metrics>,
    pub vitals: Vitals,
}

struct Api {
    sources: Sources,
    options: HttpSettings,
    /// Users that are being looked up.
    lookups: SingleFlight<String, Result<UserView, Problem>>,
    access: Access,
    viewers: Viewers,
    /// Cancelled once the worker was asked to stop.
    draining: CancellationToken,
    /// Cancelled when the server stops.
    stop: CancellationToken,
    /// The OpenAPI document, once the routes are there.
    document: OnceLock<Bytes>,
}

pub async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address} (http.listen): {error}. Choose a free address"))
}

/// Serves on threads of its own until `stop`, and a little longer for what is open.
pub fn start(
    listener: TcpListener,
    options: &HttpSettings,
    sources: Sources,
    stop: CancellationToken,
) -> std::io::Result<Server> {
    let address = listener.local_addr()?;
    let access = Access::new(options, address.ip());
    if matches!(access, Access::Nobody) {
        tracing::warn!(
            %address,
            "http.token is not set and http.listen is no loopback address: users, members and decisions are not answered \
             (403). Set http.token_file"
        );
    }
    tokio::spawn(stop.clone().run_until_cancelled_owned(access.clone().keep_fresh(options.clone())));
    let metrics = Arc::clone(&sources.metrics);
    let draining = CancellationToken::new();
    let api = Arc::new(Api {
        sources,
        options: options.clone(),
        lookups: SingleFlight::default(),
        access,
        viewers: Viewers::new(),
        draining: draining.clone(),
        stop: stop.clone(),
        document: OnceLock::new(),
    });
    let router = router::router(api, options, Arc::clone(&metrics));
    server::start(listener, router, options, metrics, Ending { draining, stop })
}
