//! The run that most rules share: all their records, one worker, one look at what became of them.

use std::sync::{Arc, LazyLock};

use testkit::kafka::Record;
use weir_core::{
    basis::{
        shard::{IdHash, OriginMark, UserHash},
        time::Time,
    },
    history::{
        admit::{AdmitBatch, AdmitRequest},
        decide::{AdmitVerdict, RecordWhen as When},
    },
    intent::class::ClassNames,
    ports::{Clock, Store},
};
use weir_redis::{KeyspaceSeed, RedisOptions, RedisStats, RedisStore, WhenMissing, open};
use weir_worker::clock::SystemClock;

use crate::{
    contract::{caps, decisions, intents, time, topics},
    support::{
        Scene,
        outcome::{Outcome, Outcomes},
    },
};

pub const HOUR_MS: i64 = 3_600_000;
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// Partitions of the topics: intents, approved, suppressed, dead letters. All different, as a user may have them.
pub const PARTITIONS: [i32; 4] = [6, 4, 5, 3];

/// Each rule has users of its own.
pub const SEGMENTS: [(&str, std::ops::Range<u64>); 10] = [
    ("two", 0..100),
    ("days", 100..200),
    ("costs", 200..300),
    ("filters", 300..400),
    ("campaigns", 400..500),
    ("never", 500..600),
    ("staff", 600..700),
    ("several", 700..800),
    ("weeks", 800..900),
    ("months", 900..1000),
];

pub const POLICY: &str = r#"
version = "contract-1"
timezone = "Asia/Singapore"
max_age = "2d"

[segments.two]
caps = [ { name = "daily", limit = 2, window = "24h" }, { name = "weekly", limit = 5, window = "7d" } ]
[segments.days]
caps = [ { name = "today", limit = 1, per = "day" } ]
[segments.weeks]
caps = [ { name = "this-week", limit = 1, per = "week" } ]
[segments.months]
caps = [ { name = "this-month", limit = 1, per = "month" } ]
[segments.costs]
caps = [ { name = "costs", limit = 10, window = "24h" } ]
[segments.filters]
caps = [
  { name = "push",  limit = 1, window = "24h", channel = "push" },
  { name = "promo", limit = 2, window = "7d",  category = ["promo", "partner"] },
]
[segments.campaigns]
caps = [ { name = "once", limit = 1, window = "1h", each = "campaign" } ]
[segments.never]
caps = [ { name = "never", limit = 0, window = "1h" } ]
[segments.staff]
caps = "unlimited"
[segments.several]
caps = [
  { name = "short",  limit = 1, window = "1h" },
  { name = "long",   limit = 1, window = "7d" },
  { name = "middle", limit = 1, window = "24h" },
]
[default]
caps = [ { name = "daily", limit = 1, window = "24h" } ]

[[bypass]]
category = "transactional"
counts = false
[[bypass]]
category = "service"
"#;

/// A send that was approved before the worker started.
#[derive(Clone)]
pub struct Earlier {
    pub user: u64,
    pub ago_ms: i64,
}

pub struct Run {
    pub scene: Scene,
    /// The clock when the earlier sends were put into the history.
    pub seeded_ms: i64,
    pub outcomes: Outcomes,
}

pub static RUN: LazyLock<Run> = LazyLock::new(|| {
    let mut scene = Scene::bare("contract", 6, POLICY);
    scene.create_topics(PARTITIONS);
    scene.build_segments(&SEGMENTS);
    // Many small batches rather than one: what holds, holds across them.
    scene.env = vec![("WEIR__WORKER__BATCH", "97".into()), ("WEIR__REDIS__HISTORY", "32d".into())];
    let earlier = [caps::earlier(), time::earlier()].concat();
    let seeded_ms = remember(&scene, earlier);
    let records = [topics::records(), intents::records(), decisions::records(), caps::records(), time::records()];
    scene.publish(records.concat());
    drop(scene.drained("contract"));
    let outcomes = scene.outcomes();
    Run { scene, seeded_ms, outcomes }
});

/// Puts earlier sends into the scene's keyspace by the store's own means, with a clock that was then.
fn remember(scene: &Scene, mut earlier: Vec<Earlier>) -> i64 {
    let mut options = RedisOptions::for_urls(&scene.redis).unwrap();
    options.prefix.clone_from(&scene.name);
    (options.shards, options.users, options.history_ms) = (64, 10_000, 32 * DAY_MS);
    let options = Arc::new(options);
    let now = SystemClock.now();
    earlier.sort_by_key(|send| -send.ago_ms);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let stats = Arc::new(RedisStats::default());
        let keyspace_seed = KeyspaceSeed { epoch: scene.name.clone(), now };
        let opened = open(&options, &stats, WhenMissing::Create, keyspace_seed).await.unwrap();
        let mut store = RedisStore::new(&options, &stats, &opened);
        for (number, send) in (0..).zip(earlier) {
            let request = AdmitRequest {
                user: UserHash::of(&send.user.to_string()),
                id: IdHash::of(&format!("earlier-{number}")),
                origin: OriginMark(number),
                class: ClassNames::default(),
                cost: 1,
                cap_set: 0,
                record: When::Always,
            };
            let batch = AdmitBatch { now: now.plus(-send.ago_ms), cap_sets: vec![vec![]], requests: vec![request] };
            let mut answers = [None];
            store.admit(&batch, &mut answers).await.unwrap();
            assert_eq!(answers[0].unwrap().verdict, AdmitVerdict::Allowed);
        }
    });
    Time::millis(now)
}

pub fn of(name: &str) -> &'static Outcome {
    RUN.outcomes.of(name)
}

/// The words of a table, for comparing with series of verdicts.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

pub type Records = Vec<Record>;
