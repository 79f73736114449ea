//! Deliveries that failed and are tried again: an approved record that comes back is deferred, and then approved once more, as it
//! was, once its route has a permit for it. It is counted already, so nothing is asked of caps and budgets.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    decider::{Decider, Undecided, facts},
    letter::dead,
    record::{Destination, Output, OutputValue, RecordView, Records},
    tally::Tally,
};
use crate::{
    basis::{header::HeaderName, shard::IdHash, time::Time, words},
    batch::sizes::OutputLimits,
    decision::{
        decision_header::{self, DecisionHeader},
        room::{Oversize, RECORD_BYTES},
    },
    deferral::{
        DeferReason, Deferral, HEADER_BYTES,
        wheel::{Wheel, rounded},
    },
    intent::{
        Intent,
        dead_letter::{DeadLetter, DeadLetterReason},
        decode::{Header, decode},
    },
    limit::route::{DEFAULT_MAX_ATTEMPTS, Route},
    policy::{GateReason, IntentFacts, Mode, Policy, PolicyEval},
};

const MINUTE_MS: i64 = 60_000;
/// The longest wait before a retry, in milliseconds.
const LONGEST_MS: i64 = 60 * MINUTE_MS;
/// What `weir-reason` takes at most, in bytes.
const REASON_BYTES: usize = 32;
/// What the number of a retry adds to `weir-decision` at most, in bytes.
const NUMBER_BYTES: usize = r#","retry":4294967295"#.len();

words! {
    /// Why a delivery is not tried again; with the word in the header `weir-reason` and in metrics.
    pub enum GivenUp {
        /// It was tried as often as its route allows.
        Attempts = "attempts",
        /// Its intent has expired, or will have before the retry.
        Expired = "expired",
        /// A `[[stop]]` of the policy matches it.
        Stopped = "stopped",
        /// Its route has no permit for it, and it does not wait, or has waited for too long.
        Capacity = "capacity",
    }
}

/// How long a delivery waits for its retry of this number, from 1, in milliseconds: exponential backoff with full jitter, at
/// random up to 1, 2, 4 ... and at most 60 minutes. The same for the same intent and number.
pub fn wait_ms(retry: u32, id: IdHash) -> i64 {
    let bound = (MINUTE_MS << retry.saturating_sub(1).min(6)).min(LONGEST_MS);
    let random = xxh3_64_with_seed(&id.0.to_le_bytes(), retry.into()) % bound.unsigned_abs();
    1 + i64::try_from(random).unwrap_or(0)
}

pub(crate) fn route_of<'p>(policy: &'p Policy, intent: &Intent<'_>) -> Option<&'p Route> {
    Some(&policy.routes[policy.route_of(&intent.class())?])
}

/// Why an intent that was approved is not to be delivered any more by then. In shadow mode nothing keeps it back.
pub(crate) fn ended(eval: &PolicyEval, facts: &IntentFacts<'_>, then: Time) -> Option<GateReason> {
    if eval.policy().mode == Mode::Shadow { None } else { eval.ended(facts, then) }
}

/// Why a delivery that is denied is given up; `None`: it waits for a permit of its route.
pub(crate) fn given_up(reason: GateReason) -> Option<GivenUp> {
    let ends = [(GateReason::Stopped, GivenUp::Stopped), (GateReason::Expired, GivenUp::Expired)];
    let ended = ends.into_iter().find(|(of, _)| *of == reason).map(|(_, why)| why);
    if let GateReason::RouteFull(_) = reason { None } else { Some(ended.unwrap_or(GivenUp::Capacity)) }
}

pub(crate) fn undelivered(why: GivenUp) -> Output {
    let headers = Arc::new([(HeaderName::Reason.as_str(), why.as_str().to_owned())]);
    Output { to: Destination::Undelivered, value: OutputValue::AsItCame, headers }
}

/// A deferred record that is to be approved once more; its value, and its key and own headers, have so many bytes.
pub(crate) fn decoded<'a>(
    intent: Intent<'a>,
    limits: &OutputLimits,
    (value_bytes, bytes_beside): (usize, usize),
) -> Undecided<'a> {
    let limit_bytes = limits.get(Destination::APPROVED).min(limits.get(Destination::Undelivered));
    match Oversize::check(RECORD_BYTES + value_bytes + bytes_beside + REASON_BYTES, limit_bytes) {
        Ok(()) => Undecided::Retry(Box::new(intent)),
        Err(oversize) => Undecided::Invalid(DeadLetter::not_writable(value_bytes, oversize)),
    }
}

