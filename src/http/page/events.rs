//! What the page shows, as server-sent events: a look once a second, for as long as somebody looks.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use tokio_stream::StreamExt as _;

use super::super::{Api, problem::Problem};

/// Pages that are open at the same time, at most: each keeps a connection and some KiB.
pub(in super::super) const MAX_VIEWERS: usize = 64;
/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a browser waits before it asks again when the stream has ended.
const RETRY: Duration = Duration::from_secs(2);

/// Says what the worker is doing, once a second.
pub(super) async fn events(State(api): State<Arc<Api>>) -> Response {
    let Ok(place) = Arc::clone(&api.viewers).try_acquire_owned() else {
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
                let degraded = api.sources.health.degraded();
                let look = api.sources.vitals.look(api.waiting(), degraded).await;
                Event::default().event("look").retry(RETRY).data(look.to_string())
            };
            // An open stream would hold the end of the server up.
            api.stop.run_until_cancelled(look).await
        }
    });
    Sse::new(looks.map_while(|look| look.map(Ok::<_, Infallible>))).into_response()
}
