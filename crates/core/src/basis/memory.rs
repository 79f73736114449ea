//! Memory: every bound that holds records, from one setting. The one place with the arithmetic.
//!
//! `worker.memory` is what the process may take without the segments. Off it goes [`BASE_BYTES`] for what does not depend
//! on the load, and [`READER_BYTES`] for each topic that is read beside the intents. The lanes, those of deferred intents included, share the rest evenly. Of a lane's share:
//!
//! | part of the share | what | how often |
//! |---|---|---|
//! | 1/12 | fetched records that wait to be read | once |
//! | 1/8 | one answer of a broker to a fetch, inflated, by which the above may be overshot | once |
//! | 3/32 | a batch's records, with what each costs besides its bytes | twice: one is decided, one is committed |
//! | 3/32 | a batch's outputs, which may hold each record once more | twice |
//! | 1/6, but 9 MiB at the least | copies on their way to the brokers | once |
//! | 1/16 | sends that wait to be recorded | once |
//!
//! What is left of it is for the allocator. Kafka bounds an answer in compressed bytes, so a lane asks for a tenth of what it has
//! room for ([`INFLATION`]); an answer that inflates far more is read in parts (docs/operations.md, "Memory"). With several brokers
//! each may answer a fetch at the same time; then an eighth of the share a broker more is to be reckoned with.

/// `worker.memory` unless it is set.
pub const DEFAULT_BYTES: u64 = 300 * MIB;
/// What a process takes whatever comes: the program, its threads' stacks, the Kafka clients' own, TLS, HTTP, metrics.
pub const BASE_BYTES: u64 = 48 * MIB;
/// The least share that a lane can work with.
pub const LEAST_LANE_BYTES: u64 = 40 * MIB;
/// The share of the reader of a topic beside the intents: refunds, activity.
pub const READER_BYTES: u64 = 36 * MIB;
/// What a record costs in each batch besides its bytes: the client's message, its decoded intent, its way, its answer.
pub const RECORD_OVERHEAD_BYTES: usize = 512;

/// By how much records are reckoned to be larger than they are compressed: JSON that is much the same from one record to the next
/// compresses to a tenth.
pub const INFLATION: u64 = 10;

const MIB: u64 = 1024 * 1024;
/// The largest record that the producer hands to a broker: an intent of 1 MiB inside its envelope, with headers.
pub const LARGEST_OUTPUT_BYTES: u64 = 8 * MIB;
/// Copies of outputs: room for the largest of them at the least.
const LEAST_OUTPUT_BYTES: u64 = LARGEST_OUTPUT_BYTES + MIB;

