//! What Kafka's offsets say of a route, looked at once a second.

use std::{pin::Pin, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use weir_core::{
    basis::time::Time,
    limit::route::{
        Route, Waiting,
        delivery_signals::WaitingQueue,
        pace::{Behind, Lag, Pace},
        routes::RouteState,
    },
    ports::Clock,
};

use super::ages::{Ages, signed_ms};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A look that is older says nothing of the lag any more.
pub(super) const LOOK_HOLDS: Duration = Duration::from_secs(3);
/// So many partitions that are behind are named.
const NAMED: usize = 5;

pub trait LooksAtRoutes: Send + Sync + 'static {
    /// The offsets of a route; connects to nothing yet.
    ///
    /// # Errors
    /// No client can be made.
    fn of(&self, route: &Route) -> Result<Box<dyn RouteOffsets>, String>;
}

pub trait RouteOffsets: Send + 'static {
    fn look(&mut self) -> Looking<'_>;

    /// The first offset of each partition of the topic of waiting intents, in the order of a look, whose record was written at this
    /// time or later; `None`: there is none.
    fn waiting_since(&mut self, time: Time) -> AskingBack;
}

pub type Looking<'a> = Pin<Box<dyn Future<Output = Offsets> + Send + 'a>>;

/// A question about the past under way; or why there is no answer.
pub type AskingBack = Pin<Box<dyn Future<Output = Result<Vec<Option<u64>>, String>> + Send>>;

/// A partition of one of the approved topics, by the name of that.
pub type RoutePartition = (Arc<str>, i32);

/// What one look finds, or why it cannot be seen and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offsets {
    /// How far the route's consumer group is in its approved topics; `None`: it has no group.
    pub lag: Result<Option<Lag>, String>,
    /// The partitions of these that are behind the others.
    pub behind: Vec<Behind<RoutePartition>>,
    /// The intents that wait for the route, by partition; empty where it has no topic.
    pub waiting: Result<Vec<Waiting>, String>,
}

#[derive(Debug, Clone)]
pub(super) struct OffsetsSeen {
    /// When it ended, by the monotonic clock.
    pub(super) at: Duration,
    /// Permits spent before the lag was last known: it has all of them.
    pub(super) spent: u64,
    /// Intents sent to wait before those that wait were last counted.
    pub(super) queued: u64,
    pub(super) lag: Result<Option<Lag>, String>,
    pub(super) behind: Vec<Behind<RoutePartition>>,
    pub(super) waiting: Result<Vec<Waiting>, String>,
    /// When the oldest of them came, in milliseconds of the monotonic clock, also before its beginning; `None`: none waits, or it is
    /// not known.
    pub(super) oldest_ms: Option<i64>,
}

impl OffsetsSeen {
    /// Why something is not known.
    pub(super) fn unknown(&self) -> Option<&String> {
        [self.lag.as_ref().err(), self.waiting.as_ref().err()].into_iter().flatten().next()
    }

    pub(super) fn known_lag(&self) -> Option<Lag> {
        self.lag.as_ref().ok().copied().flatten()
    }

    /// Approved intents that are not delivered, those of partitions that are behind included; `None`: as for the lag.
    pub(super) fn undelivered(&self) -> Option<u64> {
        let uncounted: u64 = self.behind.iter().map(|behind| behind.undelivered - behind.counted).sum();
        self.known_lag().map(|lag| lag.undelivered() + uncounted)
    }

    /// What is said of partitions that are behind, and what to do.
    pub(super) fn behind_in_words(&self) -> Option<String> {
        let name = |Behind { partition: (topic, number), .. }: &Behind<RoutePartition>| {
            format!("partition {number} of {topic}")
        };
        let named: Vec<String> = self.behind.iter().take(NAMED).map(name).collect();
        let more = match self.behind.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!named.is_empty()).then(|| {
            format!(
                "the consumer group does not pass, or has not caught up with, {}{more}, while it goes on with others. The lag \
                 there counts only as much as theirs. Where a consumer fails on a record again and again, have it hand that \
                 record to kafka.retries and commit its offset",
                named.join(", ")
            )
        })
    }

    /// How long the oldest intent that waits has waited by then, in milliseconds.
    pub(super) fn oldest_at(&self, now: Duration) -> Option<u64> {
        self.oldest_ms.map(|came_ms| u64::try_from(signed_ms(now).saturating_sub(came_ms)).unwrap_or(0))
    }

    /// What the age of the oldest intent is compared with, while delivery goes on.
    pub(super) fn queue(&self, pace: &Pace, ahead_ms: i64) -> Option<WaitingQueue> {
        let (lag, waiting) = (self.known_lag()?, self.waiting.as_ref().ok()?);
        let (oldest, left) = (self.oldest_at(self.at), waiting.iter().map(|waiting| waiting.from).sum());
        (!pace.why.is_closed()).then(|| WaitingQueue {
            oldest: oldest.map(Duration::from_millis),
            left,
            lag,
            drain_per_s: pace.drain_per_s,
            ahead: Duration::from_millis(ahead_ms.unsigned_abs()),
        })
    }
}

pub(super) type LastLook = Arc<ArcSwapOption<OffsetsSeen>>;

