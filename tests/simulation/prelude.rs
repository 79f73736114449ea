//! What many parts of the simulation use: of the standard library, of weir, and of each other.

pub use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

pub use tokio::task::spawn_local;
pub use tokio_util::sync::CancellationToken;
pub use weir::metrics::Metrics;
pub use weir_core::{
    basis::{
        clocks::MAX_SKEW_MS,
        current::Current,
        shard::{IdHash, UserHash},
        time::Time,
    },
    batch::{
        decider::Decider,
        record::{Destination, Output, OutputValue, Progress},
    },
    decision::approved::ApprovedRecord,
    deferral::{DeferReason, Deferral, wheel::Ring},
    history::decide::AdmitVerdict,
    intent::class::Filter,
    limit::{
        budget::{Budget, BudgetId, WhenUnavailable},
        pressure::PressureRule,
        route::WhenFull,
        share::TurnNumber,
    },
    policy::{Action, Mode, Policy, Selection},
    ports::{Share, StoreError},
};
pub use weir_worker::lane::{ANSWERS_HOLD, LaneError};

pub use super::{
    broker::{Broker, Membership, Out},
    check::{Judge, told},
    cluster::Cluster,
    delivery::{Paced, Rule},
    env::{Env, Tracing, lock},
    permits::SharedBook,
    process::{Moment, Process, Shared},
    rings::{Intent, Log, SHARES},
    rules::{Setting, east_of, on_channel},
    run::World,
    sabotage::{About, Sabotage},
    script::{Data, Item, Script},
    store::field_of,
    tale::Tale,
    time::{Virtual, WorkerClock, wall, wall_ms},
    truth::{Decided, some_moment},
    workload::{Ask, BUSY, Kind},
};
