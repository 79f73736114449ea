//! The few calls of librdkafka that its wrapper does not offer, made safe.
//!
//! Why not the wrapper's own: it hands out one message a call (a third of the consumer's cost), panics on a
//! header key that is not UTF-8, and its `flush` waits in slices of 100 ms (docs/decisions.md has the figures).
//! All `unsafe` code of weir is in this file and in its folder.

pub mod allocator;
pub mod answers;
pub mod inflate;
mod members;
mod message;
mod produce;
pub mod settings;

use std::{
    any::Any,
    ffi::{CStr, CString, c_int},
    ptr::{self, NonNull},
    sync::Arc,
    time::Duration,
};

use rdkafka::{TopicPartitionList, bindings as rd, consumer::Consumer, error::RDKafkaErrorCode, types::RDKafkaRespErr};
use weir_core::{
    basis::clocks::Append,
    batch::record::{RecordView, Records},
};

use self::message::Message;
pub use self::produce::{Run, Target, Topic, flush, produce};
use super::{
    client::Reads,
    context::{KafkaClient, KafkaConsumer},
    tokens::Token,
};

/// How long an error of librdkafka may be, in bytes.
const ERROR_BYTES: usize = 512;

/// A wait as librdkafka counts it, rounded up: a caller that waits until a deadline would else ask without a pause in the last
/// millisecond before it.
fn whole_ms(wait: Duration) -> i32 {
    i32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

/// Gives a client its next token, or tells it why there is none, which its error says then.
pub(super) fn show_token(client: &KafkaClient, token: &Result<Token, String>) {
    let text = |text: &str| CString::new(text).map_err(|_| "the token has a NUL".to_owned());
    let set = |token: &Token| -> Result<(), String> {
        let (value, principal) = (text(&token.value)?, text(&token.principal)?);
        let mut error = [0; ERROR_BYTES];
        // SAFETY: the client lives; the texts end with NUL and are copied; no extensions are given, and the error's buffer is as
        // long as is said.
        let code = unsafe {
            rd::rd_kafka_oauthbearer_set_token(
                client.native_ptr(),
                value.as_ptr(),
                token.expires_ms,
                principal.as_ptr(),
                ptr::null_mut(),
                0,
                error.as_mut_ptr(),
                error.len(),
            )
        };
        if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Ok(());
        }
        // SAFETY: librdkafka ends the buffer's text with NUL.
        Err(unsafe { CStr::from_ptr(error.as_ptr()) }.to_string_lossy().into_owned())
    };
    if let Err(reason) = token.as_ref().map_err(Clone::clone).and_then(set) {
        let reason = CString::new(reason).unwrap_or_default();
        // SAFETY: the client lives; the text ends with NUL and is copied.
        unsafe { rd::rd_kafka_oauthbearer_set_token_failure(client.native_ptr(), reason.as_ptr()) };
    }
}

/// Ends the process at once, without exit handlers: those of OpenSSL free what the threads of clients that were left
/// behind still use, and the process would end by a signal instead of its exit code.
pub fn leave(code: u8) -> ! {
    unsafe extern "C" {
        fn _exit(status: c_int) -> !;
    }
    // SAFETY: POSIX's `_exit` takes any number and does not return.
    unsafe { _exit(c_int::from(code)) }
}

/// A queue of our own, to which the queues of all assigned partitions are forwarded, so that messages can be
/// taken in batches while group events stay on the consumer's queue, where the wrapper serves them.
pub struct MessageQueue {
    queue: NonNull<rd::rd_kafka_queue_t>,
}

// SAFETY: librdkafka's queues are locked inside; a handle may be used from any thread.
unsafe impl Send for MessageQueue {}

impl MessageQueue {
    /// A new queue of this client. It must be dropped before the client is (see `source`, which owns both).
    pub fn new(client: &KafkaClient) -> Result<Self, String> {
        // SAFETY: the client is alive for the length of the call, and a queue holds a reference of its own.
        let queue = unsafe { rd::rd_kafka_queue_new(client.native_ptr()) };
        NonNull::new(queue).map(|queue| Self { queue }).ok_or_else(|| "librdkafka gave no queue".to_owned())
    }

