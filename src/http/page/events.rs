//! What the page shows, as server-sent events, once a second for as long as somebody looks. All who look share a look.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use tokio::sync::{Mutex, Semaphore};
use tokio_stream::StreamExt as _;

use super::super::{Api, problem::Problem};

/// Pages that are open at the same time, at most: each keeps a connection and some KiB.
const MAX_VIEWERS: usize = 64;
/// How often a page is told.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long a look is for everybody who asks: shorter than [`TELL_EVERY`], so that nobody is told the same one twice.
const FRESH_FOR: Duration = Duration::from_millis(500);
/// How long a browser waits before it asks again when the stream has ended.
const RETRY: Duration = Duration::from_secs(2);

/// Those who look at the page.
pub(in super::super) struct Viewers {
    places: Arc<Semaphore>,
    /// The last look, as JSON, and when it ended. Who looks holds it: there is one look at a time.
    seen: Mutex<Option<(Instant, Arc<str>)>>,
}

impl Viewers {
    pub(in super::super) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(MAX_VIEWERS)), seen: Mutex::default() }
    }
}

impl Api {
    /// What was seen lately, else looks.
    async fn seen(&self) -> Arc<str> {
        let mut seen = self.viewers.seen.lock().await;
        if let Some((_, look)) = seen.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FOR) {
            return Arc::clone(look);
        }
        let look = self.sources.vitals.look(self.waiting(), self.sources.health.degraded()).await;
        let look = Arc::<str>::from(look.to_string());
        *seen = Some((Instant::now(), Arc::clone(&look)));
        look
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
                    tokio::time::sleep(TELL_EVERY).await;
                }
                Event::default().event("look").retry(RETRY).data(&*api.seen().await)
            };
            // An open stream would hold the end of the server up.
            api.stop.run_until_cancelled(look).await
        }
    });
    Sse::new(looks.map_while(|look| look.map(Ok::<_, Infallible>))).into_response()
}
