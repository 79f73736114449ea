//! How far a group is in a topic, partition by partition: from offsets alone, no record is read.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rdkafka::{Offset, error::KafkaError};
use weir_core::{
    basis::time::Time,
    limit::route::{Waiting, pace::PartitionLag},
};

use super::{
    client::{Delivery, KafkaOptions},
    client_end::drop_elsewhere,
    committed,
    context::KafkaConsumer,
    offsets::{bare_list, ends, offsets_at, offsets_in, partitions_of},
    rights::Right,
    topics::{ANSWER_TIMEOUT, TopicError, handle_events, missing, not_allowed, unseen},
};

/// A client that asks for the progress of a group, and is no member of it.
pub struct GroupProgress {
    options: KafkaOptions,
    client: ArcSwap<Client>,
}

struct Client {
    consumer: KafkaConsumer,
    /// The edition of the files that it was created from.
    edition: u64,
}

impl Client {
    fn new(options: &KafkaOptions) -> Result<Arc<Self>, TopicError> {
        let edition = options.files.edition();
        Ok(Arc::new(Self { consumer: committed::reader(options)?, edition }))
    }
}

/// The offsets of a partition that a group has not done yet.
struct Open {
    partition: i32,
    /// What is committed; `None`: nothing that is of this topic.
    committed: Option<i64>,
    from: i64,
    end: i64,
}

impl Open {
    fn count(&self) -> u64 {
        u64::try_from(self.end - self.from).unwrap_or(0)
    }
}

impl GroupProgress {
    /// Makes the client; connects to nothing yet.
    pub fn new(options: &KafkaOptions, group: String) -> Result<Arc<Self>, TopicError> {
        let options = KafkaOptions { group, ..options.clone() };
        let client = ArcSwap::new(Client::new(&options)?);
        Ok(Arc::new(Self { options, client }))
    }

    /// The client; another one where files of properties were replaced since it was created.
    fn client(&self) -> Result<Arc<Client>, TopicError> {
        let client = self.client.load_full();
        if client.edition == self.options.files.edition() {
            return Ok(client);
        }
        let created = Client::new(&self.options)?;
        self.client.store(Arc::clone(&created));
        if let Err(error) = drop_elsewhere(client) {
            tracing::warn!(%error, "no thread for the end of a client");
        }
        Ok(created)
    }

    /// Each partition of a topic, and how many of its records wait at the most. Blocks.
    ///
    /// The end of each transaction has an offset, too, and so have records whose transaction was aborted or is open: the
    /// figure is an upper bound. The last end is not counted, so that an emptied partition has 0.
    pub fn waiting(&self, topic: &str) -> Result<Vec<(i32, u64)>, TopicError> {
        Ok(self.open(topic)?.iter().map(|open| (open.partition, open.count())).collect())
    }

    /// From where to where records of each partition wait, in the order of the partitions, counted likewise. Blocks.
    pub fn standing(&self, topic: &str) -> Result<Vec<Waiting>, TopicError> {
        let mut open = self.open(topic)?;
        open.sort_unstable_by_key(|open| open.partition);
        let offset = |offset: i64| u64::try_from(offset).unwrap_or(0);
        Ok(open.iter().map(|open| Waiting { from: offset(open.from), end: offset(open.end) }).collect())
    }

    /// The first offset of each partition, in their order, whose record is of this time or later; `None`: there is none. Blocks.
    pub fn offsets_at(&self, topic: &str, time: Time) -> Result<Vec<Option<u64>>, TopicError> {
        let client = self.client()?;
        let unseen = |error| self.unseen(&client.consumer, topic, error);
        let mut partitions = partitions_of(&client.consumer, topic, ANSWER_TIMEOUT).map_err(unseen)?;
        partitions.sort_unstable();
        let found = offsets_at(&client.consumer, topic, &partitions, time, ANSWER_TIMEOUT).map_err(unseen)?;
        Ok(found.into_iter().map(|offset| offset.and_then(|offset| u64::try_from(offset).ok())).collect())
    }

    /// The group's progress in each partition of a topic, counted likewise. A partition without a committed offset counts from its
    /// first record, as for a consumer with `auto.offset.reset=earliest`. Blocks.
    pub fn lag(&self, topic: &str) -> Result<Vec<(i32, PartitionLag)>, TopicError> {
        let lag = |open: &Open| {
            let committed = open.committed.and_then(|offset| u64::try_from(offset).ok());
            (open.partition, PartitionLag { committed, undelivered: open.count() })
        };
        Ok(self.open(topic)?.iter().map(lag).collect())
    }

