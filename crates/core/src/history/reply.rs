//! The bytes that come back from `lua/admit.lua`; its header says what they are.

use crate::{
    basis::time::Time,
    history::{
        EPOCH_MS,
        decide::{AdmitVerdict, Answer},
    },
};

/// Bytes of the count that leads a reply.
const COUNT_BYTES: usize = 2;
/// Bytes of one send that the reply speaks of: its place, and what became of it.
const RECORD_BYTES: usize = 18;
/// The flag of a send that was recorded in place of older ones.
const DROPPED: u8 = 0x40;

/// What the script made of one send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOutcome {
    Answered(Answer),
    /// The user's history names a kind that the caller did not know; nothing was written for the user.
    StaleKinds,
    /// The user's history is not whole entries; nothing was written for the user.
    TornHistory,
    /// The call had done enough work: ask again.
    PutOff,
}

#[derive(Debug)]
pub struct Reply {
    pub outcomes: Vec<SendOutcome>,
    /// How many sends were recorded in place of their user's oldest entries, which were too many.
    pub dropped: u64,
}

/// Reads a reply for so many sends, asked for at `now` as the script knows it (ms since [`EPOCH_MS`]). Sends that it does
/// not mention were approved. `None` where it is not a reply to them.
pub fn read_reply(reply: &[u8], sends: usize, now: u64) -> Option<Reply> {
    let (count, rest) = reply.split_first_chunk::<COUNT_BYTES>()?;
    let (records, rest) = rest.as_chunks::<RECORD_BYTES>();
    if !rest.is_empty() || usize::from(u16::from_be_bytes(*count)) != sends {
        return None;
    }
    let at = Time::default().plus(EPOCH_MS + i64::try_from(now).ok()?);
    let allowed = Answer { verdict: AdmitVerdict::Allowed, at, ahead: false };
    let mut outcomes = vec![SendOutcome::Answered(allowed); sends];
    let (mut next, mut dropped) = (0, 0);
    for record in records {
        let (place, record) = record.split_first_chunk::<COUNT_BYTES>()?;
        let place = usize::from(u16::from_be_bytes(*place));
        if place < next {
            return None;
        }
        dropped += u64::from(record[0] & DROPPED != 0);
        *outcomes.get_mut(place)? = read_record(record.first_chunk()?)?;
        next = place + 1;
    }
    Some(Reply { outcomes, dropped })
}

fn read_record(record: &[u8; RECORD_BYTES - COUNT_BYTES]) -> Option<SendOutcome> {
    let number = |range: std::ops::Range<usize>| record[range].iter().fold(0_i64, |n, &b| n << 8 | i64::from(b));
    let time = |range| Time::default().plus(EPOCH_MS + number(range));
    let flags = record[0] >> 4;
    if flags > 7 {
        return None;
    }
    let answer = |verdict| SendOutcome::Answered(Answer { verdict, at: time(6..11), ahead: flags & 1 == 1 });
    Some(match record[0] & 0x0F {
        0 => answer(AdmitVerdict::Allowed),
        1 => answer(AdmitVerdict::Replayed),
        2 => answer(AdmitVerdict::Duplicate),
        3 => answer(AdmitVerdict::Denied {
            cap: record[1],
            used: u32::try_from(number(2..6)).ok()?,
            blocking: (flags & 2 == 2).then(|| time(11..16)),
        }),
        4 => SendOutcome::StaleKinds,
        5 => SendOutcome::TornHistory,
        6 => SendOutcome::PutOff,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(sends: u16, records: &[(u16, u8)]) -> Vec<u8> {
        let record = |&(place, code): &(u16, u8)| {
            let [high, low] = place.to_be_bytes();
            let mut record = [0; RECORD_BYTES];
            record[..3].copy_from_slice(&[high, low, code]);
            record
        };
        sends.to_be_bytes().into_iter().chain(records.iter().flat_map(record)).collect()
    }

    #[test]
    fn sends_that_a_reply_does_not_speak_of_were_let_through_at_the_clock() {
        let Reply { outcomes, dropped } = read_reply(&reply(3, &[(1, 6)]), 3, 7).unwrap();
        let at = Time::default().plus(EPOCH_MS + 7);
        let allowed = SendOutcome::Answered(Answer { verdict: AdmitVerdict::Allowed, at, ahead: false });
        assert_eq!((outcomes, dropped), (vec![allowed, SendOutcome::PutOff, allowed], 0));
        assert_eq!(read_reply(&reply(3, &[(1, 0x40), (2, 0)]), 3, 7).unwrap().dropped, 1);
    }

    #[test]
    fn a_reply_of_another_length_code_or_order_is_not_read() {
        assert!(read_reply(&reply(2, &[(0, 1), (1, 2)]), 2, 0).is_some());
        for (wrong, sends) in [
            (reply(2, &[(0, 1), (1, 2)]), 1),
            (reply(1, &[]), 2),
            (reply(2, &[(2, 1)]), 2),
            (reply(2, &[(1, 1), (0, 1)]), 2),
            (reply(2, &[(1, 1), (1, 1)]), 2),
            (reply(2, &[(1, 1)])[..19].to_vec(), 2),
            (Vec::new(), 0),
        ] {
            assert!(read_reply(&wrong, sends, 0).is_none(), "{wrong:?}");
        }
        for code in [7, 15, 0x80, 0xFF] {
            assert!(read_reply(&reply(1, &[(0, code)]), 1, 0).is_none(), "{code}");
        }
    }
}
