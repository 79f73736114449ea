//! The clocks of the nodes: what each answers to TIME.

use std::sync::Arc;

use redis::cmd;
use weir_core::{
    basis::{
        clocks::{ClockAnswers, OtherClock},
        time::Time,
    },
    ports::{Clock, StoreError},
};

use super::{
    address::NodeAddr,
    cluster::Cluster,
    node::Request,
    open::startup,
    options::RedisOptions,
    request_error::RequestError,
    stats::{RedisStats, RetryCause},
};

/// Asks the primaries of a Redis for their time, over connections of its own.
pub struct NodeClocks {
    cluster: Cluster,
}

impl NodeClocks {
    /// Connects when first asked.
    pub fn new(options: &Arc<RedisOptions>, stats: &Arc<RedisStats>) -> Self {
        Self { cluster: Cluster::new(options, stats) }
    }

    /// Asks each primary, one after the other: one that does not answer takes `redis.timeout`, and is left out.
    ///
    /// # Errors
    /// [`StoreError::Temporary`] where nobody says which nodes there are; [`StoreError::Fatal`] where TIME is denied.
    pub async fn ask<C: Clock>(&mut self, clock: &C) -> Result<ClockAnswers, StoreError> {
        self.cluster.refresh().await.map_err(startup)?;
        let nodes = self.cluster.primaries();
        let mut answered = Vec::new();
        for node in &nodes {
            let asked = clock.passed();
            match self.cluster.ask_node(node, Request::Plain(cmd("TIME"))).await {
                Ok(value) => {
                    let time = time_of(value).ok_or_else(|| startup(RequestError::torn(node, "TIME")))?;
                    answered.push(OtherClock::new(node.to_string(), (asked, clock.passed()), time));
                }
                Err(denied) if denied.cause == RetryCause::Refused => return Err(startup(denied)),
                Err(error) => tracing::debug!("{error}: its clock is not compared this time"),
            }
        }
        Ok(ClockAnswers { machines: nodes.iter().map(NodeAddr::to_string).collect(), answered })
    }
}

/// The reply to TIME: seconds since 1970, and the microseconds of the current one.
fn time_of(value: redis::Value) -> Option<Time> {
    let (seconds, micros): (i64, i64) = redis::from_redis_value(value).ok()?;
    Time::from_millis(seconds.checked_mul(1000)?.checked_add(micros / 1000)?)
}
