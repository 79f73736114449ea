//! Fuzzes [`weir_fuzz::parked`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::parked(data));
