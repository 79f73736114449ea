//! The phases of a run: faults while intents arrive; recovery; and where intents were deferred, time jumps to when the next ones
//! are due, with faults again in some runs.

use std::fmt;

use super::{chaos, prelude::*};

/// After the last fault everything must be done within this.
pub const RECOVERED_WITHIN: Duration = Duration::from_secs(120);
/// Rebuilds, which wait long, must be done within this.
const REBUILT_WITHIN: Duration = Duration::from_secs(860);
/// Nothing must happen for so long before time jumps: an ended process has started again by then.
const SETTLED: Duration = Duration::from_secs(8);
/// How long before deferred intents are due time jumps to, at most.
const LEAD_MS: u64 = 5_000;
/// Deferred intents that come back this often come back for ever.
const MOST_JUMPS: usize = 1_500;

/// Plays a run out; gives how long it took at most, from the end of faults until all was done that is to be done by then.
pub async fn play_out(world: &Rc<World>) -> Duration {
    let env = &world.env;
    rage(world, BUSY).await;
    let mut storms = world.setting.deferring.map_or(0, |deferring| deferring.storms);
    let mut slowest = Duration::ZERO;
    loop {
        let Some(recovered_in) = recover(world).await else { return slowest };
        slowest = slowest.max(recovered_in);
        let Some(wait) = next_due(world) else { return slowest };
        let lead = env.millis(0, LEAD_MS);
        if wait <= lead {
            env.sleep(wait + Duration::from_millis(1)).await;
            continue;
        }
        env.sleep(SETTLED.min(wait - lead)).await;
        // What it has left to end would be over at once.
        let one_ends = world.processes.borrow().iter().any(|process| process.is_ending());
        let Some(wait) = next_due(world).filter(|wait| *wait > lead && !one_ends) else { continue };
        if world.jumps.borrow().len() >= MOST_JUMPS {
            world.broken.borrow_mut().push(format!("P: intents come back for ever: {:?}", deferred(world)));
            return slowest;
        }
        env.time().jump(wait - lead);
        world.jumps.borrow_mut().push(env.passed());
        env.note(|| format!("{:?} later", wait - lead));
        if storms > 0 && env.chance(400) {
            storms -= 1;
            env.brew();
            if env.chance(500) {
                chaos::freeze_releasing(world);
            }
            rage(world, env.passed() + env.millis(10_000, 40_000)).await;
        }
    }
}

async fn rage(world: &Rc<World>, until: Duration) {
    let began = world.env.passed();
    chaos::reign(world, until).await;
    world.troubles.borrow_mut().push((began, world.env.passed()));
}

/// Waits until all is done but what is deferred until later; `None` where it is not in time.
async fn recover(world: &Rc<World>) -> Option<Duration> {
    const TICK: Duration = Duration::from_millis(100);
    let env = &world.env;
    let began = env.passed();
    let mut calm_at = began;
    loop {
        let rebuilds = world.rebuilds.borrow().under_way() > 0;
        if rebuilds && env.passed() < began + REBUILT_WITHIN {
            calm_at = env.passed();
        }
        if rebuilds || !world.keyspace.is_whole() {
            world.troubles.borrow_mut().push((env.passed(), env.passed() + TICK));
        }
        if world.is_at_rest() && !deferred(world).iter().any(|intent| wait_for(world, intent).is_zero()) {
            return Some(env.passed() - calm_at);
        }
        if env.passed() > calm_at + RECOVERED_WITHIN {
            not_done(world, format_args!("P: not done {RECOVERED_WITHIN:?} after the last fault"));
            return None;
        }
        env.sleep(TICK).await;
    }
}

fn deferred(world: &World) -> Vec<std::sync::Arc<Intent>> {
    world.broker.borrow_mut().deferred()
}

/// How long until the next deferred intents may be taken out of their buckets.
fn next_due(world: &World) -> Option<Duration> {
    deferred(world).iter().map(|intent| wait_for(world, intent)).min()
}

fn wait_for(world: &World, intent: &Intent) -> Duration {
    let (Log::Ring(ring), Some(deferral)) = (intent.log, &intent.deferral) else { return Duration::ZERO };
    let wait_ms = ring.opens(deferral.due).millis() - wall(world.env.passed()).millis();
    Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0))
}

pub fn not_done(world: &World, why: fmt::Arguments<'_>) {
    let mut broken = world.broken.borrow_mut();
    let committed = world.broker.borrow().committed.clone();
    // Not below: there it would be borrowed until the report is made.
    let waiting = world.broker.borrow().left(Log::Waiting);
    broken.push(format!(
        "{why}: {committed:?}, owed {}, {:?}, {} under way, whole {}, waiting {:?}, deferred {:?}",
        world.owed(),
        world.rebuilds.borrow(),
        world.rebuilds.borrow().under_way(),
        world.keyspace.is_whole(),
        waiting,
        deferred(world)
    ));
    for process in world.processes.borrow().iter().filter(|process| !process.is_dead()) {
        broken.push(format!("P: process {} owes to {:?}", process.number, process.deferred_shards));
    }
}
