//! What became of an intent, as the outside is told.

use std::borrow::Cow;

use serde::Serialize;

use super::{header::HeaderName, intent::Intent, origin::Origin, time::Time};

/// Why an intent is not sent.
///
/// Later versions add `budget`, `pressure` and `capacity`; readers should let words pass that they do
/// not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SuppressReason {
    /// A cap of the user's segment denies it.
    Cap,
    /// This id was approved for this user before.
    Duplicate,
    /// It is past `expires_at`, or older than the policy's `max_age`.
    Expired,
    /// `not_before` has not come, and there is no topic to defer it to.
    TooEarly,
    /// It is quiet where the user is.
    QuietHours,
    /// Redis is away, or has lost the user's history, and the policy says not to wait for it.
    Unavailable,
}

impl SuppressReason {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Cap, Self::Duplicate, Self::Expired, Self::TooEarly, Self::QuietHours, Self::Unavailable];

    /// The word for it in envelopes, headers and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cap => "cap",
            Self::Duplicate => "duplicate",
            Self::Expired => "expired",
            Self::TooEarly => "too_early",
            Self::QuietHours => "quiet_hours",
            Self::Unavailable => "unavailable",
        }
    }
}

/// What a cap looks back over, as a policy writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapSpan<'a> {
    /// A sliding window's length, such as `24h`.
    Window(&'a str),
    /// A calendar period: `day`, `week` or `month`.
    Per(&'a str),
}

/// The cap that denied; where several did, the one that frees last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct DenyingCap<'a> {
    /// Its name in the policy.
    pub name: &'a str,
    /// The most that may be sent in its window, in costs.
    pub limit: u32,
    /// What it looks back over.
    #[serde(flatten)]
    pub span: CapSpan<'a>,
    /// What the window holds already, in costs.
    pub used: u32,
}

/// Why one intent is not sent, with what belongs to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause<'a> {
    /// This cap denies it.
    Cap(DenyingCap<'a>),
    /// See [`SuppressReason::Duplicate`].
    Duplicate,
    /// See [`SuppressReason::Expired`].
    Expired,
    /// See [`SuppressReason::TooEarly`].
    TooEarly,
    /// See [`SuppressReason::QuietHours`].
    QuietHours,
    /// See [`SuppressReason::Unavailable`].
    Unavailable,
}

/// That an intent is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suppressed<'a> {
    /// Why.
    pub cause: Cause<'a>,
    /// The first moment at which this cause would let the same intent through; `None` where there is none.
    pub eligible_at: Option<Time>,
}

impl Suppressed<'_> {
    /// Why, in one word.
    #[must_use]
    pub const fn reason(&self) -> SuppressReason {
        match self.cause {
            Cause::Cap(_) => SuppressReason::Cap,
            Cause::Duplicate => SuppressReason::Duplicate,
            Cause::Expired => SuppressReason::Expired,
            Cause::TooEarly => SuppressReason::TooEarly,
            Cause::QuietHours => SuppressReason::QuietHours,
            Cause::Unavailable => SuppressReason::Unavailable,
        }
    }
}

/// Whether a send is in the user's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counts {
    /// It is recorded, and counts against later sends.
    Yes,
    /// It was approved while its history was away: it counts from when it is recorded, once that is back.
    Later,
    /// It went by a bypass that does not count.
    No,
}

impl Counts {
    /// `true` or `false`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Yes | Self::Later => "true",
            Self::No => "false",
        }
    }
}

/// What became of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It is sent.
    Approved(Counts),
    /// It is sent because the policy is in shadow mode; else it would not have been.
    ShadowSuppressed(Suppressed<'a>, Counts),
    /// It is not sent.
    Suppressed(Suppressed<'a>),
}

impl<'a> Verdict<'a> {
    /// The word for it in envelopes, headers and metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Approved(_) => "approved",
            Self::ShadowSuppressed(..) => "shadow-suppressed",
            Self::Suppressed(_) => "suppressed",
        }
    }

    /// Why it is not sent, or would not have been.
    #[must_use]
    pub const fn suppressed(&self) -> Option<&Suppressed<'a>> {
        match self {
            Self::Approved(_) => None,
            Self::ShadowSuppressed(suppressed, _) | Self::Suppressed(suppressed) => Some(suppressed),
        }
    }

    /// Whether the send is in the user's history; `None` for what is not sent.
    const fn counts(&self) -> Option<Counts> {
        match self {
            Self::Approved(counts) | Self::ShadowSuppressed(_, counts) => Some(*counts),
            Self::Suppressed(_) => None,
        }
    }
}

/// A verdict with what it was based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'a> {
    /// What became of the intent.
    pub verdict: Verdict<'a>,
    /// The user's segment; `None` in none.
    pub segment: Option<&'a str>,
    /// The time it was judged by.
    pub decided_at: Time,
    /// Which policy decided.
    pub policy_version: &'a str,
    /// By which segments.
    pub segments_version: &'a str,
    /// Where the intent first came from.
    pub origin: Origin<'a>,
}

