//! Requests whose answers come on a queue of their own, within a bound of time: the id of a topic, which the wrapper does
//! not report, and a commit of offsets, for which the wrapper waits without one.

use std::{
    ffi::CStr,
    ptr::{self, NonNull},
    time::Duration,
};

use rdkafka::{TopicPartitionList, bindings as rd, error::RDKafkaErrorCode, types::RDKafkaRespErr};
use weir_core::basis::origin::TopicId;

use super::{MessageQueue, whole_ms};
use crate::context::KafkaClient;

/// A queue for answers. It must be dropped before its client is.
pub struct Answers(MessageQueue);

/// The generation of a group that a client is a member of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(Option<i32>);

impl Generation {
    /// In no group.
    pub const NONE: Self = Self(None);

    pub fn now(client: &KafkaClient) -> Self {
        // SAFETY: the client is alive; what it gives is null or ours, and is destroyed once.
        unsafe {
            let metadata = rd::rd_kafka_consumer_group_metadata(client.native_ptr());
            if metadata.is_null() {
                return Self::NONE;
            }
            let generation = rd::rd_kafka_consumer_group_metadata_generation_id(metadata);
            rd::rd_kafka_consumer_group_metadata_destroy(metadata);
            Self(Some(generation))
        }
    }
}

/// An answer; freed when dropped.
pub(super) struct Event(NonNull<rd::rd_kafka_event_t>);

impl Event {
    /// For librdkafka's functions, as long as this is alive.
    pub(super) const fn as_ptr(&self) -> *mut rd::rd_kafka_event_t {
        self.0.as_ptr()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: handed out by `rd_kafka_queue_poll`, destroyed once.
        unsafe { rd::rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

/// The options of a request; freed when dropped. Null, which stands for the defaults, where they could not be made.
pub(super) struct RequestOptions(*mut rd::rd_kafka_AdminOptions_t);

impl RequestOptions {
    pub(super) fn new(client: &KafkaClient, of: rd::rd_kafka_admin_op_t, wait: Duration) -> Self {
        // SAFETY: the client is alive; the options are ours. Without room for its text an error is left out.
        unsafe {
            let options = rd::rd_kafka_AdminOptions_new(client.native_ptr(), of);
            if !options.is_null() {
                let _ = rd::rd_kafka_AdminOptions_set_request_timeout(options, whole_ms(wait), ptr::null_mut(), 0);
            }
            Self(options)
        }
    }

    /// Asks this broker, and not the controller.
    fn ask(&self, broker: i32) {
        if !self.0.is_null() {
            // SAFETY: the options are alive. Without room for its text an error is left out.
            let _ = unsafe { rd::rd_kafka_AdminOptions_set_broker(self.0, broker, ptr::null_mut(), 0) };
        }
    }

    /// For librdkafka's functions, as long as this is alive.
    pub(super) const fn as_ptr(&self) -> *const rd::rd_kafka_AdminOptions_t {
        self.0
    }
}

impl Drop for RequestOptions {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by `rd_kafka_AdminOptions_new`, destroyed once.
            unsafe { rd::rd_kafka_AdminOptions_destroy(self.0) }
        }
    }
}

pub(super) fn outcome(error: RDKafkaRespErr) -> Result<(), RDKafkaErrorCode> {
    if error == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR { Ok(()) } else { Err(error.into()) }
}

impl Answers {
    /// A new queue of this client.
    pub fn new(client: &KafkaClient) -> Result<Self, String> {
        MessageQueue::new(client).map(Self)
    }

    /// Asks a broker for the id of a topic; [`Answers::topic_id`] has the answer, an error after so long. Without a broker
    /// librdkafka asks the controller: one that it may not reach, and that its mock cluster does not have.
    pub fn ask_topic_id(&self, client: &KafkaClient, topic: &CStr, broker: Option<i32>, wait: Duration) {
        let mut names = [topic.as_ptr()];
        let options = RequestOptions::new(client, rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, wait);
        if let Some(broker) = broker {
            options.ask(broker);
        }
        // SAFETY: client, queue, options and name are alive; librdkafka copies the names and the options.
        unsafe {
            let topics = rd::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
            rd::rd_kafka_DescribeTopics(client.native_ptr(), topics, options.as_ptr(), self.0.queue.as_ptr());
            rd::rd_kafka_TopicCollection_destroy(topics);
        }
    }

