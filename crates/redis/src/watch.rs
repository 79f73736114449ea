//! Watches unavailable shards in the background, so that nothing waits for a node that does not answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::task::JoinSet;

use super::{
    cluster::Cluster,
    keyspace::Keyspace,
    open::{ShardEpochs, look_at_epochs, renewed},
    options::RedisOptions,
    stats::RedisStats,
};

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// After so many looks a shard without its history is told again: half a minute.
const TELL_AGAIN: u32 = 120;

pub(super) enum ShardsSeen {
    Answers {
        /// With their history; and those without it where that is news, which the next asking says.
        back: Vec<u16>,
        /// Without.
        lost: Vec<u16>,
    },
    /// A rebuild has recreated the keyspace.
    Renewed(Arc<Keyspace>),
}

/// One look at a time, over connections of its own.
pub(super) struct Watch {
    cluster: Option<Cluster>,
    // Ends with this: a set aborts what is in it.
    under_way: JoinSet<(Cluster, ShardsSeen)>,
    /// Shards that were told to answer without their history, and how many looks ago.
    told: BTreeMap<u16, u32>,
}

impl Watch {
    pub(super) fn new(options: &Arc<RedisOptions>, stats: &Arc<RedisStats>) -> Self {
        let cluster = Cluster::new(options, stats);
        Self { cluster: Some(cluster), under_way: JoinSet::new(), told: BTreeMap::new() }
    }

    /// What the last look has found, if it is over; and begins the next one.
    pub(super) fn look(&mut self, shards: &BTreeSet<u16>, keyspace: &Arc<Keyspace>) -> Option<ShardsSeen> {
        let mut seen = None;
        if let Some(Ok((cluster, found))) = self.under_way.try_join_next() {
            self.cluster = Some(cluster);
            seen = Some(found);
        }
        if let Some(ShardsSeen::Answers { back, lost }) = &mut seen {
            self.add_news(back, lost);
        }
        if let Some(cluster) = self.cluster.take_if(|_| !shards.is_empty()) {
            self.under_way.spawn(look(cluster, shards.clone(), Arc::clone(keyspace)));
        }
        seen
    }

    /// Adds those that came back without their history, each once in a while: asked, they say what has to be done, where a shard that is
    /// only watched would be said to be silent for ever.
    fn add_news(&mut self, back: &mut Vec<u16>, lost: &[u16]) {
        self.told.retain(|shard, looks| {
            *looks += 1;
            *looks < TELL_AGAIN && lost.contains(shard)
        });
        for &shard in lost {
            self.told.entry(shard).or_insert_with(|| {
                back.push(shard);
                0
            });
        }
    }
}

async fn look(mut cluster: Cluster, shards: BTreeSet<u16>, keyspace: Arc<Keyspace>) -> (Cluster, ShardsSeen) {
    cluster.options().network.sleep(LOOK_EVERY).await;
    let ShardEpochs { whole: back, lost, .. } =
        look_at_epochs(&mut cluster, &keyspace, shards.into_iter().collect()).await;
    if !lost.is_empty()
        && let Some(made_anew) = renewed(&mut cluster, &keyspace).await
    {
        return (cluster, ShardsSeen::Renewed(made_anew));
    }
    (cluster, ShardsSeen::Answers { back, lost })
}
