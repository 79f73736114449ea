//! What the page shows, as server-sent events: one sampler for all viewers, which rests while nobody looks.

use std::{
    convert::Infallible,
    sync::{Arc, Once},
    time::Duration,
};

use axum::{
    extract::State,
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use serde::Serialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{MissedTickBehavior, interval},
};
use tokio_stream::{StreamExt as _, wrappers::WatchStream};
use tokio_util::sync::CancellationToken;
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use super::super::{Api, Health, problem::Problem, status::Degradation};
use crate::{
    limits::LimitRows,
    vitals::{Look, Vitals},
};

/// Pages that are open at the same time, at most: each keeps a connection and some KiB.
const MAX_VIEWERS: usize = 64;
/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a browser waits before it asks again when the stream has ended.
const RETRY: Duration = Duration::from_secs(2);
/// How often a silent stream says that it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// When to ask again where too many look, in seconds.
const BUSY_RETRY_S: u64 = 10;

/// What viewers are told.
#[derive(Clone)]
enum Said {
    /// Nobody has looked yet.
    Nothing,
    /// A look, as JSON.
    Look(Arc<str>),
    /// The server stops: an open stream would hold it up.
    Over,
}

/// Everybody who looks.
pub(in super::super) struct Viewers {
    vitals: Vitals,
    stop: CancellationToken,
    places: Arc<Semaphore>,
    said: watch::Sender<Said>,
    sampling: Once,
}

/// A look, what the worker waits for, what is degraded, and how limits stand.
#[derive(Serialize)]
struct PageEvent<'a> {
    #[serde(flatten)]
    look: &'a Look,
    waiting: Vec<String>,
    degraded: Vec<Degradation>,
    #[serde(flatten)]
    limits: LimitRows,
}

impl Viewers {
    pub(in super::super) fn new(vitals: Vitals, stop: CancellationToken) -> Self {
        let (said, _) = watch::channel(Said::Nothing);
        Self { vitals, stop, places: Arc::new(Semaphore::new(MAX_VIEWERS)), said, sampling: Once::new() }
    }

    /// What is said from now on, and a place among the viewers; `None` where all are taken.
    fn join(&self, health: &Arc<dyn Health>) -> Option<(watch::Receiver<Said>, OwnedSemaphorePermit)> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        // The first one starts the sampler, on the runtime that serves.
        self.sampling.call_once(|| {
            let (vitals, health, said) = (self.vitals.clone(), Arc::clone(health), self.said.clone());
            let stop = self.stop.clone();
            tokio::spawn(async move {
                stop.run_until_cancelled(sample(vitals, health, &said)).await;
                said.send_replace(Said::Over);
            });
        });
        Some((self.said.subscribe(), place))
    }
}

async fn sample(vitals: Vitals, health: Arc<dyn Health>, said: &watch::Sender<Said>) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if said.receiver_count() == 0 {
            // Who comes next should not be told what was true an hour ago.
            said.send_replace(Said::Nothing);
            continue;
        }
        let limits = vitals.limits.rows().await;
        let look = vitals.look(SystemClock.now());
        let waiting = health.waiting().err().unwrap_or_default();
        let told = PageEvent { look: &look, waiting, degraded: health.degraded(), limits };
        // Numbers, names and texts always are JSON.
        let told = serde_json::to_string(&told).unwrap_or_default();
        said.send_replace(Said::Look(told.into()));
    }
}

/// Says what the worker is doing, once a second.
pub(super) async fn events(State(api): State<Arc<Api>>) -> Response {
    let Some((said, place)) = api.viewers.join(&api.health) else {
        let detail = format!("{MAX_VIEWERS} pages are open already; close one, or read /metrics");
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "viewers", detail)
            .retry_after(BUSY_RETRY_S)
            .into_response();
    };
    let event = |json: Arc<str>| Ok::<_, Infallible>(Event::default().event("look").retry(RETRY).data(&*json));
    let stream = WatchStream::new(said).map_while(move |said| {
        // The place is given back when the stream is dropped.
        let _ = &place;
        match said {
            Said::Nothing => Some(None),
            Said::Look(json) => Some(Some(event(json))),
            Said::Over => None,
        }
    });
    Sse::new(stream.filter_map(|event| event)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
