//! Fuzzes [`weir_fuzz::bitmap`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::bitmap(data));
