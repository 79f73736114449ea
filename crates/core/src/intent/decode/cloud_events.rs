//! CloudEvents on Kafka: how a record says that it is one, by the Kafka protocol binding 1.0.

/// A header of a record. Neither part need be UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// How fields are carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentMode<'a> {
    /// The value is a whole event, with its data inside.
    Structured,
    /// The value is the intent; the headers may hold an event's attributes.
    Plain(Attributes<'a>),
}

/// The attributes of an event in binary mode that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Attributes<'a> {
    /// `ce_id`.
    pub(super) id: Option<&'a [u8]>,
    /// `ce_source`.
    pub(super) source: Option<&'a [u8]>,
    /// `ce_subject`.
    pub(super) subject: Option<&'a [u8]>,
    /// `ce_time`.
    pub(super) time: Option<&'a [u8]>,
}

impl<'a> ContentMode<'a> {
    /// The mode that a record's headers speak of. As everywhere in Kafka, the last of several headers of one name
    /// counts; names are taken in any case, as the CloudEvents SDKs do.
    ///
    /// An event format other than JSON, and a batch, which the binding does not know, are not structured mode: the
    /// value is read as any other and fails as what it is.
    pub(super) fn of(headers: impl IntoIterator<Item = Header<'a>>) -> Self {
        let mut attributes = Attributes::default();
        let mut content_type = None;
        for Header { key, value } in headers {
            let place = if key.eq_ignore_ascii_case(b"content-type") {
                &mut content_type
            } else if key.eq_ignore_ascii_case(b"ce_id") {
                &mut attributes.id
            } else if key.eq_ignore_ascii_case(b"ce_source") {
                &mut attributes.source
            } else if key.eq_ignore_ascii_case(b"ce_subject") {
                &mut attributes.subject
            } else if key.eq_ignore_ascii_case(b"ce_time") {
                &mut attributes.time
            } else {
                continue;
            };
            *place = value;
        }
        if content_type.is_some_and(is_structured) { Self::Structured } else { Self::Plain(attributes) }
    }
}

/// Whether a content type is that of an event in JSON: the media type in any case, with any parameters.
fn is_structured(content_type: &[u8]) -> bool {
    let media_type = content_type.split(|&byte| byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"application/cloudevents+json")
}
