//! Which values a setting may have: its check, and what the documentation and the schema say of it, declared together.

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use weir_core::basis::document::{
    Node,
    value::{DURATION_PATTERN, Parsed, in_words},
};

use super::{Secret, SecretFile, TokenFile, layers::Layers, urls, values};
use crate::{authorities::Authorities, object_store::Location};

/// What a setting's value looks like in the file. (A variable is always text; lists have commas in it.) A pattern is a regular
/// expression: a value that does not match it is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// A string.
    Text(Option<&'static str>),
    /// A string that is never printed.
    Secret,
    /// A file's path, relative to the configuration's folder, or `s3://bucket/key`.
    Path(Option<&'static str>),
    /// One of these words.
    Word(Vec<&'static str>),
    /// A whole number.
    Whole {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// true or false.
    Flag,
    /// A length of time: "60s".
    Duration {
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// An amount of memory: "300MiB".
    Bytes {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A list of strings.
    Texts(Option<&'static str>),
    /// A table of strings by names. A variable may give one whose name is in small letters.
    TextsByName(Option<&'static str>),
    /// A table of properties of librdkafka. A variable may give one, with `_` for `.` in its name.
    Properties,
    /// A table of paths by such properties. A variable may give one likewise.
    PropertyPaths,
    /// A table of paths by ids, which are whole numbers. A variable may give one.
    PathsById,
}

impl Form {
    /// Whether the setting is a table, each of whose entries has a variable of its own.
    #[must_use]
    pub fn has_entries(&self) -> bool {
        matches!(self, Self::TextsByName(_) | Self::Properties | Self::PropertyPaths | Self::PathsById)
    }

    /// The bounds of a value, in words: `1m to 3660d`.
    #[must_use]
    pub fn bounds(&self) -> Option<String> {
        let millis = |length: &Duration| in_words(i64::try_from(length.as_millis()).unwrap_or(i64::MAX));
        match self {
            Self::Whole { least, most } => Some(format!("{least} to {most}")),
            Self::Duration { least, most } => Some(format!("{} to {}", millis(least), millis(most))),
            Self::Bytes { least, most } => Some(format!("{} to {}", bytes_in_words(*least), bytes_in_words(*most))),
            Self::Text(_)
            | Self::Secret
            | Self::Path(_)
            | Self::Word(_)
            | Self::Flag
            | Self::Texts(_)
            | Self::TextsByName(_)
            | Self::Properties
            | Self::PropertyPaths
            | Self::PathsById => None,
        }
    }

    /// The pattern of a value, or of each value of a list or table.
    #[must_use]
    pub fn pattern(&self) -> Option<&'static str> {
        match self {
            Self::Text(pattern) | Self::Path(pattern) | Self::Texts(pattern) | Self::TextsByName(pattern) => *pattern,
            Self::Duration { .. } => Some(DURATION_PATTERN),
            Self::Bytes { .. } => Some("^[0-9]+ *[kKmMgG][iI]?[bB]$"),
            Self::Secret
            | Self::Word(_)
            | Self::Whole { .. }
            | Self::Flag
            | Self::Properties
            | Self::PropertyPaths
            | Self::PathsById => None,
        }
    }
}

/// In the largest unit that leaves no rest, MiB at least.
fn bytes_in_words(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30)];
    let unit = units.into_iter().find(|(_, shift)| bytes.is_multiple_of(1 << shift));
    let (name, shift) = unit.unwrap_or(("MiB", 20));
    format!("{}{name}", bytes >> shift)
}

/// The form of a setting, and the check that keeps to it.
pub(super) struct Check<F> {
    pub(super) form: Form,
    pub(super) read: F,
}

/// A function that turns a node into a setting's value.
pub(super) trait Read<T>: Fn(&Node, &Layers<'_>) -> Parsed<T> {}
impl<T, F: Fn(&Node, &Layers<'_>) -> Parsed<T>> Read<T> for F {}

/// A string.
pub(super) fn text() -> Check<impl Read<String>> {
    Check { form: Form::Text(None), read: values::name }
}

/// true or false.
pub(super) fn flag() -> Check<impl Read<bool>> {
    Check { form: Form::Flag, read: values::flag }
}

/// A whole number within bounds.
pub(super) fn whole_in<T: TryFrom<u64>>(least: u64, most: u64) -> Check<impl Read<T>> {
    Check { form: Form::Whole { least, most }, read: values::whole_in(least, most) }
}

/// A whole number; 0 means that there is no limit.
pub(super) fn no_limit_at_0(most: u32) -> Check<impl Read<Option<NonZeroU32>>> {
    Check { form: Form::Whole { least: 0, most: most.into() }, read: values::no_limit_at_0(most) }
}

/// A whole number above 0.
pub(super) fn non_zero_in(most: u32) -> Check<impl Read<NonZeroU32>> {
    Check { form: Form::Whole { least: 1, most: most.into() }, read: values::non_zero_in(most) }
}

/// One of some words.
pub(super) fn word<T: Copy>(words: &'static [(&'static str, T)]) -> Check<impl Read<T>> {
    Check { form: Form::Word(words.iter().map(|(word, _)| *word).collect()), read: values::word(words) }
}

/// A length of time within bounds.
pub(super) fn between(least: Duration, most: Duration) -> Check<impl Read<Duration>> {
    Check { form: Form::Duration { least, most }, read: values::between(least, most) }
}

/// The memory of the process: at least what one lane needs, up to 1 TiB.
pub(super) fn memory() -> Check<impl Read<u64>> {
    let range = values::memory();
    Check { form: Form::Bytes { least: *range.start(), most: *range.end() }, read: values::bytes_in(range) }
}

/// Brokers.
pub(super) fn brokers() -> Check<impl Read<String>> {
    const BROKERS: &str =
        r"^\s*(\[[^\]\s,]+\]|[A-Za-z0-9._-]+)(:[0-9]+)?\s*(,\s*(\[[^\]\s,]+\]|[A-Za-z0-9._-]+)(:[0-9]+)?\s*)*$";
    Check { form: Form::Text(Some(BROKERS)), read: urls::brokers }
}

/// A topic's name, by Kafka's own rule.
const TOPIC: Option<&str> = Some("^[A-Za-z0-9._-]{1,249}$");

/// A topic's name.
pub(super) fn topic() -> Check<impl Read<String>> {
    Check { form: Form::Text(TOPIC), read: values::topic }
}

/// The prefixes of topics.
pub(super) fn topics() -> Check<impl Read<Vec<String>>> {
    Check { form: Form::Texts(TOPIC), read: values::topics }
}

/// The prefix of the keys of Redis.
pub(super) fn prefix() -> Check<impl Read<String>> {
    Check { form: Form::Text(Some("^[A-Za-z0-9._-]{1,64}$")), read: values::prefix }
}

/// A name that AWS gives, as that of a region.
pub(super) fn aws_name() -> Check<impl Read<String>> {
    Check { form: Form::Text(Some("^[a-z0-9-]+$")), read: values::aws_name }
}

/// Properties of librdkafka.
pub(super) fn properties() -> Check<impl Read<BTreeMap<String, Secret>>> {
    Check { form: Form::Properties, read: values::properties }
}

/// A file for each property of librdkafka.
pub(super) fn property_files() -> Check<impl Read<BTreeMap<String, SecretFile>>> {
    Check { form: Form::PropertyPaths, read: values::property_files }
}

/// A topic for each channel.
pub(super) fn topics_by_channel() -> Check<impl Read<BTreeMap<String, String>>> {
    Check { form: Form::TextsByName(TOPIC), read: values::topics_by_channel }
}

/// URLs of Redis.
pub(super) fn nodes() -> Check<impl Read<Vec<Secret>>> {
    Check { form: Form::Texts(Some("^rediss?://.")), read: urls::nodes }
}

/// A path.
pub(super) fn path() -> Check<impl Read<PathBuf>> {
    Check { form: Form::Path(None), read: values::path }
}

/// A file, or an object of S3.
pub(super) fn source() -> Check<impl Read<Location>> {
    Check { form: Form::Path(None), read: values::source }
}

/// A source whose name says how it is read.
pub(super) fn policy_source() -> Check<impl Read<Location>> {
    Check { form: Form::Path(Some(r"\.([Tt][Oo][Mm][Ll]|[Jj][Ss][Oo][Nn])$")), read: values::policy_source }
}

/// A URL of HTTP.
pub(super) fn http_url() -> Check<impl Read<String>> {
    Check { form: Form::Text(Some("^https?://[^?#]+$")), read: urls::http_url }
}

/// A JSON pointer.
pub(super) fn pointer() -> Check<impl Read<String>> {
    Check { form: Form::Text(Some("^/([^~]|~[01])*$")), read: values::pointer }
}

/// An IP address and port.
pub(super) fn address() -> Check<impl Read<SocketAddr>> {
    Check { form: Form::Text(Some(r"^([0-9.]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$")), read: values::address }
}

/// A filter of log lines.
pub(super) fn filter() -> Check<impl Read<String>> {
    Check { form: Form::Text(None), read: values::filter }
}

/// A secret.
pub(super) fn secret() -> Check<impl Read<Secret>> {
    Check { form: Form::Secret, read: values::secret }
}

/// The secret in a file.
pub(super) fn secret_file() -> Check<impl Read<PathBuf>> {
    Check { form: Form::Path(None), read: values::secret_file }
}

/// Bearer tokens.
pub(super) fn tokens() -> Check<impl Read<Vec<Secret>>> {
    Check { form: Form::Secret, read: values::tokens }
}

/// The bearer tokens in a file.
pub(super) fn tokens_file() -> Check<impl Read<TokenFile>> {
    Check { form: Form::Path(None), read: values::tokens_file }
}

/// The certificate authorities in a file.
pub(super) fn authorities() -> Check<impl Read<Authorities>> {
    Check { form: Form::Path(None), read: values::authorities }
}
