//! Writes dead letters, so that each fits into its topic.

use super::{
    decider::Decider,
    record::{Destination, Kept, OurHeaders, Output, OutputValue, RecordView},
    tally::Tally,
};
use crate::{
    basis::origin::Origin,
    batch::sizes::OutputLimits,
    decision::room::RECORD_BYTES,
    deferral::Deferral,
    intent::dead_letter::{Carries, DeadLetter, DeadLetterReason},
};

/// The dead letter of a record whose key and headers take so many bytes, and its reason.
///
/// A dead letter must be writable, or one record would stop its partition for good: where it does not fit with its value it is
/// `too_large` and goes without it, then without the consumed headers, then without the key. Reason and origin always stay.
#[must_use]
pub fn dead_letter(
    letter: &DeadLetter,
    record: &RecordView<'_>,
    (topic, bytes_beside): (&str, usize),
    limits: &OutputLimits,
) -> (Output, DeadLetterReason) {
    let limit_bytes = limits.get(Destination::DeadLetters);
    let fits = |output: &Output| (RECORD_BYTES + output.content_bytes(record, bytes_beside)) as u64 <= limit_bytes;
    let came = || Origin { topic, partition: record.partition, offset: record.offset };
    let origin = record.deferral.map_or_else(came, Deferral::origin);
    let whole =
        Output { to: Destination::DeadLetters, value: OutputValue::AsItCame, headers: headers(letter, &origin) };
    let headers = match letter.carries {
        Carries::Value if fits(&whole) => return (whole, letter.reason),
        Carries::Value => headers(&letter.without_value(record.value_bytes(), limit_bytes), &origin),
        Carries::NoValue => whole.headers,
    };
    let mut output = Output { to: Destination::DeadLetters, value: OutputValue::Dropped(Kept::KeyAndHeaders), headers };
    for less in [Kept::Key, Kept::Nothing] {
        if fits(&output) {
            break;
        }
        output.value = OutputValue::Dropped(less);
    }
    (output, DeadLetterReason::TooLarge)
}

/// The dead letter of a record of the decider's topic, counted.
pub(crate) fn dead(
    letter: &DeadLetter,
    (record, bytes_beside): (&RecordView<'_>, usize),
    decider: &Decider,
    tally: &mut Tally,
) -> Output {
    let (output, reason) = dead_letter(letter, record, (&decider.topic.name, bytes_beside), &decider.limits);
    tally.dead_letters.one_more(reason.as_str());
    output
}

fn headers(letter: &DeadLetter, origin: &Origin<'_>) -> OurHeaders {
    letter.headers(origin).into_iter().map(|(name, value)| (name.as_str(), value.into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        batch::{record::Records as _, tests::Row},
        intent::{decode::decode, fields::FieldMap},
    };

    /// What becomes of an invalid record whose value, key and header have so many bytes, where the topic takes 10,000.
    fn of(value: usize, key: usize, header: usize) -> (OutputValue, &'static str, u64) {
        let (key, headers) = ("k".repeat(key), vec![("h", "h".repeat(header))]);
        let row = Row { value: "?".repeat(value), headers, ..Row::default() };
        let record = RecordView { key: Some(key.as_bytes()), ..row.get(0) };
        let letter = decode(record.value, [], &FieldMap::default()).unwrap_err();
        let limits = OutputLimits::default();
        limits.set(Destination::DeadLetters, 10_000);
        let beside = key.len() + header + 11;
        let (output, reason) = dead_letter(&letter, &record, ("send-intents", beside), &limits);
        let told = |name: &str| output.headers.iter().any(|(known, value)| *known == "weir-reason" && value == name);
        assert!(told(reason.as_str()), "{:?}", output.headers);
        let bytes = (RECORD_BYTES + output.content_bytes(&record, beside)) as u64;
        (output.value, reason.as_str(), bytes)
    }

    #[test]
    fn a_dead_letter_drops_value_then_headers_then_key_until_it_fits() {
        for (value, key, header, expected) in [
            (9_000, 10, 10, (OutputValue::AsItCame, "not_json")),
            (9_900, 10, 10, (OutputValue::Dropped(Kept::KeyAndHeaders), "too_large")),
            (9_900, 10, 9_900, (OutputValue::Dropped(Kept::Key), "too_large")),
            (10, 10, 20_000, (OutputValue::Dropped(Kept::Key), "too_large")),
            (10, 20_000, 10, (OutputValue::Dropped(Kept::Nothing), "too_large")),
        ] {
            let (got, reason, bytes) = of(value, key, header);
            assert_eq!((got, reason), expected, "{value} {key} {header}");
            assert!(bytes <= 10_000, "{bytes}");
        }
    }
}
