//! Fuzzes [`weir_fuzz::framed`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::framed(data));
