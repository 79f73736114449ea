//! Leads librdkafka's calls of its decoders to crates/kafka/inflate, which bounds what they inflate.

/// Public functions of zlib and lz4: their signatures are stable. `tests/worker/large.rs` fails where one is not wrapped.
const WRAPPED: [&str; 3] = ["inflate", "LZ4F_createDecompressionContext", "LZ4F_decompress"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Linkers elsewhere do not know `--wrap`; there the bound is missing.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        for function in WRAPPED {
            println!("cargo:rustc-link-arg-bins=-Wl,--wrap={function}");
        }
    }
}
