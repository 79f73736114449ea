//! Watches unavailable shards in the background, so that nothing waits for a node that does not answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::task::JoinSet;

use super::{
    cluster::Cluster, keyspace::Keyspace, open::ask_epochs, options::RedisOptions, renewal::renewed, stats::RedisStats,
};

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// After so many looks a shard without its history is told again: half a minute.
const TELL_AGAIN: u32 = 120;

pub(super) enum ShardsSeen {
    /// These shards answer: with their history, or without it, which is news, and said by the next asking.
    Back(Vec<u16>),
    /// A rebuild has recreated the keyspace.
    Renewed(Arc<Keyspace>),
}

/// One look at a time, over connections of its own.
pub(super) struct Watch {
    cluster: Option<Cluster>,
    // Ends with this: a set aborts what is in it.
    under_way: JoinSet<(Cluster, LookFound)>,
    /// Shards that were told to answer without their history, and how many looks ago.
    told: BTreeMap<u16, u32>,
}

enum LookFound {
    Answers {
        /// With their history.
        back: Vec<u16>,
        /// Without.
        lost: Vec<u16>,
    },
    Renewed(Arc<Keyspace>),
}

impl Watch {
    pub(super) fn new(options: &Arc<RedisOptions>, stats: &Arc<RedisStats>) -> Self {
        let cluster = Cluster::new(Arc::clone(options), Arc::clone(stats));
        Self { cluster: Some(cluster), under_way: JoinSet::new(), told: BTreeMap::new() }
    }

    /// What the last look has found, if it is over; and begins the next one.
    pub(super) fn look(&mut self, shards: &BTreeSet<u16>, keyspace: &Arc<Keyspace>) -> Option<ShardsSeen> {
        let seen = match self.under_way.try_join_next() {
            Some(Ok((cluster, found))) => {
                self.cluster = Some(cluster);
                Some(match found {
                    LookFound::Answers { back, lost } => ShardsSeen::Back(self.news(back, &lost)),
                    LookFound::Renewed(keyspace) => ShardsSeen::Renewed(keyspace),
                })
            }
            Some(Err(_)) | None => None,
        };
        if let Some(cluster) = self.cluster.take_if(|_| !shards.is_empty()) {
            self.under_way.spawn(look(cluster, shards.clone(), Arc::clone(keyspace)));
        }
        seen
    }

    /// Those that are back, and those that came back without their history, each once in a while: asked, they say what
    /// has to be done, where a shard that is only watched would be said to be silent for ever.
    fn news(&mut self, mut back: Vec<u16>, lost: &[u16]) -> Vec<u16> {
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
        back
    }
}

async fn look(mut cluster: Cluster, shards: BTreeSet<u16>, keyspace: Arc<Keyspace>) -> (Cluster, LookFound) {
    cluster.options().network.sleep(LOOK_EVERY).await;
    let epochs = ask_epochs(&mut cluster, &keyspace, shards.iter().copied()).await;
    let (mut back, mut lost) = (Vec::new(), Vec::new());
    for (shard, epoch) in shards.into_iter().zip(epochs) {
        let Ok(epoch) = epoch else { continue };
        if epoch.as_deref() == Some(keyspace.epoch()) {
            back.push(shard);
        } else {
            lost.push(shard);
        }
    }
    if !lost.is_empty()
        && let Some(made_anew) = renewed(&mut cluster, &keyspace).await
    {
        return (cluster, LookFound::Renewed(made_anew));
    }
    (cluster, LookFound::Answers { back, lost })
}
