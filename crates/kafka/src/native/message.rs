//! One consumed message.

use std::{
    ffi::{CStr, c_void},
    ptr::{self, NonNull},
};

use rdkafka::{bindings as rd, types::RDKafkaRespErr};
use weir_core::{
    basis::{clocks::Append, memory::RECORD_OVERHEAD_BYTES, time::Time},
    batch::record::Headers,
    decision::room::header_bytes,
    deferral::{self, Deferral},
};

/// Whose clock a timestamp is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stamped {
    /// The leader's, when it appended the record (`LogAppendTime`).
    ByBroker,
    /// The publisher's, or there is none.
    Otherwise,
}

/// A message as librdkafka holds it; freed when dropped. What is asked of it again and again is asked of librdkafka once.
pub(super) struct Message {
    pub(super) raw: NonNull<rd::rd_kafka_message_t>,
    /// Its own headers, null where it has none. They live as long as it does.
    pub(super) headers: *mut rd::rd_kafka_headers_t,
    pub(super) timestamp: Option<Time>,
    stamped: Stamped,
    /// What key and headers take of an output, in bytes.
    pub(super) bytes_beside_value: usize,
    /// What weir wrote in the last headers, where it deferred the intent.
    pub(super) deferral: Option<Box<Deferral>>,
}

// SAFETY: a fetched message is not touched by librdkafka after it was handed out, and may be read and freed
// on any thread; its headers are part of it.
unsafe impl Send for Message {}

impl Message {
    /// Takes over what `rd_kafka_consume_batch_queue` has handed out.
    pub(super) fn new(raw: NonNull<rd::rd_kafka_message_t>) -> Self {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive; the call sets the pointer on success only, to headers that the message owns.
        let _ = unsafe { rd::rd_kafka_message_headers(raw.as_ptr(), &mut headers) };
        let mut kind = rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive.
        let millis = unsafe { rd::rd_kafka_message_timestamp(raw.as_ptr(), &mut kind) };
        let known = kind != rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        let timestamp = known.then(|| Time::from_millis(millis)).flatten();
        let stamped = match kind {
            rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME => Stamped::ByBroker,
            rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_CREATE_TIME
            | rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE => Stamped::Otherwise,
        };
        let mut message = Self { raw, headers, timestamp, stamped, bytes_beside_value: 0, deferral: None };
        message.measure();
        message
    }

    /// Finds out what key and headers take.
    fn measure(&mut self) {
        let headers = (0..).map_while(|index| self.header(index));
        let headers: usize = headers.map(|(name, value)| header_bytes(name, value)).sum();
        self.bytes_beside_value = self.raw().key_len + headers;
    }

    /// Takes the last headers for weir's: the message is of a topic that only weir writes to.
    pub(super) fn read_deferral(&mut self) {
        let count = self.header_count();
        let Some(first) = count.checked_sub(deferral::HEADERS) else { return };
        let none: (&[u8], Option<&[u8]>) = (&[], None);
        let mut last = [none; deferral::HEADERS];
        for (place, header) in last.iter_mut().enumerate() {
            *header = self.any_header(first + place).unwrap_or(none);
        }
        self.deferral = Deferral::of(last).map(Box::new);
        self.measure();
    }

    /// How many headers it has, those of weir included.
    fn header_count(&self) -> usize {
        // SAFETY: the headers live as long as `self`.
        if self.headers.is_null() { 0 } else { unsafe { rd::rd_kafka_header_cnt(self.headers) } }
    }

    /// How many of them are the intent's own.
    pub(super) fn own_headers(&self) -> usize {
        self.header_count() - if self.deferral.is_some() { deferral::HEADERS } else { 0 }
    }

    pub(super) fn raw(&self) -> &rd::rd_kafka_message_t {
        // SAFETY: valid until `rd_kafka_message_destroy`, which only `drop` calls.
        unsafe { self.raw.as_ref() }
    }

    pub(super) fn bytes(&self, start: *mut c_void, length: usize) -> Option<&[u8]> {
        // SAFETY: librdkafka gives null for a null key or value, else `length` readable bytes that live as
        // long as the message.
        (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) })
    }

    /// Which broker has stamped it, and when.
    pub(super) fn append(&self) -> Option<Append> {
        let at = self.timestamp.filter(|_| self.stamped == Stamped::ByBroker)?;
        // SAFETY: the message is alive.
        let broker = unsafe { rd::rd_kafka_message_broker_id(self.raw.as_ptr()) };
        Some(Append { broker, at })
    }

    /// What it holds in memory, in bytes: key, value, headers and the fixed cost of a record.
    pub(super) fn bytes_held(&self) -> usize {
        self.raw().len + self.bytes_beside_value + RECORD_OVERHEAD_BYTES
    }

    fn any_header(&self, index: usize) -> Option<(&[u8], Option<&[u8]>)> {
        if self.headers.is_null() {
            return None;
        }
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the headers live as long as `self`; the call fills the three only where it succeeds.
        let error = unsafe { rd::rd_kafka_header_get_all(self.headers, index, &mut name, &mut value, &mut size) };
        if error != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return None;
        }
        // SAFETY: a name is NUL-terminated and lives as long as the headers, and so as long as `self`.
        let key = unsafe { CStr::from_ptr(name) }.to_bytes();
        Some((key, self.bytes(value.cast_mut(), size)))
    }
}

impl Headers for Message {
    fn header(&self, index: usize) -> Option<(&[u8], Option<&[u8]>)> {
        if self.deferral.is_some() && index >= self.own_headers() {
            return None;
        }
        self.any_header(index)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: handed out by `rd_kafka_consume_batch_queue`, freed once.
        unsafe { rd::rd_kafka_message_destroy(self.raw.as_ptr()) }
    }
}
