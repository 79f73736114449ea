//! weir's way: instances take turns at a log in Redis, as in `weir run`.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use testkit::{redis::RedisServer, unique};
use tokio::{runtime::Runtime, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use weir::metrics::Metrics;
use weir_core::{
    basis::{current::Current, document::Format},
    limit::{
        pressure::{
            ActiveBy, Pressure,
            activity::{ActivityHash, Minute},
            activity_log::{ActiveIn, SyncRequest},
        },
        share::TurnNumber,
    },
    policy::file::parse_policy,
    ports::{Clock as _, Share as _},
};
use weir_redis::{KeyspaceSeed, RedisActivityLog, RedisOptions, RedisStats, Tuning, WhenMissing, open};
use weir_worker::{clock::SystemClock, pressure::PressureKeeper};

use super::{Instance, Load, Running, user};

const DAY_MS: i64 = 86_400_000;
const WINDOW_MS: i64 = 30 * 60_000;
/// How long Redis may take to be read for the first time.
const PATIENCE: Duration = Duration::from_secs(10);
/// From one turn of an instance to the next: the instances are spread over it.
const TURN: Duration = Duration::from_secs(1);

/// Keepers in a runtime of their own.
pub struct Ours {
    runtime: Runtime,
    stop: CancellationToken,
    instances: Vec<One>,
    tasks: Vec<JoinHandle<()>>,
}

struct One(Arc<Pressure>);

impl Instance for One {
    fn is_active(&self, user: ActivityHash) -> bool {
        self.0.state().is_some_and(|state| state.users.is_active(user, SystemClock.now().into()))
    }

    fn touch(&self, user: ActivityHash) {
        let minute = SystemClock.now().into();
        self.0.note([user], minute, minute);
    }

    fn admit(&self, user: ActivityHash) -> bool {
        let (Some(state), now) = (self.0.state(), Minute::from(SystemClock.now())) else { return false };
        let is_active = state.users.is_active(user, now);
        if !is_active && !state.take_place(SystemClock.passed()) {
            return false;
        }
        self.0.note_in(&state, [(user, ActiveBy::Intent)], now);
        if !is_active {
            state.places.used(1);
        }
        true
    }
}

impl Running for Ours {
    fn start(server: &RedisServer, load: &Load, instances: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let text = format!(
            "version = \"1\"\n[default]\ncaps = \"unlimited\"\n[pressure]\nmax_active_users = {}\nwindow = \"30m\"\n\
             action = \"suppress\"\n",
            load.most()
        );
        let policy = parse_policy("the bench's policy", &text, Format::Toml, DAY_MS)?;
        let policy = Current::new(Arc::new(policy));
        let mut options = RedisOptions::for_urls(&[server.url()])?;
        options.tuning = Tuning::Set;
        let (options, stats, stop) = (Arc::new(options), Arc::new(RedisStats::default()), CancellationToken::new());
        let (mut shared, mut tasks) = (Vec::new(), Vec::new());
        runtime.block_on(async {
            let seed = KeyspaceSeed { epoch: unique("epoch"), now: SystemClock.now() };
            let opened = open(&options, &stats, WhenMissing::Create, seed).await?;
            let log = |name: String| RedisActivityLog::new(&options, &stats, &opened, name);
            fill(log("before".to_owned()), load).await?;
            for number in 0..instances {
                let log = log(format!("weir-{number}"));
                let (mut keeper, pressure, _) =
                    PressureKeeper::new(log, SystemClock, Arc::clone(&policy), Arc::new(Metrics::default()));
                keeper.load(PATIENCE).await.context("reading who is active")?;
                shared.push(One(pressure));
                tasks.push(tokio::spawn(keeper.run(stop.clone())));
                tokio::time::sleep(TURN / u32::try_from(instances)?).await;
            }
            // All of them are members of whom the others know.
            tokio::time::sleep(2 * TURN).await;
            Ok::<(), anyhow::Error>(())
        })?;
        Ok(Self { runtime, stop, instances: shared, tasks })
    }

    fn instances(&self) -> Vec<&dyn Instance> {
        self.instances.iter().map(|one| -> &dyn Instance { one }).collect()
    }

    fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.runtime.block_on(async {
            for task in self.tasks {
                task.await?;
            }
            Ok(())
        })
    }
}

/// Tells the log who is active from the start.
async fn fill(mut log: RedisActivityLog, load: &Load) -> Result<()> {
    let now = Minute::from(SystemClock.now());
    let active = load.known().map(|(ago, users)| ActiveIn {
        minute: Minute(now.0 - ago),
        new: users.len() as u64,
        users: users.into_iter().map(user).collect(),
    });
    let (cursor, active, window_ms) = (None, active.collect(), WINDOW_MS);
    let request = SyncRequest { cursor, active, window_ms, member_for_ms: 0, held: 0, wanted: 0, room: None };
    log.turn(&(), TurnNumber { run: 1, number: 1 }, &request).await.context("telling who is active")?;
    Ok(())
}
