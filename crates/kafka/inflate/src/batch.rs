//! One batch: what comes out of zlib and lz4.

use std::{
    cell::Cell,
    ffi::{c_int, c_uint, c_ulong, c_void},
};

use weir_kafka::native::inflate::is_beyond;

/// The begin of zlib's `z_stream`, up to what has come out of it so far.
#[repr(C)]
struct Stream {
    next_in: *const u8,
    avail_in: c_uint,
    total_in: c_ulong,
    next_out: *mut u8,
    avail_out: c_uint,
    total_out: c_ulong,
}

/// zlib's `Z_DATA_ERROR`.
const DATA_ERROR: c_int = -3;
/// lz4's `LZ4F_ERROR_GENERIC`: an error is a size that no buffer has.
const LZ4_ERROR: usize = usize::MAX;

thread_local! {
    /// What has come out of this thread's last lz4 frame.
    static OUT_OF_FRAME: Cell<u64> = const { Cell::new(0) };
}

unsafe extern "C" {
    fn __real_inflate(stream: *mut Stream, flush: c_int) -> c_int;
    fn __real_LZ4F_createDecompressionContext(context: *mut *mut c_void, version: c_uint) -> usize;
    fn __real_LZ4F_decompress(
        context: *mut c_void,
        out: *mut c_void,
        out_bytes: *mut usize,
        input: *const c_void,
        input_bytes: *mut usize,
        options: *const c_void,
    ) -> usize;
}

/// zlib's `inflate`, up to the bound.
///
/// # Safety
/// As of zlib's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_inflate(stream: *mut Stream, flush: c_int) -> c_int {
    // SAFETY: the caller keeps to zlib's rules.
    let outcome = unsafe { __real_inflate(stream, flush) };
    if stream.is_null() {
        return outcome;
    }
    // SAFETY: not null, so a `z_stream`, which zlib has just written to.
    if is_beyond(unsafe { (*stream).total_out }) { DATA_ERROR } else { outcome }
}

/// lz4's own: a new frame begins.
///
/// # Safety
/// As of lz4's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_LZ4F_createDecompressionContext(context: *mut *mut c_void, version: c_uint) -> usize {
    OUT_OF_FRAME.set(0);
    // SAFETY: the caller keeps to lz4's rules.
    unsafe { __real_LZ4F_createDecompressionContext(context, version) }
}

/// lz4's own, up to the bound.
///
/// # Safety
/// As of lz4's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_LZ4F_decompress(
    context: *mut c_void,
    out: *mut c_void,
    out_bytes: *mut usize,
    input: *const c_void,
    input_bytes: *mut usize,
    options: *const c_void,
) -> usize {
    // SAFETY: the caller keeps to lz4's rules.
    let outcome = unsafe { __real_LZ4F_decompress(context, out, out_bytes, input, input_bytes, options) };
    // SAFETY: lz4 demands that it points to a size, and has written there what came out.
    let written = unsafe { *out_bytes };
    OUT_OF_FRAME.set(OUT_OF_FRAME.get().saturating_add(written as u64));
    if is_beyond(OUT_OF_FRAME.get()) { LZ4_ERROR } else { outcome }
}
