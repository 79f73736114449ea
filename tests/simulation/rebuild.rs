//! `weir rebuild`: the code of `crates/redis/src/rebuild` as it is, in the steps of `src/cli/rebuild`, on the fake topics; and who
//! runs it, more than once where a run hangs or dies.

use weir_core::{
    decision::{approved::Sent, decision_header::DecisionHeader},
    history::{
        decide::Scope as BudgetScope,
        deferred_send::PastSend,
        found_names::{Age, FoundNames},
        refund::Refund,
    },
    limit::budget::{
        lease::LONGEST_LEASE,
        ledger::{Account, Recount},
    },
    ports::Clock as _,
};
use weir_redis::rebuild::{
    self, BudgetChange, BudgetKeyState, Held, NamesRepair, Rebuild, RebuildError, Restorer, Scope,
};

use super::{budgets::spent, prelude::*, refunds::taken_back};

/// `settle_of` of `src/cli/rebuild`, for the time-outs of the fake Kafka: a session is shorter than the watchdog.
const SETTLE: Duration =
    Duration::from_secs(ANSWERS_HOLD.as_secs() + COMMIT_WATCHDOG.as_secs() + TRANSACTION_TIMEOUT.as_secs());
/// Records between two looks at how far the run is.
const BATCH: usize = 40;
/// How long Redis may be unavailable before a run stops.
const PATIENCE: Duration = Duration::from_secs(300);

/// Rebuilds lost shards and tables, as an operator does, for as long as the simulation runs.
pub async fn operate(world: Rc<World>) {
    let env = world.env.clone();
    loop {
        env.sleep(Duration::from_millis(500)).await;
        if world.keyspace.is_whole() {
            lock(&world.keyspace.cluster).groups.iter_mut().for_each(|group| group.wiped = false);
            continue;
        }
        // Who has brought an old snapshot back knows what to do.
        let most_ms = if lock(&world.keyspace.cluster).is_old() { 1_000 } else { 6_000 };
        env.sleep(env.millis(100, most_ms)).await;
        let process = world.operator();
        if !env.is_calm() {
            match env.index(5) {
                0 => process.freeze_in(1 + env.below(80)),
                1 | 2 => process.freeze_within(Moment::Mark),
                _ if env.sabotage().is_about(About::Rebuilds) => process.freeze_within(Moment::Mark),
                3 => process.kill_in(1 + env.below(300)),
                _ => {}
            }
        }
        let mut run = spawn_local(process.run(run(Rc::clone(&world), Rc::clone(&process))));
        let outcome = loop {
            tokio::select! {
                biased;
                done = &mut run => break done.ok().flatten(),
                () = env.sleep(Duration::from_millis(500)) => {}
            }
            if process.frozen.get() {
                // Its lock expires and another run starts; the frozen one continues later.
                env.sleep(env.millis(1_000, 30_000)).await;
                let (env, process) = (env.clone(), Rc::clone(&process));
                spawn_local(async move {
                    env.sleep(env.millis(0, 60_000)).await;
                    process.thaw();
                    // It is ended before it has put back what it should not have taken.
                    if env.chance(500) {
                        process.kill_in(1 + env.below(60));
                    }
                });
                world.rebuilds.borrow_mut().frozen += 1;
                break None;
            }
        };
        env.note(|| format!("weir rebuild of process {} ended: {outcome:?}", process.number));
    }
}

#[derive(Debug, Default)]
pub struct Rebuilds {
    pub begun: u64,
    pub done: usize,
    pub frozen: usize,
    /// Repairs of the tables of names.
    pub names: usize,
    pub restored: u64,
    /// Each run has one of these until it ends or is killed.
    runs: Rc<()>,
}

impl Rebuilds {
    pub fn under_way(&self) -> usize {
        Rc::strong_count(&self.runs) - 1
    }
}

async fn run(world: Rc<World>, process: Rc<Process>) -> Result<(), String> {
    let _under_way = Rc::clone(&world.rebuilds.borrow().runs);
    let outcome = one_run(&world, &process).await;
    world.rebuilds.borrow_mut().done += usize::from(outcome.is_ok());
    outcome
}

