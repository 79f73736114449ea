//! Fuzzes [`weir_fuzz::policy`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::policy(data));
