//! The table of committed partitions: for each group, the partitions of topics with a committed offset.
//!
//! Kafka forgets a group's offsets (after a week without members, or with their topic); this table does not. It is asked only
//! where a partition has no committed offset, and written when one is found that is not noted yet: never per batch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};
use weir_core::{
    basis::origin::Topic,
    ports::{CommitTable, CommitTableAnswer, StoreError},
};

use super::{
    cluster::Cluster, keyspace::Keyspace, node::Request, open::renewed, options::RedisOptions, stats::RedisStats,
};

/// Notes and questions that wait, at most: one of each lane and change of partitions. A note beyond is dropped; the next
/// change of partitions brings it again.
const WAITING: usize = 256;
/// The pause before what could not be noted is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const FIELDS_A_ROUND: usize = 500;

/// The whole table: fields, and what was noted of each first.
type CommittedFields = BTreeMap<String, String>;

/// What stands in the table where a rebuild has restored it.
pub(super) const RESTORED: &str = "restored";

enum CommitsAsked {
    Note(Vec<(String, i64)>),
    Read(oneshot::Sender<Result<CommittedFields, StoreError>>),
}

/// A group's part of the table, for all lanes of a process; one task asks Redis.
pub struct RedisCommits {
    group: String,
    asked: mpsc::Sender<CommitsAsked>,
}

impl RedisCommits {
    /// A group's part of the table of a keyspace that [`super::open`] has verified. Its task ends with it.
    #[must_use]
    pub fn start(options: &Arc<RedisOptions>, stats: &Arc<RedisStats>, opened: &super::Opened, group: &str) -> Self {
        let (asked, inbox) = mpsc::channel(WAITING);
        let keeper = Keeper {
            cluster: Cluster::new(options, stats),
            keyspace: Arc::clone(&opened.keyspace),
            noted: BTreeMap::new(),
            open: BTreeSet::new(),
        };
        tokio::spawn(keeper.serve(inbox));
        Self { group: group.to_owned(), asked }
    }

