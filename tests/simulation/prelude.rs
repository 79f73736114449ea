//! What many parts of the simulation use: of the standard library, of weir, and of each other.

pub use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

pub use tokio::task::spawn_local;
pub use tokio_util::sync::CancellationToken;
pub use weir::metrics::Metrics;
pub use weir_core::{
    basis::{
        clocks::MAX_SKEW_MS,
        current::Current,
        header::HeaderName,
        shard::{IdHash, UserHash},
        time::Time,
    },
    batch::{
        decider::Decider,
        record::{ApprovedTopic, Destination, Output, OutputValue, Progress},
    },
    decision::approved::ApprovedRecord,
    deferral::{
        DeferReason, Deferral,
        wheel::{Ring, Wheel},
    },
    history::decide::{AdmitVerdict, Scope},
    intent::class::{ClassNames, Filter},
    limit::{
        budget::{Budget, BudgetId, WhenUnavailable},
        pressure::PressureRule,
        route::{DEFAULT_MAX_ATTEMPTS, Route, WhenFull, routes::Routes},
        share::TurnNumber,
    },
    policy::{Action, Mode, Period, Policy, Selection},
    ports::{Share, StoreError},
};
pub use weir_kafka::sink::COMMIT_WATCHDOG;
pub use weir_redis::{KeyspaceSeed, NodeClocks, RedisActivityLog, RedisLedger, RedisOptions};
pub use weir_worker::lane::{ANSWERS_HOLD, LaneError};

pub use super::{
    broker::{Broker, Fetched, Membership, Out, Submit, TRANSACTION_TIMEOUT},
    check::{Judge, told},
    cluster::{Cluster, Keeps},
    commands::{Change, Effects},
    delivery::{Paced, ROUTE, Rule, WAITING},
    downstream::SharedDownstream,
    env::{Env, Tracing, lock},
    ledger::Ledger,
    permits::SharedBook,
    pressure::SharedHeard,
    process::{Moment, Process, Shared},
    refunds::Refunded,
    rings::{Header, Intent, Log, SHARES, Stored},
    rules::{Limit, Of, Setting, east_of, on_channel},
    run::{DRAIN, World},
    sabotage::{About, Sabotage},
    script::{Data, Item, Script, Stream},
    services::Forgotten,
    sink::SimSink,
    source::SimSource,
    store::{REFUNDS, field_of},
    tale::Tale,
    time::{Virtual, WorkerClock, wall, wall_ms},
    truth::{Decided, some_moment},
    workload::{Ask, Asks, BUSY, Kind},
};