async fn one_run(world: &World, process: &Process) -> Result<(), String> {
    // Who runs it knows of nodes that came back with an old snapshot, and weir does not.
    let (is_old, returned) = {
        let cluster = lock(&world.keyspace.cluster);
        (cluster.is_old(), cluster.returned)
    };
    let scope = match repair_names(world, process, &Scope::Lost).await {
        Ok(()) if is_old => Scope::All,
        Ok(()) => Scope::Lost,
        // Numbers were given twice, or nothing describes the keyspace any more.
        Err(message) if message.contains("--all") || message.contains("gave numbers again") => {
            world.env.note(|| format!("weir rebuild --all: {message}"));
            repair_names(world, process, &Scope::All).await?;
            Scope::All
        }
        Err(message) => return Err(message),
    };
    process.begins(Moment::Mark);
    let mut rebuild = begin(world, process, &scope).await.map_err(|error| error.to_string())?;
    if scope == Scope::All {
        lock(&world.keyspace.cluster).till.marked();
    }
    if rebuild.shards.is_empty() {
        rebuild.leave().await;
        return Ok(());
    }
    world.env.note(|| format!("process {} rebuilds {:?}, {:?}", process.number, rebuild.shards, rebuild.beginning));
    if let Err(message) = restore(world, process, &mut rebuild).await {
        rebuild.leave().await;
        return Err(message);
    }
    let lost = rebuild.finish().await.map_err(|error| error.to_string())?;
    if !lost.is_empty() {
        return Err(format!("{lost:?} were lost again"));
    }
    if scope == Scope::All {
        lock(&world.keyspace.cluster).returned_before_rebuild = returned;
    }
    Ok(())
}

async fn begin(world: &World, process: &Process, scope: &Scope) -> Result<Rebuild, RebuildError> {
    let begin = |run, seed| rebuild::begin(&world.keyspace.options, &world.keyspace.stats, scope, run, seed);
    under_lock(world, process, begin).await
}

/// Performs a step that takes the lock; waits for the lock of a killed run.
async fn under_lock<T, F: Future<Output = Result<T, RebuildError>>>(
    world: &World,
    process: &Process,
    begin: impl Fn(String, KeyspaceSeed) -> F,
) -> Result<T, RebuildError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let name = |what| format!("{what}-{}-{tries}-{}", process.number, world.env.passed().as_micros());
        let keyspace_seed = KeyspaceSeed { epoch: name("epoch"), now: process.clock.now() };
        match begin(name("run"), keyspace_seed).await {
            Err(RebuildError::Store(StoreError::Temporary(reason))) if tries < 30 => {
                world.env.note(|| format!("weir rebuild waits: {reason}"));
                world.env.sleep(Duration::from_secs(1)).await;
            }
            begun => return begun,
        }
    }
}

/// Repairs the tables of names from the headers of the approved topic, where they are lost.
async fn repair_names(world: &World, process: &Process, scope: &Scope) -> Result<(), String> {
    let begin = |run, seed| rebuild::begin_names(&world.keyspace.options, &world.keyspace.stats, scope, run, seed);
    let begun = under_lock(world, process, begin).await.map_err(|error| error.to_string())?;
    let Some(mut repair) = begun else { return Ok(()) };
    world.env.note(|| format!("process {} repairs the names", process.number));
    match read_names(world, &mut repair).await {
        Ok(found) => {
            repair.finish(&found).await.map_err(|error| error.to_string())?;
            world.rebuilds.borrow_mut().names += 1;
            Ok(())
        }
        Err(message) => {
            repair.leave().await;
            Err(message)
        }
    }
}

async fn read_names(world: &World, repair: &mut NamesRepair) -> Result<FoundNames, String> {
    let mut found = FoundNames::default();
    let end = names(world, 0, &mut found)?;
    repair.pause().await.map_err(|error| error.to_string())?;
    let settled = world.env.passed() + SETTLE;
    while world.env.passed() < settled {
        world.env.sleep(Duration::from_secs(1)).await;
        if let Err(error) = repair.renew().await {
            world.env.note(|| format!("the lock is not renewed: {error}"));
        }
    }
    names(world, end, &mut found)?;
    Ok(found)
}

