//! Leads librdkafka's calls of its decoders to crates/kafka/inflate, which bounds what they inflate.

/// Public functions of zlib and lz4, whose signatures are stable: `tests/worker/large.rs` fails where one is not wrapped. And
/// librdkafka's own of the version that crates/kafka/inflate/src/answer.rs names: what inflates one batch by each codec, what asks a
/// broker for records, and what reads what an answer holds of a partition.
const WRAPPED: [&str; 8] = [
    "inflate",
    "LZ4F_createDecompressionContext",
    "LZ4F_decompress",
    "rd_gz_decompress",
    "rd_kafka_lz4_decompress",
    "rd_kafka_zstd_decompress",
    "rd_kafka_broker_fetch_toppars",
    "rd_kafka_msgset_parse",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Linkers elsewhere do not know `--wrap`; there the bound is missing.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        for function in WRAPPED {
            println!("cargo:rustc-link-arg-bins=-Wl,--wrap={function}");
        }
    }
}
