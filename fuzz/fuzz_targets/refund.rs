//! Fuzzes [`weir_fuzz::refund`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::refund(data));
