//! The batches of one answer to a fetch.
//!
//! A batch that comes when enough was inflated is not inflated: librdkafka gets [`CUT_OFF`] in its place, in which it finds the begin
//! of a record and no end. That is the ordinary case of an answer whose last batch did not fit, so librdkafka hands over what it has
//! of the partition and asks for it again from that batch on. Neither is an error reported nor a record passed over, and all clients
//! have it so. Snappy is not counted.
//!
//! No partition is left behind: the first compressed batch of an answer is always inflated. If none of a partition's batches was, the
//! first one in the next answer is, however much the batches before it inflate to ([`Turns`]). librdkafka does not always begin with another partition: where an
//! answer is more than its queue holds, it asks for all of them again from the first one on.
//!
//! Where nothing comes before the batch that is left, librdkafka takes the answer for one that was cut too short, and doubles how many
//! bytes of this partition it asks for at a time, up to 1 GiB. `fetch.max.bytes` bounds the whole answer as before, but for its first
//! batch.
//!
//! An error would not work here: the reader could not tell it from a batch that cannot be decompressed.

use std::{
    cell::Cell,
    ffi::{c_int, c_void},
};

use weir_kafka::native::inflate::{LIBRDKAFKA_VERSION, Turns, is_enough};

/// The librdkafka whose sources were read for what this file declares: 2.12.1.
const READ_VERSION: i32 = 0x020c_01ff;

// The linker compares no signatures, and leads no call here that stays within one of librdkafka's own files.
const _: () = assert!(
    LIBRDKAFKA_VERSION == READ_VERSION,
    "another librdkafka: read its rdgz.c, rdkafka_lz4.c, rdkafka_zstd.c, rdkafka_fetcher.c and rdkafka_msgset_reader.c, compare the \
     declarations of answer.rs, then set READ_VERSION"
);

/// librdkafka's `RD_KAFKA_RESP_ERR_NO_ERROR`.
const NO_ERROR: c_int = 0;

/// What stands for a batch that is not inflated. As records of format 2 it is one without a value, at the batch's first offset; where
/// that was read before, one that ends far behind all that is there. As messages of formats 0 and 1, which cannot end within a batch,
/// it is one of a format that does not exist, at an offset that was read before: librdkafka stops there and reports nothing.
const CUT_OFF: [u8; 17] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // the offset: -1
    0, 0, 0, 0, // the length: nothing follows
    0xff, 0xff, 0xff, 0xff, // the checksum
    0x7f, // the format
];

thread_local! {
    /// What batches of the answer that this thread reads have come to, in bytes. A thread of librdkafka's serves one broker, and
    /// has one fetch under way.
    static OUT_OF_ANSWER: Cell<u64> = const { Cell::new(0) };
    /// Whose turn it is in this thread's answers.
    static TURNS: Turns = const { Turns::new() };
}

unsafe extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    fn __real_rd_kafka_broker_fetch_toppars(broker: *mut c_void, now: i64) -> c_int;
    fn __real_rd_kafka_msgset_parse(
        answer: *mut c_void,
        request: *mut c_void,
        partition: *mut c_void,
        aborted: *mut c_void,
        version: *const c_void,
    ) -> c_int;
    fn __real_rd_gz_decompress(input: *const c_void, input_bytes: c_int, out_bytes: *mut u64) -> *mut c_void;
    fn __real_rd_kafka_lz4_decompress(
        broker: *mut c_void,
        proper_checksum: c_int,
        offset: i64,
        input: *mut c_void,
        input_bytes: usize,
        out: *mut *mut c_void,
        out_bytes: *mut usize,
    ) -> c_int;
    fn __real_rd_kafka_zstd_decompress(
        broker: *mut c_void,
        input: *mut c_void,
        input_bytes: usize,
        out: *mut *mut c_void,
        out_bytes: *mut usize,
    ) -> c_int;
}

/// Whether the batch that comes now is not inflated. To be asked once of each.
fn is_left() -> bool {
    TURNS.with(|turns| turns.leaves(is_enough(OUT_OF_ANSWER.get())))
}

fn count(bytes: u64) {
    OUT_OF_ANSWER.set(OUT_OF_ANSWER.get().saturating_add(bytes));
}

