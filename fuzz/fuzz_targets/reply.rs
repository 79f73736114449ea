//! Fuzzes [`weir_fuzz::reply`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::reply(data));
