//! Looks after shards that are away, in the background, so that nothing waits for a node that does not answer.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::{
    cluster::Cluster, keyspace::Keyspace, open::get_epoch, options::RedisOptions, renewal::renewed, stats::RedisStats,
};

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a look has found.
pub(super) enum Seen {
    /// These shards answer and have their history.
    Back(Vec<u16>),
    /// A rebuild has made the keyspace anew.
    Renewed(Arc<Keyspace>),
}

/// One look at a time, over connections of its own.
pub(super) struct Watch {
    cluster: Option<Cluster>,
    // Ends with this: a set aborts what is in it.
    under_way: JoinSet<(Cluster, Seen)>,
}

impl Watch {
    /// Nothing is looked at yet.
    pub(super) fn new(options: &Arc<RedisOptions>, stats: &Arc<RedisStats>) -> Self {
        let cluster = Cluster::new(Arc::clone(options), Arc::clone(stats));
        Self { cluster: Some(cluster), under_way: JoinSet::new() }
    }

    /// What the last look has found, if it is over; and begins the next one.
    pub(super) fn look(&mut self, shards: &BTreeSet<u16>, keyspace: &Arc<Keyspace>) -> Option<Seen> {
        let seen = match self.under_way.try_join_next() {
            Some(Ok((cluster, seen))) => {
                self.cluster = Some(cluster);
                Some(seen)
            }
            Some(Err(_)) | None => None,
        };
        if let Some(cluster) = self.cluster.take_if(|_| !shards.is_empty()) {
            self.under_way.spawn(look(cluster, shards.clone(), Arc::clone(keyspace)));
        }
        seen
    }
}

async fn look(mut cluster: Cluster, shards: BTreeSet<u16>, keyspace: Arc<Keyspace>) -> (Cluster, Seen) {
    cluster.options().network.sleep(LOOK_EVERY).await;
    let requests = shards.iter().map(|&shard| (keyspace.slot(shard), get_epoch(&keyspace, shard)));
    let replies = cluster.ask_all(requests.collect()).await;
    let (mut back, mut another) = (Vec::new(), false);
    for (shard, reply) in shards.into_iter().zip(replies) {
        let Ok(value) = reply else { continue };
        let epoch: Option<String> = redis::from_redis_value(value).ok().flatten();
        if epoch.as_deref() == Some(keyspace.epoch()) {
            back.push(shard);
        } else {
            another = true;
        }
    }
    if another && let Some(made_anew) = renewed(&mut cluster, &keyspace).await {
        return (cluster, Seen::Renewed(made_anew));
    }
    (cluster, Seen::Back(back))
}