/// Adds the names of the visible records from an offset; returns the end.
fn names(world: &World, from: usize, found: &mut FoundNames) -> Result<usize, String> {
    let mut broker = world.broker.borrow_mut();
    let (outs, end) = broker.stable(from);
    for out in outs.into_iter().filter(|out| out.to.is_approved()) {
        let decision = DecisionHeader::of(out.weir_headers()).expect("weir writes it").expect("weir reads it");
        let numbers = decision.numbers();
        found.add(decision.into_class(), numbers, Age::InHistory).map_err(|conflict| conflict.to_string())?;
    }
    Ok(end)
}

async fn patiently<T>(world: &World, mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> Result<T, String> {
    let began = world.env.passed();
    loop {
        match ask().await {
            Err(StoreError::Temporary(_)) if world.env.passed() < began + PATIENCE => {
                world.env.sleep(Duration::from_millis(500)).await;
            }
            answer => return answer.map_err(|error| error.to_string()),
        }
    }
}

async fn restore(world: &World, process: &Process, rebuild: &mut Rebuild) -> Result<(), String> {
    let mut restorer = rebuild.restorer();
    fill(world, process, rebuild, &mut restorer).await?;
    // Where budgets are counted, leases have to end, too.
    let leases = if !world.setting.budgets.is_empty() { LONGEST_LEASE } else { Duration::ZERO };
    let settle = rebuild.marked_at.plus(i64::try_from((SETTLE + leases).as_millis()).unwrap());
    while process.clock.now() < settle {
        keep(world, rebuild, &BTreeMap::new()).await?;
        world.env.sleep(Duration::from_secs(1)).await;
    }
    fill(world, process, rebuild, &mut restorer).await?;
    recount(world, rebuild).await?;
    take_refunds(world, rebuild, &mut restorer).await
}

/// Restores the sends of the approved topic, from the run's position to the topic's present end.
async fn fill(world: &World, process: &Process, rebuild: &mut Rebuild, restorer: &mut Restorer) -> Result<(), String> {
    let mut next = usize::try_from(rebuild.progress.get(&0).copied().unwrap_or(0)).unwrap();
    let (sends, end) = approved(world, next);
    for batch in sends.chunks(BATCH) {
        let wanted: Vec<PastSend<'_>> =
            batch.iter().filter(|(_, sent)| restorer.wants(sent.user)).map(|(_, sent)| sent.past()).collect();
        let insert = async || restorer.insert(&wanted, process.clock.now()).await;
        let restored = patiently(world, insert).await?;
        world.rebuilds.borrow_mut().restored += restored;
        next = batch.last().map_or(next, |(offset, _)| offset + 1);
        save(world, rebuild, next).await?;
    }
    save(world, rebuild, end.max(next)).await
}

async fn save(world: &World, rebuild: &mut Rebuild, next: usize) -> Result<(), String> {
    keep(world, rebuild, &BTreeMap::from([(0, i64::try_from(next).unwrap())])).await
}

/// Saves the run's position and renews its lock; what fails now is saved later.
async fn keep(world: &World, rebuild: &mut Rebuild, progress: &BTreeMap<i32, i64>) -> Result<(), String> {
    match rebuild.save(progress).await {
        Ok(()) => {}
        Err(error @ RebuildError::TakenOver) => return Err(error.to_string()),
        Err(RebuildError::Store(error)) => world.env.note(|| format!("progress is not kept: {error}")),
    }
    Ok(())
}

/// The counted sends among the visible records from an offset, with their offsets; and the end.
fn approved(world: &World, from: usize) -> (Vec<(usize, Sent)>, usize) {
    let mut broker = world.broker.borrow_mut();
    let (outs, end) = broker.stable(from);
    let counted = outs.into_iter().filter(|out| out.to.is_approved()).filter_map(|out| match out.approved() {
        ApprovedRecord::Counts(sent) => Some((out.offset, sent)),
        ApprovedRecord::DoesNotCount(_) | ApprovedRecord::Retried => None,
        ApprovedRecord::Foreign => panic!("an approved record of weir's: {out:?}"),
    });
    (counted.collect(), end)
}

async fn take_refunds(world: &World, rebuild: &mut Rebuild, restorer: &mut Restorer) -> Result<(), String> {
    let records: Vec<Arc<Intent>> = world.refunds.borrow().all(Log::Input).cloned().collect();
    let mut refunds = Vec::new();
    for record in &records {
        if let Some((user, id)) = taken_back(world, record)
            && restorer.wants(user)
        {
            let (partition, offset) = (record.partition, record.offset);
            refunds.push(Refund { user, id, at: Some(wall(record.at)), partition, offset });
        }
    }
    let mut outcomes = vec![None; refunds.len()];
    patiently(world, async || restorer.take_back(&REFUNDS.into(), &refunds, &mut outcomes).await).await?;
    keep(world, rebuild, &BTreeMap::new()).await
}

/// The lock is renewed after so many budgets.
const KEEP_LOCK_EVERY: usize = 25;

/// Counts the budgets of the run's shards, once earlier decisions are visible and before the shards are used again.
async fn recount(world: &World, rebuild: &mut Rebuild) -> Result<(), String> {
    let policy = world.decider.policy.get();
    if policy.budgets.is_empty() {
        return Ok(());
    }
    let now = wall(world.env.passed());
    let mut counted = Recount::new(policy.budgets.iter(), &policy.timezone, now);
    for out in world.broker.borrow_mut().stable(0).0.into_iter().filter(|out| out.is_approval()) {
        counted.add(&spent(out));
    }
    let mut restorer = rebuild.budgets();
    let campaigns = patiently(world, async || restorer.campaigns().await).await?;
    let mut ids = known(&policy, &counted, &campaigns);
    ids.retain(|id| restorer.is_restored(id));
    let ids: Vec<BudgetId> = ids.into_iter().collect();
    let states = patiently(world, async || restorer.look(&ids, now).await).await?;
    for (place, (id, found)) in ids.iter().zip(&states).enumerate() {
        if place % KEEP_LOCK_EVERY == 0 {
            keep(world, rebuild, &BTreeMap::new()).await?;
        }
        let account = counted.of(id);
        // What is not there and was not spent is as good as new.
        let is_new = *found == BudgetKeyState::Absent && account == Account::default();
        // The planted bug takes what is there for right.
        let is_trusted = world.env.sabotage() == Sabotage::SnapshotTrusted && *found != BudgetKeyState::Absent;
        let Some(budget) = policy.budgets.iter().find(|budget| budget.name == id.name) else { continue };
        if is_new || is_trusted {
            continue;
        }
        world.env.note(|| format!("{id} is counted anew: {account:?}"));
        let span = budget.span.at(&policy.timezone, now);
        let (mut found, held) = (found.clone(), Held::Replace(account));
        loop {
            let (becomes, limit) = (BudgetKeyState::Open, budget.limit);
            let change = BudgetChange { found: &found, becomes, span, limit, held: held.clone() };
            let was = patiently(world, async || restorer.change(id, &change, now).await).await?;
            if was == found {
                break;
            }
            // A reply was lost, or a turn that had read the epoch before the mark has begun it anew.
            found = was;
        }
    }
    Ok(())
}

/// The budgets that are known: shared ones, and those of the campaigns that were found or have a number.
fn known(policy: &Policy, counted: &Recount, campaigns: &[Arc<str>]) -> BTreeSet<BudgetId> {
    let mut ids: BTreeSet<BudgetId> = counted.found().cloned().collect();
    for budget in &policy.budgets {
        let of = |campaign| BudgetId { name: Arc::clone(&budget.name), campaign };
        match budget.scope {
            BudgetScope::Every => _ = ids.insert(of(None)),
            BudgetScope::SameCampaign => ids.extend(campaigns.iter().map(|campaign| of(Some(Arc::clone(campaign))))),
        }
    }
    ids
}