pub(super) async fn keep_looking<C: Clock>(
    mut offsets: Box<dyn RouteOffsets>,
    state: Arc<RouteState>,
    clock: C,
    last: LastLook,
) {
    let mut ages = Ages::default();
    loop {
        let began_at = clock.passed();
        let (mut spent, mut queued) = (state.spent(), state.queued());
        let Offsets { lag, mut behind, waiting } = offsets.look().await;
        let at = clock.passed();
        let lag = lag.and_then(|lag| in_time(lag, at.saturating_sub(began_at)));
        let before = last.load_full();
        if let Some(before) = &before {
            if lag.is_err() {
                (spent, behind) = (before.spent, before.behind.clone());
            }
            queued = if waiting.is_err() { before.queued } else { queued };
        }
        // The age is that of the look before, and goes on while some wait: to ask for it may take longer than the lag holds.
        let waits = !waiting.as_ref().is_ok_and(|waiting| waiting.iter().all(|waiting| waiting.count() == 0));
        let oldest_ms = ages.oldest_ms.filter(|_| waits);
        let looked = Arc::new(OffsetsSeen { at, spent, queued, lag, behind, waiting, oldest_ms });
        log_changes(&state.name, before.as_deref(), &looked);
        last.store(Some(Arc::clone(&looked)));
        if let Ok(waiting) = &looked.waiting {
            ages.look(offsets.as_mut(), (&state, &clock), waiting).await;
        }
        clock.sleep((began_at + LOOK_EVERY).saturating_sub(clock.passed())).await;
    }
}

/// Says what is new by a look.
fn log_changes(route: &str, before: Option<&OffsetsSeen>, looked: &OffsetsSeen) {
    let unknown = looked.unknown();
    if unknown != before.and_then(OffsetsSeen::unknown) {
        match unknown {
            Some(reason) => tracing::warn!(route, "the route's offsets are not known: {reason}"),
            None => tracing::info!(route, "the route's offsets are known again"),
        }
    }
    let behind = looked.behind_in_words();
    if behind != before.and_then(OffsetsSeen::behind_in_words) {
        match behind {
            Some(words) => tracing::warn!(route, "{words}"),
            None => tracing::info!(route, "no partition is behind the others any more"),
        }
    }
}

/// A lag by a look that took so long: the group's offsets may be as old as that. Where there is no group, nothing is.
fn in_time(lag: Option<Lag>, took: Duration) -> Result<Option<Lag>, String> {
    match lag {
        Some(_) if took > LOOK_HOLDS => {
            Err(format!("asking Kafka took longer than {} s, so the lag is too old", LOOK_HOLDS.as_secs()))
        }
        Some(_) | None => Ok(lag),
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;
    use weir_core::limit::route::routes::Routes;

    use super::*;
    use crate::clock::tests::VirtualClock;

    /// What is found at each look.
    struct Looks<F>(F);

    impl<F: FnMut() -> Offsets + Send + 'static> RouteOffsets for Looks<F> {
        fn look(&mut self) -> Looking<'_> {
            Box::pin(std::future::ready((self.0)()))
        }

        fn waiting_since(&mut self, _: Time) -> AskingBack {
            let firsts: Result<_, String> = Ok(vec![Some(0)]);
            Box::pin(std::future::ready(firsts))
        }
    }

    /// What is known after the last look: lag and waiting intents are found so until it is told to stop.
    async fn last_look(
        clock: VirtualClock,
        mut find: impl FnMut(&CancellationToken) -> (Option<Lag>, Vec<Waiting>) + Send + 'static,
    ) -> Arc<OffsetsSeen> {
        let (stop, last) = (CancellationToken::new(), LastLook::default());
        let stops = stop.clone();
        let looks = Looks(move || {
            let (lag, waiting) = find(&stops);
            Offsets { lag: Ok(lag), behind: Vec::new(), waiting: Ok(waiting) }
        });
        let looking = keep_looking(Box::new(looks), Routes::new().state("email"), clock, Arc::clone(&last));
        stop.run_until_cancelled(looking).await;
        last.load_full().unwrap()
    }

    #[tokio::test]
    async fn where_none_waits_any_more_there_is_no_oldest_intent_at_once() {
        for second in [5, 0] {
            let mut ends = vec![second, 5];
            let find = move |stop: &CancellationToken| {
                let end = ends.pop().unwrap_or(second);
                if ends.is_empty() {
                    stop.cancel();
                }
                (None, vec![Waiting { from: 0, end }])
            };
            assert_eq!(last_look(VirtualClock::default(), find).await.oldest_ms.is_some(), second > 0);
        }
    }

    #[tokio::test]
    async fn a_lag_that_is_too_old_when_the_look_at_it_ends_is_not_known() {
        let group = Some(Lag::new(7, 5));
        for (takes_ms, lag, is_known) in [
            (10, group, true),
            (3_000, group, true),
            (3_001, group, false),
            (10_000, group, false),
            (10_000, None, true),
        ] {
            let clock = VirtualClock::default();
            let passes = clock.clone();
            let find = move |stop: &CancellationToken| {
                passes.advance(Duration::from_millis(takes_ms));
                stop.cancel();
                (lag, Vec::new())
            };
            let looked = last_look(clock, find).await;
            assert_eq!(looked.lag.is_ok(), is_known, "{lag:?} in {takes_ms} ms: {looked:?}");
        }
    }
}
