//! The checks of settings' values. Errors are sentences that go on after the key: "must be ...".

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use weir_core::basis::{
    document::{
        Format, Node, TableEntry, Value,
        value::{self, Parsed, must_be, text, text_up_to, texts},
    },
    memory,
};
use weir_kafka::properties::check;

use super::{Secret, SecretFile, TokenFile, keys::REFUSED_PROPERTIES, layers::Layers, log_filter};
use crate::{authorities::Authorities, files::read_or_say, object_store::Location};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What the process may take: at least what one lane needs, up to 1 TiB.
pub(super) const MEMORY_BYTES: RangeInclusive<u64> = memory::BASE_BYTES + memory::LEAST_LANE_BYTES..=1 << 40;
/// The longest secret, in bytes: a token that signs in is thousands.
pub(super) const MAX_SECRET_BYTES: usize = 64 * 1024;
/// The longest path, in bytes: Linux's. A key of S3 has 1,024 at most.
const MAX_PATH_BYTES: usize = 4096;

pub(super) fn flag(node: &Node, _: &Layers<'_>) -> Parsed<bool> {
    value::flag(node)
}

pub(super) fn name(node: &Node, _: &Layers<'_>) -> Parsed<String> {
    text(node).map(str::to_owned)
}

/// An amount of memory, in bytes: `300MiB`, `1 GB`.
pub(super) fn memory(node: &Node, _: &Layers<'_>) -> Parsed<u64> {
    const UNITS: [(&str, u64); 6] =
        [("kib", 1 << 10), ("mib", 1 << 20), ("gib", 1 << 30), ("kb", 1_000), ("mb", 1_000_000), ("gb", 1_000_000_000)];
    let text = text(node)?;
    let lower = text.to_ascii_lowercase();
    let unit = UNITS.iter().find_map(|(name, unit)| Some((lower.strip_suffix(name)?.trim(), *unit)));
    let bytes = unit.and_then(|(number, unit)| number.parse::<u64>().ok()?.checked_mul(unit));
    let bytes =
        bytes.ok_or_else(|| format!("must be an amount of memory such as \"300MiB\" or \"1GB\", not {text:?}"))?;
    if MEMORY_BYTES.contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("must be from {} MiB to {} MiB, not {text:?}", MEMORY_BYTES.start() >> 20, MEMORY_BYTES.end() >> 20))
}

/// A topic's name, by Kafka's own rule.
pub(super) fn topic(node: &Node, _: &Layers<'_>) -> Parsed<String> {
    let is_topic = |text: &str| text.len() <= 249 && is_plain(text) && text != "." && text != "..";
    text_that(node, is_topic, "a topic's name (1 to 249 letters, digits, \".\", \"_\" or \"-\")")
}

/// A text that is so; else what it must be.
pub(super) fn text_that(node: &Node, is_so: impl Fn(&str) -> bool, must_be: &str) -> Parsed<String> {
    let text = text(node)?;
    if is_so(text) { Ok(text.to_owned()) } else { Err(format!("must be {must_be}, not {text:?}")) }
}

pub(super) fn topics(node: &Node, layers: &Layers<'_>) -> Parsed<Vec<String>> {
    let prefixes = texts(node)?;
    let one = |text: &str| topic(&Node { origin: node.origin.clone(), value: Value::Text(text.to_owned()) }, layers);
    prefixes.into_iter().map(one).collect()
}

/// A table of values by what its keys are.
pub(super) struct EntriesOf {
    pub(super) table: &'static str,
    /// How an entry is written.
    pub(super) entry: &'static str,
}

