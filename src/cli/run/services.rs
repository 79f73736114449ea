//! The task that gives admissions to services that ask.

use std::sync::Arc;

use weir_redis::{Opened, RedisOptions, RedisServices, RedisStats};
use weir_worker::{
    clock::{ComparedClock, SystemClock},
    services::{ServiceDesk, ServiceKeeper},
};

use crate::{cli::assemble, metrics::Metrics};

/// Starts the task; gives where it is asked.
pub(super) fn start(
    (options, stats, opened): (&Arc<RedisOptions>, &Arc<RedisStats>, &Opened),
    clock: &ComparedClock<SystemClock>,
    metrics: &Arc<Metrics>,
) -> ServiceDesk {
    // A name that no process before had: what that one gave still counts.
    let holder = assemble::new_epoch();
    let (options, stats, opened) = (Arc::clone(options), Arc::clone(stats), opened.clone());
    let its = holder.clone();
    let connect = move || RedisServices::new(&options, &stats, &opened, its.clone());
    let (keeper, desk) = ServiceKeeper::new(connect, &holder, clock.clone(), Arc::<Metrics>::clone(metrics));
    tokio::spawn(keeper.run());
    desk
}
