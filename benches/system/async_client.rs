//! The unpipelined way: redis-rs's async client, one EVALSHA per user as in [`crate::zset`], 64 of them in flight.
//!
//! One multiplexed connection per node, as the crate's own cluster client keeps, and the slot looked up here; that client
//! would bring a feature of the crate into the product's build.

use std::{ops::RangeInclusive, time::Duration};

use anyhow::{Context, Result, anyhow};
use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};
use testkit::redis::connect;
use tokio::task::JoinSet;
use weir::config::RedisSettings;
use weir_core::batch::record::{Destination, Records};

use crate::zset::{Intent, call, load, slot_of, slots};

/// Calls that wait for their replies at any time.
const IN_FLIGHT: usize = 64;
const PATIENCE: Duration = Duration::from_secs(60);

pub struct AsyncClient {
    nodes: Vec<(MultiplexedConnection, Vec<RangeInclusive<u16>>)>,
    sha: String,
}

impl AsyncClient {
    /// Connects to all nodes, which must be primaries, and loads the script.
    pub async fn connect(settings: &RedisSettings) -> Result<Self> {
        let (mut nodes, mut sha) = (Vec::new(), None);
        for url in &settings.nodes {
            let client = redis::Client::open(url.expose())?;
            let mut connection = connect(PATIENCE, &client)?;
            sha = Some(load(&mut connection)?);
            let slots = slots(&mut connection)?;
            let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
            nodes.push((client.get_multiplexed_async_connection_with_config(&patient).await?, slots));
        }
        Ok(Self { nodes, sha: sha.context("a cluster without nodes")? })
    }

    /// Caps a batch in its order; says where each intent goes.
    pub async fn decide(&mut self, records: &impl Records) -> Result<Vec<Destination>> {
        let mut ways = vec![Destination::Suppressed; records.len()];
        let mut flights = JoinSet::new();
        for place in 0..records.len() {
            let intent = Intent::of(records, place)?;
            let key = intent.key();
            let slot = slot_of(&key);
            let node = self.nodes.iter().find(|(_, slots)| slots.iter().any(|range| range.contains(&slot)));
            let mut connection = node.with_context(|| format!("nobody serves slot {slot}"))?.0.clone();
            let command = call(&self.sha, &key, &intent);
            if flights.len() == IN_FLIGHT {
                land(&mut flights, &mut ways).await?;
            }
            flights.spawn(async move { Ok((place, command.query_async::<u8>(&mut connection).await?)) });
        }
        while !flights.is_empty() {
            land(&mut flights, &mut ways).await?;
        }
        Ok(ways)
    }
}

async fn land(flights: &mut JoinSet<Result<(usize, u8)>>, ways: &mut [Destination]) -> Result<()> {
    let (place, reply) = flights.join_next().await.context("none in flight")?.map_err(|panic| anyhow!(panic))??;
    if reply == 1 {
        ways[place] = Destination::APPROVED;
    }
    Ok(())
}