/// A buffer with [`CUT_OFF`], which its owner frees by the C library's `free`.
fn cut_off() -> *mut c_void {
    // SAFETY: any size may be asked for.
    let buffer = unsafe { malloc(CUT_OFF.len()) };
    if buffer.is_null() {
        // As librdkafka does.
        std::process::abort();
    }
    // SAFETY: the buffer is that large, is not null, and is nobody else's.
    unsafe { buffer.cast::<[u8; CUT_OFF.len()]>().write_unaligned(CUT_OFF) };
    buffer
}

/// Inflates a batch by `decode`, which writes a buffer to `out` and what it holds to `out_bytes`, unless it is left.
///
/// # Safety
/// Both point to memory that may be written, and `decode` fills them where it gives no error.
unsafe fn inflate_batch(out: *mut *mut c_void, out_bytes: *mut usize, decode: impl FnOnce() -> c_int) -> c_int {
    if is_left() {
        // SAFETY: the caller says so.
        unsafe { (*out, *out_bytes) = (cut_off(), CUT_OFF.len()) };
        return NO_ERROR;
    }
    let error = decode();
    if error == NO_ERROR {
        // SAFETY: the caller says so.
        count(unsafe { *out_bytes } as u64);
    }
    error
}

/// librdkafka's own: the broker is asked for records, so what it answers next is another answer. It is not asked where there is no
/// partition to ask for.
///
/// # Safety
/// As of librdkafka's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_kafka_broker_fetch_toppars(broker: *mut c_void, now: i64) -> c_int {
    // SAFETY: the caller keeps to librdkafka's rules.
    let partitions = unsafe { __real_rd_kafka_broker_fetch_toppars(broker, now) };
    if partitions > 0 {
        OUT_OF_ANSWER.set(0);
        TURNS.with(Turns::asked);
    }
    partitions
}

/// librdkafka's own, of what an answer holds of a partition.
///
/// # Safety
/// As of librdkafka's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_kafka_msgset_parse(
    answer: *mut c_void,
    request: *mut c_void,
    partition: *mut c_void,
    aborted: *mut c_void,
    version: *const c_void,
) -> c_int {
    TURNS.with(|turns| turns.begins(partition.addr()));
    // SAFETY: the caller keeps to librdkafka's rules.
    unsafe { __real_rd_kafka_msgset_parse(answer, request, partition, aborted, version) }
}

/// librdkafka's own, of a batch that gzip compressed.
///
/// # Safety
/// As of librdkafka's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_gz_decompress(
    input: *const c_void,
    input_bytes: c_int,
    out_bytes: *mut u64,
) -> *mut c_void {
    if is_left() {
        // SAFETY: librdkafka's function writes there, too.
        unsafe { *out_bytes = CUT_OFF.len() as u64 };
        return cut_off();
    }
    // SAFETY: the caller keeps to librdkafka's rules.
    let out = unsafe { __real_rd_gz_decompress(input, input_bytes, out_bytes) };
    if !out.is_null() {
        // SAFETY: librdkafka's function has written there.
        count(unsafe { *out_bytes });
    }
    out
}

/// librdkafka's own, of a batch that lz4 compressed.
///
/// # Safety
/// As of librdkafka's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_kafka_lz4_decompress(
    broker: *mut c_void,
    proper_checksum: c_int,
    offset: i64,
    input: *mut c_void,
    input_bytes: usize,
    out: *mut *mut c_void,
    out_bytes: *mut usize,
) -> c_int {
    // SAFETY: the caller keeps to librdkafka's rules, by which the last two may be written.
    unsafe {
        inflate_batch(out, out_bytes, || {
            __real_rd_kafka_lz4_decompress(broker, proper_checksum, offset, input, input_bytes, out, out_bytes)
        })
    }
}

/// librdkafka's own, of a batch that zstd compressed.
///
/// # Safety
/// As of librdkafka's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_kafka_zstd_decompress(
    broker: *mut c_void,
    input: *mut c_void,
    input_bytes: usize,
    out: *mut *mut c_void,
    out_bytes: *mut usize,
) -> c_int {
    // SAFETY: the caller keeps to librdkafka's rules, by which the last two may be written.
    unsafe {
        inflate_batch(out, out_bytes, || __real_rd_kafka_zstd_decompress(broker, input, input_bytes, out, out_bytes))
    }
}
