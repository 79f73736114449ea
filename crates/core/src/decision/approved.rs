//! An approved record read back: the send that it is, as a history holds it.

use super::decision_header::DecisionHeader;
use crate::{
    basis::{
        shard::{IdHash, OriginMark, UserHash},
        time::Time,
    },
    history::deferred_send::PastSend,
    intent::{
        class::{ClassNames, ClassNumbers},
        dead_letter::DeadLetter,
        decode::{Header, decode},
        fields::FieldMap,
    },
    limit::budget::RecordSpend,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovedRecord {
    Counts(Sent),
    /// A send that is in no history. It takes from budgets all the same.
    DoesNotCount(RecordSpend),
    /// Another delivery of a send that was approved before.
    Retried,
    /// Not written by weir.
    Foreign,
}

/// A send that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub user: UserHash,
    pub id: IdHash,
    /// When it was decided.
    pub at: Time,
    pub cost: u8,
    /// The numbers that stood for the class in Redis; 0 where there were none, or they were not known.
    pub numbers: ClassNumbers,
    pub budgets: Vec<String>,
    names: [Option<String>; 3],
}

impl Sent {
    pub fn class(&self) -> ClassNames<'_> {
        let [channel, category, campaign] = self.names.each_ref().map(Option::as_deref);
        ClassNames { channel, category, campaign }
    }

    /// The send, without its intent's own origin, which the record does not tell: the same id again is a duplicate.
    pub fn past(&self) -> PastSend<'_> {
        let Self { user, id, at, cost, .. } = *self;
        PastSend { user, id, origin: OriginMark::RESTORED, at, class: self.class(), cost }
    }

    pub fn spent(&self) -> RecordSpend {
        let campaign = self.class().campaign.map(str::to_owned);
        RecordSpend { at: self.at, cost: self.cost, campaign, budgets: self.budgets.clone() }
    }
}

/// Reads a record of the approved topic. Id and user are read from the value as they were when it was an intent. Fails for one that is
/// weir's and cannot be read: another mapping of fields, a header that was changed.
pub fn read<'a>(
    value: Option<&'a [u8]>,
    headers: impl IntoIterator<Item = Header<'a>> + Clone,
    fields: &FieldMap,
) -> Result<ApprovedRecord, DeadLetter> {
    let Some(decision) = DecisionHeader::of(headers.clone()) else { return Ok(ApprovedRecord::Foreign) };
    let decision = decision?;
    if decision.retry > 0 {
        return Ok(ApprovedRecord::Retried);
    }
    let (at, cost, counts, numbers) = (decision.decided_at, decision.cost(), decision.counts, decision.numbers());
    let (names, budgets) = decision.into_class_and_budgets();
    if !counts {
        let [_, _, campaign] = names;
        return Ok(ApprovedRecord::DoesNotCount(RecordSpend { at, cost, campaign, budgets }));
    }
    let intent = decode(value, headers, fields)?;
    let (user, id) = (intent.user, intent.id_hash);
    Ok(ApprovedRecord::Counts(Sent { user, id, at, cost, numbers, budgets, names }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::class::{Campaign, Kind};

    const VALUE: &str = r#"{"id":"i-1","user_id":42,"cost":3,"channel":"push"}"#;

    fn read_with(decision: Option<&str>, value: &str) -> Result<ApprovedRecord, DeadLetter> {
        let forged = Header { key: b"weir-decision", value: Some(b"forged") };
        let ours = decision.map(|text| Header { key: b"weir-decision", value: Some(text.as_bytes()) });
        let headers: Vec<Header<'_>> = ours.iter().flat_map(|ours| [forged, *ours]).collect();
        read(Some(value.as_bytes()), headers, &FieldMap::default())
    }

    fn decision(more: &str) -> String {
        let versions = r#""policy_version":"p","segments_version":"s""#;
        format!(r#"{{"verdict":"approved","decided_at":"2026-11-20T09:00:00.000Z",{versions}{more}}}"#)
    }

    fn spent(cost: u8, campaign: Option<&str>, budgets: &[&str]) -> RecordSpend {
        let budgets = budgets.iter().map(|&name| name.to_owned()).collect();
        let at = Time::from_rfc3339("2026-11-20T09:00:00Z").unwrap();
        RecordSpend { at, cost, campaign: campaign.map(str::to_owned), budgets }
    }

    #[test]
    fn a_send_is_read_back_as_it_was_recorded() {
        let header =
            decision(r#","class":["push",null,"a \"b\""],"numbers":[12,345],"cost":3,"budgets":["spring","all"]"#);
        let Ok(ApprovedRecord::Counts(sent)) = read_with(Some(&header), VALUE) else { panic!("it is a send") };
        let class = ClassNames { channel: Some("push"), category: None, campaign: Some("a \"b\"") };
        assert_eq!((sent.user, sent.id, sent.cost), (UserHash::of("42"), IdHash::of("i-1"), 3));
        assert_eq!((sent.at.millis(), sent.class()), (1_795_165_200_000, class));
        assert_eq!(sent.numbers, (Kind(12), Campaign(345)));
        assert_eq!(sent.spent(), spent(3, Some("a \"b\""), &["spring", "all"]));
        // The cost is the one that was recorded: another mapping of fields may find another one in the value.
        let Ok(ApprovedRecord::Counts(sent)) = read_with(Some(&decision("")), VALUE) else { panic!("it is a send") };
        assert_eq!((sent.cost, sent.class(), sent.numbers), (1, ClassNames::default(), ClassNumbers::default()));
        assert_eq!(sent.spent(), spent(1, None, &[]));
    }

    #[test]
    fn records_that_do_not_count_or_are_foreign_are_told_apart_from_unreadable_ones() {
        let bypass = r#","class":[null,"otp","c"],"cost":9,"budgets":["sms"],"counts":false"#;
        for (more, expected) in [
            (r#","counts":false"#, ApprovedRecord::DoesNotCount(spent(1, None, &[]))),
            (bypass, ApprovedRecord::DoesNotCount(spent(9, Some("c"), &["sms"]))),
            // Its first record counts.
            (r#","budgets":["sms"],"retry":2"#, ApprovedRecord::Retried),
        ] {
            assert_eq!(read_with(Some(&decision(more)), VALUE), Ok(expected), "{more}: the last header is ours");
        }
        assert_eq!(read_with(None, VALUE), Ok(ApprovedRecord::Foreign));
        assert!(read_with(Some("{}"), VALUE).unwrap_err().to_string().contains("weir-decision"));
        assert!(read_with(Some(&decision("")), r#"{"id":"i-1"}"#).is_err(), "no user");
    }
}