impl EntriesOf {
    /// Reads the table. Each entry that is wrong is noted.
    pub(super) fn read<K: Ord, T>(
        &self,
        node: &Node,
        layers: &Layers<'_>,
        key: impl Fn(&str) -> Parsed<K>,
        value: impl Fn(&str, &Node) -> Parsed<T>,
    ) -> Parsed<BTreeMap<K, T>> {
        let Self { table, entry } = self;
        let Value::Table(entries) = &node.value else {
            return Err(format!("must be a table: write [{table}] and {entry} below it"));
        };
        let mut read = BTreeMap::new();
        for TableEntry { key: name, origin, node } in entries {
            let found = key(name).map_err(|reason| (origin, reason)).and_then(|key| {
                let value = value(name, node).map_err(|reason| (&node.origin, reason))?;
                Ok((key, value))
            });
            match found {
                Ok((key, value)) => drop(read.insert(key, value)),
                Err((origin, reason)) => layers.document.note(origin, format!("{table}.{name} {reason}")),
            }
        }
        Ok(read)
    }
}

pub(super) fn topics_by_channel(node: &Node, layers: &Layers<'_>) -> Parsed<BTreeMap<String, String>> {
    let entries = EntriesOf { table: "kafka.approved_by_channel", entry: "channel = \"topic\"" };
    entries.read(node, layers, |channel| Ok(channel.to_owned()), |_, node| topic(node, layers))
}

/// What the keys of Redis begin with.
pub(super) fn prefix(node: &Node, _: &Layers<'_>) -> Parsed<String> {
    let is_prefix = |text: &str| text.len() <= 64 && is_plain(text);
    text_that(node, is_prefix, "1 to 64 letters, digits, \"_\", \"-\" or \".\"")
}

/// A name that AWS gives. It becomes a part of URLs.
pub(super) fn aws_name(node: &Node, _: &Layers<'_>) -> Parsed<String> {
    let is_small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text_that(node, |text| !text.is_empty() && text.chars().all(is_small), "small letters, digits or \"-\"")
}

fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

pub(super) fn properties(node: &Node, layers: &Layers<'_>) -> Parsed<BTreeMap<String, Secret>> {
    of_properties("kafka.properties").read(node, layers, property_name, property)
}

pub(super) fn property_files(node: &Node, layers: &Layers<'_>) -> Parsed<BTreeMap<String, SecretFile>> {
    of_properties("kafka.property_files").read(node, layers, property_name, |name, node| {
        let path = path(node, layers)?;
        let secret = read_secret(&path)?;
        check(name, secret.expose())?;
        Ok(SecretFile { secret, path })
    })
}

/// A table of properties of librdkafka.
fn of_properties(table: &'static str) -> EntriesOf {
    EntriesOf { table, entry: "\"name\" = value" }
}

fn property_name(name: &str) -> Parsed<String> {
    match REFUSED_PROPERTIES.iter().find(|(refused, _)| *refused == name) {
        Some((_, reason)) => Err(format!("is for weir to set ({reason}): leave it out")),
        None => Ok(name.to_owned()),
    }
}

fn property(name: &str, node: &Node) -> Parsed<Secret> {
    let value = match &node.value {
        // A PEM has lines.
        Value::Text(text) if text.chars().any(char::is_control) && !name.ends_with(".pem") => {
            return Err("must not have control characters in it, such as a line's end".into());
        }
        Value::Text(text) => text.clone(),
        Value::Whole(number) => number.to_string(),
        Value::Number(number) => number.clone(),
        Value::Flag(flag) => flag.to_string(),
        Value::Null | Value::Date(_) | Value::List(_) => {
            return Err(must_be("a string, number, true or false", node));
        }
        Value::Table(_) => {
            return Err("is a table: put names with dots in quotes, \"security.protocol\" = ...".into());
        }
    };
    check(name, &value)?;
    Ok(Secret::new(value))
}

/// A path, a relative one from the configuration's folder.
pub(super) fn path(node: &Node, layers: &Layers<'_>) -> Parsed<PathBuf> {
    text_up_to(node, MAX_PATH_BYTES).map(|path| layers.folder.join(path))
}

/// A file, relative to the configuration's folder, or `s3://bucket/key`.
pub(super) fn source(node: &Node, layers: &Layers<'_>) -> Parsed<Location> {
    let location =
        Location::parse(text_up_to(node, MAX_PATH_BYTES)?).map_err(|error| format!("is not valid: {error}"))?;
    Ok(location.relative_to(layers.folder))
}