    async fn read(&self) -> Result<CommittedFields, StoreError> {
        let gone = || StoreError::Temporary("nobody asks for it any more".to_owned());
        let (answer, answered) = oneshot::channel();
        self.asked.send(CommitsAsked::Read(answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

impl CommitTable for RedisCommits {
    fn note(&self, topic: &Topic, offsets: Vec<(i32, i64)>) {
        let field = |(partition, offset)| (field(&self.group, topic, partition), offset);
        let _ = self.asked.try_send(CommitsAsked::Note(offsets.into_iter().map(field).collect()));
    }

    fn noted<'t>(&'t self, topic: &'t Topic, partitions: &'t [i32]) -> CommitTableAnswer<'t, Vec<Option<String>>> {
        Box::pin(async move {
            let table = self.read().await?;
            let noted =
                |partition: &i32| table.get(&field(&self.group, topic, *partition)).map(|first| in_words(first));
            Ok(partitions.iter().map(noted).collect())
        })
    }

    fn has_predecessor<'t>(&'t self, topic: &'t Topic) -> CommitTableAnswer<'t, bool> {
        Box::pin(async move {
            let table = self.read().await?;
            // Where a broker told no id, another id says nothing.
            let id = topic.id.to_string();
            let is_predecessor = |(group, name, its_id, _): (String, String, String, i32)| {
                group == self.group && *name == *topic.name && !its_id.is_empty() && its_id != id
            };
            Ok(!id.is_empty() && partitions(&table).any(is_predecessor))
        })
    }
}

/// The groups that have committed offsets of topics, each with such a topic, by the table of a keyspace.
pub async fn noted_topics(
    options: &Arc<RedisOptions>,
    stats: &Arc<RedisStats>,
    opened: &super::Opened,
) -> Result<BTreeSet<(String, String)>, StoreError> {
    let mut cluster = Cluster::new(options, stats);
    let unread = |reason| StoreError::Temporary(format!("what groups have committed is not read: {reason}"));
    let table = table(&mut cluster, &opened.keyspace).await.map_err(unread)?;
    Ok(partitions(&table).map(|(group, topic, _, _)| (group, topic)).collect())
}

/// The whole table, or why it is not read.
async fn table(cluster: &mut Cluster, keyspace: &Keyspace) -> Result<CommittedFields, String> {
    let all = Request::plain("HGETALL", keyspace.commits_key());
    let value = cluster.ask(keyspace.meta_slot(), all).await.map_err(|error| error.to_string())?;
    redis::from_redis_value(value).map_err(|error| error.to_string())
}

/// The partitions of a table: each with its group, and its topic's name and id. The epoch is none.
fn partitions(table: &CommittedFields) -> impl Iterator<Item = (String, String, String, i32)> {
    table.keys().filter_map(|field| serde_json::from_str(field).ok())
}

/// `["group","topic","topic id",partition]`: JSON, so that no two groups and topics have one field.
pub(super) fn field(group: &str, Topic { name, id }: &Topic, partition: i32) -> String {
    serde_json::json!([group, &**name, id.to_string(), partition]).to_string()
}

struct Keeper {
    cluster: Cluster,
    keyspace: Arc<Keyspace>,
    /// All that was to be noted since the start: fields and offsets.
    noted: BTreeMap<String, i64>,
    /// What of it is not written yet.
    open: BTreeSet<String>,
}

impl Keeper {
    async fn serve(mut self, mut inbox: mpsc::Receiver<CommitsAsked>) {
        loop {
            let asked = if self.open.is_empty() {
                inbox.recv().await
            } else {
                match tokio::time::timeout(AGAIN_AFTER, inbox.recv()).await {
                    Ok(asked) => asked,
                    Err(_) => {
                        self.write().await;
                        continue;
                    }
                }
            };
            match asked {
                None => return,
                Some(CommitsAsked::Note(offsets)) => {
                    for (field, offset) in offsets {
                        if self.noted.insert(field.clone(), offset).is_none() {
                            self.open.insert(field);
                        }
                    }
                    self.write().await;
                }
                Some(CommitsAsked::Read(answer)) => drop(answer.send(self.read().await)),
            }
        }
    }

    /// Writes what is not written; what fails is tried again.
    async fn write(&mut self) {
        while !self.open.is_empty() {
            let fields: Vec<String> = self.open.iter().take(FIELDS_A_ROUND).cloned().collect();
            let requests = fields.iter().map(|field| {
                let offset = self.noted.get(field).copied().unwrap_or(0);
                let note = Request::plain("HSETNX", (self.keyspace.commits_key(), field, offset));
                (self.keyspace.meta_slot(), note)
            });
            let requests = requests.collect();
            let replies = self.cluster.ask_all(requests).await;
            if let Some(error) = replies.into_iter().find_map(Result::err) {
                tracing::warn!("what the group has committed is not noted in Redis yet: {error}");
                return;
            }
            self.open.retain(|field| !fields.contains(field));
        }
    }

    async fn read(&mut self) -> Result<CommittedFields, StoreError> {
        let table = table(&mut self.cluster, &self.keyspace).await.map_err(StoreError::Temporary)?;
        let is_ours = table.get("epoch").map(String::as_str) == Some(self.keyspace.epoch());
        if is_ours { Ok(table) } else { Err(self.lost().await) }
    }

    /// The table is another keyspace's, or gone: a rebuild makes it.
    async fn lost(&mut self) -> StoreError {
        if let Some(made_anew) = renewed(&mut self.cluster, &self.keyspace).await {
            self.keyspace = made_anew;
            self.open.extend(self.noted.keys().cloned());
        }
        let table = self.keyspace.commits_key();
        StoreError::Temporary(format!("{table} is gone: run weir rebuild, and it is there again"))
    }
}

/// What stands in the table: an offset, or [`RESTORED`].
fn in_words(first: &str) -> String {
    if first == RESTORED { "noted by weir rebuild".to_owned() } else { format!("offset {first} was committed first") }
}