/// The bounds of one lane, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneMemory {
    /// Fetched records that wait to be read (`queued.max.messages.kbytes`).
    pub queued_bytes: u64,
    /// One answer to a fetch (`fetch.max.bytes`), compressed as it is.
    pub fetch_bytes: u64,
    /// The records of a batch, each with [`RECORD_OVERHEAD_BYTES`].
    pub batch_bytes: u64,
    /// Copies on their way to the brokers (`queue.buffering.max.kbytes`).
    pub output_bytes: u64,
    /// Sends that wait to be recorded.
    pub deferred_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TooLittle(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadsBeside {
    /// How many topics beside them: refunds, activity.
    pub topics: u64,
    pub wheels: usize,
}

impl ReadsBeside {
    /// The lanes that decide what is due of each wheel, beside so many lanes of intents: half as many for the first wheel, so
    /// that intents keep at least half of the lanes, and one for each wheel before it.
    pub fn due_lanes(self, lanes: usize) -> Vec<usize> {
        (0..self.wheels).map(|wheel| if wheel == 0 { (lanes / 2).max(1) } else { 1 }).collect()
    }

    /// All lanes together with those of the intents. Each wheel also has one that moves what is deferred on.
    pub fn all_lanes(self, lanes: usize) -> usize {
        lanes + self.due_lanes(lanes).iter().sum::<usize>() + self.wheels
    }
}

impl LaneMemory {
    /// The bounds of each of so many lanes in a process that may take so much. Fails where a lane would get less than [`LEAST_LANE_BYTES`].
    pub fn share(memory_bytes: u64, lanes: usize, beside: ReadsBeside) -> Result<Self, TooLittle> {
        let fixed = fixed_bytes(beside);
        let count = u64::try_from(beside.all_lanes(lanes.max(1))).unwrap_or(u64::MAX);
        let share = memory_bytes.saturating_sub(fixed) / count;
        if share < LEAST_LANE_BYTES {
            let needed = fixed.saturating_add(count.saturating_mul(LEAST_LANE_BYTES)).div_ceil(MIB);
            let (has, fitting) = (memory_bytes / MIB, fitting(memory_bytes, beside));
            return Err(TooLittle(format!(
                "worker.memory is {has} MiB, which is too little for worker.lanes = {lanes}: set worker.memory to {needed} MiB \
                 at the least, or worker.lanes to {fitting} at the most"
            )));
        }
        Ok(Self::of_share(share))
    }

    /// The bounds of the reader of a topic beside the intents.
    pub fn of_reader() -> Self {
        Self { deferred_bytes: 0, ..Self::of_share(READER_BYTES) }
    }

    fn of_share(share: u64) -> Self {
        Self {
            queued_bytes: share / 12,
            fetch_bytes: share / 8 / INFLATION,
            batch_bytes: share * 3 / 32,
            output_bytes: (share / 6).max(LEAST_OUTPUT_BYTES),
            deferred_bytes: share / 16,
        }
    }

    pub fn sum(&self) -> u64 {
        let Self { queued_bytes, fetch_bytes, batch_bytes, output_bytes, deferred_bytes } = *self;
        queued_bytes + INFLATION * fetch_bytes + 4 * batch_bytes + output_bytes + deferred_bytes
    }
}

/// The bounds of one of two lanes with the default setting: where nobody says otherwise.
impl Default for LaneMemory {
    fn default() -> Self {
        Self::of_share((DEFAULT_BYTES - BASE_BYTES) / 2)
    }
}

/// How many lanes of intents fit, beside what else is read.
pub fn fitting(memory_bytes: u64, beside: ReadsBeside) -> usize {
    let all = memory_bytes.saturating_sub(fixed_bytes(beside)) / LEAST_LANE_BYTES;
    let all = usize::try_from(all).unwrap_or(usize::MAX);
    (1..=all).take_while(|lanes| beside.all_lanes(*lanes) <= all).last().unwrap_or(0)
}

const fn fixed_bytes(beside: ReadsBeside) -> u64 {
    BASE_BYTES + beside.topics * READER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bounds_together_stay_within_the_setting() {
        for (topics, wheels) in [(0, 0), (1, 0), (0, 1), (2, 2)] {
            let beside = ReadsBeside { topics, wheels };
            for mib in [88, 124, 300, 512, 1024, 65_536] {
                for lanes in 1..=256 {
                    let Ok(lane) = LaneMemory::share(mib * MIB, lanes, beside) else { continue };
                    let all = fixed_bytes(beside) + lane.sum() * beside.all_lanes(lanes) as u64;
                    assert!(all <= mib * MIB, "{mib} MiB, {lanes} lanes: {all} bytes, {lane:?}");
                    assert!(lane.output_bytes > LARGEST_OUTPUT_BYTES);
                }
            }
        }
        assert!(LaneMemory::of_reader().sum() <= READER_BYTES);
    }

    #[test]
    fn too_little_memory_says_how_much_is_needed_and_how_many_lanes_fit() {
        let error = LaneMemory::share(300 * MIB, 8, ReadsBeside::default()).unwrap_err().to_string();
        let expected = "worker.memory is 300 MiB, which is too little for worker.lanes = 8: set worker.memory to 368 MiB \
                        at the least, or worker.lanes to 6 at the most";
        assert_eq!(error, expected);
        assert!(LaneMemory::share(368 * MIB, 8, ReadsBeside::default()).is_ok());
        assert!(LaneMemory::share(300 * MIB, 6, ReadsBeside::default()).is_ok());
        let wheel = ReadsBeside { wheels: 1, ..ReadsBeside::default() };
        assert_eq!((fitting(300 * MIB, wheel), wheel.all_lanes(3), wheel.all_lanes(4)), (3, 5, 7));
        assert!(LaneMemory::share(300 * MIB, 3, wheel).is_ok() && LaneMemory::share(300 * MIB, 4, wheel).is_err());
    }
}