    /// Forwards the messages of a partition to this queue. To be called before the partition is assigned, or
    /// its first messages would be on the consumer's queue.
    pub fn take_over(&self, client: &KafkaClient, topic: &str, partition: i32) -> Result<(), String> {
        let name = CString::new(topic).map_err(|_| format!("the topic name {topic:?} holds a NUL"))?;
        // SAFETY: all three are alive; the returned handle is ours and destroyed once, after the forward, which
        // keeps its own references.
        unsafe {
            let from = rd::rd_kafka_queue_get_partition(client.native_ptr(), name.as_ptr(), partition);
            if from.is_null() {
                return Err(format!("librdkafka has no queue for partition {partition} of {topic}"));
            }
            rd::rd_kafka_queue_forward(from, self.queue.as_ptr());
            rd::rd_kafka_queue_destroy(from);
        }
        Ok(())
    }
}

impl Drop for MessageQueue {
    fn drop(&mut self) {
        // SAFETY: made by `rd_kafka_queue_new`, destroyed once.
        unsafe { rd::rd_kafka_queue_destroy(self.queue.as_ptr()) }
    }
}

/// A batch of consumed messages. It keeps their consumer alive, as librdkafka demands of messages.
pub struct MessageBatch {
    messages: Vec<Message>,
    bytes: usize,
    largest_bytes: usize,
    appends: Vec<Append>,
    /// Errors of record batches that were not inflated, as of the last [`MessageBatch::fill`].
    refused: Vec<Message>,
    /// Places in `messages` of records that were not read, and what their batches may inflate to. Nearly always empty.
    not_inflated: Vec<(usize, u64)>,
    reads: Reads,
    // Dropped after the messages: fields go in their order.
    _consumer: Arc<KafkaConsumer>,
    _kept: Option<Arc<dyn Any + Send + Sync>>,
}

/// What the queue gave besides messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionError {
    pub partition: i32,
    /// Where: at the end of a partition, the offset of the record that will come next.
    pub offset: i64,
    pub code: RDKafkaErrorCode,
}

impl MessageBatch {
    /// An empty batch for messages of this consumer.
    pub fn new(consumer: Arc<KafkaConsumer>, reads: Reads) -> Self {
        Self {
            reads,
            messages: Vec::new(),
            bytes: 0,
            largest_bytes: 0,
            appends: Vec::new(),
            refused: Vec::new(),
            not_inflated: Vec::new(),
            _consumer: consumer,
            _kept: None,
        }
    }

    /// The same, which keeps this until its consumer is given up: what closes that.
    #[must_use]
    pub fn kept_with(self, kept: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _kept: Some(kept), ..self }
    }

    /// Bytes of all keys, values and headers, and what each record costs besides.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The same of the largest record.
    pub fn largest_bytes(&self) -> usize {
        self.largest_bytes
    }

    pub fn has_headers(&self, index: usize) -> bool {
        !self.messages[index].headers.is_null()
    }

    fn note_append(&mut self, message: &Message) {
        let Some(append) = message.append() else { return };
        match self.appends.iter_mut().find(|known| known.broker == append.broker) {
            Some(known) => known.at = known.at.max(append.at),
            None => self.appends.push(append),
        }
    }

    /// Takes what the queue holds, at most `most` entries; waits at most `wait` for so many.
    pub fn fill(&mut self, queue: &MessageQueue, most: usize, wait: Duration) -> Vec<PartitionError> {
        let mut raw: Vec<*mut rd::rd_kafka_message_t> = vec![ptr::null_mut(); most];
        let wait_ms = whole_ms(wait);
        // SAFETY: `raw` has room for `most` pointers; the call fills as many as it returns.
        let taken = unsafe { rd::rd_kafka_consume_batch_queue(queue.queue.as_ptr(), wait_ms, raw.as_mut_ptr(), most) };
        raw.truncate(usize::try_from(taken).unwrap_or(0));
        let mut errors = Vec::new();
        self.refused.clear();
        for mut message in raw.into_iter().filter_map(NonNull::new).map(Message::new) {
            let code = message.raw().err;
            if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                if self.reads == Reads::Deferred {
                    message.read_deferral();
                }
                let bytes = message.bytes_held();
                self.bytes += bytes;
                self.largest_bytes = self.largest_bytes.max(bytes);
                self.note_append(&message);
                self.messages.push(message);
            } else {
                let (partition, offset) = (message.raw().partition, message.raw().offset);
                errors.push(PartitionError { partition, offset, code: code.into() });
                if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR__BAD_COMPRESSION {
                    self.refused.push(message);
                }
            }
        }
        errors
    }

    /// Takes messages of these partitions out, from these offsets on.
    pub fn take_out(&mut self, from: &[(i32, i64)]) {
        let out = |raw: &rd::rd_kafka_message_t| {
            from.iter().any(|(partition, offset)| *partition == raw.partition && *offset <= raw.offset)
        };
        let mut kept = 0;
        for place in 0..self.messages.len() {
            let stays = !out(self.messages[place].raw());
            if let Some(at) = self.not_inflated.iter().position(|(of, _)| *of == place) {
                if stays {
                    self.not_inflated[at].0 = kept;
                } else {
                    self.not_inflated.swap_remove(at);
                }
            }
            kept += usize::from(stays);
        }
        let bytes = &mut self.bytes;
        self.messages.retain(|message| {
            let stays = !out(message.raw());
            *bytes -= if stays { 0 } else { message.bytes_held() };
            stays
        });
    }

    /// Adds a record without key, value and headers that stands for the one at this offset: its batch was not inflated, which
    /// the last [`MessageBatch::fill`] reported of this partition, because it has more than so many bytes.
    pub fn stand_in(&mut self, partition: i32, offset: i64, limit_bytes: u64) {
        let Some(place) = self.refused.iter().position(|message| message.raw().partition == partition) else { return };
        let mut message = self.refused.swap_remove(place);
        // SAFETY: the message is ours alone; what it pointed to (the error as text) is freed by what holds it, not by these
        // fields.
        let raw = unsafe { message.raw.as_mut() };
        (raw.offset, raw.payload, raw.len, raw.key, raw.key_len) = (offset, ptr::null_mut(), 0, ptr::null_mut(), 0);
        message.bytes_beside_value = 0;
        self.not_inflated.push((self.messages.len(), limit_bytes));
        self.bytes += message.bytes_held();
        self.messages.push(message);
    }
}

