//! What weir writes beside an intent that it defers, in headers on its own topics.
//!
//! weir reads these headers on its own topics only, and there the last ones of each name: on the intents topic they are a
//! publisher's, and mean nothing.

pub mod wheel;

use std::sync::Arc;

use crate::basis::{
    header::{HeaderName, OurHeaders},
    origin::{Origin, Topic, TopicId},
    time::Time,
};
pub use crate::intent::reason::DeferReason;

/// How many headers a deferred record carries, behind its intent's own.
pub const HEADERS: usize = 5;
/// The most that they add to a record beside the name of the first topic, in bytes.
pub const HEADER_BYTES: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deferral {
    /// When it is due: a full minute. Where it waits for its route it is due from the beginning: [`Deferral::first_at`].
    pub due: Time,
    /// The topic that it first came on.
    pub topic: Topic,
    pub partition: i32,
    pub offset: i64,
    /// Kafka's time of its first record, no later than its first decision: `max_age` counts from it.
    pub first_at: Time,
    pub why: DeferReason,
    /// How often it has been deferred, this time included.
    pub count: u32,
}

impl Deferral {
    /// Whether its intent waits on a route's topic, and not in the wheel: there it is due after it first came.
    pub fn waits_for_route(&self) -> bool {
        self.is_until_capacity() || self.due <= self.first_at
    }

    /// Whether its intent was not approved yet, and waits on a route's topic.
    pub fn is_until_capacity(&self) -> bool {
        self.why == DeferReason::Capacity
    }

    /// Whether its intent was approved, and its delivery is tried again.
    pub fn is_until_retry(&self) -> bool {
        self.why == DeferReason::Retry
    }

    pub fn origin(&self) -> Origin<'_> {
        Origin { topic: &self.topic.name, partition: self.partition, offset: self.offset }
    }

    /// The headers, in the order in which they are written.
    pub fn headers(&self) -> OurHeaders {
        let Self { due, topic, partition, offset, first_at, why, count } = self;
        Arc::new([
            (HeaderName::Due.as_str(), due.millis().to_string()),
            // A topic's name has no slash.
            (HeaderName::Origin.as_str(), format!("{}/{partition}/{offset}/{}", topic.name, topic.id)),
            (HeaderName::FirstAt.as_str(), first_at.millis().to_string()),
            (HeaderName::Why.as_str(), why.as_str().to_owned()),
            (HeaderName::Count.as_str(), count.to_string()),
        ])
    }

    /// Reads the last headers of a record on a topic of weir's; `None` where weir did not write them.
    pub fn of(headers: [(&[u8], Option<&[u8]>); HEADERS]) -> Option<Self> {
        let names = [HeaderName::Due, HeaderName::Origin, HeaderName::FirstAt, HeaderName::Why, HeaderName::Count];
        let ours = headers.iter().zip(names).all(|((key, _), name)| *key == name.as_str().as_bytes());
        if !ours {
            return None;
        }
        let [due, origin, first_at, why, count] = headers.map(|(_, value)| value.unwrap_or_default());
        let mut parts = std::str::from_utf8(origin).ok()?.split('/');
        let (name, partition, offset, id) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let id = if id.is_empty() { TopicId::UNKNOWN } else { TopicId::of_text(id)? };
        Some(Self {
            due: time(due)?,
            topic: Topic { name: name.into(), id },
            partition: partition.parse().ok()?,
            offset: offset.parse().ok()?,
            first_at: time(first_at)?,
            why: DeferReason::of(why)?,
            count: number(count)?,
        })
    }
}

fn time(text: &[u8]) -> Option<Time> {
    Time::from_millis(number(text)?)
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
impl Deferral {
    pub(crate) fn sample(why: DeferReason, count: u32) -> Self {
        Self {
            due: Time::from_millis(1_763_661_600_000).unwrap(),
            topic: Topic { name: "send-intents".into(), id: TopicId(0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210) },
            partition: 3,
            offset: 1234,
            first_at: Time::from_millis(1_763_650_000_123).unwrap(),
            why,
            count,
        }
    }

    /// Reads the headers that it writes.
    pub(crate) fn read(headers: &[(&'static str, String)]) -> Option<Self> {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_bytes(), Some(value.as_bytes()))).collect();
        Self::of(headers.try_into().unwrap())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_deferral_is_five_headers() {
        let expected = [
            ("weir-due", "1763661600000"),
            ("weir-origin", "send-intents/3/1234/ASNFZ4mrze_-3LqYdlQyEA"),
            ("weir-first-at", "1763650000123"),
            ("weir-why", "quiet_hours"),
            ("weir-count", "1"),
        ];
        let headers = Deferral::sample(DeferReason::QuietHours, 1).headers();
        assert_eq!(*headers, expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn headers_that_weir_does_not_write_are_no_deferral() {
        for (place, value) in
            [(0, "soon"), (0, ""), (1, "t/3/x/"), (1, "t/3"), (1, "t/3/4/short"), (3, "why"), (4, "-1")]
        {
            let mut headers: Vec<_> = Deferral::sample(DeferReason::QuietHours, 1).headers().to_vec();
            headers[place].1 = value.to_owned();
            assert_eq!(Deferral::read(&headers), None, "{place} {value}");
        }
        let mut headers: Vec<_> = Deferral::sample(DeferReason::QuietHours, 1).headers().to_vec();
        headers.swap(0, 1);
        assert_eq!(Deferral::read(&headers), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            due in 0_i64..1 << 42, id in any::<u128>(), partition in 0..i32::MAX, offset in 0..i64::MAX,
            first_at in 0_i64..1 << 42, why in 0..DeferReason::ALL.len(), count in any::<u32>(),
        ) {
            let [due, first_at] = [due, first_at].map(|millis| Time::from_millis(millis).unwrap());
            let topic = Topic { name: "a.b-c_d".into(), id: TopicId(id) };
            let deferral = Deferral { due, topic, partition, offset, first_at, why: DeferReason::ALL[why], count };
            let headers = deferral.headers();
            prop_assert_eq!(Deferral::read(&headers), Some(deferral));
            let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len() + crate::decision::room::HEADER_BYTES).sum();
            prop_assert!(bytes <= HEADER_BYTES + "a.b-c_d".len());
        }
    }
}
