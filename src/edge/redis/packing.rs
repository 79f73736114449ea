//! The bytes that go to `lua/admit.lua`; its header says what they are.

mod sets;

pub(super) use sets::CapSets;
use sets::Ways;

use super::plan::Planned;
use crate::domain::{
    admit::Ask,
    class::{Campaign, Kind},
    decide::MAX_AHEAD_MS,
    history::{EPOCH_MS, MAX_ENTRY_MS},
    time::Time,
};

/// A send's class, in numbers.
pub(super) type ClassNumbers = (Kind, Campaign);

/// Bytes of one send in a call.
const SEND_BYTES: usize = 16;

/// A time as the script counts it: ms since 2020, kept to what an entry can hold with room for the entries
/// that may be ahead.
pub(super) fn script_time(time: Time) -> u64 {
    let millis = (time.millis() - EPOCH_MS).clamp(0, MAX_ENTRY_MS - MAX_AHEAD_MS);
    millis.cast_unsigned()
}

fn put_u16(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes());
}

fn put_u48(out: &mut Vec<u8>, number: i64) {
    let number = number.clamp(0, (1 << 48) - 1).cast_unsigned();
    out.extend_from_slice(&number.to_be_bytes()[2..]);
}

/// A count that the plan keeps below 256.
fn put_count(out: &mut Vec<u8>, count: usize) {
    out.push(u8::try_from(count).unwrap_or(u8::MAX));
}

/// The last five arguments of one call: cap sets, ways to ask, fields, sends, and how they belong together. `sends` are
/// in the order of bucket, user, batch.
pub(super) fn pack_call(
    sets: &CapSets,
    sends: &[Planned],
    asks: &[Ask<'_>],
    numbers: &[Option<ClassNumbers>],
) -> [Vec<u8>; 5] {
    let mut ways = Ways::new(sets);
    let mut fields = Vec::with_capacity(sends.len() * 8);
    let mut packed = Vec::with_capacity(sends.len() * SEND_BYTES);
    let (mut shape, mut counts) = (Vec::new(), Vec::new());
    for bucket in sends.chunk_by(|a, b| a.place.bucket == b.place.bucket) {
        let before = counts.len();
        for user in bucket.chunk_by(|a, b| a.place.field == b.place.field) {
            fields.extend_from_slice(&user[0].place.field);
            put_count(&mut counts, user.len());
            for send in user {
                let ask = &asks[send.ask];
                packed.push(ways.number(ask));
                pack_send(&mut packed, ask, numbers[send.ask].unwrap_or_default());
            }
        }
        put_count(&mut shape, counts.len() - before);
    }
    if counts.len() != sends.len() {
        shape.extend_from_slice(&counts);
    }
    let (sets, ways) = ways.pack();
    [sets, ways, fields, packed, shape]
}

fn pack_send(out: &mut Vec<u8>, ask: &Ask<'_>, (kind, campaign): ClassNumbers) {
    let mut bytes = [0; SEND_BYTES - 1];
    bytes[0..6].copy_from_slice(&ask.id.0.to_be_bytes()[2..]);
    bytes[6..9].copy_from_slice(&ask.origin.0.to_be_bytes()[1..]);
    bytes[9..11].copy_from_slice(&kind.0.to_be_bytes());
    bytes[11..14].copy_from_slice(&campaign.0.to_be_bytes()[1..]);
    bytes[14] = ask.cost;
    out.extend_from_slice(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_beyond_what_an_entry_holds_are_moved_to_what_it_does() {
        let millis = |year: i64| Time::default().plus((year - 1970) * 31_557_600_000);
        assert_eq!(script_time(millis(1990)), 0);
        assert_eq!(i64::try_from(script_time(millis(3000))), Ok(MAX_ENTRY_MS - MAX_AHEAD_MS));
    }
}
