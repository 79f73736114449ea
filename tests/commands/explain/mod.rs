//! `weir explain` and the queries behind it: what they say is what the worker does, on every store.

mod asked;
mod command;
mod faults;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use crate::{
    redis_support::{DAY_MS, START_MS},
    support::SEGMENTS,
};
use weir::{
    metrics::Metrics,
    query::{EntryPoint, QueryService},
};
use weir_core::{
    basis::{current::Current, document::Format, time::Time},
    batch::decider::Decider,
    policy::file::parse_policy,
    ports::Clock,
    segment::{Members, Segment, SegmentSet, Sha256, UserIdKind, UserIds},
};
use weir_worker::clock::SystemClock;

/// Eight days, as unless set.
const RETENTION_MS: i64 = 8 * DAY_MS;

/// A clock that tests turn; all clones show the same.
#[derive(Clone)]
struct Hand(Arc<AtomicI64>);

impl Hand {
    fn new() -> Self {
        Self(Arc::new(AtomicI64::new(START_MS)))
    }

    fn turn(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Time {
        Time::default().plus(self.0.load(Ordering::Relaxed))
    }

    fn passed(&self) -> Duration {
        SystemClock.passed()
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        SystemClock.sleep(wait)
    }
}

/// The segments of the scenes, and this policy.
fn decider(policy: &str) -> Decider {
    let segment = |(name, users): &(&str, std::ops::Range<u64>)| Segment {
        name: (*name).to_owned(),
        sha256: Sha256([0; 32]),
        bytes: 0,
        members: Arc::new(Members::U32(users.clone().map(|user| u32::try_from(user).unwrap()).collect())),
    };
    let segments = SEGMENTS.iter().map(segment).collect();
    let set = SegmentSet::new("test-set".to_owned(), UserIds::new(UserIdKind::U32, ""), segments);
    let policy = parse_policy("policy.toml", policy, Format::Toml, RETENTION_MS).unwrap();
    Decider::new("send-intents", Current::new(Arc::new(set)), Current::new(Arc::new(policy)))
}

fn query<S>(policy: &str, entry_point: EntryPoint, store: S, clock: &Hand) -> QueryService<S, Hand> {
    QueryService::new(&decider(policy), entry_point, store, clock.clone(), Arc::new(Metrics::default()))
}
