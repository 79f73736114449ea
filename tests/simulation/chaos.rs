//! Random faults, one after the other; then everything recovers.

use super::{cluster, prelude::*, snapshots::Snapshot};

#[derive(Debug, Clone, Copy)]
enum Fault {
    Process(ProcessFault),
    Rebalance,
    BrokerAway,
    /// The broker takes so few records per second that a full batch cannot be committed in time.
    BrokerSlow,
    Redis(RedisFault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessFault {
    Kill,
    Freeze,
    Twin,
    Stop,
    Clock,
}

#[derive(Debug, Clone, Copy)]
enum RedisFault {
    FailOver,
    Reshard,
    Restart,
    FlushScripts,
    Stall,
    Refuse,
    Wipe,
    /// The node of the names and tables is lost, with its unreplicated writes.
    LoseNames,
    /// No node answers for a while.
    Outage,
    /// A node grants tokens by a clock that jumps ahead, and back after a while.
    Clock,
    /// Replicas hear nothing for long, and then one of them may take over.
    Silent,
    /// A node comes back with what it had some seconds before.
    Return,
}

/// Those that each run draws some of, in the order in which it draws.
fn kinds() -> impl Iterator<Item = Fault> {
    use RedisFault::{FailOver, FlushScripts, LoseNames, Outage, Refuse, Reshard, Restart, Stall, Wipe};
    let first = [ProcessFault::Kill, ProcessFault::Freeze, ProcessFault::Twin, ProcessFault::Stop].map(Fault::Process);
    let first = first.into_iter().chain([Fault::Rebalance, Fault::BrokerAway]);
    let second = [FailOver, Reshard, Restart, FlushScripts, Stall, Refuse].map(Fault::Redis);
    let third = [Wipe, LoseNames, Outage].map(Fault::Redis);
    first.chain(second).chain([Fault::Process(ProcessFault::Clock)]).chain(third)
}

const REFUSALS: [&str; 7] = [
    "CLUSTERDOWN The cluster is down",
    "MASTERDOWN Link with MASTER is down",
    "BUSY Redis is busy running a script",
    "READONLY You can't write against a read only replica.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Redis is configured to save RDB snapshots",
    "NOREPLICAS Not enough good replicas to write.",
];

/// Nodes that come back with an old snapshot, at most: each is followed by a rebuild of everything.
const MOST_RETURNS: usize = 1;

/// Faults beside those that are drawn from the run's dice: those that a planted bug needs, or some kinds without one.
fn more_kinds(env: &Env) -> Vec<Fault> {
    let mut dice = env.dice("chaos\0", 0);
    let (is_silent, returns, bug) = (dice.u32(..4) == 0, dice.u32(..8) == 0, env.sabotage());
    let kinds = [
        (RedisFault::Silent, usize::from(bug == Sabotage::None && is_silent)),
        (RedisFault::Return, usize::from(bug == Sabotage::None && returns)),
        (RedisFault::Silent, 8 * usize::from(bug == Sabotage::TurnUntouched)),
        (RedisFault::Return, 4 * usize::from(bug == Sabotage::SnapshotTrusted)),
        (RedisFault::Clock, 4 * usize::from(bug == Sabotage::NodeClockTrusted)),
        (RedisFault::LoseNames, 4 * usize::from(bug.is_about(About::Names))),
        (RedisFault::Wipe, 4 * usize::from(bug.is_about(About::Rebuilds))),
    ];
    kinds.into_iter().flat_map(|(fault, times)| std::iter::repeat_n(Fault::Redis(fault), times)).collect()
}

/// Faults until then, and none after.
pub async fn reign(world: &Rc<World>, until: Duration) {
    let env = &world.env;
    // Only some kinds, so that runs differ.
    let mut kinds: Vec<Fault> = kinds().filter(|_| env.chance(450)).collect();
    // Nothing is drawn for a planted bug: the seed that shows it stays the same.
    if env.sabotage() == Sabotage::None && env.chance(450) {
        kinds.push(Fault::BrokerSlow);
    }
    if env.sabotage() == Sabotage::None && env.chance(450) {
        kinds.push(Fault::Redis(RedisFault::Clock));
    }
    kinds.extend(more_kinds(env));
    let pace = [500, 2_000, 6_000][env.index(3)];
    env.note(|| format!("faults: {kinds:?}"));
    while env.passed() < until {
        env.sleep(env.millis(1, pace)).await;
        if !kinds.is_empty() {
            inject(world, kinds[env.index(kinds.len())]);
        }
    }
    env.sleep(env.millis(0, 3_000)).await;
    put_right(world);
}

/// Freezes a process in the middle of a commit of deferred intents that are due, for long enough that another one takes over what
/// it reads.
pub fn freeze_releasing(world: &Rc<World>) {
    let Some(process) = living(world) else { return };
    process.freeze_within(Moment::Release);
    let env = world.env.clone();
    spawn_local(async move {
        while !process.frozen.get() && !env.is_calm() {
            env.sleep(Duration::from_millis(100)).await;
        }
        env.sleep(env.millis(12_000, 40_000)).await;
        process.thaw();
    });
}

fn living(world: &World) -> Option<Rc<Process>> {
    let processes = world.processes.borrow();
    let living: Vec<_> = processes.iter().filter(|process| !process.is_dead()).collect();
    (!living.is_empty()).then(|| Rc::clone(living[world.env.index(living.len())]))
}

fn inject(world: &Rc<World>, fault: Fault) {
    let env = &world.env;
    env.note(|| format!("-- {fault:?} --"));
    match fault {
        Fault::Process(fault) => on_process(world, fault),
        Fault::Rebalance => {
            let (mut broker, mut refunds) = (world.broker.borrow_mut(), world.refunds.borrow_mut());
            match env.below(1000) {
                0..500 if world.setting.paced.is_some() && env.chance(500) => broker.waiting.rebalance(),
                0..500 => broker.group.rebalance(),
                500..800 => broker.later.rebalance(),
                _ => refunds.group.rebalance(),
            }
        }
        Fault::BrokerAway => {
            let until = env.passed() + env.millis(100, 12_000);
            world.broker.borrow_mut().down_until = until;
            world.refunds.borrow_mut().down_until = until;
        }
        Fault::BrokerSlow => {
            let each = [env.millis(300, 1_000), env.millis(1_000, 6_000)][env.index(2)];
            world.broker.borrow_mut().slow = (each, env.passed() + env.millis(5_000, 40_000));
        }
        Fault::Redis(fault) => on_redis(world, fault),
    }
}

fn on_process(world: &Rc<World>, fault: ProcessFault) {
    let env = &world.env;
    let Some(process) = living(world) else { return };
    match fault {
        ProcessFault::Kill => process.kill_in(1 + env.below(60)),
        ProcessFault::Stop => {
            // Of twins, the one that began last is told.
            let processes = world.processes.borrow();
            let last = processes.iter().rfind(|other| other.instance == process.instance && !other.is_dead());
            last.unwrap().stop.cancel();
        }
        ProcessFault::Clock => {
            let most = [50, 5_000, 400_000, 3_600_000][env.index(4)];
            let off = i64::try_from(env.below(2 * most + 1)).unwrap() - i64::try_from(most).unwrap();
            world.set_clock(process.instance, off);
            let (world, instance, wait) = (Rc::clone(world), process.instance, env.millis(100, 30_000));
            spawn_local(async move {
                world.env.sleep(wait).await;
                world.set_clock(instance, 0);
            });
        }
        ProcessFault::Freeze | ProcessFault::Twin => {
            process.freeze();
            if fault == ProcessFault::Twin {
                world.twin(process.instance);
            }
            let wait = env.millis(100, 30_000);
            let env = env.clone();
            spawn_local(async move {
                env.sleep(wait).await;
                process.thaw();
            });
        }
    }
}

fn on_redis(world: &Rc<World>, fault: RedisFault) {
    let env = &world.env;
    let mut cluster = lock(&world.keyspace.cluster);
    let group = env.index(cluster.groups.len());
    let whole = !cluster.groups[group].wiped;
    let still = cluster.is_still(group);
    let primary = cluster.groups[group].primary;
    let now = env.passed();
    match fault {
        RedisFault::FailOver if whole && still => {
            cluster.fail_over(group, env.millis(0, 4_000));
            // Sets how far behind the replica may be.
            let deaf = if env.chance(500) { env.millis(0, 3_000) } else { Duration::ZERO };
            cluster.groups[group].deaf_until = now + deaf;
        }
        RedisFault::Reshard if whole => {
            let slots = cluster.slots();
            let slot = slots[env.index(slots.len())];
            let from = cluster.owner(slot);
            let may = from != group && cluster.keeps_right_clock(slot, group);
            if may && !cluster.groups[from].wiped && !cluster.moving.contains_key(&slot) {
                env.note(|| format!("slot {slot} moves from group {from} to {group}"));
                cluster.moving.insert(slot, group);
                spawn_local(reshard(Rc::clone(world), slot));
            }
        }
        RedisFault::Restart => cluster.restart(group, Keeps::Data, env.millis(10, 4_000)),
        RedisFault::Wipe if whole && still => {
            cluster.restart(group, Keeps::Nothing, env.millis(0, 1_000));
        }
        RedisFault::FlushScripts => cluster.nodes[primary].scripts.clear(),
        RedisFault::Stall => cluster.nodes[primary].stalled_until = now + env.millis(10, 5_000),
        RedisFault::Refuse => {
            let refusal = REFUSALS[env.index(REFUSALS.len())];
            env.note(|| format!("node {primary}: {refusal}"));
            cluster.nodes[primary].refuses = Some((refusal, now + env.millis(10, 4_000)));
        }
        RedisFault::LoseNames => {
            let deaf = env.millis(500, 4_000);
            let names = cluster.owner(cluster::NAMES);
            cluster.groups[names].deaf_until = now + deaf;
            spawn_local(lose_unheard(Rc::clone(world), names, deaf.mul_f64(0.9)));
        }
        RedisFault::Silent => silence(world, &mut cluster, group),
        RedisFault::Return if group != cluster.owner(cluster::NAMES) && cluster.returned < MOST_RETURNS => {
            spawn_local(come_back(Rc::clone(world), cluster.snapshot(group)));
        }
        RedisFault::Outage => {
            let until = now + env.millis(1_000, 30_000);
            cluster.nodes.iter_mut().for_each(|node| node.stalled_until = node.stalled_until.max(until));
        }
        RedisFault::Clock => cluster.jumped_clock = Some((group, now + env.millis(500, 10_000))),
        RedisFault::FailOver | RedisFault::Reshard | RedisFault::Wipe | RedisFault::Return => {}
    }
}

/// The replica of a group, or all of them, hears nothing for long, and may take over meanwhile.
fn silence(world: &Rc<World>, cluster: &mut Cluster, group: usize) {
    let env = &world.env;
    let (silence, all) = (env.millis(5_000, 30_000), env.chance(300));
    let until = env.passed() + silence;
    let silent = cluster.groups.iter_mut().enumerate().filter(|(number, _)| all || *number == group);
    silent.for_each(|(_, of)| of.deaf_until = of.deaf_until.max(until));
    if env.chance(500) {
        let part = [0.3, 0.6, 0.95][env.index(3)];
        spawn_local(lose_unheard(Rc::clone(world), group, silence.mul_f64(part)));
    }
}

/// What a group's replica has not heard of by then is lost with the primary.
async fn lose_unheard(world: Rc<World>, group: usize, wait: Duration) {
    world.env.sleep(wait).await;
    let mut cluster = lock(&world.keyspace.cluster);
    if cluster.is_still(group) && !cluster.groups[group].wiped && !world.env.is_calm() {
        cluster.fail_over(group, world.env.millis(0, 2_000));
    }
}

/// A node comes back with this some time after it was there.
async fn come_back(world: Rc<World>, snapshot: Snapshot) {
    world.env.sleep(world.env.millis(1_000, 10_000)).await;
    let mut cluster = lock(&world.keyspace.cluster);
    if !world.env.is_calm() && cluster.returned < MOST_RETURNS {
        cluster.come_back(snapshot, world.env.millis(0, 1_000));
    }
}

async fn reshard(world: Rc<World>, slot: u16) {
    while lock(&world.keyspace.cluster).moving.contains_key(&slot) {
        world.env.sleep(world.env.millis(1, 1_500)).await;
        lock(&world.keyspace.cluster).move_on(slot);
    }
}

/// Everything is available again. A reshard, rebuild or restart in progress finishes by itself.
fn put_right(world: &Rc<World>) {
    world.env.calm_down();
    world.processes.borrow().iter().for_each(|process| process.thaw());
    (0..world.clocks.len()).for_each(|instance| world.set_clock(instance, 0));
    world.broker.borrow_mut().down_until = Duration::ZERO;
    world.refunds.borrow_mut().down_until = Duration::ZERO;
    world.broker.borrow_mut().slow = (Duration::ZERO, Duration::ZERO);
    let mut cluster = lock(&world.keyspace.cluster);
    cluster.jumped_clock = None;
    cluster.hear_again();
    for node in &mut cluster.nodes {
        node.down_until = Duration::ZERO;
        node.stalled_until = Duration::ZERO;
        node.refuses = None;
    }
}
