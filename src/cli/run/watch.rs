//! Looks at Redis again and again, for `/v1/status`, HTTP and the page.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use weir_redis::{RedisPool, RedisStore};
use weir_worker::status::StoreStatus;

use crate::vitals::Nodes;

/// How often it is looked which shards of Redis answer, for `/v1/status` and the questions of HTTP.
const SHARDS_EVERY: Duration = Duration::from_secs(1);
/// How often each of its nodes is, for the page.
const NODES_EVERY: Duration = Duration::from_secs(2);

/// Looks which shards answer, again and again, over connections of its own.
pub(super) async fn watch_shards(
    mut store: RedisStore,
    status: StoreStatus,
    pool: Arc<RedisPool>,
    stop: CancellationToken,
) {
    let watched = stop.run_until_cancelled(async {
        loop {
            let found = store.look_at_shards().await;
            pool.take_over(&mut store, &found);
            status.set(found);
            tokio::time::sleep(SHARDS_EVERY).await;
        }
    });
    watched.await;
}

/// Looks at each node again and again, on connections of its own: one that hangs holds up no probe.
pub(super) async fn watch_nodes(mut store: RedisStore, nodes: Nodes, stop: CancellationToken) {
    let watched = stop.run_until_cancelled(async {
        loop {
            // Nobody knows of a node before the first question is answered.
            if nodes.is_empty() {
                let _ = store.look_at_shards().await;
            }
            nodes.set(store.look_at_nodes().await);
            tokio::time::sleep(NODES_EVERY).await;
        }
    });
    watched.await;
}