    /// How many records wait at the most in a topic that the group has read; 0 in one that it has not. Blocks.
    pub fn left(&self, topic: &str) -> Result<u64, TopicError> {
        let client = self.client()?;
        let (partitions, committed) = self.committed(&client.consumer, topic)?;
        // Nothing else is asked of a topic that is not this group's: it may be on its way to be made or deleted.
        if committed.iter().all(Option::is_none) {
            return Ok(0);
        }
        let open = self.open_behind(&client.consumer, topic, (&partitions, &committed))?;
        Ok(open.iter().map(Open::count).sum())
    }

    fn open(&self, topic: &str) -> Result<Vec<Open>, TopicError> {
        let client = self.client()?;
        let (partitions, committed) = self.committed(&client.consumer, topic)?;
        self.open_behind(&client.consumer, topic, (&partitions, &committed))
    }

    /// The partitions of a topic, and what the group has committed of each.
    fn committed(&self, consumer: &KafkaConsumer, topic: &str) -> Result<(Vec<i32>, Vec<Option<i64>>), TopicError> {
        handle_events(consumer);
        let unseen = |error| self.unseen(consumer, topic, error);
        let partitions = partitions_of(consumer, topic, ANSWER_TIMEOUT).map_err(unseen)?;
        if partitions.is_empty() {
            return Err(missing(&self.options, vec![topic.to_owned()]));
        }
        let answer = committed::offsets(consumer, &bare_list(topic, &partitions)).map_err(unseen)?;
        let committed = offsets_in(&answer, topic, &partitions).map_err(unseen)?;
        Ok((partitions, committed))
    }

    /// What is open behind the committed offsets, which were read before: what is committed meanwhile makes the figure larger, never
    /// smaller.
    fn open_behind(
        &self,
        consumer: &KafkaConsumer,
        topic: &str,
        (partitions, committed): (&[i32], &[Option<i64>]),
    ) -> Result<Vec<Open>, TopicError> {
        let unseen = |error| self.unseen(consumer, topic, error);
        let ends_at = |which| ends(consumer, topic, partitions, which, ANSWER_TIMEOUT).map_err(unseen);
        let (first, end) = (ends_at(Offset::Beginning)?, ends_at(Offset::End)?);
        let exactly_once = self.options.delivery == Delivery::ExactlyOnce;
        let of = |((&partition, &committed), (first, end)): ((&i32, &Option<i64>), (i64, i64))| {
            let (committed, from, end) = open(committed, first, end, exactly_once);
            Open { partition, committed, from, end }
        };
        Ok(partitions.iter().zip(committed).zip(first.into_iter().zip(end)).map(of).collect())
    }

    fn unseen(&self, consumer: &KafkaConsumer, topic: &str, error: KafkaError) -> TopicError {
        let why = unseen(&self.options, consumer, topic, error);
        // A member of the group needs this one; who only asks needs less.
        if let TopicError::NotAllowed { rights, .. } = &why
            && matches!(rights[..], [Right::ReadGroup(_)])
        {
            return not_allowed(&self.options, vec![Right::DescribeGroup(self.options.group.clone())]);
        }
        why
    }
}

/// What is committed, and from where to where records wait at the most. An offset behind the end was committed for a topic that was
/// deleted and recreated.
fn open(committed: Option<i64>, first: i64, end: i64, exactly_once: bool) -> (Option<i64>, i64, i64) {
    let committed = committed.filter(|committed| *committed <= end);
    let from = committed.map_or(first, |committed| committed.max(first));
    // What is committed is followed by the end of its transaction.
    (committed, from, (end - i64::from(exactly_once)).max(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_from_the_committed_offset_or_the_first_one_and_the_last_end_of_a_transaction_is_none() {
        for (committed, first, end, expected) in [
            (None, 0, 0, [0, 0]),
            (None, 0, 4, [4, 3]),
            (None, 3, 6, [3, 2]),
            (Some(3), 0, 4, [1, 0]),
            (Some(4), 0, 4, [0, 0]),
            // Retention has deleted what waited, all or a part.
            (Some(1), 4, 4, [0, 0]),
            (Some(1), 4, 8, [4, 3]),
            // Of a topic that is gone.
            (Some(9), 0, 4, [4, 3]),
        ] {
            let found = [false, true].map(|exactly_once| {
                let (_, from, end) = open(committed, first, end, exactly_once);
                end - from
            });
            assert_eq!(found, expected, "{committed:?} {first} {end}");
        }
        assert_eq!([Some(4), Some(5)].map(|committed| open(committed, 0, 4, true).0), [Some(4), None]);
    }
}
