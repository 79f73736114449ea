//! What Kafka's offsets say of a route, looked at once a second.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use tokio_util::sync::CancellationToken;
use weir_core::{pace::Lag, ports::Clock, route::Route, routes::RouteState};

/// From one look to the next.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where the offsets of routes are seen.
pub trait LooksAtRoutes: Send + Sync + 'static {
    /// The offsets of a route; connects to nothing yet.
    ///
    /// # Errors
    /// No client can be made.
    fn of(&self, route: &Route) -> Result<Arc<dyn RouteOffsets>, String>;
}

/// The offsets of one route. Calls block.
pub trait RouteOffsets: Send + Sync + 'static {
    /// How far the route's consumer group is in its approved topics; `None`: it has no group.
    ///
    /// # Errors
    /// They cannot be seen; what to do.
    fn lag(&self) -> Result<Option<Lag>, String>;

    /// How many intents wait for the route, by partition; empty where it has no topic.
    ///
    /// # Errors
    /// They cannot be seen; what to do.
    fn waiting(&self) -> Result<Vec<u64>, String>;
}

/// One look.
#[derive(Debug, Clone)]
pub(super) struct Looked {
    /// When it ended, by the monotonic clock.
    pub(super) at: Duration,
    /// Permits spent before the lag was last known: it has all of them.
    pub(super) spent: u64,
    /// Intents sent to wait before those that wait were last counted.
    pub(super) queued: u64,
    pub(super) lag: Result<Option<Lag>, String>,
    pub(super) waiting: Result<Vec<u64>, String>,
}

/// The last look.
pub(super) type LastLook = Arc<ArcSwapOption<Looked>>;

/// Looks again and again, until `stop`.
pub(super) async fn keep_looking<C: Clock>(
    offsets: Arc<dyn RouteOffsets>,
    state: Arc<RouteState>,
    clock: C,
    last: LastLook,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let began_at = clock.passed();
        let (asking, mut spent, mut queued) = (Arc::clone(&offsets), state.spent(), state.queued());
        let look = tokio::task::spawn_blocking(move || (asking.lag(), asking.waiting()));
        // A look is cancelled with the runtime alone.
        let Ok((lag, waiting)) = look.await else { return };
        let at = clock.passed();
        if let Some(before) = last.load().as_deref() {
            spent = if lag.is_err() { before.spent } else { spent };
            queued = if waiting.is_err() { before.queued } else { queued };
        }
        last.store(Some(Arc::new(Looked { at, spent, queued, lag, waiting })));
        let wait = (began_at + LOOK_EVERY).saturating_sub(at);
        if stop.run_until_cancelled(clock.sleep(wait)).await.is_none() {
            return;
        }
    }
}
