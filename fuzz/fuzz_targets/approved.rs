//! Fuzzes [`weir_fuzz::approved`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::approved(data));
