//! Where partitions are read from, and what it means that one cannot be.
//!
//! invariant: nothing of a partition is read before an offset of it is committed, so that whoever reads after a crash reads
//! all that was read before it.
//! invariant: the offset that is read from never goes back by itself. A group without committed offsets is told from one that
//! has lost them by the keyspace's table, and an offset of a topic that was deleted by the topic's id beside it.

use std::time::{Duration, Instant};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::Consumer,
    error::{KafkaError, RDKafkaErrorCode},
};

use weir_core::{basis::time::Time, ports::StoreError};

use super::{KafkaSource, Progress, SourceError, Topic, TopicId, native, temporary};
use crate::{
    client::{OffsetReset, ReadOrder, Reads},
    native::answers::Answers,
    offsets::{self, placed_list},
};

/// How long one read or commit of offsets may take. It blocks the lane, which meanwhile neither serves the group nor
/// sees the shutdown signal; where a transaction that a dead member left open makes it wait longer, the lane asks again.
pub(super) const OFFSETS_TIMEOUT: Duration = Duration::from_secs(4);
/// How long committed offsets have to be missing before it is an error: while a topic is deleted, one broker may still know
/// it when another one has deleted its offsets.
const MISSING_FOR: Duration = Duration::from_secs(10);
/// Of how many partitions a log line tells the start.
const SHOWN: usize = 8;

/// Is told how many offsets retention has deleted that nothing was decided of; see [`KafkaSource::telling_of_deleted`].
pub(super) type OnDeleted = Box<dyn Fn(u64) + Send>;

#[derive(Default)]
pub(super) struct Committed {
    pub(super) starts: Vec<Progress>,
    /// Those of which nothing is committed, or an offset of a topic that was deleted.
    pub(super) missing: Vec<i32>,
    /// Whether there is an offset of a topic that was deleted.
    pub(super) is_of_another: bool,
}

impl KafkaSource {
    /// Tells how many offsets of a topic of deferred or waiting intents retention has deleted that were not committed, where it finds
    /// that out: of at most so many intents nothing is decided. A single one is the end of a transaction as a rule, and is not told.
    #[must_use]
    pub fn telling_of_deleted(mut self, on_deleted: impl Fn(u64) + Send + 'static) -> Self {
        self.on_deleted = Some(Box::new(on_deleted));
        self
    }

    /// The offsets to read these partitions from; each of them is behind a committed one, or is committed.
    pub(super) async fn positions(
        &mut self,
        partitions: &TopicPartitionList,
    ) -> Result<TopicPartitionList, SourceError> {
        // The topic of a route that was removed may be deleted: then its lane has nothing to ask about.
        if partitions.count() == 0 && self.options.read_order == ReadOrder::ByTurns {
            self.starts.clear();
            return Ok(TopicPartitionList::new());
        }
        let before = self.identity.known();
        let id = self.identity.ask(self.consumer.client());
        let id = id.map_err(|error| self.unread("the topic's id cannot be read", &error))?;
        if before != TopicId::UNKNOWN && before != id {
            tracing::warn!("{} was deleted and recreated: its id was {before} and is {id}", self.topic);
        }
        let topic = Topic { id, ..self.topic.as_str().into() };
        let Committed { mut starts, missing, .. } = self.committed(partitions, &topic)?;
        if !missing.is_empty() {
            self.refuse_what_was_lost(&topic, &missing).await?;
            starts.extend(match self.options.reads {
                Reads::Published | Reads::Deferred => match self.options.offset_reset() {
                    Some(OffsetReset::Latest) => self.start_at_the_end(&topic, &missing).await?,
                    reset => self.reset(&topic, &missing, reset.unwrap_or(OffsetReset::Earliest))?,
                },
                Reads::Since(time) => self.start_at(&topic, &missing, time)?,
            });
        }
        self.missed_since = None;
        match self.options.reads {
            Reads::Published | Reads::Since(_) => self.follow_retention(&topic, &mut starts)?,
            Reads::Deferred => self.pass_over_deleted(&topic, &mut starts)?,
        }
        let places: Vec<(i32, i64)> = starts.iter().map(|start| (start.partition, start.next_offset)).collect();
        if let Some(table) = &self.table {
            table.note(&topic, places.clone());
        }
        let from =
            placed_list(&self.topic, &places).map_err(|error| temporary("a start offset was refused", &error))?;
        self.reads_from = places.into_iter().collect();
        self.starts = starts;
        self.identity.take_up();
        Ok(from)
    }

