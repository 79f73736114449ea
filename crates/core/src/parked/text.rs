//! What waits in a partition, as text: the metadata that is committed beside its offset.
//!
//! JSON, so that whoever looks at the group's offsets can read it:
//! `{"weir":"parked/1","fields":"…","next":900,"terms":[…],"spans":[{"from":100,"to":900,"away":[[0,"0-84,90"]]}]}`.
//! A span names its conditions: the place of the terms, and the shards.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use serde::{Deserialize, Serialize};

use super::super::{
    class::Filter,
    policy::{Bypass, Counts, OnUnavailable, Unavailable},
    shard::SLOTS,
};
use super::{Condition, Parked, Span, Terms};

/// The most that an intent left out may make of it, in bytes. A broker takes 4,096 unless `offset.metadata.max.bytes` says
/// otherwise; what is decided in the middle of a span makes it longer, too.
pub const ROOM_BYTES: usize = 3_200;
/// The most that is read, in bytes.
const MAX_TEXT_BYTES: usize = 65_536;
/// The name of this form.
const FORM: &str = "parked/1";

/// Why a text was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParkedError {
    /// It is none of weir's.
    #[error("it was not written by weir")]
    NotOurs,
    /// It is weir's, and cannot be read.
    #[error("what weir wrote beside the offset cannot be read ({0})")]
    Unreadable(String),
    /// The intents' fields were found elsewhere when it was written.
    #[error(
        "intents wait for their shards since [intent.fields] was another: put it back until weir_parked_offsets is 0"
    )]
    OtherFields,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    weir: String,
    fields: String,
    next: i64,
    terms: Vec<TermsText>,
    spans: Vec<SpanText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TermsText {
    shards: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bypass: Vec<RuleText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    away: Vec<RuleText>,
}

/// A rule, and whether what it speaks of counts (a bypass) or waits.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channel: Option<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    category: Option<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    campaign: Option<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "is_false")]
    yes: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpanText {
    from: i64,
    to: i64,
    away: Vec<(usize, String)>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference over")]
const fn is_false(yes: &bool) -> bool {
    !*yes
}

impl Terms {
    fn text(&self) -> TermsText {
        let bypass = |rule: &Bypass| RuleText {
            channel: rule.filter.channels.clone(),
            category: rule.filter.categories.clone(),
            campaign: rule.campaigns.clone(),
            yes: rule.counts != Counts::No,
        };
        let away = |rule: &OnUnavailable| RuleText {
            channel: rule.filter.channels.clone(),
            category: rule.filter.categories.clone(),
            campaign: None,
            yes: rule.action == Unavailable::Wait,
        };
        TermsText {
            shards: self.shards,
            bypass: self.bypass.iter().map(bypass).collect(),
            away: self.on_unavailable.iter().map(away).collect(),
        }
    }

    fn read(text: TermsText) -> Self {
        let filter = |channels, categories| Filter { channels, categories };
        let bypass = |rule: RuleText| Bypass {
            filter: filter(rule.channel, rule.category),
            campaigns: rule.campaign,
            counts: if rule.yes { Counts::Yes } else { Counts::No },
        };
        let away = |rule: RuleText| OnUnavailable {
            filter: filter(rule.channel, rule.category),
            action: if rule.yes { Unavailable::Wait } else { Unavailable::Suppress },
        };
        Self {
            shards: text.shards,
            bypass: text.bypass.into_iter().map(bypass).collect(),
            on_unavailable: text.away.into_iter().map(away).collect(),
        }
    }
}

impl Parked {
    /// What is committed beside the offset, where something waits; `fields` stands for where the intents' fields are.
    #[must_use]
    pub fn text(&self, fields: u64) -> String {
        let mut terms: Vec<&Terms> = Vec::new();
        let mut spans = Vec::with_capacity(self.spans.len());
        for span in &self.spans {
            let mut away = Vec::with_capacity(span.conditions.len());
            for condition in &span.conditions {
                let place = terms.iter().position(|known| **known == *condition.terms).unwrap_or_else(|| {
                    terms.push(&condition.terms);
                    terms.len() - 1
                });
                away.push((place, ranges(&condition.away)));
            }
            spans.push(SpanText { from: span.from, to: span.to, away });
        }
        let terms = terms.into_iter().map(Terms::text).collect();
        let text = Text { weir: FORM.to_owned(), fields: format!("{fields:016x}"), next: self.next, terms, spans };
        serde_json::to_string(&text).expect("it is made of numbers and strings")
    }

    /// Reads it again.
    ///
    /// # Errors
    /// It is not weir's, or cannot be read, or the fields are found elsewhere now.
    pub fn of_text(text: &str, fields: u64) -> Result<Self, ParkedError> {
        let unreadable = |why: &str| ParkedError::Unreadable(why.to_owned());
        if !text.starts_with("{\"weir\":") {
            return Err(ParkedError::NotOurs);
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(unreadable("it is too long"));
        }
        let read: Text = serde_json::from_str(text).map_err(|error| unreadable(&error.to_string()))?;
        if read.weir != FORM {
            return Err(unreadable("another release of weir wrote it"));
        }
        if read.fields != format!("{fields:016x}") {
            return Err(ParkedError::OtherFields);
        }
        if read.terms.iter().any(|terms| terms.shards == 0 || terms.shards > SLOTS) {
            return Err(unreadable("there cannot be so many shards"));
        }
        let terms: Vec<Arc<Terms>> = read.terms.into_iter().map(|terms| Arc::new(Terms::read(terms))).collect();
        let mut spans: Vec<Span> = Vec::with_capacity(read.spans.len());
        for span in read.spans {
            let mut conditions = Vec::with_capacity(span.away.len());
            for (place, away) in span.away {
                let terms = terms.get(place).ok_or_else(|| unreadable("a span has no terms"))?;
                let away = shards(&away, terms.shards).ok_or_else(|| unreadable("a span's shards are no shards"))?;
                conditions.push(Condition { terms: Arc::clone(terms), away: Arc::new(away) });
            }
            let before = spans.last().map_or(0, |before: &Span| before.to);
            if conditions.is_empty() || span.from < before || span.to <= span.from || span.to > read.next {
                return Err(unreadable("spans are not in order"));
            }
            spans.push(Span { from: span.from, to: span.to, conditions });
        }
        Ok(Self { spans, next: read.next, decided: None })
    }
}

/// Numbers as ranges: `0-84,90`.
fn ranges(numbers: &BTreeSet<u16>) -> String {
    let mut text = String::new();
    let mut numbers = numbers.iter().copied().peekable();
    while let Some(first) = numbers.next() {
        let mut last = first;
        while let Some(next) = numbers.next_if(|next| last.checked_add(1) == Some(*next)) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let range = if last > first { format!("-{last}") } else { String::new() };
        let _ = write!(text, "{comma}{first}{range}");
    }
    text
}

/// The shards of ranges in ascending order, of so many; `None` where a text is none.
fn shards(text: &str, shards: u16) -> Option<BTreeSet<u16>> {
    let mut numbers = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        let ascends = numbers.last().is_none_or(|before| *before < first) && first <= last;
        if !ascends || last >= shards {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}
