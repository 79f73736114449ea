//! One run: a seed becomes processes, faults, and a verdict.

use std::{io::Write, path::Path, sync::mpsc};

use weir_core::limit::HeldLimits;
use weir_worker::{budgets::BudgetKeeper, pressure::PressureKeeper};

use super::{
    check, delivery,
    downstream::Downstream,
    env::keep_log,
    growth,
    lanes::{LaneParts, compare},
    phases,
    prelude::*,
    rebuild::{self, Rebuilds},
    refunds, retries, rules, seeds, services,
    store::{Keyspace, MADE, Made},
    time, workload,
};

/// Process numbers from this one are operators'.
const OPERATORS: u64 = 1 << 32;
pub const DRAIN: Duration = Duration::from_secs(20);
/// The constant `START_PATIENCE` in src/cli/assemble.rs.
const PATIENCE: Duration = Duration::from_secs(60);
/// How the report of a run begins that does not come to its end.
pub const STUCK: &str = "stuck";
/// Steps of a seed, at most. Measured: 380,000.
const STEPS: u64 = 5_000_000;
/// CPU time of a seed, at most, unless `WEIR_SIM_LIMIT` has another number of seconds.
const LIMIT: Duration = Duration::from_secs(90);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(20);

pub struct Outcome {
    /// The broken promises; empty for a good run.
    pub broken: Vec<String>,
    pub trace: Vec<String>,
    /// Virtual time from the end of the faults until all was done.
    pub recovered_in: Duration,
    pub tale: Tale,
}

/// The shared state of a run's tasks.
pub struct World {
    pub env: Env,
    pub broker: Shared,
    /// The broker of the refunds: a group, producers and offsets of its own.
    pub refunds: Shared,
    pub refunded: RefCell<Refunded>,
    /// How many outputs were delivered, or not, by the consumer whose deliveries fail.
    pub delivered: Cell<usize>,
    pub service: RefCell<services::Service>,
    pub rebuilds: RefCell<Rebuilds>,
    pub keyspace: Keyspace,
    /// The turns of processes at the permits of the route.
    pub book: SharedBook,
    pub decider: Decider,
    /// The policy as those see it who keep routes.
    pub keepers_policy: Arc<Current<Policy>>,
    pub setting: Setting,
    /// All processes ever started.
    pub processes: RefCell<Vec<Rc<Process>>>,
    /// An instance had a second process of its name beside a live one, so that one of them will be fenced.
    has_twins: Cell<bool>,
    pub broken: RefCell<Vec<String>>,
    /// Since when the policy's stop is in force.
    pub stopped_at: Cell<Option<Duration>>,
    /// What it says of its route since when, after what it said first.
    pub route_rules: RefCell<Vec<(Duration, Rule)>>,
    /// Until when no instance is started.
    pub down_until: Cell<Duration>,
    /// From when until when faults were injected, histories were lost, or twins were fenced.
    pub troubles: RefCell<Vec<(Duration, Duration)>>,
    /// When time jumped to when deferred intents are due.
    pub jumps: RefCell<Vec<Duration>>,
    next_process: Cell<u64>,
    next_lane: Cell<u64>,
    pub lanes: usize,
    pub clocks: Vec<Arc<AtomicI64>>,
    /// The error of each instance's clock, and since when.
    pub clock_changes: RefCell<Vec<(usize, Duration, i64)>>,
    /// Figures of each lane that was started, with its process.
    pub lanes_metrics: RefCell<Vec<(Rc<Process>, Arc<Metrics>)>>,
}

/// Runs one seed to its end.
pub fn run(seed: u64, sabotage: Sabotage, tracing: Tracing) -> Outcome {
    let time = Arc::new(Virtual::default());
    let _running = watch(seed, Arc::clone(&time));
    let made = MADE.with(Made::clone);
    time::block_on(&time, async {
        // Not before: all randomness below comes from the seed.
        let env = Env::new(seed, Arc::clone(&time), sabotage, tracing);
        let _logging = keep_log(&env);
        play(env, made).await
    })
}

/// Ends the process when a run on this thread hangs: nothing else ends a future that never yields. The run drops the sender
/// at its end. CPU time counts: on a busy machine a run may take long, but one that hangs takes all that there is or nothing.
fn watch(seed: u64, time: Arc<Virtual>) -> mpsc::Sender<()> {
    let (running, end) = mpsc::channel();
    let limit = seeds::number("WEIR_SIM_LIMIT").map_or(LIMIT, Duration::from_secs);
    let thread = Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap()).join("schedstat");
    let cpu_time = move || {
        let figures = std::fs::read_to_string(&thread).unwrap_or_default();
        Duration::from_nanos(figures.split(' ').next().and_then(|figure| figure.parse().ok()).unwrap_or(0))
    };
    let before = cpu_time();
    std::thread::spawn(move || {
        let (mut used, mut idle_looks) = (Duration::ZERO, 0);
        while end.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            let last = std::mem::replace(&mut used, cpu_time().saturating_sub(before));
            // A machine that was paused gave it nothing either, once.
            idle_looks = if last < used { 0 } else { idle_looks + 1 };
            if idle_looks < 2 && used < limit {
                continue;
            }
            // Not by a macro: tests capture what these print, and the capture ends with the process.
            let _ = writeln!(
                std::io::stderr(),
                "seed {seed} hangs after {used:?} of CPU time; its clock is at {:?}. Run it alone: cargo xtask simulate --seed {seed}",
                time.passed()
            );
            std::process::exit(1);
        }
    });
    running
}

