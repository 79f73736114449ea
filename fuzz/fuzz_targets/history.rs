//! Fuzzes [`weir_fuzz::history`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::history(data));