    pub(super) fn committed(&self, partitions: &TopicPartitionList, topic: &Topic) -> Result<Committed, SourceError> {
        let list = self
            .consumer
            .committed_offsets(partitions.clone(), OFFSETS_TIMEOUT)
            .map_err(|error| self.unread("the committed offsets cannot be read", &error))?;
        let mut committed = Committed::default();
        for (place, element) in list.elements().into_iter().enumerate() {
            element.error().map_err(|error| self.unread("a committed offset cannot be read", &error))?;
            let partition = element.partition();
            let Some(next_offset) = offsets::next(element.offset()) else {
                committed.missing.push(partition);
                continue;
            };
            let text = native::metadata(&list, place);
            let Some(other) = offsets::of_other_topic(text.as_deref(), topic.id) else {
                committed.starts.push(Progress { partition, next_offset });
                continue;
            };
            tracing::warn!(
                partition,
                next_offset,
                "{} was deleted and recreated (its id was {other} and is {}): the committed offset is of the deleted topic",
                topic.name,
                topic.id
            );
            committed.missing.push(partition);
            committed.is_of_another = true;
        }
        Ok(committed)
    }

    /// Whether the keyspace's table says that the group has committed offsets of these partitions, which have none.
    pub(super) async fn refuse_what_was_lost(&mut self, topic: &Topic, missing: &[i32]) -> Result<(), SourceError> {
        let Some(table) = &self.table else { return Ok(()) };
        let noted = table.noted(topic, missing).await.map_err(|error| untold(&error))?;
        let lost: Vec<String> = missing
            .iter()
            .zip(noted)
            .filter_map(|(partition, noted)| Some(format!("{partition} ({})", noted?)))
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        let (group, name, brokers) = (&self.options.group, &topic.name, &self.options.brokers);
        let advice = match self.options.reads {
            Reads::Published | Reads::Since(_) => {
                "--to-datetime 2026-01-31T00:00:00.000 --execute, with the time at which weir was stopped; --to-earliest if all is \
                 to be decided again"
            }
            Reads::Deferred => {
                "--to-earliest --execute, so that no deferred intent is lost: what was approved before is published a second time; \
                 --to-latest loses what is deferred"
            }
        };
        if self.missed_since.get_or_insert_with(Instant::now).elapsed() < MISSING_FOR {
            return Err(SourceError::Temporary(format!(
                "the group {group} has no committed offset of {name} any more: looking again"
            )));
        }
        Err(SourceError::Fatal(format!(
            "Kafka has lost the offsets that the group {group} had committed of {name}, partitions {}: a group without \
             members loses them after offsets.retention.minutes (7 days), or somebody has deleted them. From the beginning, \
             all that was approved would be approved again, past every cap. Stop all instances and say where to read on: \
             kafka-consumer-groups.sh --bootstrap-server {brokers} --group {group} --topic {name} --reset-offsets \
             {advice} (docs/operations.md)",
            lost.join(", ")
        )))
    }

    /// Whether the keyspace's table says that the group has read another topic of this name, whose offsets Kafka has deleted with it.
    pub(super) async fn has_read_predecessor(&self, topic: &Topic) -> Result<bool, SourceError> {
        let Some(table) = &self.table else { return Ok(false) };
        let is_noted = table.has_predecessor(topic).await.map_err(|error| untold(&error))?;
        if is_noted {
            tracing::warn!(
                "{} was deleted and recreated (its id is {}): it is read from its beginning",
                topic.name,
                topic.id
            );
        }
        Ok(is_noted)
    }

    /// Finds where partitions start by `reset`, and commits that.
    pub(super) fn reset(
        &self,
        topic: &Topic,
        partitions: &[i32],
        reset: OffsetReset,
    ) -> Result<Vec<Progress>, SourceError> {
        let to = match reset {
            OffsetReset::Earliest => Offset::Beginning,
            OffsetReset::Latest => Offset::End,
            OffsetReset::Refuse => {
                return Err(SourceError::Fatal(format!(
                    "the group {} has no committed offset of {}, partitions {partitions:?}, and auto.offset.reset is error: \
                     set the group's offsets (kafka-consumer-groups.sh --reset-offsets), or auto.offset.reset to earliest or latest",
                    self.options.group, topic.name
                )));
            }
        };
        self.commit_starts(topic, partitions, self.ends(partitions, to)?)
    }

