//! A server in the test's own process, with queries that are never answered.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use weir::{
    config::HttpSettings,
    deferred::DeferredCount,
    http::{self, ActivityReports, Answering, DecisionMode, Degradation, Health, Queries, Sources},
    limits::{BudgetsShown, LedgerPool, LimitsDesk, PressureShown, RoutesShown, ServicesShown},
    metrics::Metrics,
    query::{Decision, Forgotten, QueryError, SingleRecord, UserView},
    vitals::{Nodes, Vitals},
};
use weir_core::{
    basis::document::Format,
    limit::{budget::ledger::EmbeddedLedger, pressure::Pressure, route::routes::Routes},
    policy::{Policy, file::parse_policy},
    ports::{Clock as _, StoreError},
    segment::{Members, Segment, SegmentSet, Sha256, UserIdKind, UserIds},
};
use weir_oracle::{
    desk::{ServiceDesk, ServiceKeeper},
    service::EmbeddedServices,
};
use weir_worker::{
    budgets::BudgetKeeper,
    clock::{ComparedClock, SystemClock},
    pressure::PressureStatus,
    refresh::Refreshed,
};

use crate::{
    client::Client,
    support::{DEADLINE, unlimited},
};

struct Fine;

impl Health for Fine {
    fn stuck(&self) -> Result<(), String> {
        Ok(())
    }

    fn waiting(&self) -> Result<(), Vec<String>> {
        Ok(())
    }

    fn degraded(&self) -> Vec<Degradation> {
        Vec::new()
    }

    fn metrics(&self) -> String {
        String::new()
    }
}

/// Panics where it is asked for the user `panic`; else it never answers.
pub struct Never;

impl Queries for Never {
    fn user<'a>(&'a self, user_id: &'a str) -> Answering<'a, UserView, StoreError> {
        assert_ne!(user_id, "panic");
        Box::pin(std::future::pending())
    }

    fn forget<'a>(&'a self, _: &'a str) -> Answering<'a, Forgotten, StoreError> {
        Box::pin(std::future::pending())
    }

    fn decide<'a>(&'a self, _: SingleRecord<'a>, _: DecisionMode) -> Answering<'a, Decision, QueryError> {
        Box::pin(std::future::pending())
    }
}

fn one_user() -> SegmentSet {
    let members = Arc::new(Members::U32([1].into_iter().collect()));
    let segment = Segment { name: "only".to_owned(), sha256: Sha256([0; 32]), bytes: 0, members };
    SegmentSet::new("v1".to_owned(), UserIds::new(UserIdKind::U32, ""), vec![segment])
}

/// The limits of a policy, with an empty ledger and no leases.
fn limits(policy: &Arc<Policy>, status: PressureStatus, routes: Arc<Routes>) -> LimitsDesk {
    let ledger = EmbeddedLedger::new("test", || SystemClock.now());
    let looked_at = ledger.clone();
    let (keeper, budgets) = BudgetKeeper::new(move || ledger.clone(), SystemClock, Arc::new(Metrics::default()));
    tokio::spawn(keeper.run());
    let ledger = Arc::new(LedgerPool::new(move || looked_at.clone()));
    let policy = Refreshed::new(Arc::clone(policy));
    let budgets = BudgetsShown::new(Arc::clone(&policy), budgets, ledger);
    let pressure = PressureShown { policy: Arc::clone(&policy), status };
    LimitsDesk { budgets, pressure, routes: RoutesShown { policy, routes }, services: ServicesShown::new(services()) }
}

/// Services whose task has ended, so that the page does not wait for it: nothing runs it here.
fn services() -> ServiceDesk {
    let services = EmbeddedServices::new("test", || SystemClock.now());
    ServiceKeeper::new(move || services.clone(), "test", SystemClock, Arc::new(Metrics::default())).1
}

/// A server that ends with this value.
pub struct Server {
    pub client: Client,
    stop: CancellationToken,
    running: Option<http::Server>,
    runtime: tokio::runtime::Runtime,
}

/// What the tasks of a worker would show.
#[derive(Default)]
pub struct Shown {
    pub deferred: Option<DeferredCount>,
    pub pressure: PressureStatus,
    pub routes: Arc<Routes>,
    /// Who is active, where users are noted.
    pub noted: Option<Arc<Pressure>>,
}

impl Server {
    pub fn start(options: &HttpSettings) -> Self {
        Self::with(options, "", Shown::default())
    }

    /// The same under a policy with these sections.
    pub fn showing(sections: &str, shown: Shown) -> Self {
        Self::with(&HttpSettings::default(), sections, shown)
    }

    pub fn with(
        options: &HttpSettings,
        sections: &str,
        Shown { deferred, pressure: status, routes, noted: pressure }: Shown,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stop = CancellationToken::new();
        let (address, running) = runtime.block_on(async {
            let listener = http::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let segments = Refreshed::new(Arc::new(one_user()));
            let metrics = Arc::new(Metrics::default());
            let text = unlimited(1, sections);
            let policy = Arc::new(parse_policy("policy.toml", &text, Format::Toml, 86_400_000).unwrap());
            let vitals = Vitals {
                metrics: Arc::clone(&metrics),
                segments: Arc::clone(&segments),
                policy: Refreshed::new(Arc::clone(&policy)),
                lanes: Vec::new(),
                nodes: Nodes::default(),
                deferred,
                limits: Arc::new(limits(&policy, status, routes)),
            };
            let activity = ActivityReports {
                policy: Refreshed::new(Arc::clone(&policy)),
                pressure: pressure.unwrap_or_else(|| Pressure::new().0),
                clock: ComparedClock::alone(SystemClock),
                metrics: Arc::clone(&metrics),
            };
            let queries = Arc::new(Never);
            let services = services();
            let sources = Sources { health: Arc::new(Fine), segments, queries, activity, services, metrics, vitals };
            (address, http::start(listener, options, sources, stop.clone()).unwrap())
        });
        Self { client: Client { address, token: None }, stop, running: Some(running), runtime }
    }

    pub fn drain(&self) {
        self.running.as_ref().unwrap().drain();
    }

    /// Tells it to end, and does not wait.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(running) = self.running.take() {
            let ended = async { tokio::time::timeout(DEADLINE, running.ended()).await };
            let ended = self.runtime.block_on(ended);
            assert!(ended.is_ok() || std::thread::panicking(), "the server still runs after {DEADLINE:?}");
        }
    }
}
