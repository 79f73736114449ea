//! The C library's allocator, told how librdkafka uses it.

/// Prepares this process for many batches: freed pieces do not wait in lists to be joined with their neighbours, and memory is
/// kept from batch to batch. To be called once, before there are threads. It goes over what glibc's environment variables say
/// of these settings. Where the C library is not glibc, nothing is done.
///
/// A record with headers is a dozen small pieces, made by the thread that commits and freed by librdkafka's, ten thousand
/// records at a time. glibc keeps such pieces in lists of their own, and walks all of them whenever a large one is asked
/// for, which librdkafka does for every request (benches/NOTEBOOK.md has the figures).
pub fn prepare() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::c_int;

        // From glibc's malloc.h. The largest piece that is kept in a list: none.
        const M_MXFAST: c_int = 1;
        // Freed memory at the end of an arena that is kept, in bytes: about what a batch takes. Threads have an arena each.
        const M_TRIM_THRESHOLD: c_int = -1;
        const KEPT_BYTES: c_int = 16 << 20;
        // Pieces up to this size come from an arena and not from the system, in bytes; the most that glibc takes.
        const M_MMAP_THRESHOLD: c_int = -3;
        const LARGEST_IN_ARENA_BYTES: c_int = 32 << 20;
        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        for (parameter, value) in
            [(M_MXFAST, 0), (M_TRIM_THRESHOLD, KEPT_BYTES), (M_MMAP_THRESHOLD, LARGEST_IN_ARENA_BYTES)]
        {
            // SAFETY: glibc's `mallopt` takes any numbers; it answers 0 to one that it does not take, and changes nothing.
            let _ = unsafe { mallopt(parameter, value) };
        }
    }
}
