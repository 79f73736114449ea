//! How large requests, records and inflated batches may be: what the settings, the topics and memory come to.

use std::collections::BTreeMap;

use weir_core::{
    basis::memory::{INFLATION, LARGEST_OUTPUT_BYTES},
    decision::room::RECORD_BYTES,
};

use super::{client::KafkaOptions, native::inflate::LEAST_ANSWER_BYTES, produce_rounds::RoundSize};

/// What a record batch may inflate to: more than any that holds intents, by far, and little enough for a lane to survive it.
const INFLATED_BYTES: u64 = 64 * 1024 * 1024;
/// By how much librdkafka wants an answer to be larger than what is fetched.
const FETCH_HEAD_BYTES: u64 = 512;
/// The largest request for a partition: librdkafka's own defaults of `batch.size`, which a topic's `max.message.bytes` takes
/// unless it was made smaller, and of `batch.num.messages`.
const REQUEST: RoundSize = RoundSize { bytes: 1_000_000, records: 10_000 };
/// What is handed over of a partition at a time is not less, however small requests are made: all brokers are waited for behind
/// each round, and hundreds of them would cost more than a thread that does not sleep.
const LEAST_ROUND: RoundSize = RoundSize { bytes: 524_288, records: 1_000 };

impl KafkaOptions {
    /// What of a partition is handed to the producer's client at a time, at most: what fits into one request, by librdkafka's
    /// limits and those that the user's properties set.
    pub fn round(&self) -> RoundSize {
        round(&self.properties, self.limits.smallest())
    }

    /// The largest record that the producer's client takes, in bytes.
    pub fn largest_output_bytes(&self) -> u64 {
        number(&self.properties, "message.max.bytes").unwrap_or(LARGEST_OUTPUT_BYTES)
    }

    /// What one record batch of an input topic may inflate to, in bytes: as librdkafka itself bounds zstd.
    pub fn inflated_bytes(&self) -> u64 {
        let set = number(&self.properties, "receive.message.max.bytes");
        set.unwrap_or_else(|| INFLATED_BYTES.max(self.fetch_bytes().saturating_add(FETCH_HEAD_BYTES)))
    }

    /// What one answer to a fetch may inflate to before the rest of it is left for the next one, in bytes: twice what memory is
    /// reckoned for ([`INFLATION`]), so that what compresses well is seldom fetched twice.
    pub fn answer_bytes(&self) -> u64 {
        LEAST_ANSWER_BYTES.max(self.fetch_bytes().saturating_mul(2 * INFLATION))
    }

    /// What a broker answers to a fetch of a reader without a group, at most: inflated as memory reckons, it is one answer's. librdkafka
    /// refuses more than what it may receive.
    pub(super) fn span_fetch_bytes(&self) -> u64 {
        let fitting = self.inflated_bytes().saturating_sub(FETCH_HEAD_BYTES);
        number(&self.properties, "fetch.max.bytes").unwrap_or(fitting.min(LEAST_ANSWER_BYTES / INFLATION))
    }

    /// What a broker answers to a fetch of a lane, at most.
    pub(super) fn fetch_bytes(&self) -> u64 {
        number(&self.properties, "fetch.max.bytes").unwrap_or(self.memory.fetch_bytes)
    }
}

/// A number as librdkafka reads it, with blanks around it or a fraction of 0 behind it.
pub(super) fn number(properties: &BTreeMap<String, String>, name: &str) -> Option<u64> {
    let value = properties.get(name)?.trim();
    value.split_once('.').map_or(value, |(whole, _)| whole).parse().ok()
}

/// What the producer's client puts into a batch, where all output topics take batches of `limit_bytes`.
pub(super) fn request_bytes(properties: &BTreeMap<String, String>, limit_bytes: u64) -> u64 {
    let set = number(properties, "batch.size").unwrap_or(REQUEST.bytes);
    set.min(limit_bytes.saturating_sub(RECORD_BYTES as u64)).max(1)
}

fn round(properties: &BTreeMap<String, String>, limit_bytes: u64) -> RoundSize {
    let bytes = request_bytes(properties, limit_bytes);
    let bytes = bytes.min(number(properties, "message.max.bytes").unwrap_or(LARGEST_OUTPUT_BYTES));
    let records = number(properties, "batch.num.messages").and_then(|records| usize::try_from(records).ok());
    RoundSize {
        // What a record takes is only reckoned, and the request has a head.
        bytes: (bytes / 10 * 9).max(LEAST_ROUND.bytes),
        records: records.unwrap_or(REQUEST.records).max(LEAST_ROUND.records),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_what_fits_into_one_request_as_it_is_set() {
        let of = |set: &[(&str, &str)]| {
            let properties = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let RoundSize { bytes, records } = round(&properties, u64::MAX);
            (bytes, records)
        };
        assert_eq!(of(&[]), (900_000, 10_000));
        assert_eq!(of(&[("batch.size", "2000000"), ("batch.num.messages", "20000")]), (1_800_000, 20_000));
        assert_eq!(of(&[("batch.size", "2147483647")]).0, LARGEST_OUTPUT_BYTES / 10 * 9);
        assert_eq!(of(&[("batch.size", "2000000"), ("message.max.bytes", "1000000")]).0, 900_000);
        assert_eq!(of(&[("batch.size", "1"), ("batch.num.messages", "1")]), (524_288, 1_000));
        assert_eq!(of(&[("batch.size", " 2000000 "), ("batch.num.messages", "20000.0")]), (1_800_000, 20_000));
        // What librdkafka refuses makes no client.
        for value in ["", "-1", "x", "18446744073709551616"] {
            assert_eq!(of(&[("batch.size", value), ("batch.num.messages", value)]), (900_000, 10_000), "{value}");
        }
    }

    #[test]
    fn a_request_is_no_larger_than_what_every_output_topic_takes() {
        let none = BTreeMap::new();
        assert_eq!(request_bytes(&none, u64::MAX), 1_000_000);
        assert_eq!(request_bytes(&none, 60_000), 60_000 - RECORD_BYTES as u64);
        assert_eq!(request_bytes(&none, 0), 1);
    }
}
