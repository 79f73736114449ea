//! Fuzzes [`weir_fuzz::intent`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::intent(data));