/// A source whose name says how it is read.
pub(super) fn policy_source(node: &Node, layers: &Layers<'_>) -> Parsed<Location> {
    let found = source(node, layers)?;
    let name = found.to_string();
    match Format::of_name(&name) {
        Some(_) => Ok(found),
        None => Err(format!("must end in .toml or .json, which says how it is read; {name:?} does not")),
    }
}

/// A JSON pointer (RFC 6901) to a field.
pub(super) fn pointer(node: &Node, _: &Layers<'_>) -> Parsed<String> {
    let is_escaped = |text: &str| text.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    let must_be = "a JSON pointer such as \"/recipient/id\" (with ~1 for / and ~0 for ~ in a name)";
    text_that(node, |text| text.starts_with('/') && is_escaped(text), must_be)
}

pub(super) fn address(node: &Node, _: &Layers<'_>) -> Parsed<SocketAddr> {
    let text = text(node)?;
    text.parse().map_err(|_| {
        format!("must be an IP address and port, such as \"127.0.0.1:8080\" or \"[::]:8080\", not {text:?}")
    })
}

pub(super) fn filter(node: &Node, _: &Layers<'_>) -> Parsed<String> {
    log_filter::check(text(node)?)
}

/// A secret. Errors never show it.
pub(super) fn secret(node: &Node, _: &Layers<'_>) -> Parsed<Secret> {
    let secret = text_up_to(node, MAX_SECRET_BYTES).map(Secret::new);
    secret.map_err(|_| "must be a string, not empty, of at most 64 KiB and without control characters".into())
}

pub(super) fn secret_file(node: &Node, layers: &Layers<'_>) -> Parsed<PathBuf> {
    let path = path(node, layers)?;
    read_secret(&path)?;
    Ok(path)
}

/// The secret in a file, without the line's end.
pub(super) fn read_secret(path: &Path) -> Parsed<Secret> {
    let name = path.display();
    let bytes = read_or_say(path, MAX_SECRET_BYTES).map_err(|problem| format!("names {name}, which {problem}"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("names {name}, which is not UTF-8"))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("names {name}, which is empty")),
        marked if marked.starts_with('\u{FEFF}') => {
            Err(format!("names {name}, which begins with a byte order mark: save it without one"))
        }
        secret if secret.chars().any(char::is_control) => {
            Err(format!("names {name}, which has more than one line, or control characters"))
        }
        secret => Ok(Secret::new(secret)),
    }
}

/// Bearer tokens, several with commas while one is replaced by another.
pub(super) fn tokens(node: &Node, layers: &Layers<'_>) -> Parsed<Vec<Secret>> {
    bearer_tokens(&secret(node, layers)?)
}

pub(super) fn tokens_file(node: &Node, layers: &Layers<'_>) -> Parsed<TokenFile> {
    let path = path(node, layers)?;
    Ok(TokenFile { tokens: read_tokens(&path)?, path })
}

pub(super) fn read_tokens(path: &Path) -> Parsed<Vec<Secret>> {
    bearer_tokens(&read_secret(path)?)
}

fn bearer_tokens(given: &Secret) -> Parsed<Vec<Secret>> {
    // What may stand behind `Bearer ` in a header.
    let is_token68 = |text: &str| {
        let body = text.trim_end_matches('=');
        !body.is_empty() && body.chars().all(|c| c.is_ascii_alphanumeric() || "-._~+/".contains(c))
    };
    let tokens: Vec<&str> = given.expose().split(',').map(str::trim).collect();
    if tokens.iter().all(|token| is_token68(token)) {
        return Ok(tokens.into_iter().map(Secret::new).collect());
    }
    Err("must be letters, digits and -._~+/ with = at the end at most, as a bearer token has to be (RFC 6750), or several \
         such with commas"
        .into())
}

pub(super) fn authorities(node: &Node, layers: &Layers<'_>) -> Parsed<Authorities> {
    let path = path(node, layers)?;
    Authorities::read(&path).map_err(|error| format!("names {}, which {error}", path.display()))
}