async fn play(env: Env, made: Made) -> Outcome {
    let setting = Setting::draw(&env);
    env.note(|| format!("{setting:?}"));
    let (intents, asks) = workload::intents(&env, &setting);
    let instances = 1 + env.index(3);
    let decider = rules::decider(&setting);
    let world = Rc::new(World {
        book: SharedBook::default(),
        broker: Rc::new(RefCell::new(Broker::new(&env, intents).growing(setting.growth))),
        refunds: Rc::new(RefCell::new(Broker::new(&env, (0..refunds::PARTITIONS).map(|_| Vec::new()).collect()))),
        refunded: RefCell::default(),
        delivered: Cell::default(),
        service: RefCell::default(),
        rebuilds: RefCell::default(),
        clock_changes: RefCell::default(),
        next_lane: Cell::new(0),
        keyspace: Keyspace::new(&env, &setting, made),
        keepers_policy: delivery::keepers_policy(&env, &decider.policy),
        decider,
        setting,
        lanes_metrics: RefCell::default(),
        processes: RefCell::default(),
        has_twins: Cell::default(),
        broken: RefCell::default(),
        stopped_at: Cell::default(),
        route_rules: RefCell::default(),
        down_until: Cell::default(),
        troubles: RefCell::default(),
        jumps: RefCell::default(),
        next_process: Cell::new(0),
        lanes: 1 + env.index(2),
        clocks: (0..instances).map(|_| Arc::default()).collect(),
        env: env.clone(),
    });
    for instance in 0..instances {
        spawn_local(Rc::clone(&world).keep_up(instance));
    }
    *lock(&world.broker.borrow().downstream) = Downstream::of(world.setting.paced.as_ref());
    spawn_local(delivery::deliver(Rc::clone(&world)));
    spawn_local(refunds::refund(Rc::clone(&world)));
    spawn_local(rebuild::operate(Rc::clone(&world)));
    spawn_local(stop(Rc::clone(&world)));
    if let Some(served) = world.setting.served {
        spawn_local(services::work(Rc::clone(&world), served));
    }
    if let Some(failing) = world.setting.failing {
        spawn_local(retries::deliver(Rc::clone(&world), failing));
    }
    spawn_local(delivery::edit(Rc::clone(&world)));
    spawn_local(growth::grow(Rc::clone(&world)));
    let played = env.time().bounded(STEPS, phases::play_out(&world)).await;
    if let Err(stuck) = &played {
        phases::not_done(&world, format_args!("{STUCK}: {stuck}"));
    }
    let mut broken = world.broken.take();
    // A stuck run is judged by that alone.
    let tale = if played.is_ok() { check::check(&world, &asks, &mut broken) } else { Tale::default() };
    let recovered_in = played.unwrap_or_default();
    Outcome { broken, trace: env.take_trace(), recovered_in, tale }
}

/// Takes up the policy's stop in its time.
async fn stop(world: Rc<World>) {
    let Some(stop) = world.setting.stop else { return };
    world.env.sleep(stop.at).await;
    world.stopped_at.set(Some(world.env.passed()));
    world.change_policy();
    world.env.note(|| format!("the policy has {stop:?}"));
}

impl World {
    /// Whether everything that came is decided or deferred, recorded, refunded and rebuilt.
    pub fn is_at_rest(&self) -> bool {
        let is_delivered = self.setting.failing.is_none() || self.delivered.get() >= self.broker.borrow().outputs.len();
        is_delivered
            && self.broker.borrow_mut().is_drained()
            && self.refunds.borrow_mut().is_drained()
            && self.owed() == 0
            && self.keyspace.is_whole()
            && self.rebuilds.borrow().under_way() == 0
    }

    /// Deferred writes of live lanes.
    pub fn owed(&self) -> i64 {
        let lanes = self.lanes_metrics.borrow();
        lanes.iter().filter(|(process, _)| !process.is_dead()).map(|(_, metrics)| metrics.deferred_sends.get()).sum()
    }

    /// Whether a process has ended, and its deferred writes with it.
    pub fn some_process_ended(&self) -> bool {
        self.next_process.get() > u64::try_from(self.clocks.len()).unwrap()
    }

    /// How often something was counted, by all lanes.
    pub fn counted(&self, of: impl Fn(&Metrics) -> u64) -> u64 {
        self.lanes_metrics.borrow().iter().map(|(_, metrics)| of(metrics)).sum()
    }