/// The outputs of a batch of approved records whose delivery failed: each is deferred until its retry, or undelivered. Other
/// records become dead letters.
#[must_use]
pub fn try_again(decider: &Decider, records: &impl Records, wheel: Wheel, now: Time) -> (Vec<Output>, Tally) {
    let policy = decider.policy.get();
    // Neither stops nor expiry ask for segments.
    let ground = RetryGround { decider, eval: PolicyEval::new(policy, Arc::default(), now), wheel, now };
    let mut tally = Tally::default();
    let outputs = (0..records.len()).map(|index| {
        let record = records.get(index);
        let beside = records.bytes_beside_value(index);
        let read = match records.not_inflated(index) {
            Some(limit_bytes) => Err(DeadLetter::not_inflated(limit_bytes)),
            None => Retry::read(decider, &record),
        };
        read.and_then(|retry| retry.output(&ground, (&record, beside), &mut tally))
            .unwrap_or_else(|letter| dead(&letter, (&record, beside), decider, &mut tally))
    });
    (outputs.collect(), tally)
}

/// What deliveries that failed are judged by.
struct RetryGround<'g> {
    decider: &'g Decider,
    eval: PolicyEval,
    wheel: Wheel,
    now: Time,
}

/// An approved record whose delivery failed.
struct Retry<'a> {
    intent: Intent<'a>,
    decision: DecisionHeader<'a>,
    /// `weir-decision` as it stands.
    header: &'a [u8],
}

impl<'a> Retry<'a> {
    fn read(decider: &'a Decider, record: &RecordView<'a>) -> Result<Self, DeadLetter> {
        let headers = || record.header_pairs().map(|(key, value)| Header { key, value });
        let name = HeaderName::Decision.as_str();
        let last = headers().filter(|header| header.key == name.as_bytes()).last();
        let Some(header) = last.map(|header| header.value.unwrap_or_default()) else {
            let message = format!("it has no header {name}: only an approved record can be tried again, as it was");
            return Err(DeadLetter::new(DeadLetterReason::MissingField, message));
        };
        let decision = DecisionHeader::read(header)?;
        let intent = decode(record.value, headers(), &decider.fields)?;
        Ok(Self { intent, decision, header })
    }

    fn output(
        self,
        ground: &RetryGround<'_>,
        (record, beside): (&RecordView<'_>, usize),
        tally: &mut Tally,
    ) -> Result<Output, DeadLetter> {
        let RetryGround { decider, ref eval, wheel, now } = *ground;
        let Self { intent, decision, header } = self;
        let route = route_of(eval.policy(), &intent);
        let retry = decision.retry.saturating_add(1);
        let due = rounded(now.plus(wait_ms(retry, intent.id_hash)));
        // Its age counts from its first decision at the latest.
        let first_at = decision.decided_at.min(now);
        let facts = IntentFacts { kafka_timestamp: Some(first_at), ..facts(&intent, None, record) };
        // This record was the delivery of this number, from 1.
        let given_up = if retry >= route.map_or(DEFAULT_MAX_ATTEMPTS, |route| route.max_attempts) {
            Some(GivenUp::Attempts)
        } else {
            ended(eval, &facts, due).and_then(given_up)
        };
        let value_bytes = record.value_bytes();
        let fits = |more: usize, to: Destination| {
            let fits = Oversize::check(RECORD_BYTES + value_bytes + beside + more, decider.limits.get(to));
            fits.map_err(|oversize| DeadLetter::not_writable(value_bytes, oversize))
        };
        if let Some(why) = given_up {
            fits(REASON_BYTES, Destination::Undelivered)?;
            route.iter().for_each(|route| tally.failed(&route.name));
            tally.undelivered(route.map(|route| &route.name), why);
            return Ok(undelivered(why));
        }
        let topic = decider.topic.clone();
        let (partition, offset) = (record.partition, record.offset);
        let deferral = Deferral { due, topic, partition, offset, first_at, why: DeferReason::Retry, count: retry };
        let to = Destination::Deferred(wheel.place(intent.user, due, now));
        fits(HEADER_BYTES + decider.topic.name.len() + NUMBER_BYTES, to)?;
        route.iter().for_each(|route| tally.failed(&route.name));
        tally.deferred.one_more(deferral.why.as_str());
        let decision = decision_header::with_retry(header, retry)?;
        let decision = [(HeaderName::Decision.as_str(), decision)];
        let headers = decision.into_iter().chain(deferral.headers().iter().cloned()).collect();
        Ok(Output { to, value: OutputValue::WithoutDecision, headers })
    }
}

#[cfg(test)]
mod tests;
