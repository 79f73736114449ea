//! The lanes of a process: those of the intents, and those of the wheel beside them.

use weir_core::{batch::record::WaitingTopic, ports::Clock as _};
use weir_worker::{
    budgets::Claimant,
    lane::{Lane, LaneSettings, Task},
    pressure::AskedTurns,
};

use super::{prelude::*, retries};

/// The constant of this name in src/cli/clocks.rs.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// What a lane has from its process.
pub struct LaneParts {
    pub decider: Decider,
    pub budgets: Claimant,
    pub turns: AskedTurns,
}

fn reads(task: Task) -> Log {
    match task {
        Task::Intents => Log::Input,
        Task::Due(_) => Log::Ring(Ring::Minutes),
        Task::Move(_) => Log::Ring(Ring::Hours),
        Task::Waiting(_) => Log::Waiting,
        Task::Retry(_) => Log::Retries,
    }
}

/// Each process has one route.
pub const THE_ROUTE: WaitingTopic = WaitingTopic(0);

impl World {
    pub fn tasks(&self) -> Vec<Task> {
        let wheel = Wheel { shares: SHARES };
        let mut tasks = vec![Task::Intents; self.lanes];
        if let Some(deferring) = self.setting.deferring {
            tasks.extend(std::iter::repeat_n(Task::Due(wheel), deferring.due_lanes));
            tasks.push(Task::Move(wheel));
        }
        if self.setting.paced.is_some_and(|paced| paced.when_full == WhenFull::Wait) {
            tasks.push(Task::Waiting(THE_ROUTE));
        }
        if self.setting.failing.is_some() {
            tasks.push(Task::Retry(wheel));
        }
        tasks
    }

    /// The drain time is over; a frozen process cannot end.
    async fn drained(&self, process: &Process) {
        let began = self.env.passed();
        loop {
            let thawed_at = process.freezes.borrow().last().map_or(Duration::ZERO, |(_, thawed)| *thawed);
            let left = (thawed_at.max(began) + DRAIN).saturating_sub(self.env.passed());
            if left.is_zero() {
                return;
            }
            self.env.sleep(left).await;
        }
    }

    pub async fn lane(
        self: Rc<Self>,
        process: Rc<Process>,
        ((place, task), LaneParts { mut decider, budgets, turns }): ((usize, Task), LaneParts),
        stop: CancellationToken,
    ) -> Result<(), LaneError> {
        let metrics = Arc::new(Metrics::default());
        self.lanes_metrics.borrow_mut().push((Rc::clone(&process), Arc::clone(&metrics)));
        let number = self.next_lane();
        let outruns = self.env.sabotage() == Sabotage::ClosedRouteOutrun && matches!(task, Task::Waiting(_));
        if outruns {
            decider.held.routes = None;
        }
        if matches!(task, Task::Retry(_)) {
            decider.topic = retries::TOPIC.into();
        }
        let mut lane = Lane {
            source: SimSource::new(&self.env, &self.broker, reads(task), process.number),
            sink: SimSink::new(&self.env, (&self.broker, &self.book), &process, (place, number)),
            store: self.keyspace.store(&self.env, (process.number, number), &process.clock),
            clock: process.clock.clone(),
            task,
            decider,
            budgets,
            turns,
            settings: LaneSettings {
                batch: 40,
                commit_interval: Duration::from_millis(200),
                drain: DRAIN,
                unavailable_after: self.setting.unavailable_after,
                deferred_bytes: self.setting.deferred_bytes,
                deferred_shards: Arc::clone(&process.deferred_shards),
            },
            stop: stop.clone(),
            metrics,
            tracer: None,
            status: Arc::default(),
        };
        let end = {
            let drained = async {
                stop.cancelled().await;
                self.drained(&process).await;
            };
            tokio::select! {
                biased;
                end = lane.run() => end,
                () = drained => Err(LaneError::Fatal("it did not end within worker.drain".to_owned())),
            }
        };
        lane.source.leave();
        end
    }
}

/// Compares a process's clock with the nodes' clocks while it lives.
pub async fn compare(clock: WorkerClock, mut nodes: NodeClocks, env: Env) {
    loop {
        match nodes.ask(&clock).await {
            Ok(answers) => clock.compared.note(answers),
            Err(error) => env.note(|| format!("clocks are not compared: {error}")),
        }
        clock.sleep(ASK_EVERY).await;
    }
}
