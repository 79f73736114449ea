//! What the page shows, as server-sent events: a look once a second, for as long as somebody looks.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use tokio::sync::Semaphore;
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;
use weir_core::ports::Clock as _;
use weir_worker::clock::SystemClock;

use super::super::{Api, health::Stopping, problem::Problem};
use crate::vitals::Vitals;

/// Pages that are open at the same time, at most: each keeps a connection and some KiB.
const MAX_VIEWERS: usize = 64;
/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a browser waits before it asks again when the stream has ended.
const RETRY: Duration = Duration::from_secs(2);

/// Everybody who looks.
pub(in super::super) struct Viewers {
    vitals: Vitals,
    /// The server stops: an open stream would hold it up.
    stop: CancellationToken,
    places: Arc<Semaphore>,
}

impl Viewers {
    pub(in super::super) fn new(vitals: Vitals, stop: CancellationToken) -> Self {
        Self { vitals, stop, places: Arc::new(Semaphore::new(MAX_VIEWERS)) }
    }

    /// A look at this time and by this health, to be sent.
    async fn look(&self, health: &Stopping) -> Event {
        let waiting = health.waiting().err().unwrap_or_default();
        let look = self.vitals.look(SystemClock.now(), waiting, health.worker.degraded()).await;
        Event::default().event("look").retry(RETRY).data(look.to_string())
    }
}

/// Says what the worker is doing, once a second.
pub(super) async fn events(State(api): State<Arc<Api>>) -> Response {
    let Ok(place) = Arc::clone(&api.viewers.places).try_acquire_owned() else {
        let detail = format!("{MAX_VIEWERS} pages are open already; close one, or read /metrics");
        return Problem::not_now("viewers", detail, 10).into_response();
    };
    let looks = tokio_stream::iter(0_u64..).then(move |number| {
        // The place is given back when the stream is dropped.
        let _ = &place;
        let api = Arc::clone(&api);
        async move {
            let look = async {
                if number > 0 {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                api.viewers.look(&api.health).await
            };
            api.viewers.stop.run_until_cancelled(look).await
        }
    });
    Sse::new(looks.map_while(|look| look.map(Ok::<_, Infallible>))).into_response()
}
