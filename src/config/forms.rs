//! Which values a setting may have: its check, and what the documentation and the schema say of it, declared together.

use std::{
    collections::BTreeMap, net::SocketAddr, num::NonZeroU32, ops::RangeInclusive, path::PathBuf, time::Duration,
};

use weir_core::basis::document::{
    Node,
    value::{DURATION_PATTERN, Parsed, duration, duration_or_zero, in_words, one_of, whole},
};

use super::{Secret, SecretFile, TokenFile, layers::Layers, urls, values};
use crate::{authorities::Authorities, object_store::Location};

/// What a setting's value looks like in the file. (A variable is always text; lists have commas in it.) A pattern is a regular
/// expression: a value that does not match it is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    Text(Option<&'static str>),
    /// A string that is never printed.
    Secret,
    /// A file's path, relative to the configuration's folder, or `s3://bucket/key`.
    Path(Option<&'static str>),
    Word(Vec<&'static str>),
    Whole(RangeInclusive<u64>),
    Flag,
    /// A length of time: "60s".
    Duration(RangeInclusive<Duration>),
    /// An amount of memory: "300MiB".
    Bytes(RangeInclusive<u64>),
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
    /// Whether a default or a variable is written without quotes in the file.
    pub(super) fn is_bare(&self) -> bool {
        matches!(self, Self::Whole(_) | Self::Flag)
    }

    /// Whether the setting is a table, each of whose entries has a variable of its own.
    pub fn has_entries(&self) -> bool {
        matches!(self, Self::TextsByName(_) | Self::Properties | Self::PropertyPaths | Self::PathsById)
    }

    /// The bounds of a value, in words: `1m to 3660d`.
    pub fn bounds(&self) -> Option<String> {
        let [least, most] = if let Self::Whole(range) = self {
            [range.start(), range.end()].map(u64::to_string)
        } else if let Self::Duration(range) = self {
            [*range.start(), *range.end()].map(length_in_words)
        } else if let Self::Bytes(range) = self {
            [*range.start(), *range.end()].map(bytes_in_words)
        } else {
            return None;
        };
        Some(format!("{least} to {most}"))
    }

    /// The pattern of a value, or of each value of a list or table.
    pub fn pattern(&self) -> Option<&'static str> {
        if let Self::Text(pattern) | Self::Path(pattern) | Self::Texts(pattern) | Self::TextsByName(pattern) = self {
            *pattern
        } else if matches!(self, Self::Duration(_)) {
            Some(DURATION_PATTERN)
        } else {
            matches!(self, Self::Bytes(_)).then_some("^[0-9]+ *[kKmMgG][iI]?[bB]$")
        }
    }
}

fn length_in_words(length: Duration) -> String {
    in_words(i64::try_from(length.as_millis()).unwrap_or(i64::MAX))
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

/// A whole number within bounds.
pub(super) fn whole_in<T: TryFrom<u64>>(least: u64, most: u64) -> Check<impl Read<T>> {
    let read = move |node: &Node, _: &Layers<'_>| -> Parsed<T> {
        let number = whole(node, least..=most)?;
        T::try_from(number).map_err(|_| format!("must be a smaller number than {number}"))
    };
    Check { form: Form::Whole(least..=most), read }
}

/// A whole number; 0 means that there is no limit.
pub(super) fn no_limit_at_0(most: u32) -> Check<impl Read<Option<NonZeroU32>>> {
    let read = move |node: &Node, _: &Layers<'_>| whole(node, 0..=most).map(NonZeroU32::new);
    Check { form: Form::Whole(0..=most.into()), read }
}

pub(super) fn non_zero_in(most: u32) -> Check<impl Read<NonZeroU32>> {
    let read = move |node: &Node, _: &Layers<'_>| {
        whole(node, 1..=most).map(|number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
    };
    Check { form: Form::Whole(1..=most.into()), read }
}

pub(super) fn word<T: Copy>(words: &'static [(&'static str, T)]) -> Check<impl Read<T>> {
    let form = Form::Word(words.iter().map(|(word, _)| *word).collect());
    Check { form, read: move |node: &Node, _: &Layers<'_>| one_of(node, words) }
}

pub(super) fn between(least: Duration, most: Duration) -> Check<impl Read<Duration>> {
    let read = move |node: &Node, _: &Layers<'_>| -> Parsed<Duration> {
        let found = if least.is_zero() { duration_or_zero(node)? } else { duration(node)? };
        if (least..=most).contains(&found) {
            return Ok(found);
        }
        let [least, most, found] = [least, most, found].map(length_in_words);
        Err(format!("must be from {least} to {most}, not {found}"))
    };
    Check { form: Form::Duration(least..=most), read }
}