    /// The answer to [`Answers::ask_topic_id`], where it is there within so long.
    pub fn topic_id(&self, wait: Duration) -> Option<Result<TopicId, RDKafkaErrorCode>> {
        self.next(wait).map(|event| topic_id(&event))
    }

    /// Commits offsets by the client's membership of its group, where that is of this generation still: librdkafka commits by
    /// the one that it has, whose partitions may be others.
    ///
    /// # Errors
    /// The broker does not take one of them, or has not answered within so long.
    pub fn commit(
        &self,
        client: &KafkaClient,
        (offsets, of): (&TopicPartitionList, Generation),
        wait: Duration,
    ) -> Result<(), RDKafkaErrorCode> {
        if Generation::now(client) != of {
            return Err(RDKafkaErrorCode::IllegalGeneration);
        }
        // SAFETY: client, list and queue are alive, and librdkafka copies the list; without a callback the answer is an event.
        let asked = unsafe {
            rd::rd_kafka_commit_queue(client.native_ptr(), offsets.ptr(), self.0.queue.as_ptr(), None, ptr::null_mut())
        };
        outcome(asked)?;
        let event = self.next(wait).ok_or(RDKafkaErrorCode::OperationTimedOut)?;
        committed(&event)
    }

    pub(super) const fn queue(&self) -> *mut rd::rd_kafka_queue_t {
        self.0.queue.as_ptr()
    }

    pub(super) fn next(&self, wait: Duration) -> Option<Event> {
        // SAFETY: the queue is alive.
        NonNull::new(unsafe { rd::rd_kafka_queue_poll(self.0.queue.as_ptr(), whole_ms(wait)) }).map(Event)
    }
}

fn topic_id(event: &Event) -> Result<TopicId, RDKafkaErrorCode> {
    let event = event.0.as_ptr();
    // SAFETY: the event is alive, and what is read here belongs to it. `DescribeTopics_result` is null where it is the answer
    // to something else; each description, and the id in it, is there as long as the event.
    unsafe {
        outcome(rd::rd_kafka_event_error(event))?;
        let result = rd::rd_kafka_event_DescribeTopics_result(event);
        let mut count = 0;
        if result.is_null() {
            return Err(RDKafkaErrorCode::Unknown);
        }
        let topics = rd::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        if topics.is_null() || count == 0 {
            return Err(RDKafkaErrorCode::UnknownTopicOrPartition);
        }
        let topic = *topics;
        // Null is no error.
        outcome(rd::rd_kafka_error_code(rd::rd_kafka_TopicDescription_error(topic)))?;
        let id = rd::rd_kafka_TopicDescription_topic_id(topic);
        let halves = [rd::rd_kafka_Uuid_most_significant_bits(id), rd::rd_kafka_Uuid_least_significant_bits(id)];
        let [high, low] = halves.map(|half| u128::from(half.cast_unsigned()));
        Ok(TopicId(high << 64 | low))
    }
}

fn committed(event: &Event) -> Result<(), RDKafkaErrorCode> {
    let event = event.0.as_ptr();
    // SAFETY: the event is alive; its list, where it has one, belongs to it and has `cnt` elements behind `elems`.
    let elements = unsafe {
        outcome(rd::rd_kafka_event_error(event))?;
        let list = rd::rd_kafka_event_topic_partition_list(event);
        if list.is_null() {
            return Err(RDKafkaErrorCode::Unknown);
        }
        std::slice::from_raw_parts((*list).elems, usize::try_from((*list).cnt).unwrap_or(0))
    };
    elements.iter().try_for_each(|element| outcome(element.err))
}
