//! The bytes that go to `lua/admit.lua`; its header says what they are.

mod msgpack;
mod sets;

use msgpack::{put_integer, put_string};
use sets::{CapPlans, Path};
use weir_core::{
    basis::{shard::HashField, time::Time},
    history::{EPOCH_MS, HistoryBounds, MAX_ENTRY_MS, admit::AdmitRequest, decide::MAX_AHEAD_MS},
    intent::class::ClassNumbers,
};

use super::{keyspace::key_lives_ms, plan::Planned};
pub(super) use sets::CapSets;

/// Bytes of most sends in a call.
const SEND_BYTES: usize = 18;

/// A time as the script counts it: ms since 2020, kept to what an entry can hold with room for the entries
/// that may be ahead.
pub(super) fn script_time(time: Time) -> u64 {
    let millis = (time.millis() - EPOCH_MS).clamp(0, MAX_ENTRY_MS - MAX_AHEAD_MS);
    millis.cast_unsigned()
}

pub(super) fn put_u16(out: &mut Vec<u8>, number: usize) {
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

/// A field, behind its length.
pub(super) fn put_field(out: &mut Vec<u8>, field: HashField) {
    let at = out.len();
    out.push(0);
    field.put(out);
    out[at] = u8::try_from(out.len() - at - 1).unwrap_or(u8::MAX);
}

/// What is the same for all calls of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) now: Time,
    pub(super) bounds: HistoryBounds,
    /// Whether a user is written again whose send is a replay.
    pub(super) touch: bool,
}

impl Terms {
    fn pack(&self) -> Vec<u8> {
        let now = script_time(self.now);
        let mut out = Vec::with_capacity(128);
        put_integer(&mut out, now.cast_signed());
        put_string(&mut out, |out| out.extend_from_slice(&now.to_be_bytes()[3..]));
        put_integer(&mut out, self.bounds.retention_ms);
        put_integer(&mut out, self.touch.into());
        let time_to_live = key_lives_ms(self.bounds.retention_ms);
        put_string(&mut out, |out| out.extend_from_slice(itoa::Buffer::new().format(time_to_live).as_bytes()));
        put_integer(&mut out, self.bounds.max_entries.into());
        out
    }
}

/// All arguments of one call but the epoch: terms and cap plans, cap sets, fields, sends, and how they belong together.
/// `sends` are in the order of bucket, user, batch.
pub(super) fn pack_call(
    terms: &Terms,
    sets: &CapSets,
    sends: &[Planned],
    requests: &[AdmitRequest<'_>],
    numbers: &[Option<ClassNumbers>],
) -> [Vec<u8>; 5] {
    let mut plans = CapPlans::new(sets, terms);
    let mut fields = Vec::with_capacity(sends.len() * 4);
    let mut packed = Vec::with_capacity(sends.len() * SEND_BYTES);
    let mut users_of = Vec::new();
    for bucket in sends.chunk_by(|a, b| a.place.bucket == b.place.bucket) {
        let mut users = 0;
        for user in bucket.chunk_by(|a, b| a.place.field == b.place.field) {
            users += 1;
            put_string(&mut fields, |out| user[0].place.field.put(out));
            // All on one path: the fast one must not reread what the slow one wrote.
            let is_fast = user.iter().all(|send| plans.path(&requests[send.request]) == Path::Fast);
            let path = if is_fast { Path::Fast } else { Path::Slow };
            for (send, left) in user.iter().zip((0..user.len()).rev()) {
                let request = &requests[send.request];
                let plan = plans.place(request, path);
                put_integer(&mut packed, if left > 0 { -plan } else { plan });
                put_send(&mut packed, request, numbers[send.request].unwrap_or_default());
            }
        }
        put_count(&mut users_of, users);
        // Neighbouring keys, which a call has together, begin their blocks at different times.
        users_of.push(u8::try_from(bucket[0].place.bucket % 256).unwrap_or_default());
    }
    let (terms, sets) = plans.pack();
    [terms, sets, fields, packed, users_of]
}

fn put_send(out: &mut Vec<u8>, request: &AdmitRequest<'_>, (kind, campaign): ClassNumbers) {
    put_string(out, |out| out.extend_from_slice(&request.id.0.to_be_bytes()[2..]));
    put_string(out, |out| {
        out.extend_from_slice(&request.origin.0.to_be_bytes()[1..]);
        out.extend_from_slice(&kind.0.to_be_bytes());
        out.extend_from_slice(&campaign.0.to_be_bytes()[1..]);
        out.push(request.cost);
    });
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