/// A check that needs no bounds.
pub(super) type ValueCheck<T> = Check<fn(&Node, &Layers<'_>) -> Parsed<T>>;

const BROKERS_PATTERN: &str =
    r"^\s*(\[[^\]\s,]+\]|[A-Za-z0-9._-]+)(:[0-9]+)?\s*(,\s*(\[[^\]\s,]+\]|[A-Za-z0-9._-]+)(:[0-9]+)?\s*)*$";
const TOPIC_PATTERN: Option<&str> = Some("^[A-Za-z0-9._-]{1,249}$");

pub(super) const TEXT: ValueCheck<String> = Check { form: Form::Text(None), read: values::name };
pub(super) const FLAG: ValueCheck<bool> = Check { form: Form::Flag, read: values::flag };
pub(super) const MEMORY: ValueCheck<u64> = Check { form: Form::Bytes(values::MEMORY_BYTES), read: values::memory };
pub(super) const BROKERS: ValueCheck<String> = Check { form: Form::Text(Some(BROKERS_PATTERN)), read: urls::brokers };
pub(super) const TOPIC: ValueCheck<String> = Check { form: Form::Text(TOPIC_PATTERN), read: values::topic };
pub(super) const TOPICS: ValueCheck<Vec<String>> = Check { form: Form::Texts(TOPIC_PATTERN), read: values::topics };
pub(super) const TOPICS_BY_CHANNEL: ValueCheck<BTreeMap<String, String>> =
    Check { form: Form::TextsByName(TOPIC_PATTERN), read: values::topics_by_channel };
pub(super) const PREFIX: ValueCheck<String> =
    Check { form: Form::Text(Some("^[A-Za-z0-9._-]{1,64}$")), read: values::prefix };
pub(super) const AWS_NAME: ValueCheck<String> =
    Check { form: Form::Text(Some("^[a-z0-9-]+$")), read: values::aws_name };
pub(super) const PROPERTIES: ValueCheck<BTreeMap<String, Secret>> =
    Check { form: Form::Properties, read: values::properties };
pub(super) const PROPERTY_FILES: ValueCheck<BTreeMap<String, SecretFile>> =
    Check { form: Form::PropertyPaths, read: values::property_files };
pub(super) const NODES: ValueCheck<Vec<Secret>> = Check { form: Form::Texts(Some("^rediss?://.")), read: urls::nodes };
pub(super) const PATH: ValueCheck<PathBuf> = Check { form: Form::Path(None), read: values::path };
pub(super) const SOURCE: ValueCheck<Location> = Check { form: Form::Path(None), read: values::source };
pub(super) const POLICY_SOURCE: ValueCheck<Location> =
    Check { form: Form::Path(Some(r"\.([Tt][Oo][Mm][Ll]|[Jj][Ss][Oo][Nn])$")), read: values::policy_source };
pub(super) const HTTP_URL: ValueCheck<String> =
    Check { form: Form::Text(Some("^https?://[^?#]+$")), read: urls::http_url };
pub(super) const POINTER: ValueCheck<String> =
    Check { form: Form::Text(Some("^/([^~]|~[01])*$")), read: values::pointer };
pub(super) const ADDRESS: ValueCheck<SocketAddr> =
    Check { form: Form::Text(Some(r"^([0-9.]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$")), read: values::address };
pub(super) const FILTER: ValueCheck<String> = Check { form: Form::Text(None), read: values::filter };
pub(super) const SECRET: ValueCheck<Secret> = Check { form: Form::Secret, read: values::secret };
pub(super) const SECRET_FILE: ValueCheck<PathBuf> = Check { form: Form::Path(None), read: values::secret_file };
pub(super) const TOKENS: ValueCheck<Vec<Secret>> = Check { form: Form::Secret, read: values::tokens };
pub(super) const TOKENS_FILE: ValueCheck<TokenFile> = Check { form: Form::Path(None), read: values::tokens_file };
pub(super) const AUTHORITIES: ValueCheck<Authorities> = Check { form: Form::Path(None), read: values::authorities };
