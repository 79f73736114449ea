//! The task that gives admissions to services that ask.

use std::sync::Arc;

use weir_oracle::desk::{ServiceDesk, ServiceKeeper};
use weir_worker::clock::{ComparedClock, SystemClock};

use super::redis::OpenRedis;
use crate::{cli::assemble, metrics::Metrics};

/// Starts the task; gives where it is asked.
pub(super) fn start(redis: &Arc<OpenRedis>, clock: &ComparedClock<SystemClock>, metrics: &Arc<Metrics>) -> ServiceDesk {
    // A name that no process before had: what that one gave still counts.
    let holder = assemble::new_epoch();
    let (redis, its) = (Arc::clone(redis), holder.clone());
    let connect = move || redis.services(its.clone());
    let (keeper, desk) = ServiceKeeper::new(connect, &holder, clock.clone(), Arc::<Metrics>::clone(metrics));
    tokio::spawn(keeper.run());
    desk
}
