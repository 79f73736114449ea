//! The header `weir-decision` of an approved record: the decision, as compact JSON. A field is absent instead of null or its
//! default value.

use std::{borrow::Cow, num::NonZeroU8, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    envelope::{put_deferred, put_denying},
    verdict::{Counts, Decision, Deferred, DenyingBudget, DenyingCap, SuppressReason},
};
use crate::{
    basis::{header::HeaderName, json::Json, time::Time},
    intent::{
        Intent,
        class::{Campaign, ClassNumbers, Kind, MAX_NAME_BYTES, table_name},
        dead_letter::{DeadLetter, DeadLetterReason},
        decode::Header,
    },
};

/// Bytes of the header's name, of its fields' names, and of all values but names: times, numbers, fixed words.
const FIXED_BYTES: usize = 768;

/// The most bytes that the header takes, its name included, where the names of segment, cap and budgets and the versions of
/// policy and segments have at most `names_bytes` bytes together. JSON writes a byte in at most six; the names of a class are cut
/// ([`table_name`]).
pub const fn max_bytes(names_bytes: usize) -> usize {
    FIXED_BYTES + 6 * (3 * MAX_NAME_BYTES + names_bytes)
}

/// The header's value for a decision to approve. `numbers` stand for the class in Redis, where they are known.
pub fn write(decision: &Decision<'_>, counts: Counts, intent: &Intent<'_>, numbers: Option<ClassNumbers>) -> String {
    let Decision { verdict, segment, decided_at, policy_version, segments_version, .. } = *decision;
    let mut json = Json(Vec::with_capacity(320));
    json.raw(r#"{"verdict":""#).raw(verdict.as_str()).raw("\"");
    let suppressed = verdict.suppressed();
    if let Some(suppressed) = suppressed {
        json.raw(r#","reason":""#).raw(suppressed.reason().as_str()).raw("\"");
    }
    if let Some(segment) = segment {
        json.raw(r#","segment":"#).text(segment);
    }
    if let Some(suppressed) = suppressed {
        put_denying(&mut json, &suppressed.cause);
    }
    if let Some(eligible_at) = suppressed.and_then(|suppressed| suppressed.eligible_at) {
        json.raw(r#","eligible_at":""#).bytes(&eligible_at.rfc3339()).raw("\"");
    }
    json.raw(r#","decided_at":""#).bytes(&decided_at.rfc3339());
    json.raw(r#"","policy_version":"#).text(policy_version).raw(r#","segments_version":"#).text(segments_version);
    put_class(&mut json, intent);
    if let Some((kind, campaign)) = numbers.filter(|numbers| *numbers != ClassNumbers::default()) {
        json.raw(r#","numbers":["#).number(kind.0.into()).raw(",").number(campaign.0.into()).raw("]");
    }
    if intent.cost != 1 {
        json.raw(r#","cost":"#).number(intent.cost.into());
    }
    put_budgets(&mut json, decision.budgets);
    if let Some(deferred) = decision.deferred {
        put_deferred(&mut json, &deferred);
    }
    json.raw(match counts {
        Counts::Yes => "}",
        Counts::No => r#","counts":false}"#,
        Counts::Later => r#","recorded":"later"}"#,
    });
    String::from_utf8(json.0).expect("it was put together of strings")
}

/// The header of a record whose delivery is tried again: the one that it has, with the number of this retry.
pub fn with_retry(value: &[u8], retry: u32) -> Result<String, Unreadable> {
    let before = DecisionHeader::read(value)?.retry;
    let text = std::str::from_utf8(value).map_err(|_| Unreadable("it is not UTF-8".to_owned()))?;
    let text = match before {
        0 => text.strip_suffix('}'),
        before => text.strip_suffix(&format!(r#","retry":{before}}}"#)),
    };
    let text = text.ok_or_else(|| Unreadable("it was written again by something else".to_owned()))?;
    Ok(format!(r#"{text},"retry":{retry}}}"#))
}

/// The class: names as the tables of numbers have them, without nulls at the end.
fn put_class(json: &mut Json, intent: &Intent<'_>) {
    let class = intent.class();
    let names = [class.channel, class.category, class.campaign];
    let Some(last) = names.iter().rposition(Option::is_some) else { return };
    for (name, before) in names[..=last].iter().zip([r#","class":["#, ",", ","]) {
        json.raw(before);
        match name.map(table_name) {
            Some(name) => json.text(&name),
            None => json.raw("null"),
        };
    }
    json.raw("]");
}

fn put_budgets(json: &mut Json, budgets: &[Arc<str>]) {
    let Some((first, others)) = budgets.split_first() else { return };
    json.raw(r#","budgets":["#).text(first);
    for name in others {
        json.raw(",").text(name);
    }
    json.raw("]");
}

/// The header's format. Ignore unknown members.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "weir decision header", extend("$id" = "weir.decision-header/2"))]
pub(crate) struct HeaderShape<'a> {
    /// `shadow-suppressed`: the intent is approved because the policy is in shadow mode.
    #[schemars(extend("enum" = ["approved", "shadow-suppressed"]))]
    verdict: &'static str,
    /// In shadow mode: why the intent would be suppressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SuppressReason")]
    reason: Option<SuppressReason>,
    /// The user's segment; absent for a user in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cow<'_, str>")]
    segment: Option<&'a str>,
    /// In shadow mode: the cap that would deny the intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DenyingCap<'_>")]
    cap: Option<DenyingCap<'a>>,
    /// In shadow mode: the budget that would deny the intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DenyingBudget<'_>")]
    budget: Option<DenyingBudget<'a>>,
    /// In shadow mode: the first moment at which this reason would allow the intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    eligible_at: Option<Time>,
    /// The time at which the caps were evaluated.
    decided_at: Time,
    /// The policy that decided.
    policy_version: &'a str,
    /// The segments that decided.
    segments_version: &'a str,
    /// Channel, category and campaign, without nulls at the end; absent if the intent has none of them.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schemars(length(min = 1, max = 3))]
    class: &'a [Option<&'a str>],
    /// The numbers of kind (channel and category) and campaign in Redis, 0 for none; absent if weir does not know them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "(u16, u32)")]
    numbers: Option<(u16, u32)>,
    /// The amount that the intent takes from caps and budgets; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(min = 2, max = 255))]
    cost: Option<u8>,
    /// The names of the budgets that the intent took from; absent if it took from none.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schemars(length(min = 1, max = 255))]
    budgets: &'a [&'a str],
    /// What came before, if the intent had been deferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Deferred")]
    deferred: Option<Deferred>,
    /// `false`: the intent is not recorded in the user's history, and does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool", extend("const" = false))]
    counts: Option<bool>,
    /// `later`: the user's history was unavailable, so no cap was evaluated; weir records the intent once the history is
    /// available again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cow<'_, str>", extend("const" = "later"))]
    recorded: Option<&'static str>,
    /// The number of the retry, if the delivery failed before and is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1))]
    retry: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DecisionHeader<'a> {
    #[serde(rename = "verdict")]
    _verdict: Approval,
    #[serde(default, borrow)]
    pub segment: Option<Cow<'a, str>>,
    /// The time at which the caps were evaluated.
    pub decided_at: Time,
    #[serde(default)]
    class: Vec<Option<String>>,
    #[serde(default)]
    numbers: (u16, u32),
    #[serde(default = "one")]
    cost: NonZeroU8,
    #[serde(default)]
    budgets: Vec<String>,
    /// Whether the intent is in the user's history, or will be.
    #[serde(default = "yes")]
    pub counts: bool,
    /// The number of the retry; 0 for the approval itself.
    #[serde(default)]
    pub retry: u32,
}

/// Why an approved record has the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Approval {
    Approved,
    ShadowSuppressed,
}

const fn one() -> NonZeroU8 {
    NonZeroU8::MIN
}

const fn yes() -> bool {
    true
}

/// A header that weir does not write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its last header {} is not what weir writes: {}", HeaderName::Decision.as_str(), .0)]
pub struct Unreadable(String);

/// What becomes of its record.
impl From<Unreadable> for DeadLetter {
    fn from(error: Unreadable) -> Self {
        Self::new(DeadLetterReason::WrongType, error.to_string())
    }
}

impl<'a> DecisionHeader<'a> {
    /// The decision in a record's headers; `None` where there is none. Where several have the name, the last one is weir's: the
    /// others came with the intent.
    pub fn of(headers: impl IntoIterator<Item = Header<'a>>) -> Option<Result<Self, Unreadable>> {
        let name = HeaderName::Decision.as_str().as_bytes();
        let last = headers.into_iter().filter(|header| header.key == name).last()?;
        Some(Self::read(last.value.unwrap_or_default()))
    }

    pub(crate) fn read(value: &'a [u8]) -> Result<Self, Unreadable> {
        // The error of a parser may hold a part of the value, which may be a user's.
        let read: Self = serde_json::from_slice(value)
            .map_err(|error| Unreadable(format!("{:?} error at byte {}", error.classify(), error.column())))?;
        if read.class.len() > 3 {
            return Err(Unreadable(format!("a class of {} names", read.class.len())));
        }
        if read.numbers.1 > Campaign::OVERFLOW.0 {
            return Err(Unreadable(format!("{} is no campaign's number", read.numbers.1)));
        }
        Ok(read)
    }

    pub fn cost(&self) -> u8 {
        self.cost.get()
    }

    /// The numbers of kind and campaign; 0 where there are none, or they were not known.
    pub fn numbers(&self) -> ClassNumbers {
        (Kind(self.numbers.0), Campaign(self.numbers.1))
    }

    /// The names of the budgets that the intent took from.
    pub fn budgets(&self) -> &[String] {
        &self.budgets
    }

    /// Channel, category and campaign.
    pub fn into_class(self) -> [Option<String>; 3] {
        self.into_class_and_budgets().0
    }

    /// Channel, category and campaign; and the names of the budgets that the intent took from.
    pub fn into_class_and_budgets(self) -> ([Option<String>; 3], Vec<String>) {
        let mut names = self.class.into_iter();
        ([(); 3].map(|()| names.next().flatten()), self.budgets)
    }
}

#[cfg(test)]
mod tests;