    fn process(&self, instance: usize) -> Rc<Process> {
        let number = self.next_process.replace(self.next_process.get() + 1);
        let clock = Arc::clone(&self.clocks[instance]);
        let brokers = [Rc::clone(&self.broker), Rc::clone(&self.refunds)];
        let process = Process::new(number, instance, &self.env, brokers, clock);
        self.env.note(|| format!("process {number} starts as instance {instance}"));
        self.processes.borrow_mut().push(Rc::clone(&process));
        process
    }

    /// Where an operator's command runs: a machine whose clock is right.
    pub fn operator(&self) -> Rc<Process> {
        let number = OPERATORS + self.rebuilds.borrow().begun;
        self.rebuilds.borrow_mut().begun += 1;
        let brokers = [Rc::clone(&self.broker), Rc::clone(&self.refunds)];
        Process::new(number, usize::MAX, &self.env, brokers, Arc::default())
    }

    /// Sets the error of an instance's clock, in milliseconds.
    pub fn set_clock(&self, instance: usize, off_ms: i64) {
        self.env.note(|| format!("the clock of instance {instance} is off by {off_ms} ms"));
        self.clocks[instance].store(off_ms, Relaxed);
        self.clock_changes.borrow_mut().push((instance, self.env.passed(), off_ms));
    }

    pub fn next_lane(&self) -> u64 {
        self.next_lane.replace(self.next_lane.get() + 1)
    }

    /// Restarts instances that ended, as systemd or Kubernetes does.
    async fn keep_up(self: Rc<Self>, instance: usize) {
        loop {
            let process = self.process(instance);
            Rc::clone(&self).live(process).await;
            self.env.sleep(self.env.millis(100, 5_000)).await;
            self.env.sleep(self.down_until.get().saturating_sub(self.env.passed())).await;
        }
    }

    /// A second process of the same name.
    pub fn twin(self: &Rc<Self>, instance: usize) {
        self.has_twins.set(true);
        spawn_local(Rc::clone(self).live(self.process(instance)));
    }

    /// One process, from its start to its end.
    async fn live(self: Rc<Self>, process: Rc<Process>) {
        let stop = process.stop.clone();
        let clocks = NodeClocks::new(&self.keyspace.options, &self.keyspace.stats);
        spawn_local(process.run(compare(process.clock.clone(), clocks, self.env.clone())));
        let log = self.keyspace.activity_log(&self.env, process.number, process.instance);
        let policy = Arc::clone(&self.decider.policy);
        let (mut activity, pressure, status) =
            PressureKeeper::new(log, process.clock.clone(), policy, Arc::new(Metrics::default()));
        // It is not ready before it knows who is active.
        match process.run(activity.load(PATIENCE)).await {
            None => return,
            Some(Err(error)) => {
                self.env.note(|| format!("process {} does not start: {error}", process.number));
                return process.kill();
            }
            Some(Ok(())) => {}
        }
        self.give_admissions(&process);
        let leave = CancellationToken::new();
        let (routes, routes_ended) = self.keep_routes(&process, &leave).unzip();
        let reported = routes.clone().unwrap_or_default();
        let held = HeldLimits { pressure: Some(pressure), routes, ..HeldLimits::default() };
        let decider = Decider { held, ..self.decider.clone() };
        let activity = spawn_local(process.run(activity.run(leave.clone())));
        let ledgers = self.keyspace.ledgers(&self.env, process.number, process.instance);
        let (keeper, budgets) = BudgetKeeper::new(ledgers, process.clock.clone(), Arc::new(Metrics::default()));
        spawn_local(process.run(keeper.run()));
        let one = |lane| {
            let (world, process, stop) = (Rc::clone(&self), Rc::clone(&process), stop.clone());
            let parts = LaneParts { decider: decider.clone(), budgets: budgets.claimant(), turns: status.turns() };
            // The process ends with any of its lanes.
            async move {
                let end = world.lane(process, (lane, parts), stop.clone()).await;
                stop.cancel();
                end
            }
        };
        let tasks = self.tasks().into_iter().enumerate();
        let mut lanes: Vec<_> = tasks.map(|lane| spawn_local(process.run(one(lane)))).collect();
        let refunds = Rc::clone(&self).read_refunds(Rc::clone(&process), stop.clone(), reported);
        let ending = stop.clone();
        lanes.push(spawn_local(process.run(async move {
            let end = refunds.await;
            ending.cancel();
            end
        })));
        for lane in lanes {
            if let Ok(Some(Err(LaneError::Fatal(message)))) = lane.await {
                self.env.note(|| format!("a lane of process {} ends: {message}", process.number));
                // A fenced worker ends, also one that its own late request fenced.
                let fenced = self.has_twins.get() || self.broker.borrow().late > 0 || self.refunds.borrow().late > 0;
                if fenced && message.contains("took over") {
                    self.troubles.borrow_mut().push((self.env.passed(), self.env.passed()));
                } else {
                    self.broken.borrow_mut().push(format!("a lane ended: {message}"));
                }
            }
        }
        leave.cancel();
        let _ = activity.await;
        process.run(budgets.close()).await;
        if let Some(mut ended) = routes_ended {
            process.run(ended.recv()).await;
        }
        process.kill();
    }
}
