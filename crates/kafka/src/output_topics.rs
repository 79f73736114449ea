//! Hands the outputs of a batch to the producer's client, and knows the topics that they go to.

use std::{
    collections::BTreeMap,
    ffi::CString,
    num::NonZeroI32,
    time::{Duration, Instant},
};

use rdkafka::{
    error::RDKafkaErrorCode,
    producer::{BaseProducer, Producer},
};
use weir_core::{
    batch::record::{Destination, Kept, Output, OutputValue, Records},
    deferral::wheel::Bucket,
};

use super::{
    client::KafkaOptions,
    context::{FailedDelivery, KafkaContext},
    native::{self, MessageBatch, Run, Target, Topic},
    produce_rounds::{Addressed, ProduceRound, ProduceRounds, RoundSize},
};

/// How long a topic's number of partitions is taken for known: librdkafka's own `topic.metadata.refresh.interval.ms`.
const PARTITIONS_HOLD: Duration = Duration::from_secs(300);
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the brokers have to make room at a time, where the client's queue is full.
const FULL_SLICE: Duration = Duration::from_millis(10);
/// What a record takes of a request beside key, value and headers, at most: lengths, and what tells it from the record before.
const RECORD_BYTES: usize = 40;
/// The partition of librdkafka's that stands for the one that its partitioner finds.
const BY_KEY: i32 = -1;

type Producing = BaseProducer<KafkaContext>;

#[derive(Debug)]
pub enum Unsent {
    Refused {
        failed: FailedDelivery,
        /// Partition and offset of its intent.
        intent: (i32, i64),
    },
    /// It has no key to find a partition by, and how many there are could not be found out.
    PartitionsUnknown(String),
    /// It has no key, and there is no such topic.
    NoTopic(String),
    /// No topic is set that it could go to: this setting is missing.
    NotSet(&'static str),
}

struct OutputTopic {
    topic: Topic,
    name: CString,
    /// Records of a run, at most.
    run: usize,
    partitions: Option<NonZeroI32>,
    asked_at: Option<Instant>,
}

impl OutputTopic {
    fn new(producer: &Producing, name: &str, options: &KafkaOptions) -> Result<Self, String> {
        let name = CString::new(name).map_err(|_| format!("the topic name {name:?} holds a NUL: correct it"))?;
        let topic = Topic::new(producer.client(), &name)?;
        Ok(Self { topic, name, run: options.records_a_call, partitions: None, asked_at: None })
    }

    fn failed(&self, code: RDKafkaErrorCode) -> FailedDelivery {
        FailedDelivery { code, topic: self.name.to_string_lossy().into_owned() }
    }

    /// Finds out how many partitions there are, where that is not known, or was long ago. The answer also brings the
    /// client's own picture up to date.
    fn look(&mut self, producer: &Producing) -> Result<(), String> {
        if self.partitions.is_some() && self.asked_at.is_some_and(|at| at.elapsed() < PARTITIONS_HOLD) {
            return Ok(());
        }
        self.asked_at = Some(Instant::now());
        let name = self.name.to_string_lossy();
        let metadata = producer.client().fetch_metadata(Some(&name), ASK_TIMEOUT).map_err(|error| error.to_string())?;
        let count = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
        self.partitions = i32::try_from(count).ok().and_then(NonZeroI32::new).or(self.partitions);
        Ok(())
    }

    fn knows(&self, partition: i32) -> bool {
        self.partitions.is_some_and(|count| partition < count.get())
    }

    /// Where a record of this key goes; one without a key to the partition that its intent has, of those that are there.
    fn partition_of(&self, key: Option<&[u8]>, intents_partition: i32) -> Option<i32> {
        match (key, self.partitions) {
            (Some(key), Some(count)) => Some(self.topic.partition_of(key, count)),
            (Some(_), None) => Some(BY_KEY),
            (None, Some(count)) => Some(intents_partition % count.get()),
            (None, None) => None,
        }
    }

