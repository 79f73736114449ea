//! Hands the outputs of a batch to the producer's client, and knows the topics that they go to.

use std::{
    ffi::CString,
    num::NonZeroI32,
    time::{Duration, Instant},
};

use rdkafka::{
    error::RDKafkaErrorCode,
    producer::{BaseProducer, Producer},
};

use super::{
    client::{FailedDelivery, KafkaOptions, LaneContext},
    native::{self, MessageBatch, Run, Topic},
};
use crate::worker::record::{Destination, Output, OutputValue, Records};

/// How long a topic's number of partitions is taken for known: librdkafka's own `topic.metadata.refresh.interval.ms`.
const PARTITIONS_HOLD: Duration = Duration::from_secs(300);
/// How long asking for it may take.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the brokers have to make room at a time, where the client's queue is full.
const FULL_SLICE: Duration = Duration::from_millis(10);
/// The partition of librdkafka's that stands for the one that its partitioner finds.
const BY_KEY: i32 = -1;

type Producing = BaseProducer<LaneContext>;

/// Why an output was not handed over.
#[derive(Debug)]
pub enum Unsent {
    /// The client did not take it.
    Refused {
        /// Why, and where it was to go.
        failed: FailedDelivery,
        /// Partition and offset of its intent.
        intent: (i32, i64),
    },
    /// It has no key to find a partition by, and how many there are could not be found out.
    PartitionsUnknown(String),
    /// It has no key, and there is no such topic.
    NoTopic(String),
}

/// One output topic.
struct Outlet {
    topic: Topic,
    name: CString,
    /// Records of a run, at most.
    run: usize,
    partitions: Option<NonZeroI32>,
    /// When that was asked.
    asked_at: Option<Instant>,
}

impl Outlet {
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

    /// Where a record of this key goes; one without a key to the partition that its intent has, of those that are there.
    fn partition_of(&self, key: Option<&[u8]>, intents_partition: i32) -> Option<i32> {
        match (key, self.partitions) {
            (Some(key), Some(count)) => Some(self.topic.partition_of(key, count)),
            (Some(_), None) => Some(BY_KEY),
            (None, Some(count)) => Some(intents_partition % count.get()),
            (None, None) => None,
        }
    }
}

/// The output topics of a producer. To be dropped before it.
pub struct Outbox {
    approved: Outlet,
    suppressed: Outlet,
    dead_letters: Outlet,
}

impl Outbox {
    /// The output topics of these options.
    ///
    /// # Errors
    /// A name is none.
    pub fn new(producer: &Producing, options: &KafkaOptions) -> Result<Self, String> {
        Ok(Self {
            approved: Outlet::new(producer, &options.approved, options)?,
            suppressed: Outlet::new(producer, &options.suppressed, options)?,
            dead_letters: Outlet::new(producer, &options.dead_letters, options)?,
        })
    }

    /// Hands all outputs over, one a record, in their order within each partition. Where the client's queue is full, waits
    /// for the brokers until the deadline.
    ///
    /// # Errors
    /// Why not all were; some may have been.
    pub fn put(
        &mut self,
        producer: &Producing,
        (records, outputs): (&MessageBatch<LaneContext>, &[Output]),
        deadline: Instant,
    ) -> Result<(), Unsent> {
        let at = |outlet| Stream { producer, records, deadline, outlet, looked: None, run: Run::default() };
        let (mut approved, mut suppressed) = (at(&mut self.approved), at(&mut self.suppressed));
        let mut dead_letters = at(&mut self.dead_letters);
        for (index, output) in outputs.iter().enumerate() {
            match output.to {
                Destination::Approved => approved.put(index, output)?,
                Destination::Suppressed => suppressed.put(index, output)?,
                Destination::DeadLetters => dead_letters.put(index, output)?,
                Destination::Nowhere => {}
            }
        }
        [approved, suppressed, dead_letters].iter_mut().try_for_each(Stream::end_run)
    }

    /// Forgets how many partitions there are: a topic may have been made anew.
    pub fn forget_partitions(&mut self) {
        for outlet in [&mut self.approved, &mut self.suppressed, &mut self.dead_letters] {
            outlet.partitions = None;
        }
    }
}

/// The outputs of one batch on their way to one topic.
struct Stream<'b, 'o> {
    producer: &'b Producing,
    records: &'b MessageBatch<LaneContext>,
    deadline: Instant,
    outlet: &'o mut Outlet,
    /// What came of finding out how many partitions there are, which is done with the first output.
    looked: Option<Result<(), String>>,
    run: Run<'b>,
}

impl<'b> Stream<'b, '_> {
    fn put(&mut self, index: usize, output: &'b Output) -> Result<(), Unsent> {
        if self.looked.is_none() {
            // Without an answer librdkafka finds the partitions of what has a key, as soon as it can.
            self.looked = Some(self.outlet.look(self.producer));
        }
        let record = self.records.get(index);
        let Some(partition) = self.outlet.partition_of(record.key, record.partition) else {
            return Err(self.without_partition());
        };
        let value = match &output.value {
            OutputValue::AsItCame => None,
            OutputValue::Ours(bytes) => Some(bytes.as_slice()),
        };
        let most = self.outlet.run;
        let bare = most > 1 && output.headers.is_empty() && !self.records.has_headers(index);
        if !bare || !self.run.takes(partition) || self.run.len() >= most {
            self.end_run()?;
        }
        if bare {
            self.run.add(partition, (self.records, index), value);
            return Ok(());
        }
        let place = (&self.outlet.topic, partition);
        self.with_room(|| {
            native::produce(self.producer.client(), place, (self.records, index), value, &output.headers)
                .map_err(|code| (code, (record.partition, record.offset)))
        })
    }

    fn without_partition(&mut self) -> Unsent {
        let name = self.outlet.name.to_string_lossy().into_owned();
        match self.looked.take() {
            Some(Err(reason)) => Unsent::PartitionsUnknown(format!("the partitions of {name} are not known: {reason}")),
            Some(Ok(())) | None => Unsent::NoTopic(name),
        }
    }

    fn end_run(&mut self) -> Result<(), Unsent> {
        if self.run.is_empty() {
            return Ok(());
        }
        let mut run = std::mem::take(&mut self.run);
        self.with_room(|| run.produce(&self.outlet.topic).map_err(|code| (code, run.first().unwrap_or_default())))?;
        // Its room for records is used again.
        self.run = run;
        Ok(())
    }

    /// Tries until there is room in the client's queue. A refusal names partition and offset of the intent.
    fn with_room(
        &self,
        mut hand_over: impl FnMut() -> Result<(), (RDKafkaErrorCode, (i32, i64))>,
    ) -> Result<(), Unsent> {
        while let Err((code, intent)) = hand_over() {
            if code != RDKafkaErrorCode::QueueFull || Instant::now() >= self.deadline {
                return Err(Unsent::Refused { failed: self.outlet.failed(code), intent });
            }
            self.producer.poll(FULL_SLICE);
        }
        Ok(())
    }
}