impl<'a> Decision<'a> {
    /// The headers that an approved record gets, behind its own; none for a verdict of suppressed.
    #[must_use]
    pub fn approved_headers(&self, intent: &Intent<'_>) -> Vec<(HeaderName, Cow<'a, str>)> {
        let Some(counts) = self.verdict.counts() else { return Vec::new() };
        let mut headers = Vec::with_capacity(10);
        headers.push((HeaderName::Verdict, self.verdict.as_str().into()));
        headers.extend(self.verdict.suppressed().map(|why| (HeaderName::ShadowReason, why.reason().as_str().into())));
        headers.push((HeaderName::DecidedAt, itoa::Buffer::new().format(self.decided_at.millis()).to_owned().into()));
        headers.extend(self.segment.map(|segment| (HeaderName::Segment, segment.into())));
        headers.push((HeaderName::Policy, self.policy_version.into()));
        headers.push((HeaderName::Segments, self.segments_version.into()));
        headers.push((HeaderName::Cost, itoa::Buffer::new().format(intent.cost).to_owned().into()));
        headers.push((HeaderName::Counts, counts.as_str().into()));
        headers.push((HeaderName::Class, intent.class().to_json().into()));
        match counts {
            Counts::Yes | Counts::No => {}
            Counts::Later => headers.push((HeaderName::Recorded, "later".into())),
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{decode::decode, fields::FieldMap};

    fn headers(verdict: Verdict<'_>, segment: Option<&str>, value: &str) -> Vec<String> {
        let intent = decode(Some(value.as_bytes()), [], &FieldMap::default()).unwrap();
        let decision = Decision {
            verdict,
            segment,
            decided_at: Time::from_millis(1_795_165_200_000).unwrap(),
            policy_version: "2026-11-20.1",
            segments_version: "2026-11-20T00:00:00Z",
            origin: Origin { topic: "send-intents", partition: 3, offset: 1234 },
        };
        let headers = decision.approved_headers(&intent);
        headers.iter().map(|(name, value)| format!("{}: {value}", name.as_str())).collect()
    }

    #[test]
    fn an_approved_record_says_by_what_it_was_approved() {
        let value = r#"{"id":"i","user_id":"u","channel":"push","category":"a \"b\"","cost":7}"#;
        assert_eq!(
            headers(Verdict::Approved(Counts::Yes), Some("new"), value),
            [
                "weir-verdict: approved",
                "weir-decided-at: 1795165200000",
                "weir-segment: new",
                "weir-policy: 2026-11-20.1",
                "weir-segments: 2026-11-20T00:00:00Z",
                "weir-cost: 7",
                "weir-counts: true",
                r#"weir-class: ["push","a \"b\"",null]"#,
            ]
        );
    }

    #[test]
    fn a_user_in_no_segment_and_a_send_that_does_not_count_show_in_the_headers() {
        let headers = headers(Verdict::Approved(Counts::No), None, r#"{"id":"i","user_id":"u"}"#);
        assert!(!headers.iter().any(|header| header.starts_with("weir-segment:")), "{headers:?}");
        let tail = ["weir-cost: 1", "weir-counts: false", "weir-class: [null,null,null]"];
        assert_eq!(headers[headers.len() - 3..], tail);
    }

    #[test]
    fn a_send_that_is_recorded_later_counts_and_says_so() {
        let headers = headers(Verdict::Approved(Counts::Later), None, r#"{"id":"i","user_id":"u"}"#);
        let tail = ["weir-counts: true", "weir-class: [null,null,null]", "weir-recorded: later"];
        assert_eq!(headers[headers.len() - 3..], tail);
    }

    #[test]
    fn a_record_sent_in_shadow_mode_alone_says_why_it_would_not_have_been() {
        for (cause, reason) in [
            (Cause::Duplicate, SuppressReason::Duplicate),
            (Cause::Expired, SuppressReason::Expired),
            (Cause::TooEarly, SuppressReason::TooEarly),
            (Cause::QuietHours, SuppressReason::QuietHours),
            (Cause::Unavailable, SuppressReason::Unavailable),
        ] {
            let verdict = Verdict::ShadowSuppressed(Suppressed { cause, eligible_at: None }, Counts::Yes);
            let headers = headers(verdict, None, r#"{"id":"i","user_id":"u"}"#);
            let reason = format!("weir-shadow-reason: {}", reason.as_str());
            assert_eq!(headers[..2], ["weir-verdict: shadow-suppressed".to_owned(), reason]);
        }
    }

    #[test]
    fn what_is_not_sent_has_no_headers_of_an_approved_record() {
        let verdict = Verdict::Suppressed(Suppressed { cause: Cause::Expired, eligible_at: None });
        assert!(headers(verdict, Some("new"), r#"{"id":"i","user_id":"u"}"#).is_empty());
    }

    #[test]
    fn a_reason_is_the_same_word_everywhere() {
        for reason in SuppressReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
    }
}
