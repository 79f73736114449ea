//! Handing records to a producer.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    marker::PhantomData,
    mem,
    num::NonZeroI32,
    ptr::{self, NonNull},
    time::Duration,
};

use rdkafka::{bindings as rd, error::RDKafkaErrorCode, types::RDKafkaRespErr};
use weir_core::{
    basis::header::HeaderName,
    batch::record::{Headers as _, Kept, Output, OutputValue},
};

use super::{MessageBatch, message::Message, whole_ms};
use crate::context::KafkaClient;

/// A topic as a producer knows it: found by name once, not once a record.
pub struct Topic {
    topic: NonNull<rd::rd_kafka_topic_t>,
}

// SAFETY: librdkafka's topics are counted and locked inside; a handle may be used from any thread.
unsafe impl Send for Topic {}

impl Topic {
    /// A topic of this client. It must be dropped before the client is (see `output_topics`).
    pub fn new(client: &KafkaClient, name: &CStr) -> Result<Self, String> {
        // SAFETY: client and name are alive for the length of the call, which copies the name.
        let topic = unsafe { rd::rd_kafka_topic_new(client.native_ptr(), name.as_ptr(), ptr::null_mut()) };
        NonNull::new(topic).map(|topic| Self { topic }).ok_or_else(|| format!("librdkafka takes no topic {name:?}"))
    }

