//! An approved record read back: the send that it is, as a history holds it.

use super::{
    class::{ClassNames, ClassNumbers},
    decision_header::DecisionHeader,
    decode::{Header, decode},
    fields::FieldMap,
    shard::{IdHash, UserHash},
    time::Time,
};

/// A record of the approved topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovedRecord {
    /// A send that counts.
    Counts(Sent),
    /// A send that is in no history.
    DoesNotCount,
    /// Not written by weir.
    Foreign,
}

/// A send that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Whose.
    pub user: UserHash,
    /// The intent's id.
    pub id: IdHash,
    /// When it was decided.
    pub at: Time,
    /// What it takes from caps.
    pub cost: u8,
    /// The numbers that stood for the class in Redis; 0 where there were none, or they were not known.
    pub numbers: ClassNumbers,
    names: [Option<String>; 3],
}

impl Sent {
    /// Channel, category and campaign.
    #[must_use]
    pub fn class(&self) -> ClassNames<'_> {
        let [channel, category, campaign] = self.names.each_ref().map(Option::as_deref);
        ClassNames { channel, category, campaign }
    }
}

/// Why an approved record of weir's cannot be read back. It names headers and fields, never a part of the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// Reads a record of the approved topic. Id and user are read from the value as they were when it was an intent.
///
/// # Errors
/// It is weir's and cannot be read: another mapping of fields, a header that was changed.
pub fn read<'a>(
    value: Option<&'a [u8]>,
    headers: impl IntoIterator<Item = Header<'a>> + Clone,
    fields: &FieldMap,
) -> Result<ApprovedRecord, Unreadable> {
    let Some(decision) = DecisionHeader::of(headers.clone()) else { return Ok(ApprovedRecord::Foreign) };
    let decision = decision.map_err(|error| Unreadable(error.to_string()))?;
    if !decision.counts {
        return Ok(ApprovedRecord::DoesNotCount);
    }
    let intent = decode(value, headers, fields).map_err(|letter| Unreadable(letter.message))?;
    Ok(ApprovedRecord::Counts(Sent {
        user: intent.user,
        id: intent.id_hash,
        at: decision.decided_at,
        cost: decision.cost(),
        numbers: decision.numbers(),
        names: decision.into_class(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Campaign, Kind};

    const VALUE: &str = r#"{"id":"i-1","user_id":42,"cost":3,"channel":"push"}"#;

    fn read_with(decision: Option<&str>, value: &str) -> Result<ApprovedRecord, Unreadable> {
        let forged = Header { key: b"weir-decision", value: Some(b"forged") };
        let ours = decision.map(|text| Header { key: b"weir-decision", value: Some(text.as_bytes()) });
        let headers: Vec<Header<'_>> = ours.iter().flat_map(|ours| [forged, *ours]).collect();
        read(Some(value.as_bytes()), headers, &FieldMap::default())
    }

    fn decision(more: &str) -> String {
        let versions = r#""policy_version":"p","segments_version":"s""#;
        format!(r#"{{"verdict":"approved","decided_at":"2026-11-20T09:00:00.000Z",{versions}{more}}}"#)
    }

    #[test]
    fn a_send_is_read_back_as_it_was_recorded() {
        let header = decision(r#","class":["push",null,"a \"b\""],"numbers":[12,345],"cost":3"#);
        let Ok(ApprovedRecord::Counts(sent)) = read_with(Some(&header), VALUE) else { panic!("it is a send") };
        let class = ClassNames { channel: Some("push"), category: None, campaign: Some("a \"b\"") };
        assert_eq!((sent.user, sent.id, sent.cost), (UserHash::of("42"), IdHash::of("i-1"), 3));
        assert_eq!((sent.at.millis(), sent.class()), (1_795_165_200_000, class));
        assert_eq!(sent.numbers, (Kind(12), Campaign(345)));
        // The cost is the one that was recorded: another mapping of fields may find another one in the value.
        let Ok(ApprovedRecord::Counts(sent)) = read_with(Some(&decision("")), VALUE) else { panic!("it is a send") };
        assert_eq!((sent.cost, sent.class(), sent.numbers), (1, ClassNames::default(), ClassNumbers::default()));
    }

    #[test]
    fn records_that_do_not_count_or_are_foreign_are_told_apart_from_unreadable_ones() {
        let uncounted = decision(r#","counts":false"#);
        assert_eq!(read_with(Some(&uncounted), VALUE), Ok(ApprovedRecord::DoesNotCount), "the last one is ours");
        assert_eq!(read_with(None, VALUE), Ok(ApprovedRecord::Foreign));
        assert!(read_with(Some("{}"), VALUE).unwrap_err().to_string().contains("weir-decision"));
        assert!(read_with(Some(&decision("")), r#"{"id":"i-1"}"#).is_err(), "no user");
    }
}