    /// Why a record without a key goes nowhere: how many partitions there are could not be found out, or there is no topic.
    fn without_partition(&self, reason: Option<String>) -> Unsent {
        let name = self.name.to_string_lossy().into_owned();
        match reason {
            Some(reason) => Unsent::PartitionsUnknown(format!("the partitions of {name} are not known: {reason}")),
            None => Unsent::NoTopic(name),
        }
    }
}

/// The output topics of a producer. To be dropped before it.
pub struct OutputTopics {
    /// By destination, with partition 0. A topic of waiting intents is added when something is written to it.
    topics: BTreeMap<Destination, OutputTopic>,
    options: KafkaOptions,
    /// What of a partition is handed over at a time, at most.
    round: RoundSize,
}

type Batch<'b> = (&'b MessageBatch, &'b [Output]);

impl OutputTopics {
    /// The output topics of these options.
    pub fn new(producer: &Producing, options: &KafkaOptions) -> Result<Self, String> {
        let open = |(to, topic)| OutputTopic::new(producer, topic, options).map(|opened| (to, opened));
        let topics = options.outputs().into_iter().map(open).collect::<Result<_, String>>()?;
        Ok(Self { topics, options: options.clone(), round: options.round() })
    }

    /// Finds where all outputs go, and what may go together.
    pub fn address(&mut self, producer: &Producing, (records, outputs): Batch<'_>) -> Result<ProduceRounds, Unsent> {
        let mut rounds = ProduceRounds::new(self.round, outputs.len());
        let mut looked: Vec<(Destination, Result<(), String>)> = Vec::new();
        let mut looked_for_more = Vec::new();
        for (index, output) in outputs.iter().enumerate() {
            if output.to == Destination::Nowhere {
                continue;
            }
            // A record that is left out would be lost: its offset is committed with the batch.
            let output_topic = self.output_topic(producer, output.to)?;
            if let Destination::Waiting { topic, partition } = output.to
                && !output_topic.knows(partition)
                && !looked_for_more.contains(&topic)
            {
                // Partitions were added, and whoever says where intents wait has seen them. The client would refuse their records until it
                // looks by itself, in minutes; where it learns nothing now, they are tried again.
                looked_for_more.push(topic);
                output_topic.partitions = None;
                let _ = output_topic.look(producer);
            }
            if let Destination::Deferred(Bucket { partition, .. }) | Destination::Waiting { partition, .. } = output.to
            {
                rounds.add((output.to, partition), index, bytes_of(records, index, output));
                continue;
            }
            if !looked.iter().any(|(topic, _)| *topic == output.to) {
                // Without an answer librdkafka finds the partitions of what has a key, as soon as it can.
                looked.push((output.to, output_topic.look(producer)));
            }
            let record = records.get(index);
            let key = record.key.filter(|_| output.value != OutputValue::Dropped(Kept::Nothing));
            let intents_partition = record.deferral.map_or(record.partition, |deferral| deferral.partition);
            let Some(partition) = output_topic.partition_of(key, intents_partition) else {
                let answer = looked.into_iter().find(|(topic, _)| *topic == output.to);
                return Err(output_topic.without_partition(answer.and_then(|(_, answer)| answer.err())));
            };
            rounds.add((output.to, partition), index, bytes_of(records, index, output));
        }
        Ok(rounds)
    }

    /// Hands the outputs of a round over, one a record, in their order within each partition. Where the client's queue is
    /// full, waits for the brokers until the deadline.
    ///
    /// # Errors
    /// Why not all were; some may have been.
    pub fn put(
        &mut self,
        producer: &Producing,
        batch: Batch<'_>,
        round: ProduceRound<'_>,
        deadline: Instant,
    ) -> Result<(), Unsent> {
        for group in round.partitions() {
            let Some(Addressed { partition, to, .. }) = group.first().copied() else { continue };
            let output_topic = self.output_topic(producer, to)?;
            Stream { producer, batch, deadline, output_topic, partition }.put(group)?;
        }
        Ok(())
    }

