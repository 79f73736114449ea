//! The bytes that come back from `lua/admit.lua`; its header says what they are.

use crate::domain::{
    decide::{Answer, Verdict},
    history::EPOCH_MS,
    time::Time,
};

/// Bytes of one send in the reply.
pub(super) const REPLY_BYTES: usize = 16;

/// What the script made of one send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is decided.
    Answered(Answer),
    /// The user's history names a kind that the caller did not know; nothing was written for the user.
    StaleKinds,
    /// The user's history is not whole entries; nothing was written for the user.
    TornHistory,
    /// The call had done enough work: ask again.
    PutOff,
}

/// Reads a reply for so many sends. `None` where it is not one.
pub(super) fn read_reply(reply: &[u8], sends: usize) -> Option<Vec<Outcome>> {
    let (records, rest) = reply.as_chunks::<REPLY_BYTES>();
    if !rest.is_empty() || records.len() != sends {
        return None;
    }
    records.iter().map(read_record).collect()
}

fn read_record(record: &[u8; REPLY_BYTES]) -> Option<Outcome> {
    let number = |range: std::ops::Range<usize>| record[range].iter().fold(0_i64, |n, &b| n << 8 | i64::from(b));
    let time = |range| Time::default().plus(EPOCH_MS + number(range));
    let flags = record[0] >> 4;
    if flags > 3 {
        return None;
    }
    let answer = |verdict| Outcome::Answered(Answer { verdict, at: time(6..11), ahead: flags & 1 == 1 });
    Some(match record[0] & 0x0F {
        0 => answer(Verdict::Allowed),
        1 => answer(Verdict::Replayed),
        2 => answer(Verdict::Duplicate),
        3 => answer(Verdict::Denied {
            cap: record[1],
            used: u32::try_from(number(2..6)).ok()?,
            blocking: (flags & 2 == 2).then(|| time(11..16)),
        }),
        4 => Outcome::StaleKinds,
        5 => Outcome::TornHistory,
        6 => Outcome::PutOff,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_of_another_length_or_code_is_not_read() {
        let record = [0_u8; REPLY_BYTES];
        assert!(read_reply(&record, 1).is_some());
        assert_eq!(read_reply(&record, 2), None);
        assert_eq!(read_reply(&record[1..], 1), None);
        assert_eq!(read_reply(&[], 1), None);
        for code in [7, 15, 0x40, 0xFF] {
            let mut record = record;
            record[0] = code;
            assert_eq!(read_reply(&record, 1), None, "{code}");
        }
    }
}