impl Records for MessageBatch {
    fn len(&self) -> usize {
        self.messages.len()
    }

    fn appends(&self) -> &[Append] {
        &self.appends
    }

    fn get(&self, index: usize) -> RecordView<'_> {
        let message = &self.messages[index];
        let raw = message.raw();
        RecordView {
            key: message.bytes(raw.key, raw.key_len),
            value: message.bytes(raw.payload, raw.len),
            partition: raw.partition,
            offset: raw.offset,
            timestamp: message.timestamp,
            headers: message,
            deferral: message.deferral.as_deref(),
        }
    }

    fn is_foreign(&self, index: usize) -> bool {
        self.reads == Reads::Deferred && self.messages[index].deferral.is_none()
    }

    fn bytes_beside_value(&self, index: usize) -> usize {
        self.messages[index].bytes_beside_value
    }

    fn not_inflated(&self, index: usize) -> Option<u64> {
        self.not_inflated.iter().find(|(place, _)| *place == index).map(|(_, limit_bytes)| *limit_bytes)
    }
}

/// The text that is committed beside the offset of element `place` of a list; `None` where there is none. Others may commit any
/// bytes there, for which the wrapper's own reading would panic.
pub fn metadata(list: &TopicPartitionList, place: usize) -> Option<String> {
    if place >= list.count() {
        return None;
    }
    // SAFETY: the list is borrowed, so it lives and nobody changes it; it has that many elements behind `elems`, and the
    // metadata of one is null or that many bytes.
    let bytes = unsafe {
        let element = &*(*list.ptr()).elems.add(place);
        if element.metadata.is_null() {
            return None;
        }
        std::slice::from_raw_parts(element.metadata.cast::<u8>(), element.metadata_size)
    };
    std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The first and the next offset of a partition as of the last fetch, without asking a broker; `None` where nothing was
/// fetched yet.
pub fn known_offsets(consumer: &KafkaConsumer, topic: &CStr, partition: i32) -> Option<(i64, i64)> {
    let (mut low, mut high) = (0, 0);
    // SAFETY: the client is alive; the call fills the two only where it succeeds.
    let error = unsafe {
        rd::rd_kafka_get_watermark_offsets(
            consumer.client().native_ptr(),
            topic.as_ptr(),
            partition,
            &mut low,
            &mut high,
        )
    };
    (error == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0).then_some((low.max(0), high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_but_none_is_none_to_librdkafka() {
        let waits = [0, 1, 999_999, 1_000_000, 19_200_000].map(|ns| whole_ms(Duration::from_nanos(ns)));
        assert_eq!(waits, [0, 1, 1, 1, 20]);
        assert_eq!(whole_ms(Duration::MAX), i32::MAX);
    }
}
