//! Bounds what record batches inflate to: each of them, and those of one answer of a broker together.
//!
//! librdkafka inflates the batches that it fetches: zstd up to `receive.message.max.bytes`, snappy to what its format can hold (22
//! times its size), but gzip and lz4 without bound, so that one record of some hundred kilobytes could take all of the process's
//! memory. And it inflates all batches of an answer before it hands over the first record of a partition, however many there are.
//! The linker leads its calls of the decoders here (`--wrap`, build.rs).
//!
//! - `batch` counts what comes out of zlib and lz4 and refuses beyond the bound of one batch; librdkafka then reports the batch as
//!   one that cannot be decompressed.
//! - `answer` counts what the batches of an answer have come to. When it is enough, the answer ends there.
//!
//! A part of the Kafka edge that the binary `weir` alone links: other programs (tests, benches) are linked without `--wrap`, so
//! the functions that these call are missing there.

#![cfg(target_os = "linux")]

mod answer;
mod batch;