    /// The partition that a key goes to, of so many: Java's.
    pub fn partition_of(&self, key: &[u8], partitions: NonZeroI32) -> i32 {
        // SAFETY: the key is alive, and the function looks at nothing else: the opaques are the caller's own.
        unsafe {
            rd::rd_kafka_msg_partitioner_murmur2(
                self.topic.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                partitions.get(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        }
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: made by `rd_kafka_topic_new`, given back once.
        unsafe { rd::rd_kafka_topic_destroy(self.topic.as_ptr()) }
    }
}

/// Headers that are not yet handed to a producer.
struct OwnedHeaders(NonNull<rd::rd_kafka_headers_t>);

impl OwnedHeaders {
    /// A message's own headers (as far as they are kept) with ours behind them, byte for byte; none where there are none.
    fn extend(
        message: &Message,
        kept: KeptHeaders,
        ours: &[(&'static str, String)],
    ) -> Result<Option<Self>, RDKafkaErrorCode> {
        let own = if kept == KeptHeaders::None { 0 } else { message.own_headers() };
        let name = HeaderName::Decision.as_str().as_bytes();
        let is_decision = |index: &usize| message.header(*index).is_some_and(|(key, _)| key == name);
        let without = if kept == KeptHeaders::AllButDecision { (0..own).rev().find(is_decision) } else { None };
        if own == 0 && ours.is_empty() {
            return Ok(None);
        }
        let whole = own > 0 && message.deferral.is_none() && without.is_none();
        // SAFETY: the message's headers live as long as it does; both calls give headers that are ours to free.
        let headers = NonNull::new(unsafe {
            if whole { rd::rd_kafka_headers_copy(message.headers) } else { rd::rd_kafka_headers_new(own + ours.len()) }
        })
        .map(Self)
        .ok_or(RDKafkaErrorCode::InvalidArgument)?;
        if !whole {
            let kept = (0..own).filter(|index| Some(*index) != without);
            for (name, value) in kept.map_while(|index| message.header(index)) {
                headers.add(name, value);
            }
        }
        for (name, value) in ours {
            headers.add(name.as_bytes(), Some(value.as_bytes()));
        }
        Ok(Some(headers))
    }

    fn add(&self, name: &[u8], value: Option<&[u8]>) {
        let (start, length) = value.map_or((ptr::null(), 0), |value| (value.as_ptr(), value.len()));
        // SAFETY: name and value are copied by the call; sizes are those of live bytes, which are never longer than isize::MAX;
        // null stands for a null value.
        unsafe {
            rd::rd_kafka_header_add(
                self.0.as_ptr(),
                name.as_ptr().cast::<c_char>(),
                name.len().cast_signed(),
                start.cast::<c_void>(),
                length.cast_signed(),
            );
        }
    }
}

impl Drop for OwnedHeaders {
    fn drop(&mut self) {
        // SAFETY: ours, and freed once: `produce` forgets the handle when the producer took it over.
        unsafe { rd::rd_kafka_headers_destroy(self.0.as_ptr()) }
    }
}

/// Bytes as librdkafka takes them; null for none.
type Bytes = (*mut c_void, usize);
const NULL: Bytes = (ptr::null_mut(), 0);

fn content(message: &Message, value: &OutputValue) -> (Bytes, Bytes) {
    let raw = message.raw();
    let key = (raw.key, raw.key_len);
    match value {
        OutputValue::AsItCame | OutputValue::WithoutDecision => (key, (raw.payload, raw.len)),
        OutputValue::Ours(ours) => (key, (ours.as_ptr().cast_mut().cast(), ours.len())),
        OutputValue::Dropped(Kept::KeyAndHeaders | Kept::Key) => (key, NULL),
        OutputValue::Dropped(Kept::Nothing) => (NULL, NULL),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeptHeaders {
    All,
    /// All but the last `weir-decision`.
    AllButDecision,
    None,
}

impl KeptHeaders {
    const fn of(value: &OutputValue) -> Self {
        match value {
            OutputValue::AsItCame | OutputValue::Ours(_) | OutputValue::Dropped(Kept::KeyAndHeaders) => Self::All,
            OutputValue::WithoutDecision => Self::AllButDecision,
            OutputValue::Dropped(Kept::Key | Kept::Nothing) => Self::None,
        }
    }
}

/// Where an output goes. Partition -1: the one that the producer's partitioner finds for the key.
#[derive(Clone, Copy)]
pub struct Target<'t> {
    pub topic: &'t Topic,
    pub partition: i32,
}

/// Hands the output that is made of message `index` of `batch` to the producer.
///
/// # Errors
/// librdkafka's code; `QueueFull` means serve the producer and try again.
pub fn produce(
    client: &KafkaClient,
    to: Target<'_>,
    (batch, index): (&MessageBatch, usize),
    output: &Output,
) -> Result<(), RDKafkaErrorCode> {
    let message = &batch.messages[index];
    let headers = OwnedHeaders::extend(message, KeptHeaders::of(&output.value), &output.headers)?;
    let ((key, key_length), (start, length)) = content(message, &output.value);
    // SAFETY: every argument has the type its tag demands, and the topic is of this client; key and value are copied
    // (F_COPY) before the call returns; the headers, where there are any, become the producer's on
    // success only; null stands for none.
    let error = unsafe {
        rd::rd_kafka_producev(
            client.native_ptr(),
            rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_RKT,
            to.topic.topic.as_ptr(),
            rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_PARTITION,
            to.partition,
            rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_MSGFLAGS,
            rd::RD_KAFKA_MSG_F_COPY,
            rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE,
            start,
            length,
            rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_KEY,
            key,
            key_length,
            rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADERS,
            headers.as_ref().map_or(ptr::null_mut(), |headers| headers.0.as_ptr()),
            rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_END,
        )
    };
    if error == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
        mem::forget(headers);
        return Ok(());
    }
    Err(error.into())
}

/// Records without headers for one partition, which are handed over in one call: librdkafka's call for many takes no headers.
/// It borrows the batch, and the values, that they are made of.
pub struct Run<'b> {
    partition: i32,
    records: Vec<rd::rd_kafka_message_t>,
    borrowed: PhantomData<&'b [u8]>,
}

impl<'b> Run<'b> {
    /// None yet, for this partition. Partition -1: the ones that the producer's partitioner finds for the keys.
    pub fn new(partition: i32) -> Self {
        Self { partition, records: Vec::new(), borrowed: PhantomData }
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Partition and offset of the message that the first of them is made of.
    #[must_use]
    pub fn first(&self) -> Option<(i32, i64)> {
        self.records.first().map(|record| (record.partition, record.offset))
    }

    /// Adds the output that is made of message `index` of `batch`, which has no headers.
    pub fn add(&mut self, (batch, index): (&'b MessageBatch, usize), value: &'b OutputValue) {
        let message = &batch.messages[index];
        let (raw, ((key, key_len), (payload, len))) = (message.raw(), content(message, value));
        self.records.push(rd::rd_kafka_message_t {
            err: RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR,
            rkt: ptr::null_mut(),
            // Not read by the call: where it came from, for `first`.
            partition: raw.partition,
            offset: raw.offset,
            payload,
            len,
            key,
            key_len,
            _private: ptr::null_mut(),
        });
    }

    /// Hands over as many as the producer takes, in their order; none is left then.
    ///
    /// # Errors
    /// What the first one that it did not take met, which is the first that is left: `QueueFull` means serve the producer
    /// and try again.
    pub fn produce(&mut self, topic: &Topic) -> Result<(), RDKafkaErrorCode> {
        let count = c_int::try_from(self.records.len()).unwrap_or(c_int::MAX);
        // SAFETY: there are as many records as it is told, whose keys and values are alive: they are borrowed. It copies
        // them (F_COPY) before it returns, and writes to the records' `err` alone.
        let taken = unsafe {
            let (topic, records) = (topic.topic.as_ptr(), self.records.as_mut_ptr());
            rd::rd_kafka_produce_batch(topic, self.partition, rd::RD_KAFKA_MSG_F_COPY, records, count)
        };
        if usize::try_from(taken).is_ok_and(|taken| taken == self.records.len()) {
            self.records.clear();
            return Ok(());
        }
        let left = |record: &rd::rd_kafka_message_t| record.err != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
        let first = self.records.iter().position(left).unwrap_or(self.records.len());
        self.records.drain(..first);
        match self.records.first() {
            None => Ok(()),
            Some(record) => Err(record.err.into()),
        }
    }
}

/// Waits until all records handed to the producer have been answered, at most `wait`. Returns whether they have.
///
/// Unlike the wrapper's, it wakes when the last answer comes. Delivery errors are events and must be served by
/// polling the producer, or this never becomes true.
pub fn flush(client: &KafkaClient, wait: Duration) -> bool {
    // SAFETY: the client is alive for the length of the call.
    let error = unsafe { rd::rd_kafka_flush(client.native_ptr(), whole_ms(wait)) };
    error == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR
}