    /// Finds where this time begins in partitions, and commits that.
    fn start_at(&self, topic: &Topic, partitions: &[i32], time: Time) -> Result<Vec<Progress>, SourceError> {
        let found = offsets::offsets_at(&self.consumer, &self.topic, partitions, time, OFFSETS_TIMEOUT)
            .map_err(|error| self.unread("the offsets of a time cannot be read", &error))?;
        // A record that arrives meanwhile is behind its end as it was then.
        let ends = if found.contains(&None) { self.ends(partitions, Offset::End)? } else { Vec::new() };
        let ends = ends.into_iter().map(Some).chain(std::iter::repeat(None));
        let found = found.into_iter().zip(ends).filter_map(|(found, end)| found.or(end)).collect();
        self.commit_starts(topic, partitions, found)
    }

    pub(super) fn commit_starts(
        &self,
        topic: &Topic,
        partitions: &[i32],
        offsets: Vec<i64>,
    ) -> Result<Vec<Progress>, SourceError> {
        let offsets = partitions.iter().zip(offsets);
        let starts: Vec<Progress> =
            offsets.map(|(&partition, next_offset)| Progress { partition, next_offset }).collect();
        self.commit(topic, &starts)?;
        let (shown, more) = (&starts[..starts.len().min(SHOWN)], starts.len().saturating_sub(SHOWN));
        tracing::info!(starts = ?shown, more, "{}: partitions start here, which is committed", topic.name);
        Ok(starts)
    }

    pub(super) fn ends(&self, partitions: &[i32], which: Offset) -> Result<Vec<i64>, SourceError> {
        offsets::ends(&self.consumer, &self.topic, partitions, which, OFFSETS_TIMEOUT)
            .map_err(|error| self.unread("the first and last offsets cannot be read", &error))
    }

    /// Commits by the membership that the group has given with these partitions.
    fn commit(&self, topic: &Topic, starts: &[Progress]) -> Result<(), SourceError> {
        let list =
            offsets::list(&self.topic, topic.id, starts).map_err(|error| temporary("an offset was refused", &error))?;
        let client = self.consumer.client();
        let committed =
            Answers::new(client).map(|answers| answers.commit(client, (&list, self.generation), OFFSETS_TIMEOUT));
        match committed {
            Ok(Ok(())) => Ok(()),
            Ok(Err(code)) => {
                Err(self.unread("the start of partitions cannot be committed", &KafkaError::ConsumerCommit(code)))
            }
            Err(reason) => Err(SourceError::Temporary(reason)),
        }
    }

    /// Brings buckets that retention has emptied to where they begin. As a rule nothing is lost: what lies behind the last record of a
    /// bucket is the end of its transaction. There is nothing to wait for, so a bucket that has lost more is read on, too.
    fn pass_over_deleted(&self, topic: &Topic, starts: &mut [Progress]) -> Result<(), SourceError> {
        let partitions: Vec<i32> = starts.iter().map(|start| start.partition).collect();
        let first = self.ends(&partitions, Offset::Beginning)?;
        let (mut behind, mut deleted): (Vec<Progress>, u64) = (Vec::new(), 0);
        for (start, first) in starts.iter_mut().zip(first) {
            let offsets = first - start.next_offset;
            if offsets <= 0 {
                continue;
            }
            if offsets > 1 {
                tracing::error!(
                    partition = start.partition,
                    offsets,
                    "{}: retention has deleted offsets that were not committed. Unless they are those of aborted transactions, intents \
                     are lost undecided: none was read for longer than retention.ms allows",
                    topic.name
                );
                deleted = deleted.saturating_add(offsets.unsigned_abs());
            }
            start.next_offset = first;
            behind.push(*start);
        }
        if behind.is_empty() {
            return Ok(());
        }
        self.commit(topic, &behind)?;
        if let Some(on_deleted) = self.on_deleted.as_ref().filter(|_| deleted > 0) {
            on_deleted(deleted);
        }
        Ok(())
    }

