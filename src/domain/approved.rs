//! An approved record read back: the send that it is, as a history holds it.

use std::num::NonZeroU8;

use super::{
    class::ClassNames,
    decode::{Header, decode},
    fields::FieldMap,
    header::HeaderName,
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

/// The last value of each header that is read.
#[derive(Default)]
struct Ours<'a> {
    at: Option<&'a [u8]>,
    cost: Option<&'a [u8]>,
    counts: Option<&'a [u8]>,
    class: Option<&'a [u8]>,
}

impl<'a> Ours<'a> {
    fn of(headers: impl IntoIterator<Item = Header<'a>>) -> Self {
        let mut ours = Self::default();
        for Header { key: name, value } in headers {
            let place = if name == HeaderName::DecidedAt.as_str().as_bytes() {
                &mut ours.at
            } else if name == HeaderName::Cost.as_str().as_bytes() {
                &mut ours.cost
            } else if name == HeaderName::Counts.as_str().as_bytes() {
                &mut ours.counts
            } else if name == HeaderName::Class.as_str().as_bytes() {
                &mut ours.class
            } else {
                continue;
            };
            *place = value;
        }
        ours
    }
}

/// Reads a record of the approved topic. Id and user are read from the value as they were when it was an intent.
///
/// # Errors
/// It is weir's and cannot be read: another mapping of fields, a header that was changed.
pub fn read<'a>(
    value: Option<&'a [u8]>,
    headers: impl IntoIterator<Item = Header<'a>> + Clone,
    fields: &FieldMap,
) -> Result<ApprovedRecord, Unreadable> {
    let Ours { at, cost, counts, class } = Ours::of(headers.clone());
    let (Some(at), Some(counts)) = (at, counts) else { return Ok(ApprovedRecord::Foreign) };
    match counts {
        b"true" => {}
        b"false" => return Ok(ApprovedRecord::DoesNotCount),
        _ => return Err(bad(HeaderName::Counts)),
    }
    let intent = decode(value, headers, fields).map_err(|letter| Unreadable(letter.message))?;
    let text = |bytes: Option<&'a [u8]>, name| str::from_utf8(bytes.unwrap_or_default()).map_err(|_| bad(name));
    let at = text(Some(at), HeaderName::DecidedAt)?;
    let at = at.parse().ok().and_then(Time::from_millis).ok_or_else(|| bad(HeaderName::DecidedAt))?;
    let cost: NonZeroU8 = text(cost, HeaderName::Cost)?.parse().map_err(|_| bad(HeaderName::Cost))?;
    let names = serde_json::from_slice(class.unwrap_or_default()).map_err(|_| bad(HeaderName::Class))?;
    Ok(ApprovedRecord::Counts(Sent { user: intent.user, id: intent.id_hash, at, cost: cost.get(), names }))
}

fn bad(name: HeaderName) -> Unreadable {
    Unreadable(format!("its header {} is not what weir writes", name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = r#"{"id":"i-1","user_id":42,"cost":3,"channel":"push"}"#;
    const HEADERS: [(&str, &str); 4] = [
        ("weir-decided-at", "1795132800000"),
        ("weir-cost", "3"),
        ("weir-counts", "true"),
        ("weir-class", r#"["push",null,"a \"b\""]"#),
    ];

    fn read_with(changes: &[(&'static str, &'static str)], without: &[&str]) -> Result<ApprovedRecord, Unreadable> {
        let headers = HEADERS.iter().chain(changes).filter(|(name, _)| !without.contains(name));
        let headers: Vec<Header<'_>> =
            headers.map(|(name, value)| Header { key: name.as_bytes(), value: Some(value.as_bytes()) }).collect();
        read(Some(VALUE.as_bytes()), headers, &FieldMap::default())
    }

    #[test]
    fn a_send_is_read_back_as_it_was_recorded() {
        let Ok(ApprovedRecord::Counts(sent)) = read_with(&[], &[]) else { panic!("it is a send") };
        let class = ClassNames { channel: Some("push"), category: None, campaign: Some("a \"b\"") };
        assert_eq!((sent.user, sent.id, sent.cost), (UserHash::of("42"), IdHash::of("i-1"), 3));
        assert_eq!((sent.at.millis(), sent.class()), (1_795_132_800_000, class));
    }

    #[test]
    fn what_does_not_count_or_is_not_ours_is_told_apart_from_what_is_spoilt() {
        assert_eq!(
            read_with(&[("weir-counts", "false")], &[]),
            Ok(ApprovedRecord::DoesNotCount),
            "the last one is ours"
        );
        assert_eq!(read_with(&[], &["weir-decided-at"]), Ok(ApprovedRecord::Foreign));
        assert_eq!(read_with(&[], &["weir-counts"]), Ok(ApprovedRecord::Foreign));
        for (name, value) in
            [("weir-decided-at", "now"), ("weir-cost", "0"), ("weir-counts", "yes"), ("weir-class", "push")]
        {
            let unreadable = read_with(&[(name, value)], &[]).unwrap_err();
            assert!(unreadable.to_string().contains(name), "{unreadable}");
        }
        assert!(read_with(&[], &["weir-class"]).is_err());
    }
}
