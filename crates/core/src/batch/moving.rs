//! Moves deferred intents on from the hours of a wheel into its minutes.

use super::{
    decider::Decider,
    letter::dead_letter,
    record::{Destination, Output, OutputValue, RecordView, Records},
    tally::Tally,
};
use crate::{
    basis::time::Time,
    decision::room::{Oversize, RECORD_BYTES},
    deferral::{HEADER_BYTES, wheel::Wheel},
    intent::dead_letter::DeadLetter,
};

/// The outputs of a batch of deferred records, each to the bucket of its minute. Nothing is decided: that is done there. What weir
/// has not written becomes a dead letter.
#[must_use]
pub fn move_on(decider: &Decider, records: &impl Records, wheel: Wheel, now: Time) -> (Vec<Output>, Tally) {
    let mut tally = Tally::default();
    let one = |index| {
        let record: RecordView<'_> = records.get(index);
        let Some(deferral) = record.deferral else {
            let beside = (&*decider.topic.name, records.bytes_beside_value(index));
            let (output, reason) = dead_letter(&DeadLetter::foreign(), &record, beside, &decider.limits);
            tally.dead_letter(reason.as_str());
            return output;
        };
        let to = Destination::Deferred(wheel.move_on(record.partition, deferral.due, now));
        let (value_bytes, beside) = (record.value.map_or(0, <[u8]>::len), records.bytes_beside_value(index));
        let bytes = (value_bytes + beside + HEADER_BYTES + deferral.topic.name.len() + RECORD_BYTES) as u64;
        let limit_bytes = decider.limits.get(to);
        if bytes > limit_bytes {
            // The topic has come to take less than when the intent was deferred.
            let letter = DeadLetter::not_writable(value_bytes, Oversize { bytes, limit_bytes });
            let (output, reason) = dead_letter(&letter, &record, (&decider.topic.name, beside), &decider.limits);
            tally.dead_letter(reason.as_str());
            return output;
        }
        Output { to, value: OutputValue::AsItCame, headers: deferral.headers() }
    };
    let outputs = (0..records.len()).map(one).collect();
    (outputs, tally)
}