    /// Brings partitions that could not be read on where they were to where they can: ahead to what retention has left, if the
    /// user allows it. Never back, and never past what is left: `latest` is about the first start.
    fn follow_retention(&self, topic: &Topic, starts: &mut [Progress]) -> Result<(), SourceError> {
        let stuck: Vec<i32> = starts
            .iter()
            .map(|start| start.partition)
            .filter(|partition| self.out_of_range.contains(partition))
            .collect();
        if stuck.is_empty() {
            return Ok(());
        }
        let (first, end) = (self.ends(&stuck, Offset::Beginning)?, self.ends(&stuck, Offset::End)?);
        for ((&partition, first), end) in stuck.iter().zip(first).zip(end) {
            let Some(start) = starts.iter_mut().find(|start| start.partition == partition) else { continue };
            let committed = start.next_offset;
            if committed > end {
                return Err(SourceError::Fatal(format!(
                    "{} partition {partition} ends at offset {end}, before the committed offset {committed}: the brokers have lost \
                     records. Find out what was lost, then reset the group's offsets (kafka-consumer-groups.sh --reset-offsets)",
                    topic.name
                )));
            }
            if committed >= first {
                continue;
            }
            *start = match self.options.offset_reset() {
                Some(OffsetReset::Earliest | OffsetReset::Latest) => {
                    let found = self.reset(topic, &[partition], OffsetReset::Earliest)?;
                    found.into_iter().next().unwrap_or(Progress { partition, next_offset: first })
                }
                Some(OffsetReset::Refuse) | None => {
                    return Err(SourceError::Fatal(format!(
                        "the committed offset {committed} of {} partition {partition} is gone, the first one is {first}: \
                         retention has deleted records that weir had not read. Find out what was lost, then reset the group's \
                         offsets (kafka-consumer-groups.sh --reset-offsets) or set auto.offset.reset in [kafka.properties]",
                        topic.name
                    )));
                }
            };
        }
        Ok(())
    }

    /// Whether an error of the client or of a partition ends the lane; what does not, librdkafka retries by itself.
    #[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka's codes are not ours to close")]
    pub(super) fn judge(&mut self, code: RDKafkaErrorCode, partition: Option<i32>) -> Result<(), SourceError> {
        let topic = &self.topic;
        let what = partition.map(|partition| format!("partition {partition}")).unwrap_or_default();
        if let Some(right) = self.options.right_to_read(code) {
            return Err(SourceError::Fatal(format!("not allowed to read {topic} {what} ({code}): grant {right}")));
        }
        match code {
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => {
                // Where it starts again is found when the lane goes back.
                self.out_of_range.extend(partition);
                Err(SourceError::Temporary(format!("the offset to be read of {topic} {what} is not there")))
            }
            RDKafkaErrorCode::Fatal => {
                Err(SourceError::Fatal(format!("the consumer of {topic} failed for good {what}")))
            }
            // librdkafka asks again every second, and the group would answer the same for ever.
            RDKafkaErrorCode::InvalidSessionTimeout => Err(SourceError::Fatal(self.options.refused_session(None))),
            RDKafkaErrorCode::InconsistentGroupProtocol => Err(SourceError::Fatal(format!(
                "the group {} has members that share partitions out in another way than weir ({}): another application uses the \
                 group. Set kafka.group to one that weir has to itself, or stop that application",
                self.options.group,
                self.options.assignment()
            ))),
            other => {
                tracing::warn!(error = %other, "kafka consumer {what}");
                Ok(())
            }
        }
    }

    pub(super) fn unread(&self, what: &str, error: &KafkaError) -> SourceError {
        match error.rdkafka_error_code().and_then(|code| self.options.right_to_read(code)) {
            Some(right) => SourceError::Fatal(format!("{what} ({error}): grant {right}")),
            None if error.rdkafka_error_code() == Some(RDKafkaErrorCode::UnknownTopicOrPartition) => {
                SourceError::Temporary(format!("there is no topic {}: {what}", self.topic))
            }
            None => temporary(what, error),
        }
    }
}

fn untold(error: &StoreError) -> SourceError {
    SourceError::Temporary(format!("what the group has committed cannot be read from Redis: {error}"))
}