    /// The topic of outputs that go there. One of waiting intents is made known when it is needed: routes come with policies.
    fn output_topic(&mut self, producer: &Producing, to: Destination) -> Result<&mut OutputTopic, Unsent> {
        let not_set = Unsent::NotSet(setting(to));
        let key = match to {
            Destination::Deferred(Bucket { ring, .. }) => Destination::Deferred(Bucket { ring, partition: 0 }),
            Destination::Waiting { topic, .. } => Destination::Waiting { topic, partition: 0 },
            Destination::Approved(_)
            | Destination::Suppressed
            | Destination::DeadLetters
            | Destination::Undelivered
            | Destination::Nowhere => to,
        };
        if let Destination::Waiting { topic, .. } = to
            && !self.topics.contains_key(&key)
        {
            let Some(name) = self.options.waiting_on(topic) else { return Err(not_set) };
            let opened = OutputTopic::new(producer, &name, &self.options).map_err(Unsent::PartitionsUnknown)?;
            self.topics.insert(key, opened);
        }
        self.topics.get_mut(&key).ok_or(not_set)
    }

    /// Forgets how many partitions there are: a topic may have been made anew.
    pub fn forget_partitions(&mut self) {
        self.topics.values_mut().for_each(|output_topic| output_topic.partitions = None);
    }
}

/// The setting that names the topic of outputs that go there.
const fn setting(to: Destination) -> &'static str {
    match to {
        Destination::Approved(_) => "kafka.approved_by_channel",
        Destination::Suppressed => "kafka.suppressed",
        Destination::DeadLetters => "kafka.dead_letters",
        Destination::Deferred(_) => "kafka.deferred",
        Destination::Waiting { .. } => "kafka.waiting",
        Destination::Undelivered => "kafka.undelivered",
        Destination::Nowhere => "",
    }
}

/// What an output takes of a request, in bytes; rather too much.
fn bytes_of(records: &MessageBatch, index: usize, output: &Output) -> u64 {
    (output.content_bytes(&records.get(index), records.bytes_beside_value(index)) + RECORD_BYTES) as u64
}

/// The outputs of one batch on their way to one partition of one topic.
struct Stream<'b, 'o> {
    producer: &'b Producing,
    batch: Batch<'b>,
    deadline: Instant,
    output_topic: &'o OutputTopic,
    partition: i32,
}

impl Stream<'_, '_> {
    fn put(&self, group: &[Addressed]) -> Result<(), Unsent> {
        let (records, outputs) = self.batch;
        let most = self.output_topic.run;
        let mut run = Run::new(self.partition);
        for &Addressed { index, .. } in group {
            let output = &outputs[index];
            let bare = most > 1 && output.headers.is_empty() && !records.has_headers(index);
            if !bare || run.len() >= most {
                self.end_run(&mut run)?;
            }
            if bare {
                run.add((records, index), &output.value);
                continue;
            }
            let to = Target { topic: &self.output_topic.topic, partition: self.partition };
            self.with_room(|| {
                native::produce(self.producer.client(), to, (records, index), output).map_err(|code| {
                    let record = records.get(index);
                    (code, (record.partition, record.offset))
                })
            })?;
        }
        self.end_run(&mut run)
    }

    fn end_run(&self, run: &mut Run<'_>) -> Result<(), Unsent> {
        if run.is_empty() {
            return Ok(());
        }
        self.with_room(|| run.produce(&self.output_topic.topic).map_err(|code| (code, run.first().unwrap_or_default())))
    }

    /// Tries until there is room in the client's queue. A refusal names partition and offset of the intent.
    fn with_room(
        &self,
        mut hand_over: impl FnMut() -> Result<(), (RDKafkaErrorCode, (i32, i64))>,
    ) -> Result<(), Unsent> {
        while let Err((code, intent)) = hand_over() {
            if code != RDKafkaErrorCode::QueueFull || Instant::now() >= self.deadline {
                return Err(Unsent::Refused { failed: self.output_topic.failed(code), intent });
            }
            self.producer.poll(FULL_SLICE);
        }
        Ok(())
    }
}
