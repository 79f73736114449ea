//! Moves deferred intents on from the hours of a wheel into its minutes.

use super::{
    dead_letter::DeadLetter,
    decider::Decider,
    letter::dead_letter,
    record::{Destination, Output, OutputValue, RecordView, Records},
    tally::Tally,
    time::Time,
    wheel::Wheel,
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
        Output { to, value: OutputValue::AsItCame, headers: deferral.headers() }
    };
    let outputs = (0..records.len()).map(one).collect();
    (outputs, tally)
}
