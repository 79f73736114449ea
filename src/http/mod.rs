//! HTTP: health and metrics, segments, users and decisions. docs/http.md is for those who ask.

mod activity;
mod auth;
mod body;
mod connections;
mod decisions;
mod deferred;
mod extract;
mod health;
mod limits;
mod measure;
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
    time::Duration,
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
use self::{
    auth::Access, health::Stopping, page::Viewers, problem::Problem, server::Ending, single_flight::SingleFlight,
};
use crate::{
    config::HttpSettings, deferred::DeferredCount, limits::LimitsDesk, metrics::Metrics, query::UserView,
    vitals::Vitals,
};

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
    health: Stopping,
    segments: Arc<Refreshed<SegmentSet>>,
    queries: Arc<dyn Queries>,
    activity: ActivityReports,
    services: ServiceDesk,
    /// Users that are being looked up.
    lookups: SingleFlight<String, Result<UserView, Problem>>,
    /// The deferred intents, where intents can be deferred.
    deferred: Option<DeferredCount>,
    limits: Arc<LimitsDesk>,
    access: Access,
    viewers: Viewers,
    body_bytes: usize,
    timeout: Duration,
    read_timeout: Duration,
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
        health: Stopping { worker: sources.health, draining: draining.clone() },
        segments: sources.segments,
        queries: sources.queries,
        activity: sources.activity,
        services: sources.services,
        lookups: SingleFlight::default(),
        deferred: sources.vitals.deferred.clone(),
        limits: Arc::clone(&sources.vitals.limits),
        access,
        viewers: Viewers::new(sources.vitals, stop.clone()),
        body_bytes: options.body_bytes,
        timeout: options.timeout,
        read_timeout: options.read_timeout,
        document: OnceLock::new(),
    });
    let router = router::router(api, options, Arc::clone(&metrics));
    server::start(listener, router, options, metrics, Ending { draining, stop })
}
