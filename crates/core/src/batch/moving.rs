//! Moves deferred intents on from the hours of a wheel into its minutes.

use super::{
    decider::Decider,
    letter::dead,
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
        let (record, beside) = (records.get(index), records.bytes_beside_value(index));
        moved(decider, (&record, beside), wheel, now)
            .unwrap_or_else(|letter| dead(&letter, (&record, beside), decider, &mut tally))
    };
    let outputs = (0..records.len()).map(one).collect();
    (outputs, tally)
}

fn moved(
    decider: &Decider,
    (record, beside): (&RecordView<'_>, usize),
    wheel: Wheel,
    now: Time,
) -> Result<Output, DeadLetter> {
    let deferral = record.deferral.ok_or_else(DeadLetter::foreign)?;
    let to = Destination::Deferred(wheel.move_on(record.partition, deferral.due, now));
    let bytes = record.value_bytes() + beside + HEADER_BYTES + deferral.topic.name.len() + RECORD_BYTES;
    // The topic may have come to take less than when the intent was deferred.
    Oversize::check(bytes, decider.limits.get(to))
        .map_err(|oversize| DeadLetter::not_writable(record.value_bytes(), oversize))?;
    Ok(Output { to, value: OutputValue::AsItCame, headers: deferral.headers() })
}
